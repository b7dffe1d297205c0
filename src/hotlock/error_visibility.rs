//! What a client is told must not come of data that may still roll back: errors, what deferred
//! triggers say, what utility commands read.

use super::dependency;
use super::errors;
use super::predecessors;
use super::read_wait;
use super::readguard;
use super::session::SESSION;
use super::stale_error;
use super::waiting::{self, Reason};
use crate::pg::catch::{self, Code};
use crate::pg::local::Local;
use crate::pg::of_transaction::OfTransaction;
use crate::pg::{nesting, nodes, raw, triggers, xact};
use crate::tam::swap;
use pgrx::pg_sys;
use std::ffi::CStr;

/// The error on its way has been held back before, by a statement inside.
static HELD_BACK: Local<OfTransaction<bool>> = Local::new(OfTransaction::new(false));

/// Whether the error on its way, with that SQLSTATE, does not wait; none if that has not been
/// asked.
static EXEMPT: Local<OfTransaction<Option<(Code, bool)>>> = Local::new(OfTransaction::new(None));

/// The (sub)transaction has ended, and with it the error if there was one.
pub fn error_is_over() {
    HELD_BACK.clear();
    EXEMPT.clear();
}

/// An error that does not wait, if it comes from the server's own code or from this library.
struct TellsNothing {
    code: &'static [u8; 5],
    /// Where that is.
    files: &'static [&'static CStr],
}

/// Where disk and memory are asked for while a page or the right to extend a table is held, and
/// where pages are read.
const STORAGE: [&CStr; 33] = [
    c"aset.c",
    c"brin_revmap.c",
    c"buffile.c",
    c"bufmgr.c",
    c"bufpage.c",
    c"dsa.c",
    c"dsm_impl.c",
    c"dynahash.c",
    c"elog.c",
    c"fd.c",
    c"freespace.c",
    c"generation.c",
    c"gistutil.c",
    c"hashutil.c",
    c"heapam.c",
    c"heapam_handler.c",
    c"heaptoast.c",
    c"localbuf.c",
    c"lock.c",
    c"mcxt.c",
    c"md.c",
    c"multixact.c",
    c"nbtinsert.c",
    c"nbtpage.c",
    c"nbtree.c",
    c"nbtsearch.c",
    c"predicate.c",
    c"relmapper.c",
    c"slab.c",
    c"slru.c",
    c"visibilitymap.c",
    c"xlog.c",
    c"xlogutils.c",
];

/// Errors that do not wait: each comes of what others do or of the machine, and tells nothing of a
/// row's values. The wait for predecessors may raise the first ones itself, and elog.c has room for
/// five errors on top of each other. All other errors wait, whatever their class. A text that
/// becomes too long (54000) or an allocation that is too large (XX000) may come of a value that is
/// not committed. So may a user's RAISE with one of these codes. (The end of a session, 57P01 and
/// the like, is FATAL: no handler sees it.)
const TELL_NOTHING: [TellsNothing; 9] = [
    // Serialization failure: of the order in which transactions came.
    TellsNothing {
        code: b"40001",
        files: &[
            c"txn",
            c"heapam_handler.c",
            c"nodeLockRows.c",
            c"nodeModifyTable.c",
            c"postgres.c",
            c"predicate.c",
            c"trigger.c",
        ],
    },
    // Deadlock: of the same.
    TellsNothing {
        code: b"40P01",
        files: &[c"txn", c"deadlock.c", c"standby.c"],
    },
    // Lock not available: NOWAIT, lock_timeout, txn.hot_wait_timeout.
    TellsNothing {
        code: b"55P03",
        files: &[
            c"txn",
            c"heapam.c",
            c"heapam_handler.c",
            c"lockcmds.c",
            c"namespace.c",
            c"postgres.c",
        ],
    },
    // Cancelled, by somebody or a timeout.
    TellsNothing {
        code: b"57014",
        files: &[c"copyfromparse.c", c"postgres.c"],
    },
    // The disk or memory ends, or is damaged. These may come while a table is being extended or a
    // page is being read: what that holds goes only with the transaction, and a predecessor may
    // want it.
    TellsNothing {
        code: b"53100",
        files: &STORAGE,
    },
    TellsNothing {
        code: b"53200",
        files: &STORAGE,
    },
    TellsNothing {
        code: b"58030",
        files: &STORAGE,
    },
    TellsNothing {
        code: b"XX001",
        files: &STORAGE,
    },
    TellsNothing {
        code: b"XX002",
        files: &STORAGE,
    },
];

/// Whether the error on its way is one of them. It is looked at once, by the innermost handler: the
/// look takes memory, and without any left each of the handlers would put another error on top. So
/// the answer is there before the look.
fn tells_nothing(code: Code) -> bool {
    let Some(error) = TELL_NOTHING.iter().find(|error| *error.code == code) else {
        return false;
    };
    match EXEMPT.get() {
        Some((of, answer)) if of == code => answer,
        _ => {
            EXEMPT.set(Some((code, true)));
            // SAFETY: called by the handler of an error.
            let answer = unsafe { catch::is_raised_in(error.files) };
            EXEMPT.set(Some((code, answer)));
            answer
        }
    }
}

