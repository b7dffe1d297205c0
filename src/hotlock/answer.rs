//! What a client is told must not come of data that may still roll back: errors, what deferred triggers say, what utility
//! commands read.

use super::commit;
use super::errors;
use super::readguard;
use super::session::SESSION;
use super::waiting::{self, Reason};
use crate::pg::catch::Code;
use crate::pg::plan;
use crate::pg::raw;
use crate::tam::swap;
use pgrx::pg_sys;
use std::cell::Cell;

/// Where WAL ended when the error on its way was first held back, by a statement inside; 0 if it was not.
struct HeldBack(Cell<u64>);
// SAFETY: a backend has one thread.
unsafe impl Sync for HeldBack {}
static HELD_BACK: HeldBack = HeldBack(Cell::new(0));

/// The (sub)transaction has ended, and with it the error if there was one.
pub fn error_is_over() {
    HELD_BACK.0.set(0);
}

/// Errors that do not wait: each comes of what others do or of the machine, and tells nothing of a row's values. The wait for
/// predecessors may raise the first ones itself, and elog.c has room for five errors on top of each other. All other errors wait,
/// whatever their class: a text that becomes too long (54000) or an allocation that is too large (XX000) may come of a value that is
/// not committed. (A RAISE with one of these codes waits before: it is not quiet.)
const TELL_NOTHING: [&[u8; 5]; 13] = [
    b"40001", // serialization failure: of the order in which transactions came
    b"40P01", // deadlock: of the same
    b"55P03", // lock not available: NOWAIT, lock_timeout, txn.hot_wait_timeout
    b"57014", // cancelled, by somebody or a timeout
    b"57P01", // the session or the server ends
    b"57P02", b"57P03", b"57P05",
    // The disk or memory ends, or is damaged. These may come while a table is being extended or a page is being read: what that
    // holds goes only with the transaction, and a predecessor may want it.
    b"53100", b"53200", b"58030", b"XX001", b"XX002",
];

/// A statement has failed, or a part of the command that is no query (null). An error (a division, a constraint, a policy, an
/// exception of a trigger) is an answer, too. It must not come from a version that may still roll back: the predecessors end
/// first. If one rolls back the answer is 40001 instead. Nor from one that is not durable yet. The statements around this one do
/// not wait for predecessors again, but for what they have read themselves: the one inside knows nothing of it. Returns false: the
/// error stands.
///
/// # Safety
/// The query has started and not ended.
pub unsafe fn failed(code: Code, query: *const pg_sys::QueryDesc) -> bool {
    if !TELL_NOTHING.contains(&&code) {
        let first = HELD_BACK.0.get() == 0;
        if first {
            HELD_BACK.0.set(readguard::end_of_wal());
            // The error may have come with locks held: a function of an index, an allocation within the lock manager. Whoever is
            // awaited here may want them.
            // SAFETY: as every abort begins (xact.c: AbortTransaction, AbortSubTransaction); one follows.
            unsafe {
                raw::LWLockReleaseAll();
                raw::UnlockBuffers();
                raw::XLogResetInsertion();
                raw::ConditionVariableCancelSleep();
                raw::LockErrorCleanup();
            }
            if SESSION.is_member() {
                commit::wait_for_predecessors(Reason::Read);
                waiting::check_doomed();
                readguard::note_everything();
            }
        }
        let awaited = readguard::read_until();
        if query.is_null() {
            // Planning and utility commands do not say what they have read, but it was before the error.
            if readguard::is_used() {
                readguard::note_read_until(HELD_BACK.0.get());
            }
        } else {
            // SAFETY: by the contract.
            unsafe { readguard::note_statement(query) };
        }
        if first || readguard::read_until() > awaited {
            readguard::wait_for_answer();
        }
    }
    // Heap refuses what we have handed out, when a change of the table has put heap's routine back (swap.rs).
    if code == *b"55000" && swap::is_any_lost() && SESSION.all().any(|(_, m)| m.is_pending()) {
        errors::TABLE_CHANGED.raise();
    }
    // A trigger did not find the version that it was fired for: its writer has rolled back.
    if code.starts_with(b"XX") && waiting::is_doomed() {
        waiting::check_doomed();
    }
    false
}

/// At the end of a statement outside a transaction block: deferred triggers that it has left to the commit tell of its rows, and
/// of a commit that no command asks for nobody hears before they run. So predecessors end here.
///
/// # Safety
/// ExecutorFinish's argument, finished.
pub unsafe fn before_deferred(query: *const pg_sys::QueryDesc) {
    // SAFETY: by the contract; the executor state's list of open relations.
    unsafe {
        if raw::IsTransactionBlock() || !SESSION.all().any(|(_, m)| m.depends()) {
            return;
        }
        let estate = (*query).estate;
        let written = [
            (*estate).es_opened_result_relations,
            (*estate).es_tuple_routing_result_relations,
        ];
        let is_left = |result: *mut pg_sys::Node| {
            let rel = (*result.cast::<pg_sys::ResultRelInfo>()).ri_RelationDesc;
            raw::AfterTriggerPendingOnRel((*rel).rd_id)
        };
        if written.iter().any(|list| plan::nodes(*list).any(is_left)) {
            commit::wait_for_predecessors(Reason::Commit);
        }
    }
}
