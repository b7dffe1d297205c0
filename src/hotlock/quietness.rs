//! Whether a statement is quiet: it calls nothing of users, and its rows stay inside
//! (`pg/quiet/`).

use crate::pg::local::Local;
use crate::pg::of_transaction::OfTransaction;
use crate::pg::quiet;
use pgrx::pg_sys::{self, Oid};

/// Whether the last statement that was asked for is quiet, by its QueryDesc.
static LAST: Local<OfTransaction<Option<(usize, bool)>>> = Local::new(OfTransaction::new(None));

/// Whether the statement is quiet. The answer is remembered until the statement ends.
///
/// # Safety
/// `query` has a plan whose relations are locked.
pub unsafe fn is_quiet(query: *const pg_sys::QueryDesc) -> bool {
    if let Some((last, answer)) = LAST.get()
        && last == query as usize
    {
        return answer;
    }
    // SAFETY: the caller's query has a plan whose relations are locked.
    let answer = unsafe { stays_inside(query) && quiet::is_statement_quiet((*query).plannedstmt) };
    LAST.set(Some((query as usize, answer)));
    answer
}

/// Whether what the statement still does is quiet once it has come to a row of that table. An
/// INSERT of one row has been routed to its partition by then.
///
/// # Safety
/// As for `is_quiet`.
pub unsafe fn is_quiet_in(query: *const pg_sys::QueryDesc, relation: Oid) -> bool {
    // SAFETY: the caller's query has a plan whose relations are locked.
    unsafe {
        is_quiet(query)
            || stays_inside(query) && quiet::is_routed_quiet((*query).plannedstmt, relation)
    }
}

/// Whether the statement's rows go to the client, to a function or nowhere: not to a file or a
/// program, as those of COPY do.
unsafe fn stays_inside(query: *const pg_sys::QueryDesc) -> bool {
    // SAFETY: a query has a receiver.
    let receiver = unsafe { (*(*query).dest).mydest };
    matches!(
        receiver,
        pg_sys::CommandDest::DestNone
            | pg_sys::CommandDest::DestRemote
            | pg_sys::CommandDest::DestRemoteExecute
            | pg_sys::CommandDest::DestRemoteSimple
            | pg_sys::CommandDest::DestSPI
            | pg_sys::CommandDest::DestTuplestore
    )
}

/// A statement ends, or another one may begin at its place.
#[inline]
pub fn forget(query: usize) {
    if LAST.get().is_some_and(|(last, _)| last == query) {
        LAST.clear();
    }
}

/// The transaction has ended.
pub fn forget_all() {
    LAST.clear();
}
