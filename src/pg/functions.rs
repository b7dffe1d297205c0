//! Functions, as PostgreSQL names them before it executes them (`object_access_hook`). No hook of a
//! statement sees those outside of any statement: what a client calls by the fast path
//! (tcop/fastpath.c: libpq's large objects), and what a domain's CHECK calls when a parameter is
//! bound. They may read with the transaction's snapshot.

use super::local::Local;
use pgrx::pg_sys::{self, Oid};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

type Access = pg_sys::ObjectAccessType::Type;
type Hook = unsafe extern "C-unwind" fn(Access, Oid, Oid, c_int, *mut c_void);

static NEXT: OnceLock<Hook> = OnceLock::new();

/// What is done before a function is executed.
pub struct Before {
    pub any: fn(Oid),
    /// Outside of any statement.
    pub outside: fn(),
    /// Whether a statement is being planned: a function may be evaluated for that.
    pub is_planning: fn() -> bool,
}
static BEFORE: OnceLock<Before> = OnceLock::new();

/// A function of the present transaction has been called outside of any statement.
static IS_USED: Local<Cell<bool>> = Local::new(Cell::new(false));

/// Says what is done, and sets the hook. Once, from `_PG_init`.
pub fn init(before: Before) {
    let _ = BEFORE.set(before);
    // SAFETY: the chain is extended as every extension does.
    unsafe {
        if let Some(next) = pg_sys::object_access_hook {
            let _ = NEXT.set(next);
        }
        pg_sys::object_access_hook = Some(at_access);
    }
}

unsafe extern "C-unwind" fn at_access(
    access: Access,
    class: Oid,
    object: Oid,
    part: c_int,
    argument: *mut c_void,
) {
    if access == pg_sys::ObjectAccessType::OAT_FUNCTION_EXECUTE
        && let Some(before) = BEFORE.get()
    {
        (before.any)(object);
        // SAFETY: a global of this backend, which has one thread. All that a statement executes is
        // in a portal.
        if unsafe { pg_sys::ActivePortal }.is_null() && !(before.is_planning)() {
            IS_USED.set(true);
            super::error::guarded(before.outside);
        }
    }
    if let Some(next) = NEXT.get() {
        // SAFETY: the next hook in the chain.
        unsafe { next(access, class, object, part, argument) }
    }
}

/// Whether the hook has no other one behind or before it.
pub fn is_unnoticed() -> bool {
    // SAFETY: a plain read of a hook.
    let first = unsafe { pg_sys::object_access_hook };
    let is_ours = |hook: Hook| std::ptr::fn_addr_eq(hook, at_access as Hook);
    NEXT.get().is_none() && first.is_some_and(is_ours)
}

/// Whether a function of the present transaction has been called outside of any statement.
pub fn are_used_outside() -> bool {
    IS_USED.get()
}

/// The transaction has ended.
#[inline]
pub fn transaction_ended() {
    IS_USED.set(false);
}
