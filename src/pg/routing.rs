//! Which partition takes a row of `INSERT ... ON CONFLICT DO UPDATE`, before the executor uses it.
//!
//! The executor opens a partition when the first row comes that goes to it (execPartition.c:
//! ExecFindPartition), and no hook tells. So we stand between the ModifyTable node and the plan
//! that its rows come from: for each row we ask ExecFindPartition, and pass the row on. The
//! executor asks again, and finds the partition open.

use super::error::{Report, guarded};
use super::local::Local;
use super::nodes::{nodes, tag};
use super::{of_transaction, raw, slot};
use pgrx::pg_sys::{
    self, ModifyTableState, NodeTag, PlanState, QueryDesc, ResultRelInfo, SubTransactionId,
    TupleTableSlot,
};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ptr;

/// Is told of each partition to which a row of the statement goes, once.
type Tell = unsafe fn(query: *mut QueryDesc, partition: *mut ResultRelInfo);

/// A plan whose rows are watched.
struct Watched {
    source: Source,
    /// The partitions that have been told.
    told: BTreeSet<*mut ResultRelInfo>,
    subxact: SubTransactionId,
}

#[derive(Clone, Copy)]
struct Source {
    query: *mut QueryDesc,
    modify: *mut ModifyTableState,
    /// The plan that the rows come from, and its own way to get the next one.
    plan: *mut PlanState,
    next: pg_sys::ExecProcNodeMtd,
    /// A row with the columns of the partitioned table.
    row: *mut TupleTableSlot,
    tell: Tell,
}

static WATCHED: Local<RefCell<Vec<Watched>>> = Local::new(RefCell::new(Vec::new()));

const NOT_WATCHED: Report = Report {
    code: *b"XX000",
    message: c"could not route a row: its statement has ended",
    detail: None,
    hint: None,
};

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
            if !ptr::eq(node.cast(), top) {
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
        let plan = (*modify).ps.lefttree;
        let watched = Watched {
            source: Source {
                query,
                modify,
                plan,
                next: (*plan).ExecProcNodeReal,
                row,
                tell,
            },
            told: BTreeSet::new(),
            subxact: raw::GetCurrentSubTransactionId(),
        };
        of_transaction::note();
        WATCHED.borrow_mut().push(watched);
        raw::ExecSetExecProcNode(plan, Some(next_row));
    }
}

/// ExecProcNode of a plan whose rows are watched.
unsafe extern "C-unwind" fn next_row(plan: *mut PlanState) -> *mut TupleTableSlot {
    guarded(|| {
        let Some(source) = of(plan) else {
            NOT_WATCHED.raise();
        };
        // SAFETY: the executor's argument; the statement runs.
        unsafe {
            let found = match source.next {
                Some(next) => next(plan),
                None => ptr::null_mut(),
            };
            if !found.is_null() && !slot::is_empty(found) {
                route(&source, found);
            }
            found
        }
    })
}

/// Has the executor open the row's partition, and tells of it.
unsafe fn route(source: &Source, found: *mut TupleTableSlot) {
    // SAFETY: by `next_row`; the row is one of that plan.
    unsafe {
        let modify = source.modify;
        let partition = raw::ExecFindPartition(
            modify,
            (*modify).resultRelInfo,
            (*modify).mt_partition_tuple_routing,
            with_columns_of_table(source.row, found),
            (*modify).ps.state,
        );
        slot::clear(source.row);
        if is_new(source, partition) {
            (source.tell)(source.query, partition);
        }
    }
}

/// What is known of a watched plan.
fn of(plan: *mut PlanState) -> Option<Source> {
    let watched = WATCHED.borrow();
    let found = watched.iter().rfind(|one| ptr::eq(one.source.plan, plan));
    found.map(|one| one.source)
}

/// Whether that partition has not been told yet. It counts as told from now on.
fn is_new(source: &Source, partition: *mut ResultRelInfo) -> bool {
    let mut watched = WATCHED.borrow_mut();
    let found = watched
        .iter_mut()
        .rfind(|one| ptr::eq(one.source.plan, source.plan));
    found.is_some_and(|one| one.told.insert(partition))
}

/// The row without the plan's columns for sorting and the like, which come last
/// (nodeModifyTable.c: ExecInitInsertProjection).
unsafe fn with_columns_of_table(
    row: *mut TupleTableSlot,
    found: *mut TupleTableSlot,
) -> *mut TupleTableSlot {
    // SAFETY: slots of the same columns; what they point to stays until the next row.
    unsafe {
        slot::clear(row);
        let count = (*(*row).tts_tupleDescriptor).natts;
        if i32::from((*found).tts_nvalid) < count {
            raw::slot_getsomeattrs_int(found, count);
        }
        ptr::copy_nonoverlapping((*found).tts_values, (*row).tts_values, count as usize);
        ptr::copy_nonoverlapping((*found).tts_isnull, (*row).tts_isnull, count as usize);
        raw::ExecStoreVirtualTuple(row)
    }
}

/// At the end of a statement.
#[inline]
pub fn end_of_statement(query: *mut QueryDesc) {
    WATCHED
        .borrow_mut()
        .retain(|one| !ptr::eq(one.source.query, query));
}

/// At the end of a transaction.
#[inline]
pub fn end_of_transaction() {
    WATCHED.borrow_mut().clear();
}

/// At the abort of a subtransaction: the statements that began in it do not go on.
#[inline]
pub fn abort_of_subtransaction(subxact: SubTransactionId) {
    WATCHED.borrow_mut().retain(|one| one.subxact != subxact);
}

/// At the commit of a subtransaction: the parent takes over.
#[inline]
pub fn commit_of_subtransaction(subxact: SubTransactionId, parent: SubTransactionId) {
    let mut watched = WATCHED.borrow_mut();
    for one in watched.iter_mut().filter(|one| one.subxact == subxact) {
        one.subxact = parent;
    }
}
