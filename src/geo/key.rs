//! Whether a direct modification names one row by its key.

use super::exchange::in_c;
use super::server::{option_of, options};
use crate::pg::nodes::{length, nodes, nth, tag};
use pgrx::pg_sys::{self, ForeignScan, Node, NodeTag, OpExpr, Relation};

/// The columns that the table's option `key` names; none without it.
///
/// # Safety
/// `relation` is a foreign table, and open.
pub unsafe fn key_columns(relation: Relation) -> Vec<i16> {
    // SAFETY: by the contract; catalog look-ups.
    unsafe {
        let table = (*relation).rd_id;
        let own = options((*pg_sys::GetForeignTable(table)).options);
        let column = |name: &str| pg_sys::get_attnum(table, in_c(name.trim()).as_ptr());
        option_of(&own, "key")
            .map(|names| names.split(',').map(column).collect())
            .unwrap_or_default()
    }
}

/// Whether all that the modification says of its row is one equality for each column of the key:
/// then it changes one row, if that row is there.
///
/// # Safety
/// The plan of a direct modification, and its table, which is open.
pub unsafe fn names_one_row(plan: *const ForeignScan, relation: Relation) -> bool {
    // SAFETY: the caller's plan is a direct modification of the table, which is open.
    unsafe {
        // What the node filters by: for a scan of one table, the plan has it once more.
        let conditions = (*plan).fdw_recheck_quals;
        let mut missing = key_columns(relation);
        if (*plan).scan.scanrelid == 0
            || missing.is_empty()
            || missing.len() != length(conditions)
            || !(*plan).scan.plan.qual.is_null()
        {
            return false;
        }
        for condition in nodes(conditions) {
            let Some(column) = equality(condition, (*plan).scan.scanrelid) else {
                return false;
            };
            let Some(at) = missing.iter().position(|one| *one == column) else {
                return false;
            };
            missing.swap_remove(at);
        }
        true
    }
}

/// The column that the condition says is equal to something which is known without the row.
unsafe fn equality(condition: *mut Node, table: pg_sys::Index) -> Option<i16> {
    // SAFETY: an expression of a plan.
    unsafe {
        if tag(condition) != NodeTag::T_OpExpr {
            return None;
        }
        let operator = condition.cast::<OpExpr>();
        if length((*operator).args) != 2 || !is_equality((*operator).opno) {
            return None;
        }
        let sides = [nth::<Node>((*operator).args, 0), nth((*operator).args, 1)];
        let (own, other) = match column_of(sides[0], table) {
            Some(column) => (column, sides[1]),
            None => (column_of(sides[1], table)?, sides[0]),
        };
        (!pg_sys::contain_var_clause(other)).then_some(own)
    }
}

/// Whether a btree operator family says that the operator is equality.
///
/// # Safety
/// None: a catalog look-up.
pub unsafe fn is_equality(operator: pg_sys::Oid) -> bool {
    // SAFETY: a catalog look-up; its list is of OpBtreeInterpretation.
    unsafe {
        let found = pg_sys::get_op_btree_interpretation(operator);
        (0..length(found)).any(|n| {
            let one: *mut pg_sys::OpBtreeInterpretation = nth(found, n);
            (*one).strategy as u32 == pg_sys::BTEqualStrategyNumber
        })
    }
}

/// The column of the table that the expression is, perhaps as another type with the same values.
///
/// # Safety
/// `expression` is an expression of a plan.
pub unsafe fn column_of(mut expression: *mut Node, table: pg_sys::Index) -> Option<i16> {
    // SAFETY: an expression of a plan.
    unsafe {
        while tag(expression) == NodeTag::T_RelabelType {
            expression = (*expression.cast::<pg_sys::RelabelType>()).arg.cast();
        }
        if tag(expression) != NodeTag::T_Var {
            return None;
        }
        let variable = expression.cast::<pg_sys::Var>();
        ((*variable).varno as u32 == table).then_some((*variable).varattno)
    }
}
