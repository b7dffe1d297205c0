//! Which partition takes a row of `INSERT ... ON CONFLICT DO UPDATE`, before the executor uses it.
//!
//! The executor opens a partition when the first row comes that goes to it (execPartition.c:
//! ExecFindPartition), and no hook tells. So we stand between the ModifyTable node and the plan
//! that its rows come from: for each row we ask ExecFindPartition, and pass the row on. The executor
//! asks again, and finds the partition open.

use super::error::Report;
use super::local::Local;
use super::nodes::{nodes, tag};
use super::{raw, slot};
use pgrx::pg_sys::{self, ModifyTableState, NodeTag, PlanState, QueryDesc, ResultRelInfo};
use std::cell::RefCell;

/// Is told of the partition to which a row of the statement goes.
type Tell = unsafe fn(query: *mut QueryDesc, partition: *mut ResultRelInfo);

#[derive(Clone, Copy)]
struct Routed {
    query: *mut QueryDesc,
    modify: *mut ModifyTableState,
    /// The plan that the rows come from, and its own way to get the next one.
    source: *mut PlanState,
    next: pg_sys::ExecProcNodeMtd,
    /// A row with the columns of the partitioned table.
    row: *mut pg_sys::TupleTableSlot,
    tell: Tell,
}

const NOT_WATCHED: Report = Report {
    code: *b"XX000",
    message: c"could not route a row: its statement has ended",
    detail: None,
    hint: None,
};

static ROUTED: Local<RefCell<Vec<Routed>>> = Local::new(RefCell::new(Vec::new()));

/// Watches the rows that the statement routes to partitions, and that may be there already.
///
/// # Safety
/// A started statement, none of whose rows has been asked for.
pub unsafe fn watch(query: *mut QueryDesc, tell: Tell) {
    // SAFETY: by the contract; the top of the plan's state, and those of its WITH clauses.
    unsafe {
        let top = (*query).planstate;
        if tag(top) == NodeTag::T_ModifyTableState {
            watch_one(query, top.cast(), tell);
        }
        for node in nodes((*(*query).estate).es_auxmodifytables) {
            if !std::ptr::eq(node.cast(), top) {
                watch_one(query, node.cast(), tell);
            }
        }
    }
}

unsafe fn watch_one(query: *mut QueryDesc, modify: *mut ModifyTableState, tell: Tell) {
    // SAFETY: by `watch`.
    unsafe {
        let plan = (*modify).ps.plan.cast::<pg_sys::ModifyTable>();
        if (*plan).onConflictAction != pg_sys::OnConflictAction::ONCONFLICT_UPDATE
            || (*modify).mt_partition_tuple_routing.is_null()
        {
            return;
        }
        let root = (*(*modify).resultRelInfo).ri_RelationDesc;
        let outer = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = (*(*query).estate).es_query_cxt;
        let row = raw::ExecInitExtraTupleSlot(
            (*query).estate,
            (*root).rd_att,
            &raw const pg_sys::TTSOpsVirtual,
        );
        pg_sys::CurrentMemoryContext = outer;
        let source = (*modify).ps.lefttree;
        ROUTED.borrow_mut().push(Routed {
            query,
            modify,
            source,
            next: (*source).ExecProcNodeReal,
            row,
            tell,
        });
        raw::ExecSetExecProcNode(source, Some(next_row));
    }
}

/// ExecProcNode of a plan whose rows are watched.
unsafe extern "C-unwind" fn next_row(source: *mut PlanState) -> *mut pg_sys::TupleTableSlot {
    // SAFETY: the executor's argument; the statement runs.
    unsafe {
        let routed = of(source);
        let Some(next) = routed.next else {
            NOT_WATCHED.raise();
        };
        let found = next(source);
        if !found.is_null() && !slot::is_empty(found) {
            let modify = routed.modify;
            let partition = raw::ExecFindPartition(
                modify,
                (*modify).resultRelInfo,
                (*modify).mt_partition_tuple_routing,
                with_columns_of_table(routed.row, found),
                (*modify).ps.state,
            );
            slot::clear(routed.row);
            (routed.tell)(routed.query, partition);
        }
        found
    }
}

/// What is known of a watched plan.
fn of(source: *mut PlanState) -> Routed {
    let found = ROUTED
        .borrow()
        .iter()
        .rfind(|one| std::ptr::eq(one.source, source))
        .copied();
    match found {
        Some(routed) => routed,
        None => NOT_WATCHED.raise(),
    }
}

/// The row without the plan's columns for sorting and the like, which come last
/// (nodeModifyTable.c: ExecInitInsertProjection).
unsafe fn with_columns_of_table(
    row: *mut pg_sys::TupleTableSlot,
    found: *mut pg_sys::TupleTableSlot,
) -> *mut pg_sys::TupleTableSlot {
    // SAFETY: slots of the same columns; what they point to stays until the next row.
    unsafe {
        slot::clear(row);
        let count = (*(*row).tts_tupleDescriptor).natts;
        if i32::from((*found).tts_nvalid) < count {
            raw::slot_getsomeattrs_int(found, count);
        }
        std::ptr::copy_nonoverlapping((*found).tts_values, (*row).tts_values, count as usize);
        std::ptr::copy_nonoverlapping((*found).tts_isnull, (*row).tts_isnull, count as usize);
        raw::ExecStoreVirtualTuple(row)
    }
}

/// At the end of a statement.
#[inline]
pub fn end_of_statement(query: *mut QueryDesc) {
    ROUTED
        .borrow_mut()
        .retain(|routed| !std::ptr::eq(routed.query, query));
}

/// At the end of a transaction.
#[inline]
pub fn end_of_transaction() {
    ROUTED.borrow_mut().clear();
}
