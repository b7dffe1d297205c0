//! PG_TRY and PG_CATCH: an ERROR seen on its way, with all its fields, or ended there.

use super::raw;
use cee_scape::{SigJmpBufFields, call_with_sigsetjmp};
use pgrx::pg_sys;
use std::ffi::{CStr, c_char};
use std::ptr;

/// An SQLSTATE.
pub type Code = [u8; 5];

/// Whether code of the server or of this library, in one of these files, has raised the ERROR that
/// is on its way. Messages of both have the server's text domain. A language's RAISE may give any
/// SQLSTATE, but has a file and a domain of its own.
///
/// # Safety
/// In a handler of `catching`.
pub unsafe fn is_raised_in(files: &[&CStr]) -> bool {
    // SAFETY: elog.c: copies the error on top of the stack into the current context; a missing text
    // is null.
    unsafe {
        let error = raw::CopyErrorData();
        let text = |text: *const c_char| (!text.is_null()).then(|| CStr::from_ptr(text));
        let is_servers =
            text((*error).domain).is_some_and(|domain| domain.to_bytes().starts_with(b"postgres-"));
        let is_there =
            files.is_empty() || text((*error).filename).is_some_and(|file| files.contains(&file));
        raw::FreeErrorData(error);
        is_servers && is_there
    }
}

/// Runs `body`. If it raises an ERROR, `handler` is given its SQLSTATE while the error waits on
/// PostgreSQL's stack; if the handler returns false the error is raised again as it was, if true it
/// is forgotten. The handler may raise another one instead. Returns whether there was an error.
///
/// Forgetting an error without a subtransaction is only right for one that leaves nothing behind;
/// see the caller.
///
/// # Safety
/// `body` and `handler` own nothing with a destructor, and neither do the frames that an ERROR
/// jumps over.
pub unsafe fn catching(body: impl FnOnce(), handler: impl FnOnce(Code) -> bool) -> bool {
    // SAFETY: elog.h's PG_TRY: the jump buffer lives as long as it is installed, and the previous
    // one is put back on both ways out.
    unsafe {
        let context = pg_sys::CurrentMemoryContext;
        let stack = pg_sys::PG_exception_stack;
        let callbacks = pg_sys::error_context_stack;
        let jumped = call_with_sigsetjmp(false, |buffer| {
            pg_sys::PG_exception_stack = ptr::from_ref::<SigJmpBufFields>(buffer).cast_mut().cast();
            body();
            0
        });
        pg_sys::PG_exception_stack = stack;
        pg_sys::error_context_stack = callbacks;
        if jumped == 0 {
            return false;
        }
        // ErrorContext (elog.c: errfinish), or where a handler of PostgreSQL's has left it.
        let raised_in = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = context;
        let packed = raw::geterrcode();
        if !handler(std::array::from_fn(|n| {
            ((packed >> (6 * n)) & 0x3f) as u8 + b'0'
        })) {
            // Handlers up the stack may delete `context`.
            pg_sys::CurrentMemoryContext = raised_in;
            raw::pg_re_throw();
        }
        raw::FlushErrorState();
        true
    }
}
