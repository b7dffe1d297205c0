//! Lifting constants into arguments. Some sessions write their numbers as literals; others have
//! plans that are made anew for each execution, with the arguments as constants. The statements of
//! such sessions differ only in the constants.

use super::expression::is_cast;
use super::{Clock, PARAMETERS, values};
use crate::pg::nodes::{nodes, nth, tag};
use crate::pg::raw;
use hotrow::ARGUMENT_BYTES;
use pgrx::pg_sys::{self, Node, NodeTag, ParamExternData, ParamListInfo, ParamListInfoData};
use std::ffi::c_void;

/// The statement's constants, as they are lifted.
struct Lifting {
    values: [ParamExternData; PARAMETERS],
    count: usize,
    /// Parameters that the query has already. A plan that is used once has their values as
    /// constants.
    own: usize,
    /// Bytes that are left for arguments.
    room: usize,
}

/// Whether the plan of the statement that is about to be started is made for this execution, so
/// that its constants can be lifted.
///
/// # Safety
/// The statement is a portal's.
pub unsafe fn applies() -> bool {
    // SAFETY: by the contract.
    unsafe { is_used_once(pg_sys::ActivePortal) }
}

/// Makes the constants of a plain UPDATE's expressions parameters of the query, up to as many as a
/// form may have; not those by which an index finds the row. The plan must be used only once: it is
/// changed.
///
/// # Safety
/// `query` is about to be started, with its portal's only statement.
pub unsafe fn constants(query: *mut pg_sys::QueryDesc) {
    // SAFETY: by the contract; every node is checked by its tag.
    unsafe {
        let params = (*query).params;
        let plan = (*query).plannedstmt;
        let top = (*plan).planTree;
        if !is_used_once(pg_sys::ActivePortal)
            || !are_plain(params)
            || tag(top) != NodeTag::T_ModifyTable
            || !matches!(
                tag((*top).lefttree),
                NodeTag::T_IndexScan | NodeTag::T_SeqScan
            )
        {
            return;
        }
        let own = if params.is_null() {
            0
        } else {
            (*params).numParams as usize
        };
        let mut lifting = Lifting {
            values: [ParamExternData::default(); PARAMETERS],
            count: 0,
            own,
            room: ARGUMENT_BYTES - size_of::<Clock>(),
        };
        let scan = (*top).lefttree;
        lifting.entries((*scan).targetlist);
        lifting.conditions((*scan).qual);
        if (*plan).hasReturning {
            let lists = (*top.cast::<pg_sys::ModifyTable>()).returningLists;
            lifting.entries(nth(lists, 0));
        }
        if lifting.count > 0 {
            (*query).params = lifting.extended(params);
        }
    }
}

/// Whether the portal's plan is made for this execution: that of a simple query, or a cached one
/// that its cache does not keep (plancache.c: GetCachedPlan).
unsafe fn is_used_once(portal: pg_sys::Portal) -> bool {
    // SAFETY: the active portal.
    unsafe {
        let cached = (*portal).cplan;
        cached.is_null() || (*cached).refcount == 1
    }
}

/// Whether all parameters are there, as plain values.
unsafe fn are_plain(params: ParamListInfo) -> bool {
    // SAFETY: a query's parameters, or null.
    unsafe {
        params.is_null() || (*params).paramFetch.is_none() && (*params).paramCompile.is_none()
    }
}

impl Lifting {
    unsafe fn entries(&mut self, list: *const pg_sys::List) {
        // SAFETY: a target list.
        unsafe {
            for entry in nodes(list) {
                let entry = entry.cast::<pg_sys::TargetEntry>();
                if !(*entry).resjunk {
                    (*entry).expr = self.lifted((*entry).expr.cast()).cast();
                }
            }
        }
    }

    unsafe fn conditions(&mut self, list: *mut pg_sys::List) {
        // SAFETY: a list of expressions, or null.
        unsafe {
            for n in 0..crate::pg::nodes::length(list) {
                let cell = (*list).elements.add(n);
                (*cell).ptr_value = self.lifted((*cell).ptr_value.cast()).cast();
            }
        }
    }

