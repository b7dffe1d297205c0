//! Sleeping on the process latch, and waking others.
//!
//! The latch is PostgreSQL's, so every signal handler, timer and cancel wakes a sleeper. But
//! `WaitLatch` sleeps in epoll and is woken by a signal: three system calls for the sleeper and a
//! `kill` for the waker, on a path where a wake-up is most of the cost. On Linux we sleep with a
//! futex on the latch's own flag instead. No wake-up is lost: if the flag is set before we sleep,
//! the kernel refuses the sleep. A signal handler of our own process ends the sleep. Another
//! process that uses `wake` sees `sleeping` after it has set the flag.

use super::memory::shared;
use crate::pg::process::{check_for_interrupts, me};
use crate::pg::raw;
use hotrow::BackendId;
use pgrx::pg_sys;

/// Wakes a process that sleeps in `sleep`. Harmless when it does not.
pub fn wake(backend: BackendId) {
    // SAFETY: `backend` is a pgprocno, so within allProcs. SetLatch is safe at any time, also in
    // critical sections.
    unsafe {
        let proc = (*pg_sys::ProcGlobal).allProcs.add(backend as usize);
        let latch = &raw mut (*proc).procLatch;
        raw::SetLatch(latch);
        if let Some(shared) = shared()
            && shared.backends[backend as usize].sleeping.get() != 0
        {
            futex::wake(&raw const (*latch).is_set);
        }
    }
}

/// Processes to be woken once a lock is released.
pub struct Wakes {
    list: [BackendId; 64],
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
    pub fn push(&mut self, backend: BackendId) {
        match self.list.get_mut(self.count) {
            Some(place) => {
                *place = backend;
                self.count += 1;
            }
            None => wake(backend),
        }
    }

    pub fn deliver(&self) {
        self.list[..self.count].iter().copied().for_each(wake);
    }
}

/// Sleeps until woken, until `timeout_ms` have passed, or until something needs attention. Raises
/// ERROR on cancel and terminate. The caller checks its condition again, before and after.
pub fn sleep(timeout_ms: u64, event: u32) {
    doze(timeout_ms, event);
    check_for_interrupts();
}

/// Sleeps where interrupts are held: raises nothing, and returns only when woken or after
/// `timeout_ms`.
#[cfg(target_os = "linux")]
pub fn doze(timeout_ms: u64, event: u32) {
    /// The postmaster's death sets no latch: look after it this often.
    const LOOK_AFTER_MS: u64 = 1000;
    let Some(shared) = shared() else { return };
    let own = &shared.backends[me() as usize];
    // SAFETY: our own latch, and the place where our wait event is shown.
    unsafe {
        let latch = pg_sys::MyLatch;
        own.sleeping.publish(1);
        *pg_sys::my_wait_event_info = event;
        let timed_out = futex::wait(&raw const (*latch).is_set, timeout_ms.min(LOOK_AFTER_MS));
        *pg_sys::my_wait_event_info = 0;
        own.sleeping.publish(0);
        // The postmaster's death takes a process out of WaitLatch with this still set; what it
        // waits for while it ends must not find it so (latch.c: ResetLatch).
        (*latch).maybe_sleeping = 0;
        raw::ResetLatch(latch);
        if timed_out && timeout_ms >= LOOK_AFTER_MS && !raw::PostmasterIsAliveInternal() {
            raw::proc_exit(1);
        }
    }
}

/// Sleeps where interrupts are held: raises nothing, and returns only when woken or after
/// `timeout_ms`.
#[cfg(not(target_os = "linux"))]
pub fn doze(timeout_ms: u64, event: u32) {
    // SAFETY: the standard latch wait.
    unsafe {
        let flags = pg_sys::WL_LATCH_SET | pg_sys::WL_EXIT_ON_PM_DEATH | pg_sys::WL_TIMEOUT;
        raw::WaitLatch(
            pg_sys::MyLatch,
            flags as i32,
            timeout_ms as std::ffi::c_long,
            event,
        );
        raw::ResetLatch(pg_sys::MyLatch);
    }
}

#[cfg(target_os = "linux")]
mod futex {
    use std::ptr::{null, null_mut};

    /// Sleeps while the word is 0. Returns whether the time ran out.
    ///
    /// # Safety
    /// `word` stays mapped.
    pub unsafe fn wait(word: *const i32, timeout_ms: u64) -> bool {
        let time = libc::timespec {
            tv_sec: (timeout_ms / 1000) as libc::time_t,
            tv_nsec: (timeout_ms % 1000 * 1_000_000) as libc::c_long,
        };
        // SAFETY: futex(2) with a valid word and time.
        unsafe {
            let result = libc::syscall(
                libc::SYS_futex,
                word,
                libc::FUTEX_WAIT,
                0,
                &raw const time,
                null::<i32>(),
                0,
            );
            result == -1 && *libc::__errno_location() == libc::ETIMEDOUT
        }
    }

    /// Wakes whoever sleeps on the word.
    ///
    /// # Safety
    /// `word` stays mapped.
    pub unsafe fn wake(word: *const i32) {
        // SAFETY: futex(2) with a valid word.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word,
                libc::FUTEX_WAKE,
                1,
                null::<libc::timespec>(),
                null_mut::<i32>(),
                0,
            );
        }
    }
}
