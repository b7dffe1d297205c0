//! Snapshots of several nodes and of the coordinator beside commits in one and in two phases: each
//! is one cut through all commits.

use super::{NODES, run};
use crate::fault::{Fault, plant, planted};
use crate::{Gate, Seat, Servers, Side};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread;
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// Sessions that commit, and those that read.
const COMMITTERS: usize = 3;
const READERS: usize = 2;
/// Commits of a session, and snapshots of a reader.
const COMMITS: usize = 3;
const SNAPSHOTS: usize = 2;
/// What the resolver does beside them.
const PASSES: usize = 12;
/// How often a reader waits for what is unapplied.
const ATTEMPTS: usize = 8;
/// The coordinator's own data, behind those of the nodes.
const LOCAL: usize = NODES;

type Numbers = BTreeSet<usize>;

struct Commit {
    places: Vec<usize>,
    /// Those that were acknowledged before it began.
    after: Numbers,
}

#[derive(Default)]
struct World {
    gate: Mutex<(Gate, [Seat; COMMITTERS + READERS])>,
    has_left: Condvar,
    commits: Mutex<Vec<Commit>>,
    acknowledged: Mutex<Numbers>,
    /// What is committed at each place.
    committed: [Mutex<Numbers>; NODES + 1],
    /// What is decided and left to the resolver, by node.
    unapplied: Mutex<[Numbers; NODES]>,
    violation: OnceLock<&'static str>,
}

fn pause() {
    for _ in 0..thread_rng().gen_range(0..6) {
        thread::yield_now();
    }
}

fn servers(nodes: &[usize]) -> Servers {
    let add = |all: Servers, &node: &usize| all.with(node as u32);
    nodes.iter().fold(Servers::of(1), add)
}

impl World {
    fn enter(&self, me: usize, side: Side, nodes: &[usize]) {
        let mut held = self.gate.lock().unwrap();
        let mut is_inside = held.0.come(&held.1, me, side, servers(nodes));
        while !is_inside {
            held = self.has_left.wait(held).unwrap();
            is_inside = held.0.enter(&held.1, me);
        }
    }

    fn leave(&self, me: usize) {
        let held = self.gate.lock().unwrap();
        held.0.leave(&held.1, me, |_| {});
        self.has_left.notify_all();
    }

    fn begin(&self, places: Vec<usize>) -> usize {
        let after = self.acknowledged.lock().unwrap().clone();
        let mut commits = self.commits.lock().unwrap();
        commits.push(Commit { places, after });
        commits.len() - 1
    }

    fn commit_at(&self, place: usize, number: usize) {
        pause();
        self.committed[place].lock().unwrap().insert(number);
        pause();
    }

    fn acknowledge(&self, number: usize) {
        self.acknowledged.lock().unwrap().insert(number);
    }

    /// A commit at one node, in one phase.
    fn commit_one(&self, me: usize) {
        let node = thread_rng().gen_range(0..NODES);
        let number = self.begin(vec![node]);
        if !planted(Fault::OnePhaseUngated) {
            self.enter(me, Side::Commit, &[node]);
        }
        if planted(Fault::LeftUnacknowledged) {
            self.leave(me);
        }
        self.commit_at(node, number);
        self.leave(me);
        self.acknowledge(number);
    }

    /// A commit at all nodes and at the coordinator. The session may give up amid it.
    fn commit_all(&self, me: usize) {
        let nodes: Vec<usize> = (0..NODES).collect();
        let number = self.begin((0..=LOCAL).collect());
        let (visible, sent) = (planted(Fault::EnteredVisible), planted(Fault::EnteredSent));
        if !visible && !sent {
            self.enter(me, Side::Commit, &nodes);
        }
        self.commit_at(LOCAL, number);
        if visible {
            self.enter(me, Side::Commit, &nodes);
        }
        let told = match thread_rng().gen_bool(0.3) {
            true => thread_rng().gen_range(0..NODES),
            false => NODES,
        };
        for &node in &nodes[..told] {
            if planted(Fault::LeftUnacknowledged) && node == NODES - 1 {
                self.leave(me);
            }
            self.commit_at(node, number);
            if sent && node == 0 {
                self.enter(me, Side::Commit, &nodes);
            }
        }
        if planted(Fault::LeftUntold) {
            self.leave(me);
            pause();
        }
        if told < NODES {
            let mut unapplied = self.unapplied.lock().unwrap();
            unapplied.iter_mut().for_each(|node| {
                node.insert(number);
            });
        }
        self.leave(me);
        self.acknowledge(number);
    }

