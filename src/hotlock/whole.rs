//! The data-modifying statement that is a transaction of its own, perhaps in a block that its
//! message holds as a whole: its commit is next.

use crate::pg::local::Local;
use crate::pg::{frontend, nesting, nodes, raw, xact};
use pgrx::pg_sys::{self, CmdType};
use std::cell::Cell;

/// The data-modifying statement that is a transaction of its own, as the address of its QueryDesc.
static WHOLE: Local<Cell<usize>> = Local::new(Cell::new(0));

/// Whether the transaction ends when the client's statement has run, which may be a function.
static NEEDS_NO_CLIENT: Local<Cell<bool>> = Local::new(Cell::new(false));

#[inline]
pub fn needs_no_client() -> bool {
    NEEDS_NO_CLIENT.get()
}

/// A statement or command is about to start.
#[inline]
pub fn note_start() {
    if nesting::is_outermost() {
        // SAFETY: reads the state of this backend's transaction.
        NEEDS_NO_CLIENT.set(!unsafe { raw::IsTransactionBlock() });
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

/// At the end of the transaction, and of that statement.
#[inline]
pub fn forget() {
    WHOLE.set(0);
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
