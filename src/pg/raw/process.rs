//! PostgreSQL's functions about this process: its errors, memory, signals, timers and client.

use pgrx::pg_sys::*;
use std::ffi::{c_char, c_int, c_void};

/// utils/timeout.h, not bound by pgrx: PostgreSQL's own timers.
#[derive(Clone, Copy)]
#[repr(C)]
pub enum TimeoutId {
    LockTimeout = 2,
    StatementTimeout = 3,
}

/// utils/elog.h
pub const ERROR: c_int = 21;
pub const NOTICE: c_int = 18;
pub const WARNING: c_int = 19;
pub const LOG_SERVER_ONLY: c_int = 16;

unsafe extern "C-unwind" {
    // utils/error/elog.c
    pub fn errstart(elevel: c_int, domain: *const c_char) -> bool;
    pub fn errcode(code: c_int) -> c_int;
    pub fn errmsg_internal(format: *const c_char, ...) -> c_int;
    pub fn errdetail_internal(format: *const c_char, ...) -> c_int;
    pub fn set_errcontext_domain(domain: *const c_char) -> c_int;
    pub fn errcontext_msg(format: *const c_char, ...) -> c_int;
    pub fn errhint(format: *const c_char, ...) -> c_int;
    pub fn errfinish(file: *const c_char, line: c_int, function: *const c_char);
    pub fn FlushErrorState();
    pub fn CopyErrorData() -> *mut ErrorData;
    pub fn FreeErrorData(error: *mut ErrorData);
    pub fn geterrcode() -> c_int;
    pub fn ReThrowError(error: *mut ErrorData) -> !;
    pub fn pg_re_throw() -> !;

    // tcop/postgres.c
    pub fn ProcessInterrupts();
    pub fn die(signal: c_int);

    // postmaster/interrupt.c
    pub fn SignalHandlerForConfigReload(signal: c_int);

    // utils/mmgr
    pub fn GetMemoryChunkContext(pointer: *mut c_void) -> MemoryContext;
    pub fn palloc0(size: usize) -> *mut c_void;
    pub fn MemoryContextAlloc(context: MemoryContext, size: usize) -> *mut c_void;
    pub fn palloc(size: Size) -> *mut c_void;
    pub fn AllocSetContextCreateInternal(
        parent: MemoryContext,
        name: *const c_char,
        min: Size,
        initial: Size,
        max: Size,
    ) -> MemoryContext;
    pub fn MemoryContextReset(context: MemoryContext);
    pub fn pfree(pointer: *mut c_void);

    // utils/resowner/resowner.c
    pub fn RegisterResourceReleaseCallback(callback: ResourceReleaseCallback, arg: *mut c_void);

    // storage/ipc
    pub fn PostmasterIsAliveInternal() -> bool;
    pub fn proc_exit(code: c_int) -> !;
    #[cfg(not(target_os = "linux"))]
    pub fn WaitLatch(
        latch: *mut Latch,
        events: c_int,
        timeout: std::ffi::c_long,
        info: uint32,
    ) -> c_int;
    pub fn ResetLatch(latch: *mut Latch);
    pub fn SetLatch(latch: *mut Latch);

    // utils/misc/guc.c
    pub fn GetConfigOption(
        name: *const c_char,
        missing_ok: bool,
        restrict_privileged: bool,
    ) -> *const c_char;

    // utils/misc/timeout.c
    pub fn enable_timeout_after(id: TimeoutId, delay_ms: c_int);
    pub fn disable_timeout(id: TimeoutId, keep_indicator: bool);
    pub fn enable_timeout_at(id: TimeoutId, time: TimestampTz);
    pub fn get_timeout_finish_time(id: TimeoutId) -> TimestampTz;
    pub fn get_timeout_active(id: TimeoutId) -> bool;
    pub fn get_timeout_indicator(id: TimeoutId, reset: bool) -> bool;

    // port/pgsleep.c
    pub fn pg_usleep(microseconds: std::ffi::c_long);

    // utils/misc/guc.c
    pub fn GUC_check_errcode(code: c_int);

    // utils/fmgr/dfmgr.c
    pub fn find_rendezvous_variable(name: *const c_char) -> *mut *mut c_void;

    // common/hashfn.c; not bound by pgrx
    #[cfg(feature = "stop_events")]
    pub fn hash_bytes(bytes: *const u8, length: c_int) -> uint32;

    // utils/mb/mbutils.c
    pub fn pg_mbcliplen(text: *const c_char, len: c_int, limit: c_int) -> c_int;
    pub fn pg_get_client_encoding() -> c_int;
    pub fn GetDatabaseEncoding() -> c_int;

    // utils/adt/timestamp.c, timezone/pgtz.c
    pub fn GetCurrentTimestamp() -> TimestampTz;
    pub fn pg_get_timezone_name(zone: *mut pg_tz) -> *const c_char;

    // libpq/auth.c; not bound by pgrx
    pub static mut ClientAuthentication_hook:
        Option<unsafe extern "C-unwind" fn(port: *mut Port, status: c_int)>;

    // libpq/pqcomm.c; not bound by pgrx
    pub fn pq_buffer_has_data() -> bool;
    pub fn pq_startmsgread();
    pub fn pq_endmsgread();
    pub fn pq_peekbyte() -> c_int;
}
