//! Raising PostgreSQL errors without unwinding.

use super::raw;
use pgrx::pg_sys;
use std::ffi::{CStr, c_char, c_int};

/// An error of this extension: what the client sees.
pub struct Report {
    pub code: [u8; 5],
    pub message: &'static CStr,
    pub detail: Option<&'static CStr>,
    pub hint: Option<&'static CStr>,
}

/// elog.h's MAKE_SQLSTATE.
pub const fn sqlstate(code: [u8; 5]) -> i32 {
    let mut packed = 0;
    let mut n = 0;
    while n < 5 {
        packed += (((code[n] - b'0') & 0x3f) as i32) << (6 * n);
        n += 1;
    }
    packed
}

impl Report {
    /// Raises the ERROR. It jumps to PostgreSQL's handler: nothing with a destructor may be alive
    /// in the callers.
    pub fn raise(&self) -> ! {
        // SAFETY: errstart..errfinish is elog.h's protocol; all strings are static and used through
        // "%s".
        unsafe {
            if raw::errstart(raw::ERROR, std::ptr::null()) {
                raw::errcode(sqlstate(self.code));
                raw::errmsg_internal(c"%s".as_ptr(), self.message.as_ptr());
                if let Some(detail) = self.detail {
                    raw::errdetail_internal(c"%s".as_ptr(), detail.as_ptr());
                }
                if let Some(hint) = self.hint {
                    raw::errhint(c"%s".as_ptr(), hint.as_ptr());
                }
                raw::errfinish(c"txn".as_ptr(), 0, std::ptr::null());
            }
        }
        std::process::abort()
    }
}

/// Raises an error whose text was made for it.
pub struct Told {
    pub code: [u8; 5],
    pub message: *const c_char,
    /// May be null.
    pub detail: *const c_char,
    /// May be null.
    pub hint: *const c_char,
}

impl Told {
    /// Raises the ERROR.
    ///
    /// # Safety
    /// The texts are C strings that the abort of the transaction does not free first (`in_c`).
    /// Nothing with a destructor is alive in the callers.
    pub unsafe fn raise(&self) -> ! {
        // SAFETY: the caller's texts outlive the ERROR's way, and no frame above has a destructor.
        unsafe { self.raise_in(std::ptr::null()) }
    }

    /// Raises the ERROR with a context, which may be null.
    ///
    /// # Safety
    /// As for `raise`.
    pub unsafe fn raise_in(&self, context: *const c_char) -> ! {
        // SAFETY: the caller's texts outlive the ERROR's way, and no frame above has a destructor.
        unsafe { self.report(raw::ERROR, context) };
        std::process::abort()
    }

    /// Sends a NOTICE.
    ///
    /// # Safety
    /// As for `raise`, should the client not be there any more.
    pub unsafe fn notice(&self) {
        // SAFETY: the caller's texts are C strings; a lost client is an ERROR over frames without
        // destructors.
        unsafe { self.report(raw::NOTICE, std::ptr::null()) };
    }

    /// Sends a WARNING.
    ///
    /// # Safety
    /// As for `notice`.
    pub unsafe fn warning(&self) {
        // SAFETY: the caller's texts are C strings; a lost client is an ERROR over frames without
        // destructors.
        unsafe { self.report(raw::WARNING, std::ptr::null()) };
    }

    /// # Safety
    /// As for `raise`.
    unsafe fn report(&self, level: c_int, context: *const c_char) {
        // SAFETY: as in `Report::raise`; elog.c copies the texts.
        unsafe {
            if raw::errstart(level, std::ptr::null()) {
                raw::errcode(sqlstate(self.code));
                raw::errmsg_internal(c"%s".as_ptr(), self.message);
                if !self.detail.is_null() {
                    raw::errdetail_internal(c"%s".as_ptr(), self.detail);
                }
                if !self.hint.is_null() {
                    raw::errhint(c"%s".as_ptr(), self.hint);
                }
                if !context.is_null() {
                    raw::errcontext_msg(c"%s".as_ptr(), context);
                }
                raw::errfinish(c"txn".as_ptr(), 0, std::ptr::null());
            }
        }
    }
}

/// The text as a C string in PostgreSQL's memory, so that nothing of it has a destructor.
pub fn in_c(text: &str) -> *const c_char {
    let length = text.find('\0').unwrap_or(text.len());
    // SAFETY: a new chunk of the current memory context with room for the text and a zero.
    unsafe {
        let chunk = raw::palloc(length + 1).cast::<u8>();
        std::ptr::copy_nonoverlapping(text.as_ptr(), chunk, length);
        *chunk.add(length) = 0;
        chunk.cast()
    }
}

/// Writes a line to the server log, and to no client, whatever its `client_min_messages`: it may
/// tell of rows of others. Raises nothing but what PostgreSQL's own log lines may.
pub fn log(message: &CStr, detail: &CStr) {
    // SAFETY: as in `raise`.
    unsafe {
        if raw::errstart(raw::LOG_SERVER_ONLY, std::ptr::null()) {
            raw::errmsg_internal(c"%s".as_ptr(), message.as_ptr());
            raw::errdetail_internal(c"%s".as_ptr(), detail.as_ptr());
            raw::errfinish(c"txn".as_ptr(), 0, std::ptr::null());
        }
    }
}

/// Runs the body of a callback. A Rust panic in it (a bug) becomes an ordinary ERROR instead of
/// unwinding into C.
#[inline]
pub fn guarded<R>(body: impl FnOnce() -> R) -> R {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(_) => INTERNAL.raise(),
    }
}

/// `guarded` for a body that has PostgreSQL run a part of a statement. A panic that has passed one
/// of PostgreSQL's own handlers has left it in the middle of something: that is worth a crash and
/// recovery.
#[inline]
pub fn guarded_around(body: impl FnOnce()) {
    // SAFETY: globals of this backend, which has one thread.
    let (handler, context) = unsafe { (pg_sys::PG_exception_stack, pg_sys::error_context_stack) };
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_ok() {
        return;
    }
    // SAFETY: as above; the context is that of the frames that are still there.
    unsafe {
        if pg_sys::PG_exception_stack != handler {
            std::process::abort();
        }
        pg_sys::error_context_stack = context;
    }
    INTERNAL.raise()
}

/// Runs a callback that must not raise: a panic there is worth a crash and recovery, not a
/// wrong answer.
#[inline]
pub fn infallible<R>(body: impl FnOnce() -> R) -> R {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(_) => std::process::abort(),
    }
}

const INTERNAL: Report = Report {
    code: *b"XX000",
    message: c"txn: internal error",
    detail: Some(c"The server log has the place."),
    hint: None,
};

/// The library was loaded into a running session.
pub const NOT_PRELOADED: Report = Report {
    code: *b"55000",
    message: c"txn must be loaded at server start",
    detail: Some(c"It needs shared memory that only the postmaster can reserve."),
    hint: Some(c"Add txn to shared_preload_libraries in postgresql.conf, and restart the server."),
};
