//! libpq's functions, looked up by name once `postgres_fdw` is loaded.

use pgrx::pg_sys;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute_copy;
use std::sync::OnceLock;

#[repr(C)]
pub struct PGconn {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct PGresult {
    _opaque: [u8; 0],
}

/// libpq-fe.h: PQconninfoOption.
#[repr(C)]
pub struct ConnectionOption {
    pub keyword: *const c_char,
    envvar: *const c_char,
    compiled: *const c_char,
    val: *const c_char,
    label: *const c_char,
    pub dispchar: *const c_char,
    dispsize: c_int,
}

pub type NoticeReceiver = unsafe extern "C" fn(*mut c_void, *const PGresult);

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of libpq that we call.
        #[allow(non_snake_case)]
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// None if one of them is not there.
            fn look_up() -> Option<Functions> {
                Some(Functions {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: dlsym with a C string. libpq's functions have these types
                        // (libpq-fe.h).
                        unsafe {
                            let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr().cast());
                            if found.is_null() {
                                return None;
                            }
                            transmute_copy(&found)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    PQconnectStartParams: fn(*const *const c_char, *const *const c_char, c_int) -> *mut PGconn;
    PQconnectPoll: fn(*mut PGconn) -> c_int;
    PQstatus: fn(*const PGconn) -> c_int;
    PQsocket: fn(*const PGconn) -> c_int;
    PQbackendPID: fn(*const PGconn) -> c_int;
    PQerrorMessage: fn(*const PGconn) -> *const c_char;
    PQsetErrorVerbosity: fn(*mut PGconn, c_int) -> c_int;
    PQconnectionUsedPassword: fn(*const PGconn) -> c_int;
    PQfinish: fn(*mut PGconn);
    PQsetnonblocking: fn(*mut PGconn, c_int) -> c_int;
    PQenterPipelineMode: fn(*mut PGconn) -> c_int;
    PQsendQueryParams: fn(
        *mut PGconn, *const c_char, c_int, *const pg_sys::Oid, *const *const c_char,
        *const c_int, *const c_int, c_int
    ) -> c_int;
    PQpipelineSync: fn(*mut PGconn) -> c_int;
    PQflush: fn(*mut PGconn) -> c_int;
    PQconsumeInput: fn(*mut PGconn) -> c_int;
    PQisBusy: fn(*mut PGconn) -> c_int;
    PQgetResult: fn(*mut PGconn) -> *mut PGresult;
    PQsetSingleRowMode: fn(*mut PGconn) -> c_int;
    PQresultStatus: fn(*const PGresult) -> c_int;
    PQresultErrorField: fn(*const PGresult, c_int) -> *const c_char;
    PQresultErrorMessage: fn(*const PGresult) -> *const c_char;
    PQntuples: fn(*const PGresult) -> c_int;
    PQnfields: fn(*const PGresult) -> c_int;
    PQgetvalue: fn(*const PGresult, c_int, c_int) -> *const c_char;
    PQgetisnull: fn(*const PGresult, c_int, c_int) -> c_int;
    PQcmdStatus: fn(*const PGresult) -> *const c_char;
    PQcmdTuples: fn(*const PGresult) -> *const c_char;
    PQclear: fn(*mut PGresult);
    PQgetCancel: fn(*mut PGconn) -> *mut c_void;
    PQcancel: fn(*mut c_void, *mut c_char, c_int) -> c_int;
    PQfreeCancel: fn(*mut c_void);
    PQsetNoticeReceiver: fn(*mut PGconn, Option<NoticeReceiver>, *mut c_void)
        -> Option<NoticeReceiver>;
    PQconndefaults: fn() -> *mut ConnectionOption;
    PQconninfoFree: fn(*mut ConnectionOption);
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

const LIBRARY: &CStr = c"$libdir/postgres_fdw";

/// A function of `postgres_fdw`, which is loaded if it was not, and libpq with it (dfmgr.c loads
/// with RTLD_GLOBAL). Raises an ERROR if the library or the function is missing. None: its libpq
/// is not one of PostgreSQL 14 or later.
pub fn load(function: &CStr) -> Option<pg_sys::PGFunction> {
    // SAFETY: dfmgr.c; the names are C strings. A function of fmgr's version 1 interface.
    let found = unsafe {
        let found = pg_sys::load_external_function(
            LIBRARY.as_ptr(),
            function.as_ptr(),
            true,
            std::ptr::null_mut(),
        );
        transmute_copy::<*mut c_void, pg_sys::PGFunction>(&found)
    };
    if FUNCTIONS.get().is_none() {
        let _ = FUNCTIONS.set(Functions::look_up()?);
    }
    Some(found)
}

/// Whether libpq is there.
pub fn is_loaded() -> bool {
    FUNCTIONS.get().is_some()
}

/// The functions. `load` has succeeded before there is any connection or result.
pub fn functions() -> &'static Functions {
    FUNCTIONS.get().expect("libpq is loaded before it is used")
}
