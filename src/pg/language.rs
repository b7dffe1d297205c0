//! Whether PL/pgSQL tells us of its statements, and which functions are written in it.

use super::local::Local;
use super::{builtin, raw};
use pgrx::pg_sys::Oid;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

/// PL/pgSQL's variable, and what we have put there.
struct Place {
    variable: Cell<*mut *const c_void>,
    ours: Cell<*const c_void>,
}

static PLACE: Local<Place> = Local::new(Place {
    variable: Cell::new(ptr::null_mut()),
    ours: Cell::new(ptr::null()),
});

/// Whether nothing has been put there yet.
#[inline]
pub fn is_unknown() -> bool {
    PLACE.variable.get().is_null()
}

/// Puts our plugin there.
///
/// # Safety
/// `variable` is PL/pgSQL's, which lives as long as the process.
pub unsafe fn put(variable: *mut *const c_void, ours: *const c_void) {
    // SAFETY: by the contract; PL/pgSQL reads it before each call.
    unsafe { *variable = ours };
    PLACE.variable.set(variable);
    PLACE.ours.set(ours);
}

/// Whether PL/pgSQL tells us of its statements: nobody has put another plugin in place of ours.
pub fn is_watched() -> bool {
    let variable = PLACE.variable.get();
    // SAFETY: as in `put`.
    !variable.is_null() && ptr::eq(unsafe { *variable }, PLACE.ours.get())
}

/// Whether a function is written in PL/pgSQL.
///
/// # Safety
/// A transaction runs; catalogs can be read.
pub unsafe fn is_written_in_it(function: Oid) -> bool {
    // SAFETY: a catalog look-up.
    unsafe {
        let language = builtin::ask_function(function, |row| row.prolang);
        language.is_some_and(|language| {
            language != Oid::INVALID && language == raw::get_language_oid(c"plpgsql".as_ptr(), true)
        })
    }
}
