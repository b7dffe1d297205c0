//! Waits of the lock manager in which this process looks for a deadlock later than others, so that
//! one of these is its victim.

use super::session::SESSION;
use pgrx::pg_sys;

/// Runs a wait for a row lock. A transaction that has only tickets cannot have caused a deadlock:
/// as the victim it would leave the cycle to the next holder of the ticket.
pub fn with_ticket<R>(body: impl FnOnce() -> R) -> R {
    if SESSION.is_member() && SESSION.has_only_tickets() {
        with_later_check(body)
    } else {
        body()
    }
}

/// Runs a wait of the lock manager whose deadlock check runs four times later than that of others.
pub fn with_later_check<R>(body: impl FnOnce() -> R) -> R {
    const LATER: i32 = 4;
    if SESSION.deadlock_timeout.get().is_some() {
        return body();
    }
    // SAFETY: DeadlockTimeout is read by ProcSleep; it is put back here, or by `clear` after an
    // ERROR.
    unsafe {
        SESSION.deadlock_timeout.set(Some(pg_sys::DeadlockTimeout));
        pg_sys::DeadlockTimeout = pg_sys::DeadlockTimeout.saturating_mul(LATER);
    }
    let result = body();
    restore();
    result
}

/// Puts the setting back, after the wait or an ERROR in it.
pub fn restore() {
    if let Some(configured) = SESSION.deadlock_timeout.take() {
        // SAFETY: puts the setting's value back.
        unsafe { pg_sys::DeadlockTimeout = configured };
    }
}
