//! Lines of CONTEXT in messages.

use super::raw;
use pgrx::pg_sys;
use std::ffi::{CStr, c_void};

/// Runs `body`; what it reports meanwhile, errors and log lines, has that line of context.
pub fn with_context<R>(line: &CStr, body: impl FnOnce() -> R) -> R {
    // SAFETY: elog.h's ErrorContextCallback: it lives in this frame, and is taken off here, or by
    // whoever catches an ERROR that leaves it.
    unsafe {
        let mut callback = pg_sys::ErrorContextCallback {
            previous: pg_sys::error_context_stack,
            callback: Some(say),
            arg: line.as_ptr().cast_mut().cast(),
        };
        pg_sys::error_context_stack = &raw mut callback;
        let result = body();
        pg_sys::error_context_stack = callback.previous;
        result
    }
}

unsafe extern "C-unwind" fn say(line: *mut c_void) {
    // SAFETY: the string of `with_context`, in errcontext's protocol (elog.h).
    unsafe {
        raw::set_errcontext_domain(c"postgres".as_ptr());
        raw::errcontext_msg(c"%s".as_ptr(), line.cast_const());
    }
}