    /// The resolver applies something at a node that it reaches. It does not come to the gate.
    fn resolve(&self) {
        let node = thread_rng().gen_range(0..NODES);
        let found = self.unapplied.lock().unwrap()[node].first().copied();
        if let Some(number) = found {
            self.commit_at(node, number);
            self.unapplied.lock().unwrap()[node].remove(&number);
        }
    }

    fn has_unapplied(&self, nodes: &[usize]) -> bool {
        let unapplied = self.unapplied.lock().unwrap();
        nodes.iter().any(|&node| !unapplied[node].is_empty())
    }

    fn look(&self, place: usize) -> (usize, Numbers) {
        pause();
        (place, self.committed[place].lock().unwrap().clone())
    }

    /// Reads some nodes, and the coordinator.
    fn read(&self, me: usize) {
        let mut nodes: Vec<usize> = (0..NODES).collect();
        if thread_rng().gen_bool(0.2) {
            nodes.remove(thread_rng().gen_range(0..NODES));
        }
        if thread_rng().gen_bool(0.5) {
            nodes.reverse();
        }
        for _ in 0..ATTEMPTS {
            let before = self.acknowledged.lock().unwrap().clone();
            let early = planted(Fault::UnappliedTooEarly) && self.has_unapplied(&nodes);
            let local = planted(Fault::LocalTooEarly).then(|| self.look(LOCAL));
            self.enter(me, Side::Read, &nodes);
            let late = !planted(Fault::UnappliedTooEarly) && self.has_unapplied(&nodes);
            if early || late {
                self.leave(me);
                pause();
                continue;
            }
            let mut seen = vec![local.unwrap_or_else(|| self.look(LOCAL))];
            for (n, &node) in nodes.iter().enumerate() {
                if planted(Fault::ReaderLeftEarly) && n == nodes.len() - 1 {
                    self.leave(me);
                }
                seen.push(self.look(node));
            }
            self.leave(me);
            return self.check(&seen, &before);
        }
    }

    /// Whether what was seen at these places is one cut.
    fn check(&self, seen: &[(usize, Numbers)], before: &Numbers) {
        let commits = self.commits.lock().unwrap();
        let note = |holds: bool, otherwise: &'static str| {
            if !holds {
                self.violation.get_or_init(|| otherwise);
            }
        };
        let looks = |number: usize| {
            let places = &commits[number].places;
            let looks = seen.iter().filter(|(place, _)| places.contains(place));
            looks
                .map(|(_, seen)| seen.contains(&number))
                .collect::<BTreeSet<bool>>()
        };
        for (number, commit) in commits.iter().enumerate() {
            let found = looks(number);
            note(found.len() < 2, "a half was seen");
            if found.contains(&true) {
                let all = commit.after.iter();
                let missed = all
                    .map(|&earlier| looks(earlier))
                    .any(|one| one.contains(&false));
                note(!missed, "an effect was seen without its cause");
            }
            let is_missed = before.contains(&number) && found.contains(&false);
            note(!is_missed, "what was acknowledged before was not seen");
        }
    }
}

/// Plays one schedule. What is wrong with it.
fn play() -> Option<&'static str> {
    let world: Arc<World> = Arc::default();
    let mut threads = Vec::new();
    for me in 0..COMMITTERS + READERS {
        let world = world.clone();
        threads.push(thread::spawn(move || match me < COMMITTERS {
            true => (0..COMMITS).for_each(|_| match thread_rng().gen_bool(0.5) {
                true => world.commit_one(me),
                false => world.commit_all(me),
            }),
            false => (0..SNAPSHOTS).for_each(|_| world.read(me)),
        }));
    }
    let resolver = world.clone();
    threads.push(thread::spawn(move || {
        (0..PASSES).for_each(|_| resolver.resolve());
    }));
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    let held = world.gate.lock().unwrap();
    if !held.1.iter().all(Seat::is_outside) {
        return Some("somebody is left at the gate");
    }
    world.violation.get().copied()
}

fn violation(faults: &[Fault], schedules: usize) -> Option<&'static str> {
    plant(faults);
    let found = run(RandomScheduler::new(schedules), play)
        .or_else(|| run(PctScheduler::new(4, schedules), play));
    plant(&[]);
    found
}

#[test]
fn each_snapshot_is_one_cut() {
    assert_eq!(violation(&[], 5000), None);
}

#[test]
fn each_planted_fault_is_found() {
    use Fault::*;
    let faults = [
        OnePhaseUngated,
        EnteredVisible,
        EnteredSent,
        LeftUnacknowledged,
        LeftUntold,
        ReaderLeftEarly,
        LocalTooEarly,
        UnappliedTooEarly,
    ];
    for fault in faults {
        let found = (0..2000).find_map(|_| violation(&[fault], 50));
        assert!(found.is_some(), "{fault:?} was not found");
    }
}
