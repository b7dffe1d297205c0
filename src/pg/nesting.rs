//! How deep the statement that runs stands in others: the client's own statement, or one that a
//! function runs.

use super::local::Local;
use super::{plpgsql, raw, xact};
use pgrx::pg_sys;
use std::cell::Cell;

/// How many nesting levels are remembered as they were when their subtransactions began.
const LEVELS: usize = 64;

struct Nesting {
    depth: Cell<u32>,
    /// The planner is at work.
    is_planning: Cell<bool>,
    /// A FETCH or MOVE of the client's is at work.
    is_fetching: Cell<bool>,
    /// `synchronous_commit` when the client's last statement began.
    synchronous_commit: Cell<i32>,
    /// By nesting level: the depth when its subtransaction began, and whether the planner was at
    /// work.
    outer: [Cell<(u32, bool)>; LEVELS],
}

static NESTING: Local<Nesting> = Local::new(Nesting {
    depth: Cell::new(0),
    is_planning: Cell::new(false),
    is_fetching: Cell::new(false),
    synchronous_commit: Cell::new(0),
    outer: [const { Cell::new((0, false)) }; LEVELS],
});

/// Runs a part of a statement, one deeper. An ERROR jumps over the way back; the end of the
/// (sub)transaction that it aborts makes up for it. Until then all statements count as nested.
#[inline]
pub fn within<R>(body: impl FnOnce() -> R) -> R {
    let depth = NESTING.depth.get();
    NESTING.depth.set(depth + 1);
    let result = body();
    NESTING.depth.set(depth);
    result
}

/// A statement or a command begins, perhaps the client's, or has set something.
#[inline]
pub fn note_start() {
    // SAFETY: plain reads. A deferred trigger runs its statements without a portal.
    unsafe {
        if NESTING.depth.get() == 0 && !is_planning() && !pg_sys::ActivePortal.is_null() {
            NESTING.synchronous_commit.set(pg_sys::synchronous_commit);
        }
    }
}

/// The value of `synchronous_commit` when the client's present statement began: functions have
/// values of their own.
pub fn clients_synchronous_commit() -> i32 {
    NESTING.synchronous_commit.get()
}

/// Plans a statement.
#[inline]
pub fn while_planning(body: impl FnOnce()) {
    let before = NESTING.is_planning.replace(true);
    body();
    NESTING.is_planning.set(before);
}

/// Runs a FETCH or MOVE of the client's.
pub fn while_fetching(body: impl FnOnce()) {
    NESTING.is_fetching.set(true);
    body();
    NESTING.is_fetching.set(false);
}

/// Whether a FETCH or MOVE of the client's is at work.
pub fn is_fetching() -> bool {
    NESTING.is_fetching.get()
}

/// Whether the planner is at work.
pub fn is_planning() -> bool {
    NESTING.is_planning.get()
}

/// Whether the part of a statement that runs, within `within`, is not within another one.
#[inline]
pub fn is_clients() -> bool {
    NESTING.depth.get() <= 1
}

/// Whether it is also run by a portal, and so goes back to the client. Without one, a deferred
/// trigger runs it at the commit, or a function that the client has called by the fast path.
#[inline]
pub fn is_outermost() -> bool {
    // SAFETY: a global of this backend, which has one thread.
    is_clients() && !unsafe { pg_sys::ActivePortal }.is_null()
}

/// A subtransaction begins.
pub fn note_subtransaction() {
    if let Some(outer) = NESTING.outer.get(xact::nest_level() as usize) {
        outer.set((NESTING.depth.get(), NESTING.is_planning.get()));
    }
}

/// The subtransaction at this level has rolled back.
pub fn subtransaction_rolled_back(level: i32) {
    plpgsql::forget_statement();
    NESTING.is_planning.set(false);
    if let Some(outer) = NESTING.outer.get(level as usize) {
        let (depth, is_planning) = outer.get();
        NESTING.depth.set(depth);
        NESTING.is_planning.set(is_planning);
    }
}

/// The transaction has ended. A procedure that ends one goes on at the depth it has.
#[inline]
pub fn transaction_ended() {
    plpgsql::forget_statement();
    // Nothing that the planner or a FETCH calls ends a transaction, but errors.
    NESTING.is_planning.set(false);
    NESTING.is_fetching.set(false);
    let is_deep = NESTING.depth.get() > 0 || plpgsql::is_in_function();
    if is_deep && !goes_on() {
        NESTING.depth.set(0);
        plpgsql::forget();
    }
}

/// Whether it was ended by a procedure, and not by an error in one: after that a client's portal is
/// not active any more (pquery.c: PortalRun), while SPI still has its stack.
pub fn goes_on() -> bool {
    // SAFETY: plain reads, also of SPI's stack.
    unsafe {
        raw::SPI_inside_nonatomic_context()
            && (pg_sys::MyBackendType != pg_sys::BackendType::B_BACKEND
                || !pg_sys::ActivePortal.is_null())
    }
}
