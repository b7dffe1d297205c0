//! Sleeping on the process latch, and waking others.

use super::raw;
use hotrow::ActorId;
use pgrx::pg_sys;

/// Microseconds since PostgreSQL's epoch.
#[inline]
pub fn now() -> u64 {
    // SAFETY: reads the clock.
    unsafe { raw::GetCurrentTimestamp() as u64 }
}

/// This process's number in the shared arrays.
#[inline]
pub fn me() -> ActorId {
    // SAFETY: MyProc is set in every process that runs transactions.
    unsafe { (*pg_sys::MyProc).pgprocno as ActorId }
}

/// Whether this process has a place in the shared arrays.
pub fn is_backend() -> bool {
    // SAFETY: both are plain reads; MyProc is null in processes without one.
    unsafe { !pg_sys::MyProc.is_null() && (*pg_sys::MyProc).pgprocno < pg_sys::MaxBackends }
}

/// Wakes a process that sleeps in `sleep`. Harmless when it does not.
pub fn wake(actor: ActorId) {
    // SAFETY: `actor` is a pgprocno, so within allProcs; SetLatch is safe at any time, in critical sections too.
    unsafe {
        let proc = (*pg_sys::ProcGlobal).allProcs.add(actor as usize);
        raw::SetLatch(&raw mut (*proc).procLatch);
    }
}

/// Processes to be woken once a lock is released.
pub struct Wakes {
    list: [ActorId; 64],
    count: usize,
}

impl Wakes {
    pub fn new() -> Self {
        Wakes {
            list: [0; 64],
            count: 0,
        }
    }

    /// Notes one; a list that is full wakes it at once.
    pub fn push(&mut self, actor: ActorId) {
        match self.list.get_mut(self.count) {
            Some(place) => {
                *place = actor;
                self.count += 1;
            }
            None => wake(actor),
        }
    }

    pub fn deliver(&self) {
        self.list[..self.count].iter().copied().for_each(wake);
    }
}

/// Sleeps until woken, until `timeout_ms` have passed (-1: no limit), or until something needs attention. Raises ERROR on
/// cancel and terminate. The caller checks its condition again, before and after.
pub fn sleep(timeout_ms: i64, event: u32) {
    // SAFETY: the standard latch loop; may raise, and our callers keep nothing with a destructor.
    unsafe {
        let flags = pg_sys::WL_LATCH_SET
            | pg_sys::WL_EXIT_ON_PM_DEATH
            | if timeout_ms >= 0 {
                pg_sys::WL_TIMEOUT
            } else {
                0
            };
        raw::WaitLatch(pg_sys::MyLatch, flags as i32, timeout_ms, event);
        raw::ResetLatch(pg_sys::MyLatch);
    }
    check_for_interrupts();
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
