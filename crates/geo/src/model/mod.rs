//! Random schedules of transfers between two nodes, with everything that can go wrong: each
//! transaction ends in the same way at both nodes, and as its client was told; nothing is left
//! prepared; the resolver touches no transaction that may still come to the other end.

mod coordinator;
mod node;
mod resolver;
mod session;
mod world;

use crate::fault::{Fault, plant};
use coordinator::Fate;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::Arc;
use shuttle::{Config, FailurePersistence, Runner, thread};
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::World;

/// The nodes that each transaction writes at.
pub const NODES: usize = 2;
/// Transactions of a session.
const TRANSFERS: usize = 2;
/// Passes of the resolver beside the sessions.
const PASSES: usize = 3;
/// Passes that suffice when nothing gets lost.
const LAST_PASSES: usize = 4;

/// What can go wrong, and how often.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    pub sessions: usize,
    /// A message is delayed, and its sender does not wait for it.
    pub delays: f64,
    /// A reply gets lost.
    pub losses: f64,
    /// A wait for a standby is cancelled.
    pub cancels: f64,
    /// Something fails at a node or at the coordinator.
    pub failures: f64,
    /// The coordinator dies so often at most.
    pub crashes: usize,
    /// A node goes down so often at most.
    pub downs: usize,
    /// Whether its standby takes over then.
    pub fails_over: bool,
}

fn yield_for_a_while() {
    for _ in 0..thread_rng().gen_range(0..40) {
        thread::yield_now();
    }
}

fn play(weather: Weather) {
    let world = World::new(weather);
    let spawn = |body: &'static (dyn Fn(&Arc<World>) + Sync)| {
        let world = world.clone();
        thread::spawn(move || body(&world))
    };
    let mut threads = vec![
        spawn(&|world| (0..PASSES).for_each(|_| resolver::pass(world))),
        spawn(&|world| {
            for _ in 0..world.weather.crashes {
                yield_for_a_while();
                world.coordinator.crash();
            }
        }),
        spawn(&|world| {
            for _ in 0..world.weather.downs {
                yield_for_a_while();
                let node = &world.nodes[thread_rng().gen_range(0..NODES)];
                node.go_down(world.weather.fails_over);
            }
        }),
    ];
    for me in 0..weather.sessions {
        let world = world.clone();
        threads.push(thread::spawn(move || {
            for _ in 0..TRANSFERS {
                session::transfer(&world, me);
            }
        }));
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    world.calm_down();
    if world.weather.fails_over {
        // What is not at the standbys is not safe: they take over once more.
        for node in &world.nodes {
            node.go_down(true);
        }
    }
    (0..LAST_PASSES).for_each(|_| resolver::pass(&world));
    check(&world);
}

fn check(world: &World) {
    for node in &world.nodes {
        assert_eq!(node.prepared(), [], "left prepared");
    }
    world.coordinator.at_the_end(|rows, transactions, memory| {
        assert!(rows.is_empty(), "rows are left: {rows:?}");
        assert!(memory.slots.iter().all(|slot| slot.sequence().is_none()));
        for (number, transaction) in transactions.iter().enumerate() {
            let committed = transaction.fate == Fate::Durable;
            for node in &world.nodes {
                assert_eq!(node.has_committed(number), committed, "one half only");
            }
            let told = transaction.told.unwrap_or(committed);
            assert_eq!(told, committed, "the client was told otherwise");
        }
    });
}

fn run(scheduler: impl Scheduler + 'static, body: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(body);
}

/// Everything goes wrong, but nodes restart with all that they had.
const RESTARTS: Weather = Weather {
    sessions: 2,
    delays: 0.15,
    losses: 0.1,
    cancels: 0.1,
    failures: 0.05,
    crashes: 1,
    downs: 1,
    fails_over: false,
};

/// Everything goes wrong, and nodes fail over to their standbys.
const FAILOVERS: Weather = Weather {
    fails_over: true,
    cancels: 0.2,
    ..RESTARTS
};

/// Only messages are delayed, between more sessions.
const DELAYS: Weather = Weather {
    sessions: 3,
    delays: 0.2,
    losses: 0.0,
    cancels: 0.0,
    failures: 0.0,
    crashes: 0,
    downs: 0,
    fails_over: false,
};

fn check_all(weathers: &[Weather], schedules: usize) {
    for &weather in weathers {
        run(RandomScheduler::new(schedules), move || play(weather));
        run(PctScheduler::new(4, schedules), move || play(weather));
    }
}

/// What the check of the model with these faults finds.
fn violation(faults: &[Fault], weathers: &[Weather], schedules: usize) -> Option<String> {
    plant(faults);
    let check = || check_all(weathers, schedules);
    let result = catch_unwind(AssertUnwindSafe(check));
    plant(&[]);
    let panic = result.err()?;
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
        .or(Some(String::new()))
}

#[test]
fn both_nodes_end_alike_and_nothing_is_left() {
    check_all(&[DELAYS, RESTARTS, FAILOVERS], 2000);
}

#[test]
fn each_planted_fault_is_found() {
    use Fault::*;
    let faults = [
        YesByAnyTag,
        YesWithoutStandby,
        AppliedWithoutStandby,
        UnconfirmedCommitted,
        ErasedUnasked,
        ActiveIgnored,
        StatusUnconfirmed,
        ActiveBeforePrepared,
        DecidedBeforeActive,
        SlotOpenedLate,
        SlotClosedUndecided,
        SentBeforeDurable,
        ToldBeforeDurable,
        IncarnationKept,
    ];
    for fault in faults {
        let start = std::time::Instant::now();
        let found = violation(&[fault], &[RESTARTS, FAILOVERS, DELAYS], 3000);
        eprintln!("{fault:?} {:?} {:?}", start.elapsed(), found);
    }
}
