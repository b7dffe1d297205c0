//! What a cycle does, drawn from the seed alone.
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::bail;
use rand::Rng;
use rand::seq::IndexedRandom;
use serde::Serialize;

use crate::faults::rng;

/// For the random numbers of the plan itself.
const PLANNER: u64 = u64::MAX;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// kill -9 of all processes of the coordinator.
    KillCoordinator,
    /// kill -9 of the coordinator's postmaster alone.
    KillPostmaster,
    /// kill -9 of a session of the coordinator.
    KillBackend,
    /// kill -9 of the resolver.
    KillResolver,
    /// kill -9 of all processes of a node.
    KillNode,
    /// A node stops, fast or immediate, and starts again.
    RestartNode,
    /// The line to a node is cut for a while.
    Cut,
    /// The line to a node is cut, and what was to be prepared there is prepared elsewhere.
    CutPrepare,
    /// All connections of the line to a node break.
    Break,
    /// Sessions are cancelled and terminated, at the coordinator and at nodes.
    Signal,
    /// A stop event holds a session, or the resolver, while something is killed.
    Stop,
}

impl Fault {
    pub const ALL: [(Fault, &str); 11] = [
        (Fault::KillCoordinator, "kill-coordinator"),
        (Fault::KillPostmaster, "kill-postmaster"),
        (Fault::KillBackend, "kill-backend"),
        (Fault::KillResolver, "kill-resolver"),
        (Fault::KillNode, "kill-node"),
        (Fault::RestartNode, "restart-node"),
        (Fault::Cut, "cut"),
        (Fault::CutPrepare, "cut-prepare"),
        (Fault::Break, "break"),
        (Fault::Signal, "signal"),
        (Fault::Stop, "stop"),
    ];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (_, name) = Fault::ALL[*self as usize];
        f.write_str(name)
    }
}

impl FromStr for Fault {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match Fault::ALL.iter().find(|(_, name)| *name == text) {
            Some((fault, _)) => Ok(*fault),
            None => bail!(
                "no fault is called that; there are {}",
                Fault::ALL.map(|(_, name)| name).join(", ")
            ),
        }
    }
}

impl Serialize for Fault {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Where a stop event holds. At the last one it holds the resolver.
pub const POINTS: [&str; 4] = [
    "geo_prepared",
    "geo_decided",
    "geo_applying",
    "geo_resolver_listed",
];

/// What is done while a session is held, or after a PREPARE has been held up in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meanwhile {
    Nothing,
    KillCoordinator,
    KillHeld,
    KillResolver,
    KillNode,
    Cancel,
    Terminate,
}

/// A cycle.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub cycle: u64,
    pub nodes: usize,
    pub clients: usize,
    pub fault: Fault,
    /// The node that the fault is about.
    pub node: usize,
    pub point: &'static str,
    pub meanwhile: Meanwhile,
    /// A stop that is not fast.
    pub is_immediate: bool,
    /// Transactions before the fault.
    pub before: usize,
    /// How long something is away, cut or held.
    pub pause: Duration,
    /// Percent of the sessions with `txn.geo_prepare = early`.
    pub early: u32,
    /// Percent of the sessions with `txn.geo_defer = on`.
    pub defer: u32,
    /// `txn.geo_apply_timeout`.
    pub apply_timeout: &'static str,
    /// The nodes have the extension, and all rows that are updated by key there are hot.
    pub grouped: bool,
}

impl Plan {
    /// The plan of a cycle with one of these faults.
    pub fn draw(seed: u64, cycle: u64, faults: &[Fault]) -> Self {
        use Meanwhile::*;
        let rng = &mut rng(seed, cycle, PLANNER);
        let nodes = rng.random_range(2..=3);
        let fault = *faults.choose(rng).expect("there is a choice");
        let meanwhile: &[Meanwhile] = match fault {
            Fault::CutPrepare => &[Nothing, KillCoordinator, KillNode],
            _ => &[
                Nothing,
                KillCoordinator,
                KillHeld,
                KillResolver,
                KillNode,
                Cancel,
                Terminate,
            ],
        };
        Plan {
            seed,
            cycle,
            nodes,
            clients: rng.random_range(8..=16),
            fault,
            node: rng.random_range(0..nodes),
            point: POINTS.choose(rng).expect("there is a choice"),
            meanwhile: *meanwhile.choose(rng).expect("there is a choice"),
            is_immediate: rng.random_bool(0.5),
            before: rng.random_range(50..=200),
            pause: Duration::from_millis(rng.random_range(50..=2500)),
            early: *[0, 50, 50, 100].choose(rng).expect("there is a choice"),
            defer: *[0, 50].choose(rng).expect("there is a choice"),
            apply_timeout: ["100ms", "2s", "30s"]
                .choose(rng)
                .expect("there is a choice"),
            grouped: rng.random_bool(0.5),
        }
    }

    /// In one line, for people.
    pub fn settings(&self) -> String {
        format!(
            "nodes={} clients={} node={} point={} meanwhile={:?} immediate={} before={} \
             pause={:?} early={}% defer={}% apply_timeout={} grouped={}",
            self.nodes,
            self.clients,
            self.node,
            self.point,
            self.meanwhile,
            self.is_immediate,
            self.before,
            self.pause,
            self.early,
            self.defer,
            self.apply_timeout,
            self.grouped
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_again_and_all_faults_come() {
        let all = Fault::ALL.map(|(fault, _)| fault);
        let draw = |cycle| Plan::draw(7, cycle, &all);
        assert_eq!(draw(3).settings(), draw(3).settings());
        let drawn: Vec<Fault> = (0..200).map(|cycle| draw(cycle).fault).collect();
        assert!(all.iter().all(|fault| drawn.contains(fault)));
    }

    #[test]
    fn faults_have_names() {
        for (fault, name) in Fault::ALL {
            assert_eq!(fault.to_string(), name);
            assert_eq!(name.parse::<Fault>().unwrap(), fault);
        }
    }
}
