//! Models: random schedules of whole transactions against what they must never show. A lost wake-up
//! is a deadlock, which shuttle finds by itself.

mod combining;
mod flushing;
mod latch;
mod memberships;
mod prepared;
mod preparing;
mod server;
mod transactions;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::atomic::{AtomicU32, Ordering::SeqCst};
use shuttle::{Config, FailurePersistence, Runner};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

type Stop = (u32, Box<dyn FnOnce()>);

thread_local! {
    /// A model runs. shuttle runs all threads of a model on one.
    static RUNS: Cell<bool> = const { Cell::new(false) };
    /// What this thread does before one of its next accesses: in how many.
    static STOP: RefCell<Option<Stop>> = const { RefCell::new(None) };
}

/// An access to a word: while a model runs, other threads may come in between. The words themselves
/// stay what they are in the server, so that tests without a model use them, too.
pub fn step() {
    if RUNS.get() {
        AtomicU32::new(0).load(SeqCst);
    }
    let stop = STOP.with_borrow_mut(|stop| {
        let (steps, _) = stop.as_mut()?;
        *steps -= 1;
        if *steps == 0 { stop.take() } else { None }
    });
    if let Some((_, stop)) = stop {
        stop();
    }
}

/// Runs `body`, and `stop` before its access number `steps` if it has so many.
pub fn at_step<R>(steps: u32, stop: impl FnOnce() + 'static, body: impl FnOnce() -> R) -> R {
    STOP.set(Some((steps, Box::new(stop))));
    let result = body();
    STOP.set(None);
    result
}

fn run(scheduler: impl Scheduler + 'static, body: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    RUNS.set(true);
    let result = catch_unwind(AssertUnwindSafe(|| {
        Runner::new(scheduler, config).run(body);
    }));
    RUNS.set(false);
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

pub fn check_random(body: impl Fn() + Send + Sync + 'static, schedules: usize) {
    run(RandomScheduler::new(schedules), body);
}

pub fn check_pct(body: impl Fn() + Send + Sync + 'static, schedules: usize, depth: usize) {
    run(PctScheduler::new(depth, schedules), body);
}

/// What a check of a body with a fault in it has found; None if nothing.
pub fn violation(check: impl FnOnce()) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(check)).err()?;
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
        .or(Some(String::new()))
}
