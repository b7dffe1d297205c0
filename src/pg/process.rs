//! This process: its number, its clock, its interrupts.

use super::local::Local;
use super::raw;
use hotrow::BackendId;
use pgrx::pg_sys;
use std::cell::Cell;
use std::ffi::CStr;

/// Microseconds since PostgreSQL's epoch.
#[inline]
pub fn now() -> u64 {
    // SAFETY: reads the clock.
    unsafe { raw::GetCurrentTimestamp() as u64 }
}

/// Whole seconds of that.
pub fn second() -> u64 {
    now() / 1_000_000
}

/// The present transaction of that process.
pub fn transaction_of(process: u32) -> pg_sys::VirtualTransactionId {
    // SAFETY: allProcs is an array of all processes; their ids are single words.
    unsafe {
        let proc = (*pg_sys::ProcGlobal).allProcs.add(process as usize);
        pg_sys::VirtualTransactionId {
            backendId: (*proc).backendId,
            localTransactionId: (*proc).lxid,
        }
    }
}

/// This process's number in the shared arrays.
#[inline]
pub fn me() -> BackendId {
    // SAFETY: MyProc is set in every process that runs transactions.
    unsafe { (*pg_sys::MyProc).pgprocno as BackendId }
}

/// The process id of that process; None if there is none.
pub fn pid_of(process: BackendId) -> Option<i32> {
    // SAFETY: an index of allProcs; pid is one word.
    let pid = unsafe { (*(*pg_sys::ProcGlobal).allProcs.add(process as usize)).pid };
    (pid != 0).then_some(pid)
}

/// Whether that is no process, but stands for a prepared transaction (twophase.c: its PGPROC).
pub fn is_prepared(process: BackendId) -> bool {
    // SAFETY: a global that the postmaster sets once.
    process >= unsafe { pg_sys::MaxBackends } as BackendId
}

/// The numbers that stand for prepared transactions: those behind the auxiliary processes
/// (proc.c: InitProcGlobal).
pub fn of_prepared() -> std::ops::Range<BackendId> {
    /// proc.h: NUM_AUXILIARY_PROCS.
    const AUXILIARY: BackendId = 5;
    // SAFETY: set by the postmaster before shared memory is requested.
    let (backends, prepared) = unsafe { (pg_sys::MaxBackends, raw::max_prepared_xacts) };
    let first = backends.max(1) as BackendId + AUXILIARY;
    first..first + prepared.max(0) as BackendId
}

/// Whether this process has a place in the shared arrays.
#[inline]
pub fn is_backend() -> bool {
    // SAFETY: both are plain reads; MyProc is null in processes without one.
    unsafe { !pg_sys::MyProc.is_null() && (*pg_sys::MyProc).pgprocno < pg_sys::MaxBackends }
}

/// Whether the server was built with PostgreSQL's assertions (`debug_assertions`).
pub fn has_assertions() -> bool {
    static KNOWN: Local<Cell<Option<bool>>> = Local::new(Cell::new(None));
    if let Some(known) = KNOWN.get() {
        return known;
    }
    // SAFETY: a setting that every server has; its text is read at once.
    let has = unsafe {
        let value = raw::GetConfigOption(c"debug_assertions".as_ptr(), true, false);
        !value.is_null() && CStr::from_ptr(value).to_bytes() == b"on"
    };
    KNOWN.set(Some(has));
    has
}

/// The processor on which this process runs now, by the operating system's number.
#[inline]
#[cfg(target_os = "linux")]
pub fn processor() -> Option<usize> {
    // SAFETY: reads what the kernel has told this thread.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// The processor on which this process runs now: it is not known.
#[inline]
#[cfg(not(target_os = "linux"))]
pub fn processor() -> Option<usize> {
    None
}

/// How many processors the machine has, 0 if that is not known.
pub fn processors() -> usize {
    // SAFETY: asks the system.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }).unwrap_or(0)
}

/// Lets another runnable process of the same scheduling group have the processor. Whether sessions
/// are in one group depends on the machine (see `hotlock/awake.rs`).
pub fn give_way() {
    std::thread::yield_now();
}

/// A number that is different each time (PostgreSQL's own generator for such purposes).
pub fn random() -> u32 {
    // SAFETY: the process's own state, seeded when it starts.
    unsafe { pg_sys::pg_prng_uint32(&raw mut pg_sys::pg_global_prng_state) }
}

/// Whether something asks for `check_for_interrupts`.
#[inline]
pub fn is_interrupted() -> bool {
    // SAFETY: a flag of this backend; a signal handler only sets it.
    unsafe { pg_sys::InterruptPending != 0 }
}

/// Whether `check_for_interrupts` is going to raise ERROR or FATAL.
pub fn is_to_fail() -> bool {
    // SAFETY: plain reads.
    unsafe { pg_sys::QueryCancelPending != 0 || pg_sys::ProcDiePending != 0 }
}

/// Runs `body`, in which no cancel is heard. (An ERROR out of it ends that, too.)
pub fn without_cancel<R>(body: impl FnOnce() -> R) -> R {
    // SAFETY: HOLD_CANCEL_INTERRUPTS and RESUME_CANCEL_INTERRUPTS.
    unsafe {
        pg_sys::QueryCancelHoldoffCount += 1;
        let result = body();
        pg_sys::QueryCancelHoldoffCount -= 1;
        result
    }
}

/// Processes interrupts other than a cancel.
pub fn absorb_interrupts() {
    if is_interrupted() {
        // SAFETY: HOLD_CANCEL_INTERRUPTS and RESUME_CANCEL_INTERRUPTS; a FATAL ends the session.
        unsafe {
            pg_sys::QueryCancelHoldoffCount += 1;
            raw::ProcessInterrupts();
            pg_sys::QueryCancelHoldoffCount -= 1;
        }
    }
}

/// miscadmin.h's CHECK_FOR_INTERRUPTS.
#[inline]
pub fn check_for_interrupts() {
    // SAFETY: as the macro does.
    unsafe {
        if pg_sys::InterruptPending != 0 {
            raw::ProcessInterrupts();
        }
    }
}