/// A statement has failed, or a part of the command that is no query (null). An error (a division,
/// a constraint, a policy, an exception of a trigger) is an answer, too. It must not come from a
/// version that may still roll back: the predecessors end first. If one rolls back the answer is
/// 40001 instead. Nor from one that is not durable yet. The statements around this one do not wait
/// for predecessors again, but for what they have read themselves: the one inside knows nothing of
/// it. What the statement has written goes with the (sub)transaction. Returns false: the error
/// stands.
///
/// # Safety
/// The query has started and not ended.
pub unsafe fn failed(code: Code, query: *const pg_sys::QueryDesc) -> bool {
    let awaited = readguard::read_until();
    // Heap refuses what we have handed out, when a change of the table has put heap's routine back
    // (swap.rs).
    let is_refused =
        code == *b"55000" && swap::is_any_lost() && SESSION.all().any(|(_, m)| m.is_pending());
    if !query.is_null() {
        // SAFETY: the caller's query has started and not ended. Nothing is looked up: what the
        // failed code holds is not released yet.
        unsafe { readguard::note_read_by(query) };
    }
    if !tells_nothing(code) {
        let first = !HELD_BACK.get();
        // SAFETY: the caller's query has started and not ended.
        let may_be_untrue = !query.is_null()
            && SESSION.is_member()
            && (stale_error::is_twice(code) || !unsafe { stale_error::has_last(query) });
        if first || may_be_untrue {
            // The error may have come with locks held: a function of an index, an allocation within
            // the lock manager. A transaction that is awaited here may want these locks.
            // SAFETY: every abort begins with these calls (xact.c: AbortTransaction,
            // AbortSubTransaction), and an abort follows.
            unsafe {
                raw::LWLockReleaseAll();
                raw::UnlockBuffers();
                raw::XLogResetInsertion();
                raw::ConditionVariableCancelSleep();
                raw::LockErrorCleanup();
            }
        }
        if first {
            HELD_BACK.set(true);
            if SESSION.is_member() {
                // Others may have the row meanwhile, above all the predecessor: it may come again.
                dependency::drop_failed(query as usize);
                predecessors::wait(Reason::Read);
                waiting::check_doomed();
                readguard::note_everything();
            }
        }
        if may_be_untrue {
            // SAFETY: as above; locks of pages are released.
            unsafe { stale_error::refuse(query, code) };
        }
        if query.is_null() {
            // Planning and utility commands do not say what they have read, but it was before the
            // error.
            readguard::note_everything();
        }
        if first || readguard::read_until() != awaited {
            read_wait::before_answer();
        }
    }
    if is_refused {
        errors::TABLE_CHANGED.raise();
    }
    // A trigger did not find the version that it was fired for: its writer has rolled back.
    if code.starts_with(b"XX") && waiting::is_doomed() {
        waiting::check_doomed();
    }
    false
}

/// Whether a statement of this transaction has left triggers to the commit, or in a block may have.
static LEFT_TRIGGERS: Local<OfTransaction<bool>> = Local::new(OfTransaction::new(false));

/// Takes note of the deferred triggers that a statement has left, or a nested one may have left.
///
/// # Safety
/// ExecutorFinish's argument, finished.
pub unsafe fn note_deferred(query: *const pg_sys::QueryDesc) {
    if LEFT_TRIGGERS.get() {
        return;
    }
    // SAFETY: by the contract; the executor state's list of open relations.
    unsafe {
        let estate = (*query).estate;
        let written = [
            (*estate).es_opened_result_relations,
            (*estate).es_tuple_routing_result_relations,
        ];
        // PostgreSQL looks through all events to tell, those of the statements around this one as
        // well: not for each nested one. Within a block nobody asks before its end.
        let may_leave = |result: *mut pg_sys::Node| {
            let rel = (*result.cast::<pg_sys::ResultRelInfo>()).ri_RelationDesc;
            triggers::has_any_deferrable_trigger(rel)
                && (xact::is_in_block()
                    || !nesting::is_clients()
                    || raw::AfterTriggerPendingOnRel((*rel).rd_id))
        };
        if written
            .iter()
            .any(|list| nodes::nodes(*list).any(may_leave))
        {
            LEFT_TRIGGERS.set(true);
        }
    }
}

/// Whether any statement may have left triggers to the commit.
#[inline]
pub fn has_deferred() -> bool {
    LEFT_TRIGGERS.get()
}

/// A command that is no query may have left any (COPY).
pub fn note_any_deferred() {
    LEFT_TRIGGERS.set(true);
}

/// At the end of a transaction.
pub fn forget_deferred() {
    LEFT_TRIGGERS.clear();
}

/// At the end of the client's statement. Deferred triggers tell of the rows that the transaction
/// has written. Outside a block that BEGIN has opened, no command asks for the commit, and no hook
/// hears of it before they run. So predecessors end here.
pub fn before_deferred() {
    if LEFT_TRIGGERS.get() && !xact::is_in_block() && nesting::is_clients() {
        predecessors::wait(Reason::Commit);
    }
}