    unsafe fn lifted(&mut self, node: *mut Node) -> *mut Node {
        // SAFETY: an expression; the copy is made in the memory of the statement.
        unsafe { lift(node, (&raw mut *self).cast()) }
    }

    /// The parameter that takes the constant's place, if it is lifted.
    unsafe fn parameter(&mut self, constant: &pg_sys::Const) -> Option<*mut Node> {
        if constant.constisnull || self.count == PARAMETERS {
            return None;
        }
        // SAFETY: a constant of the plan, not null.
        let room = unsafe { values::room(constant.consttype, constant.constvalue)? };
        self.room = self.room.checked_sub(room)?;
        self.values[self.count] = ParamExternData {
            value: constant.constvalue,
            isnull: false,
            pflags: pg_sys::PARAM_FLAG_CONST as u16,
            ptype: constant.consttype,
        };
        self.count += 1;
        // SAFETY: zeroed memory is a node without a tag.
        unsafe {
            let param = raw::palloc0(size_of::<pg_sys::Param>()).cast::<pg_sys::Param>();
            (*param).xpr.type_ = NodeTag::T_Param;
            (*param).paramkind = pg_sys::ParamKind::PARAM_EXTERN;
            (*param).paramid = (self.own + self.count) as i32;
            (*param).paramtype = constant.consttype;
            (*param).paramtypmod = constant.consttypmod;
            (*param).paramcollid = constant.constcollid;
            (*param).location = -1;
            Some(param.cast())
        }
    }

    /// The query's own parameters and the new ones.
    unsafe fn extended(&self, own: ParamListInfo) -> ParamListInfo {
        // SAFETY: as makeParamList.
        unsafe {
            let all = self.own + self.count;
            let size = std::mem::offset_of!(ParamListInfoData, params)
                + all * size_of::<ParamExternData>();
            let list = raw::palloc0(size).cast::<ParamListInfoData>();
            let places = (*list).params.as_mut_ptr();
            if !own.is_null() {
                std::ptr::copy_nonoverlapping((*own).params.as_ptr(), places, self.own);
            }
            std::ptr::copy_nonoverlapping(self.values.as_ptr(), places.add(self.own), self.count);
            (*list).numParams = all as i32;
            list
        }
    }
}

/// Copies an expression, with parameters in place of its constants (nodeFuncs.c:
/// expression_tree_mutator).
///
/// # Safety
/// `context` is a `Lifting`.
unsafe extern "C-unwind" fn lift(node: *mut Node, context: *mut c_void) -> *mut Node {
    // SAFETY: the caller's context is a `Lifting`, and the walker gives nodes that are valid or
    // null.
    unsafe {
        if node.is_null() {
            return node;
        }
        if tag(node) == NodeTag::T_Const {
            let lifting = &mut *context.cast::<Lifting>();
            return match lifting.parameter(&*node.cast()) {
                Some(parameter) => parameter,
                None => node,
            };
        }
        if tag(node) == NodeTag::T_FuncExpr && is_cast(&*node.cast()) {
            return lift_first(&*node.cast(), context).cast();
        }
        raw::expression_tree_mutator_impl(node, Some(lift), context)
    }
}

/// Copies a cast. To which length it casts never differs.
unsafe fn lift_first(call: &pg_sys::FuncExpr, context: *mut c_void) -> *mut pg_sys::FuncExpr {
    // SAFETY: by `lift`'s contract; a cast has an argument.
    unsafe {
        let copy = raw::palloc0(size_of::<pg_sys::FuncExpr>()).cast::<pg_sys::FuncExpr>();
        *copy = *call;
        (*copy).args = raw::list_copy(call.args);
        let first = (*(*copy).args).elements;
        (*first).ptr_value = lift((*first).ptr_value.cast(), context).cast();
        copy
    }
}
