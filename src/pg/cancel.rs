//! Cancels that come together with the end of a wait that we have limited by `lock_timeout`.
//!
//! The signal handlers of a cancel, of `statement_timeout` and of `lock_timeout` all set
//! `QueryCancelPending`. `ProcessInterrupts` (tcop/postgres.c) raises one error for all that came
//! before it looked: the lock timeout's, unless `statement_timeout` was over earlier. Code that
//! forgets this error, because the timeout only limited a wait, would forget the cancel with it.
//!
//! A lock timeout may also be told as a cancel. `ProcSleep` arms the timer, which takes away the
//! mark that it had fired (timeout.c: enable_timeout). Some calls sleep twice and look for
//! interrupts only while they sleep: `VirtualXactLock`, then for the transaction's id, and
//! `XactLockTableWait`, for the parent of a subtransaction. The first sleep's timer may fire when
//! its lock has been granted; the second one then finds a cancel that bears no mark.

use super::catch::Code;
use super::process;
use super::raw::{self, TimeoutId};
use pgrx::pg_sys;
use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, zeroed};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Another process has sent SIGINT since the last `Watch` began: a timer's comes from ourselves.
static SENT: AtomicBool = AtomicBool::new(false);

/// The handler that was there before ours, which sets `QueryCancelPending`.
static PREVIOUS: OnceLock<libc::sighandler_t> = OnceLock::new();

extern "C" fn on_sigint(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: async-signal-safe calls only. The kernel gives a valid siginfo to whom it calls.
    unsafe {
        match PREVIOUS.get() {
            Some(&handler) if handler != libc::SIG_IGN && handler != libc::SIG_DFL => {
                let handler: extern "C" fn(c_int) = std::mem::transmute(handler);
                handler(signal);
            }
            _ => (),
        }
        // Where the signal means something else, the handler has not set this.
        if is_first() && (*info).si_pid() != libc::getpid() && pg_sys::QueryCancelPending != 0 {
            SENT.store(true, Ordering::SeqCst);
        }
    }
}

/// The process's own action for SIGINT.
fn action() -> libc::sigaction {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: sigaction(2) with a valid structure, of which all zeros are a value.
    unsafe {
        libc::sigaction(libc::SIGINT, null_mut(), action.as_mut_ptr());
        action.assume_init()
    }
}

/// Whether the kernel calls our handler, and with a siginfo: other libraries may call it after
/// they have put their own before it.
fn is_first() -> bool {
    let now = action();
    now.sa_sigaction == on_sigint as *const () as libc::sighandler_t
        && now.sa_flags & libc::SA_SIGINFO != 0
}

/// Puts our handler before the process's own, once. False if it cannot, or another library has put
/// its handler before ours since. Not to be saved and called by others: it wants a siginfo.
fn listen() -> bool {
    if PREVIOUS.get().is_some() {
        return is_first();
    }
    let before = action();
    if before.sa_flags & libc::SA_SIGINFO != 0 || PREVIOUS.set(before.sa_sigaction).is_err() {
        return false;
    }
    // SAFETY: sigaction(2) with valid structures. PREVIOUS is set before our handler can run;
    // handlers of PostgreSQL take the signal's number only.
    unsafe {
        let mut ours: libc::sigaction = zeroed();
        ours.sa_sigaction = on_sigint as *const () as libc::sighandler_t;
        ours.sa_mask = before.sa_mask;
        ours.sa_flags = before.sa_flags | libc::SA_SIGINFO;
        libc::sigaction(libc::SIGINT, &raw const ours, null_mut()) == 0
    }
}

/// Whether a cancel that comes together with the end of a limited wait is heard.
pub fn is_heard() -> bool {
    listen()
}

/// What a lock timeout and a cancel are told as.
const LOCK_TIMEOUT: Code = *b"55P03";
const CANCELED: Code = *b"57014";

/// How long a timer of one millisecond may take.
const LONGEST_MS: u32 = 1000;

/// From before a limited wait until its error has been forgotten.
pub struct Watch {
    statement_timeout: bool,
    /// `SENT` can be relied on.
    is_listening: bool,
    since: Instant,
    /// The timer does not fire before that.
    limit: Duration,
}

impl Watch {
    /// Begins one for a wait of at most `ms` milliseconds. Raises what is to be heard already.
    pub fn begin(ms: i32) -> Watch {
        let watch = Watch {
            // SAFETY: reads a flag of this backend's table of timeouts. Before the look for
            // interrupts: a timer that fires between the two is known to have run.
            statement_timeout: unsafe { raw::get_timeout_active(TimeoutId::StatementTimeout) },
            is_listening: listen(),
            since: Instant::now(),
            limit: Duration::from_millis(ms.saturating_sub(1).max(0) as u64),
        };
        SENT.store(false, Ordering::SeqCst);
        process::check_for_interrupts();
        watch
    }

    /// Whether an ERROR with this SQLSTATE says that the time of the limited wait is over, by
    /// whatever name.
    pub fn is_timeout(&self, code: Code) -> bool {
        code == LOCK_TIMEOUT || self.is_misnamed(code)
    }

    /// Whether an ERROR with this SQLSTATE is a lock timeout that is told as a cancel: its time is
    /// over, nobody has sent a cancel, and the statement still has time.
    pub fn is_misnamed(&self, code: Code) -> bool {
        code == CANCELED
            && self.is_listening
            && self.since.elapsed() >= self.limit
            && !SENT.load(Ordering::SeqCst)
            && !self.has_heard_statement_timeout()
    }

    /// `statement_timeout` is over, and an ERROR has taken its mark away.
    fn has_heard_statement_timeout(&self) -> bool {
        // SAFETY: reads flags of this backend's table of timeouts.
        unsafe {
            self.statement_timeout
                && !raw::get_timeout_active(TimeoutId::StatementTimeout)
                && !raw::get_timeout_indicator(TimeoutId::StatementTimeout, false)
        }
    }

    /// Lets a cancel or `statement_timeout` that came meanwhile be heard by the next look for
    /// interrupts, under its own name; and all that the error has kept `ProcessInterrupts` from.
    pub fn end(self) {
        // SAFETY: the flags are what the signal's handler sets; a cancel that comes after they have
        // been taken back sets SENT, or them. The last part arms PostgreSQL's timer, whose end it
        // was.
        unsafe {
            // The timer may have fired once more while its error was raised.
            let is_late = raw::get_timeout_indicator(TimeoutId::LockTimeout, true);
            if is_late && self.is_listening {
                pg_sys::QueryCancelPending = 0;
            }
            let is_pending =
                is_late && raw::get_timeout_indicator(TimeoutId::StatementTimeout, false);
            if SENT.swap(false, Ordering::SeqCst) || is_pending {
                pg_sys::QueryCancelPending = 1;
            }
            pg_sys::InterruptPending = 1;
            if self.has_heard_statement_timeout() {
                raw::enable_timeout_after(TimeoutId::StatementTimeout, 1);
                // The statement must not end before.
                for _ in 0..LONGEST_MS {
                    if raw::get_timeout_indicator(TimeoutId::StatementTimeout, false) {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }
}
