//! Functions outside of any statement: those that a client calls by the fast path (tcop/fastpath.c:
//! libpq's large objects), and those of a domain's CHECK when a parameter is bound. They may read
//! with the transaction's snapshot. No hook of a statement sees them, only the hook that PostgreSQL
//! asks before a function is executed.
//!
//! That hook costs each function of each statement some instructions. So a session sets it in the
//! first transaction in which it is needed.

use super::local::Local;
use super::nesting;
use pgrx::pg_sys;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

struct Fastpath {
    is_watched: Cell<bool>,
    /// Since before the present transaction had a snapshot.
    was_watched: Cell<bool>,
    is_used: Cell<bool>,
    next: Cell<pg_sys::object_access_hook_type>,
}
static FASTPATH: Local<Fastpath> = Local::new(Fastpath {
    is_watched: Cell::new(false),
    was_watched: Cell::new(false),
    is_used: Cell::new(false),
    next: Cell::new(None),
});

static BEFORE: OnceLock<fn()> = OnceLock::new();

/// Names what is done before such a function is called. Once, from `_PG_init`.
pub fn init(before: fn()) {
    let _ = BEFORE.set(before);
}

unsafe extern "C-unwind" fn at_access(
    access: pg_sys::ObjectAccessType::Type,
    class: pg_sys::Oid,
    object: pg_sys::Oid,
    part: c_int,
    argument: *mut c_void,
) {
    // SAFETY: a global of this backend, which has one thread. All that a statement executes is in a
    // portal.
    let is_outside = unsafe { pg_sys::ActivePortal }.is_null() && !nesting::is_planning();
    if access == pg_sys::ObjectAccessType::OAT_FUNCTION_EXECUTE && is_outside {
        FASTPATH.is_used.set(true);
        if let Some(before) = BEFORE.get() {
            super::error::guarded(before);
        }
    }
    if let Some(next) = FASTPATH.next.get() {
        // SAFETY: the next hook in the chain.
        unsafe { next(access, class, object, part, argument) }
    }
}

/// From now on the session watches for such functions.
pub fn watch() {
    if FASTPATH.is_watched.replace(true) {
        return;
    }
    // SAFETY: the chain is extended as every extension does; plain reads.
    unsafe {
        FASTPATH.next.set(pg_sys::object_access_hook);
        pg_sys::object_access_hook = Some(at_access);
        FASTPATH.was_watched.set(!pg_sys::FirstSnapshotSet);
    }
}

/// Whether a function of the present transaction may have been called so.
pub fn may_have_been_used() -> bool {
    FASTPATH.is_used.get() || !FASTPATH.was_watched.get()
}

/// The transaction has ended.
#[inline]
pub fn transaction_ended() {
    FASTPATH.is_used.set(false);
    FASTPATH.was_watched.set(FASTPATH.is_watched.get());
}
