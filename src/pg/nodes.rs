//! Lists and nodes of parse trees and plans (nodes/pg_list.h, nodes/nodes.h).

use pgrx::pg_sys::{self, NodeTag, Oid};

/// list_nth for the pointer lists that are walked here.
pub unsafe fn nth<T>(list: *const pg_sys::List, n: usize) -> *mut T {
    // SAFETY: the caller checked the length.
    unsafe { (*(*list).elements.add(n)).ptr_value.cast() }
}

/// The length of a list; null is an empty one.
pub unsafe fn length(list: *const pg_sys::List) -> usize {
    // SAFETY: null or a valid list.
    unsafe {
        if list.is_null() {
            0
        } else {
            (*list).length as usize
        }
    }
}

/// The node's tag; that of null is `T_Invalid`.
pub unsafe fn tag<T>(node: *const T) -> NodeTag {
    // SAFETY: null or a node.
    unsafe {
        if node.is_null() {
            NodeTag::T_Invalid
        } else {
            (*node.cast::<pg_sys::Node>()).type_
        }
    }
}

/// Elements of a list of nodes.
#[inline]
pub unsafe fn nodes(list: *const pg_sys::List) -> impl Iterator<Item = *mut pg_sys::Node> {
    // SAFETY: null or a valid list that outlives the iteration.
    unsafe { (0..length(list)).map(move |n| nth(list, n)) }
}

/// Elements of a list of OIDs.
pub unsafe fn oids(list: *const pg_sys::List) -> impl Iterator<Item = Oid> {
    // SAFETY: null or a valid list that outlives the iteration.
    unsafe { (0..length(list)).map(move |n| (*(*list).elements.add(n)).oid_value) }
}

/// Elements of a list of integers.
pub unsafe fn numbers(list: *const pg_sys::List) -> impl Iterator<Item = u32> {
    // SAFETY: null or a valid list that outlives the iteration.
    unsafe { (0..length(list)).map(move |n| (*(*list).elements.add(n)).int_value as u32) }
}

/// The range table entry's relation.
pub unsafe fn relation_of(plan: *const pg_sys::PlannedStmt, index: u32) -> Oid {
    // SAFETY: an index of the plan's range table.
    unsafe {
        let at = index as usize;
        if at == 0 || at > length((*plan).rtable) {
            return Oid::INVALID;
        }
        (*nth::<pg_sys::RangeTblEntry>((*plan).rtable, at - 1)).relid
    }
}
