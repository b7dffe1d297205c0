//! Keys of partitions are queued under the partitioned table at the top, by its range key.

use crate::pg::per_table::PerTable;
use crate::pg::{lookup, raw};
use crate::range_occ::key::{self, Table};
use keyrange::{Interval, Relation};
use pgrx::pg_sys::{self, Datum, Oid};
use std::ffi::CStr;

/// The partitioned table at the top, and whether the partition has its range key.
static ROOTS: PerTable<(Oid, bool), 256> = PerTable::new();

/// The relation under whose name the table's keys are declared, and whether the table has that
/// relation's range key. A partition's replica identity may be another index.
///
/// # Safety
/// `rel` is open and locked; nothing with a destructor is alive in the callers.
#[inline]
pub unsafe fn root_of(rel: pg_sys::Relation) -> (Relation, bool) {
    // SAFETY: by the contract.
    unsafe {
        let oid = (*rel).rd_id;
        if !(*(*rel).rd_rel).relispartition {
            return (key::relation_of(oid), true);
        }
        let (root, has_its_key) = ROOTS.get(oid, || {
            let root = lookup::root_of(oid);
            (root, has_key_of(oid, root))
        });
        (key::relation_of(root), has_its_key)
    }
}

/// The relation and the keys under which these of a table, which a transaction has used, are
/// declared.
///
/// # Safety
/// In a transaction; nothing with a destructor is alive in the callers.
pub unsafe fn under_root(relation: Relation, keys: Interval) -> (Relation, Interval) {
    let oid = key::oid_of(relation);
    // SAFETY: by the contract; the oid itself, if the table is gone.
    unsafe {
        let root = lookup::root_of(oid);
        let has_its_key = root == oid || has_key_of(oid, root);
        let keys = if has_its_key { keys } else { Interval::ALL };
        (key::relation_of(root), keys)
    }
}

/// Whether both have the same columns in their range keys. False if one of them is gone.
///
/// # Safety
/// In a transaction; nothing with a destructor is alive in the callers. Neither need be locked:
/// whoever changes a key invalidates what is remembered.
pub unsafe fn has_key_of(oid: Oid, root: Oid) -> bool {
    // SAFETY: relcache entries are valid while they are open.
    unsafe {
        let rel = raw::RelationIdGetRelation(oid);
        if rel.is_null() {
            return false;
        }
        let top = raw::RelationIdGetRelation(root);
        let is_same = !top.is_null() && have_same_key((rel, &key::of(rel)), (top, &key::of(top)));
        if !top.is_null() {
            raw::RelationClose(top);
        }
        raw::RelationClose(rel);
        is_same
    }
}

/// # Safety
/// Both are open, with what is known of them.
unsafe fn have_same_key(
    one: (pg_sys::Relation, &Table),
    other: (pg_sys::Relation, &Table),
) -> bool {
    // SAFETY: by the contract; names are C strings.
    let name = |rel: pg_sys::Relation, number: i16| unsafe {
        let attributes = (*(*rel).rd_att).attrs.as_ptr();
        let attribute = &*attributes.add(number as usize - 1);
        CStr::from_ptr(attribute.attname.data.as_ptr())
    };
    let mut columns = one.1.columns.iter().zip(&other.1.columns);
    one.1.columns.len() == other.1.columns.len()
        && one.1.layout == other.1.layout
        && columns.all(|(column, of_other)| {
            column.has_images_of(of_other)
                && name(one.0, column.number) == name(other.0, of_other.number)
        })
}

/// A relcache entry is not valid any more: that of a partition, or of the table at the top.
pub unsafe extern "C-unwind" fn at_invalidation(_arg: Datum, _relation: Oid) {
    ROOTS.forget(Oid::INVALID);
}
