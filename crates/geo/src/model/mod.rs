//! Random schedules of transfers between two nodes, with everything that can go wrong: each
//! transaction ends in the same way at both nodes, and as its client was told; nothing is left
//! prepared; the resolver touches no transaction that may still come to the other end.

mod coordinator;
mod cut;
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
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;
use world::World;

/// The nodes that each transaction writes at.
pub const NODES: usize = 2;
/// Transactions of a session.
const TRANSFERS: usize = 2;
/// Passes of the resolver beside the sessions.
const PASSES: usize = 3;
/// Its passes after them.
const STORMY_PASSES: usize = 2;
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

/// Plays one schedule. What is wrong with it.
fn play(weather: Weather) -> Option<&'static str> {
    let world = World::new(weather);
    let spawn = |body: &'static (dyn Fn(&Arc<World>) + Sync)| {
        let world = world.clone();
        thread::spawn(move || body(&world))
    };
    let mut threads = vec![
        spawn(&|world| (0..PASSES).for_each(|_| resolver::pass(world))),
        spawn(&|world| {
            for _ in 0..PASSES {
                yield_for_a_while();
                resolver::apply_handed(world);
            }
        }),
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
    resolver::apply_handed(&world);
    (0..STORMY_PASSES).for_each(|_| resolver::pass(&world));
    world.calm_down();
    if world.weather.fails_over {
        // What is not at the standbys is not safe: they take over once more.
        world.nodes.iter().for_each(|node| node.go_down(true));
    }
    (0..LAST_PASSES).for_each(|_| resolver::pass(&world));
    check(&world);
    world.violation()
}

fn check(world: &World) {
    let nothing_prepared = world.nodes.iter().all(|node| node.prepared().is_empty());
    world.check(nothing_prepared, "left prepared");
    world.coordinator.at_the_end(|rows, transactions, memory| {
        world.check(rows.is_empty(), "rows are left");
        let mut slots = memory.slots.iter();
        world.check(
            slots.all(|slot| slot.sequence().is_none()),
            "a slot is left open",
        );
        let handed = memory.handed();
        world.check(handed.is_empty(), "a commit is left handed over");
        for (number, transaction) in transactions.iter().enumerate() {
            let committed = transaction.fate == Fate::Durable;
            let mut nodes = world.nodes.iter();
            let alike = nodes.all(|node| node.has_committed(number) == committed);
            world.check(alike, "a node has ended a transaction otherwise");
            let told = transaction.told.unwrap_or(committed);
            world.check(told == committed, "a client was told otherwise");
        }
    });
}

/// Plays schedules until one has a violation. A model that panics leaves shuttle's tasks unwinding,
/// which disturbs the next one, so violations are noted instead.
fn run(
    scheduler: impl Scheduler + 'static,
    play: impl Fn() -> Option<&'static str> + Send + Sync + 'static,
) -> Option<&'static str> {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    let found: Arc<OnceLock<&'static str>> = Arc::default();
    let noted = found.clone();
    Runner::new(scheduler, config).run(move || {
        if noted.get().is_none()
            && let Some(violation) = play()
        {
            noted.get_or_init(|| violation);
        }
    });
    found.get().copied()
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

/// What the check of the model with these faults finds, and the seed of the schedules that have it.
fn violation(faults: &[Fault], weathers: &[Weather], schedules: usize) -> Option<String> {
    plant(faults);
    // Other schedules each time.
    let seed = RandomState::new().build_hasher().finish();
    let found = weathers.iter().find_map(|&weather| {
        let any = RandomScheduler::new_from_seed(seed, schedules);
        let few_switches = PctScheduler::new_from_seed(seed, 4, schedules);
        let found = run(any, move || play(weather));
        let found = found.or_else(|| run(few_switches, move || play(weather)));
        found.map(|found| format!("{found} (seed {seed}, {weather:?})"))
    });
    plant(&[]);
    found
}

const ALL: [Weather; 3] = [FAILOVERS, RESTARTS, DELAYS];

#[test]
fn both_nodes_end_alike_and_nothing_is_left() {
    assert_eq!(violation(&[], &ALL, 4000), None);
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
        HandedBeforeDurable,
        HandedUnwarned,
        IncarnationKept,
    ];
    for fault in faults {
        // Few schedules of each weather at a time: one may show a fault often, another never.
        let found = (0..2000).find_map(|_| violation(&[fault], &ALL, 50));
        assert!(found.is_some(), "{fault:?} was not found");
    }
}

/// While no node fails over each of the two guards of erasing suffices.
#[test]
fn the_second_look_guards_rows_that_are_erased_unasked() {
    use Fault::{ErasedUnasked, NoSecondLook};
    assert_eq!(violation(&[NoSecondLook], &ALL, 1000), None);
    assert_eq!(violation(&[ErasedUnasked], &[RESTARTS, DELAYS], 1000), None);
    let both = [ErasedUnasked, NoSecondLook];
    let found = violation(&both, &[RESTARTS, DELAYS], 3000);
    assert!(found.is_some(), "{both:?} were not found");
}

#[test]
fn a_slot_may_close_as_soon_as_the_decision_is_visible() {
    assert_eq!(violation(&[Fault::SlotClosedUnapplied], &ALL, 2000), None);
}
