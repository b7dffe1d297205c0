//! The data-modifying statement that is a transaction of its own, perhaps in a block that its
//! message holds as a whole: its commit is next.

use crate::pg::frontend::{self, Protocol};
use crate::pg::local::Local;
use crate::pg::{nesting, nodes, raw, xact};
use pgrx::pg_sys::{self, CmdType};
use std::cell::Cell;

/// The data-modifying statement that is a transaction of its own, as the address of its QueryDesc.
static WHOLE: Local<Cell<usize>> = Local::new(Cell::new(0));

/// How the client's statement was sent, if it is in no transaction block.
static SENT: Local<Cell<Option<Protocol>>> = Local::new(Cell::new(None));

/// Whether the transaction ends by itself when the client's statement has run, which may have
/// called the function that now runs.
pub fn needs_no_client() -> bool {
    // A pipeline may have begun a block since.
    !xact::is_in_block() && SENT.get().is_some_and(frontend::ends_by_itself)
}

/// A statement, CALL or DO is about to start.
#[inline]
pub fn note_start() {
    if nesting::is_outermost() {
        SENT.set(frontend::sent_alone());
    }
}

/// Whether the transaction consists of the one data-modifying statement that now runs: its commit
/// is next.
#[inline]
pub fn is_running() -> bool {
    WHOLE.get() != 0
}

/// Whether that is this statement.
#[inline]
pub fn is(query: *const pg_sys::QueryDesc) -> bool {
    WHOLE.get() == query as usize
}

/// At the end of that statement.
#[inline]
pub fn forget() {
    WHOLE.set(0);
}

/// At the end of the transaction.
#[inline]
pub fn transaction_ended() {
    forget();
    SENT.set(None);
}

/// A statement is about to be started: it is one if it has no other beside it in a transaction.
///
/// # Safety
/// `query` is what ExecutorStart is given.
pub unsafe fn note(query: *mut pg_sys::QueryDesc) {
    note_start();
    // SAFETY: the active portal is that of the client's statement.
    unsafe {
        let portal = pg_sys::ActivePortal;
        if (*query).operation == CmdType::CMD_SELECT || !nesting::is_outermost() {
            return;
        }
        let mut statements = nodes::nodes((*portal).stmts);
        let only = statements.next();
        if only == Some((*query).plannedstmt.cast())
            && statements.next().is_none()
            && xact::nest_level() == 1
            && (!raw::IsTransactionBlock() || frontend::is_alone_in_block(query))
        {
            WHOLE.set(query as usize);
        }
    }
}
