//! A foreign key's check by a transaction that is a member of a hot row (rule "foreign keys").
//!
//! The check is `SELECT 1 FROM ONLY parent x WHERE key = $1 FOR KEY SHARE OF x`
//! (utils/adt/ri_triggers.c). It reads, and a follower that reads waits for its predecessors; then
//! nobody would follow in the usual schema, where a ledger refers to the hot account. But all that
//! it asks is whether the row exists:
//!
//! - A transaction that has updated the row holds a stronger lock than a key share until its end:
//!   no other one can delete the row or change its key. So there is nothing to look at and nothing
//!   to lock. (A key share next to a running follower would be a MultiXact on the hottest row of
//!   all.)
//! - Another row that is found and locked exists, whatever becomes of the predecessors. One that is
//!   not found may be a predecessor's: then the statement waits for them and looks again. It does
//!   so at once in a table where somebody has waited for such a lock to go away (order.rs): a
//!   predecessor may come to delete the row.
//!
//! A statement whose answer is certain is answered with its constants.

use super::check;
use super::order;
use super::readguard;
use super::session::{SESSION, memory, relation_of};
use crate::pg::buffer::Page;
use crate::pg::local::Local;
use crate::pg::of_transaction::OfTransaction;
use crate::pg::plan::{self, Existence};
use crate::pg::probe;
use crate::pg::raw;
use crate::pg::tuple;
use crate::tam::swap;
use hotrow::{Contention, Membership};
use pgrx::pg_sys::{self, Oid};

/// The statement that needs not run, as the address of its QueryDesc.
static CERTAIN: Local<OfTransaction<usize>> = Local::new(OfTransaction::new(0));

/// Before a statement of a member starts that asks for no more than the existence of a row: whether
/// that row certainly exists, and is locked.
///
/// # Safety
/// `asked` was said of `query`, which is about to be started. `after_start` is safe for a statement
/// that has been started.
pub unsafe fn is_certain(
    query: *const pg_sys::QueryDesc,
    asked: &Existence,
    after_start: impl Fn(*mut pg_sys::QueryDesc),
) -> bool {
    let goes_ahead = || {
        SESSION.all().any(|(_, m)| m.depends())
            && !order::may_overtake_in(Oid::from(asked.identity.relation), Contention::Key)
    };
    // SAFETY: by the contract; the transaction holds a lock on the relations of its memberships.
    unsafe {
        SESSION.all().any(|(_, m)| {
            let row = &memory().directory.rows[m.slot() as usize];
            !m.is_gone() && row.is(&asked.identity) && is_latest(&m)
        }) || goes_ahead() && passes_by(asked) && is_locked(query, asked, after_start)
    }
}

/// Looks for the row ahead of the predecessors, and locks it.
unsafe fn is_locked(
    query: *const pg_sys::QueryDesc,
    asked: &Existence,
    after_start: impl Fn(*mut pg_sys::QueryDesc),
) -> bool {
    // SAFETY: as in `is_found`.
    let is_found = unsafe { is_found(query, asked, after_start) };
    if readguard::is_used() {
        readguard::note_read(Oid::from(asked.identity.relation));
    }
    if is_found && !check::is_deferred(&asked.identity) {
        SESSION.note_locked(&asked.identity);
    }
    is_found
}

/// Whether we have a version of the row, and it is still there and the last one, with the key that
/// it had.
unsafe fn is_latest(membership: &Membership) -> bool {
    let Some(version) = membership.version() else {
        return false;
    };
    // SAFETY: by `is_certain`'s contract; the header is read under the page's lock.
    unsafe {
        let rel = raw::RelationIdGetRelation(relation_of(membership));
        if rel.is_null() {
            return false;
        }
        // TRUNCATE and rewrites by this transaction give the table another file.
        let same_file = (*rel).rd_firstRelfilelocatorSubid == 0;
        let latest = same_file && {
            let page = Page::pin(rel, version);
            page.share();
            let latest = page.tuple(version).is_some_and(|(header, _)| {
                let mask = (*header).t_infomask;
                raw::TransactionIdIsCurrentTransactionId((*header).t_choice.t_heap.t_xmin)
                    && (tuple::has(mask, pg_sys::HEAP_XMAX_INVALID)
                        || tuple::is_locked_only(mask)
                        || !tuple::has(mask, pg_sys::HEAP_XMAX_IS_MULTI)
                            && !raw::TransactionIdIsCurrentTransactionId(tuple::raw_xmax(header)))
            });
            page.release();
            latest
        };
        raw::RelationClose(rel);
        latest
    }
}

/// After the start of a statement of which `is_certain` was said.
pub fn note_certain(query: *const pg_sys::QueryDesc) {
    CERTAIN.set(query as usize);
}

/// Whether the statement does not come upon versions of ours.
pub fn passes_by(asked: &Existence) -> bool {
    let own_table = |m: &Membership| m.relation() == asked.identity.relation;
    SESSION.all().all(|(_, m)| {
        let row = &memory().directory.rows[m.slot() as usize];
        !own_table(&m) || asked.by_index && !row.is(&asked.identity)
    })
}

/// Executes the statement, and tells whether it found the row.
unsafe fn is_found(
    query: *const pg_sys::QueryDesc,
    asked: &Existence,
    after_start: impl Fn(*mut pg_sys::QueryDesc),
) -> bool {
    // SAFETY: by `is_certain`'s contract.
    unsafe {
        probe::finds_a_row(
            query,
            (*query).plannedstmt,
            (*query).snapshot,
            |probe| {
                check::consider(probe, asked);
                after_start(probe);
            },
            |probe| swap::end_of_statement(probe as usize),
        )
    }
}

/// Whether that was said of this statement.
#[inline]
pub fn was_certain(query: *const pg_sys::QueryDesc) -> bool {
    CERTAIN.get() == query as usize
}

/// Sends the one row of constants, as standard_ExecutorRun would.
///
/// # Safety
/// `was_certain(query)`, and it has started.
pub unsafe fn answer(query: *mut pg_sys::QueryDesc) {
    // SAFETY: the receiver's functions are called as standard_ExecutorRun calls them, in the
    // query's memory; an ERROR in one of them leaves nothing that the query's end does not free.
    unsafe {
        let (estate, receiver) = ((*query).estate, (*query).dest);
        let context = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = (*estate).es_query_cxt;
        let slot =
            raw::MakeSingleTupleTableSlot((*query).tupDesc, &raw const pg_sys::TTSOpsVirtual);
        for (n, constant) in plan::constants((*query).plannedstmt).enumerate() {
            *(*slot).tts_values.add(n) = (*constant).constvalue;
            *(*slot).tts_isnull.add(n) = (*constant).constisnull;
        }
        raw::ExecStoreVirtualTuple(slot);
        if let Some(startup) = (*receiver).rStartup {
            startup(receiver, (*query).operation as i32, (*query).tupDesc);
        }
        if let Some(receive) = (*receiver).receiveSlot {
            receive(slot, receiver);
        }
        if let Some(shutdown) = (*receiver).rShutdown {
            shutdown(receiver);
        }
        raw::ExecDropSingleTupleTableSlot(slot);
        (*estate).es_processed = 1;
        (*estate).es_total_processed = 1;
        (*query).already_executed = true;
        pg_sys::CurrentMemoryContext = context;
    }
}

/// At the end of a statement, and before another one begins at the same place.
#[inline]
pub fn end(query: *const pg_sys::QueryDesc) {
    if was_certain(query) {
        forget();
    }
}

/// At the end of a transaction.
#[inline]
pub fn forget() {
    CERTAIN.clear();
}
