//! Staying awake for what another process does in a moment, while it runs on another processor.
//!
//! If it does not run, it needs the processor that the waiter has: the waiter goes to sleep, and is
//! woken. `sched_yield` is not a way to let it run. Each backend calls `setsid`, and Linux makes
//! each session a group of its own (autogroup(7), `kernel.sched_autogroup_enabled`). The call
//! chooses among the processes of one group only, and comes back at once. A waiter that a wake-up
//! has put before its waker on the same processor would keep it from running until its time slice
//! is over.

use super::session::memory;
use crate::pg::process;
use hotrow::BackendId;

/// This process is seen on its processor.
#[inline]
pub fn note() {
    if let Some(processor) = process::processor() {
        memory().processors().note(process::me(), processor);
    }
}

/// Whether that process seems to run, on another processor than this one: then it may be worth
/// while to stay awake for it.
pub fn runs_elsewhere(other: BackendId) -> bool {
    let runs = |processor| memory().processors().runs_elsewhere(other, processor);
    process::processor().is_some_and(runs)
}
