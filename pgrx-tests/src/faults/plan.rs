//! What a cycle does, drawn from the seed alone.
use std::fmt;
use std::str::FromStr;

use anyhow::bail;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde::Serialize;

use super::kind::Kind;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Cancel,
    Terminate,
    KillBackend,
    KillPostmaster,
    Immediate,
    Fast,
    DiskFull,
    /// Transactions with a timeout of each kind.
    Timeout,
    /// Clients that break off without a word, some of them in COMMIT.
    Cut,
}

impl Fault {
    pub const ALL: [(Fault, &str); 9] = [
        (Fault::Cancel, "cancel"),
        (Fault::Terminate, "terminate"),
        (Fault::KillBackend, "kill-backend"),
        (Fault::KillPostmaster, "kill-postmaster"),
        (Fault::Immediate, "immediate"),
        (Fault::Fast, "fast"),
        (Fault::DiskFull, "disk-full"),
        (Fault::Timeout, "timeout"),
        (Fault::Cut, "cut"),
    ];

    /// kill -9.
    pub fn is_kill(self) -> bool {
        matches!(self, Fault::KillBackend | Fault::KillPostmaster)
    }

    /// All sessions end with it.
    fn ends_all(self) -> bool {
        !matches!(
            self,
            Fault::Cancel | Fault::Terminate | Fault::Timeout | Fault::Cut
        )
    }
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

/// What the session that is struck does at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aim {
    /// Anything but idle.
    Busy,
    /// Is held at a stop event.
    Point(&'static str),
    /// Sleeps for a hot row while another is held at a stop event.
    Behind(&'static str),
    /// Waits, with this reason in `txn.waits`.
    Wait(&'static str),
    /// Writes or waits for the flush of WAL.
    Flush,
}

pub const POINTS: [&str; 11] = [
    "ticket_given",
    "ticket_taken",
    "reserved",
    "passing_ticket",
    "updated",
    "before_commit_wait",
    "after_commit_wait",
    "sealed",
    "visible",
    "rolling_back",
    "doomed",
];
/// Half of the cycles have none: it takes time.
const REPLICAS: [ReplicaKind; 6] = [
    ReplicaKind::None,
    ReplicaKind::None,
    ReplicaKind::None,
    ReplicaKind::Slot,
    ReplicaKind::Standby,
    ReplicaKind::SynchronousStandby,
];
/// Kinds of transactions that need tables of `txn_heap`.
const VALIDATED: [Kind; 3] = [Kind::Seat, Kind::Audit, Kind::Declared];
const WAITS: [&str; 5] = ["ticket", "commit", "read", "fallback", "lane"];

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Aim::Busy => f.write_str("busy"),
            Aim::Point(name) => f.write_str(name),
            Aim::Behind(name) => write!(f, "behind-{name}"),
            Aim::Wait(reason) => write!(f, "{reason}-wait"),
            Aim::Flush => f.write_str("flush"),
        }
    }
}

/// What has to have the same rows in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaKind {
    None,
    /// What a logical replication slot has told of all changes, asked from time to time.
    Slot,
    /// A standby for which commits do not wait.
    Standby,
    /// A standby for which they do.
    SynchronousStandby,
}

impl fmt::Display for ReplicaKind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            ReplicaKind::None => "none",
            ReplicaKind::Slot => "slot",
            ReplicaKind::Standby => "standby",
            ReplicaKind::SynchronousStandby => "synchronous-standby",
        })
    }
}

/// One fault from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    pub fault: Fault,
    pub aim: Aim,
    /// Transactions since the last strike.
    pub after: usize,
}

/// A cycle.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub seed: u64,
    pub cycle: u64,
    pub clients: usize,
    pub accounts: i32,
    /// Of all tables. With `txn_heap` some transactions are validated.
    pub access_method: &'static str,
    pub replica: ReplicaKind,
    /// In postgresql.conf.
    pub server: Vec<(&'static str, &'static str)>,
    /// In each session.
    pub session: Vec<(&'static str, &'static str)>,
    /// Of 100 sessions, how many have group lock and queue lock; the others have neither.
    pub group_share: u32,
    pub queue_share: u32,
    /// Relative frequency of each kind of transaction (`Kind::ALL`).
    pub weights: Vec<u32>,
    /// Of 1000 transactions.
    pub timeouts: u32,
    pub cuts: u32,
    pub foreign_key: bool,
    pub strikes: Vec<Strike>,
}

/// Random numbers of one party of one cycle: a client, or the plan itself.
pub fn rng(seed: u64, cycle: u64, party: u64) -> SmallRng {
    // Seeds that differ little give unrelated numbers: seed_from_u64 mixes them.
    let mut rng = SmallRng::seed_from_u64(seed);
    for part in [cycle, party] {
        rng = SmallRng::seed_from_u64(rng.random::<u64>() ^ part);
    }
    rng
}

const PLANNER: u64 = u64::MAX;

impl Plan {
    /// The plan of a cycle with the faults of `kinds`.
    pub fn draw(seed: u64, cycle: u64, clients: usize, kinds: &[Fault]) -> Self {
        let rng = &mut rng(seed, cycle, PLANNER);
        let mut server = server_settings(rng);
        let access_method = any(rng, &["heap", "txn_heap"]);
        // A slow flush: the time between early release and durability is long enough to be hit.
        if any(rng, &["slow", "as it is"]) == "slow" {
            server.extend([("commit_delay", "3000"), ("commit_siblings", "0")]);
        }
        let session = session_settings(rng);
        let group_share = *[100, 100, 100, 80, 50]
            .choose(rng)
            .expect("there is a choice");
        let rest = 100 - group_share;
        let weights = weights(rng, access_method);
        let mut share = |fault, most: u32| match kinds.contains(&fault) {
            true => rng.random_range(0..=most),
            false => 0,
        };
        let timeouts = share(Fault::Timeout, 60);
        let cuts = share(Fault::Cut, 30);
        let strikes = strikes(rng, kinds);
        // A slot and a standby keep WAL that the small disk has no room for.
        let kinds = match strikes.iter().any(|one| one.fault == Fault::DiskFull) {
            true => &REPLICAS[..1],
            false => &REPLICAS[..],
        };
        let replica = *kinds.choose(rng).expect("there is a choice");
        if replica == ReplicaKind::Slot {
            server.push(("wal_level", "logical"));
        }
        Plan {
            seed,
            cycle,
            clients,
            accounts: rng.random_range(1..=6),
            access_method,
            replica,
            server,
            session,
            group_share,
            queue_share: rng.random_range(0..=rest),
            weights,
            timeouts,
            cuts,
            foreign_key: rng.random_bool(0.3),
            strikes,
        }
    }

    /// The SQLSTATEs that transactions may fail with, `lost` and `cut` among them.
    pub fn allowed(&self) -> Vec<&'static str> {
        let mut codes = vec!["40001", "40P01", "22012"];
        let has = |fault| self.strikes.iter().any(|strike| strike.fault == fault);
        if has(Fault::Cancel) {
            codes.push("57014");
        }
        if has(Fault::Terminate) {
            codes.extend(["57P01", "lost"]);
        }
        if self.strikes.iter().any(|strike| strike.fault.ends_all()) {
            codes.extend(["57P01", "57P02", "57P03", "lost"]);
        }
        if has(Fault::DiskFull) {
            codes.extend(["53100", "58P01", "58030"]);
        }
        if self.timeouts > 0 {
            codes.extend(["57014", "55P03", "25P03", "lost"]);
        }
        if self.cuts > 0 {
            codes.push("cut");
        }
        codes
    }

    pub fn has(&self, fault: Fault) -> bool {
        self.strikes.iter().any(|strike| strike.fault == fault)
    }

    /// In one line, for people.
    pub fn settings(&self) -> String {
        let list = self.server.iter().chain(&self.session);
        let list: Vec<String> = list
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        format!(
            "accounts={} tables={} replica={} fk={} group={}% queue={}% timeouts={}‰ cuts={}‰ {}",
            self.accounts,
            self.access_method,
            self.replica,
            self.foreign_key,
            self.group_share,
            self.queue_share,
            self.timeouts,
            self.cuts,
            list.join(" ")
        )
    }
}

fn any(rng: &mut SmallRng, of: &[&'static str]) -> &'static str {
    of.choose(rng).expect("there is a choice")
}

fn server_settings(rng: &mut SmallRng) -> Vec<(&'static str, &'static str)> {
    let mut any = |of| any(rng, of);
    vec![
        ("deadlock_timeout", any(&["10ms", "100ms", "100ms", "1s"])),
        ("txn.max_hot_rows", any(&["1", "2", "1024", "1024"])),
        ("max_wal_size", any(&["64MB", "1GB"])),
        ("txn.range_window", any(&["on", "on", "off"])),
        ("txn.range_slots", any(&["2", "32"])),
    ]
}

fn session_settings(rng: &mut SmallRng) -> Vec<(&'static str, &'static str)> {
    let mut any = |of| any(rng, of);
    vec![
        ("txn.hot_threshold", any(&["0", "1", "4"])),
        ("txn.group_size", any(&["2", "8", "256"])),
        ("txn.fair_every", any(&["1", "32"])),
        ("txn.newest_first", any(&["0", "100"])),
        ("txn.brief_turn", any(&["0", "30", "10000"])),
        (
            "txn.follower_reads",
            any(&["wait", "validated", "validated", "immediate"]),
        ),
        ("txn.follower_reads_backoff", any(&["0", "60s"])),
        ("txn.early_visibility", any(&["on", "on", "off"])),
        ("txn.combine_updates", any(&["on", "on", "off"])),
        ("txn.lane", any(&["on", "on", "auto"])),
        ("txn.lane_threshold", any(&["0", "1", "8"])),
        ("txn.reschedule", any(&["off", "on"])),
    ]
}

/// How often each kind of transaction comes with tables of that access method.
fn weights(rng: &mut SmallRng, access_method: &str) -> Vec<u32> {
    let mut weights: Vec<u32> = Kind::ALL.iter().map(|_| rng.random_range(0..=4)).collect();
    // Updates are combined where they wait for each other and for little else.
    if rng.random_bool(0.4) {
        weights[Kind::Auto as usize] = 200;
    }
    if access_method == "heap" {
        for kind in VALIDATED {
            weights[kind as usize] = 0;
        }
    }
    weights
}

/// One kill -9 in each cycle if that is allowed, and up to four others.
fn strikes(rng: &mut SmallRng, kinds: &[Fault]) -> Vec<Strike> {
    let outside: Vec<Fault> = kinds
        .iter()
        .copied()
        .filter(|fault| !matches!(fault, Fault::Timeout | Fault::Cut | Fault::DiskFull))
        .collect();
    let kills: Vec<Fault> = outside
        .iter()
        .copied()
        .filter(|one| one.is_kill())
        .collect();
    let mut faults: Vec<Fault> = Vec::new();
    if !outside.is_empty() {
        let others = rng.random_range(1..=4);
        faults.extend((0..others).filter_map(|_| outside.choose(rng)));
    }
    if let Some(kill) = kills.choose(rng) {
        faults.insert(rng.random_range(0..=faults.len()), *kill);
    }
    // Dear, because the server is down for seconds.
    if kinds.contains(&Fault::DiskFull) && (kinds.len() == 1 || rng.random_bool(0.1)) {
        faults.push(Fault::DiskFull);
    }
    faults
        .into_iter()
        .map(|fault| Strike {
            fault,
            aim: aim(rng),
            after: rng.random_range(20..300),
        })
        .collect()
}

fn aim(rng: &mut SmallRng) -> Aim {
    let point = POINTS[rng.random_range(0..POINTS.len())];
    match rng.random_range(0..10) {
        0..=1 => Aim::Busy,
        2..=4 => Aim::Point(point),
        5..=6 => Aim::Behind(point),
        7..=8 => Aim::Wait(WAITS[rng.random_range(0..WAITS.len())]),
        _ => Aim::Flush,
    }
}

/// A strike as it came: `kill-backend@updated`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "String")]
pub struct Hit {
    pub fault: Fault,
    /// What the victim really did; `Busy` when nobody came to where we aimed.
    pub aim: Aim,
}

impl fmt::Display for Hit {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}@{}", self.fault, self.aim)
    }
}

impl From<Hit> for String {
    fn from(hit: Hit) -> String {
        hit.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Fault> {
        Fault::ALL.map(|(fault, _)| fault).to_vec()
    }

    #[test]
    fn the_seed_says_it_all() {
        let plan = |seed, cycle| Plan::draw(seed, cycle, 16, &all());
        assert_eq!(plan(7, 3), plan(7, 3));
        assert_ne!(plan(7, 3).settings(), plan(8, 3).settings());
        assert_ne!(plan(7, 3).strikes, plan(7, 4).strikes);
    }

    #[test]
    fn names_lead_back_to_their_faults() {
        for (fault, name) in Fault::ALL {
            assert_eq!(fault.to_string(), name);
            assert_eq!(name.parse::<Fault>().unwrap(), fault);
        }
        assert!("flood".parse::<Fault>().is_err());
    }

    #[test]
    fn every_cycle_kills_and_every_aim_comes() {
        let strikes: Vec<Strike> = (0..200)
            .flat_map(|cycle| {
                let strikes = Plan::draw(1, cycle, 16, &all()).strikes;
                assert!(strikes.iter().any(|strike| strike.fault.is_kill()));
                strikes
            })
            .collect();
        for point in POINTS {
            for aim in [Aim::Point(point), Aim::Behind(point)] {
                assert!(strikes.iter().any(|strike| strike.aim == aim), "{aim}");
            }
        }
        for reason in WAITS {
            assert!(strikes.iter().any(|strike| strike.aim == Aim::Wait(reason)));
        }
    }

    #[test]
    fn every_replica_comes_with_each_access_method_and_none_with_a_full_disk() {
        let plans: Vec<Plan> = (0..200)
            .map(|cycle| Plan::draw(1, cycle, 16, &all()))
            .collect();
        for replica in REPLICAS {
            for access_method in ["heap", "txn_heap"] {
                let drawn =
                    |plan: &&Plan| (plan.replica, plan.access_method) == (replica, access_method);
                assert!(
                    plans.iter().any(|plan| drawn(&plan)),
                    "{replica} {access_method}"
                );
            }
        }
        let full = plans.iter().filter(|plan| plan.has(Fault::DiskFull));
        assert!(
            full.clone().count() > 0 && full.clone().all(|plan| plan.replica == ReplicaKind::None)
        );
    }

    #[test]
    fn only_what_was_asked_for() {
        let plans = (0..100).map(|cycle| Plan::draw(1, cycle, 16, &[Fault::Cancel]));
        for plan in plans {
            assert!(
                plan.strikes
                    .iter()
                    .all(|strike| strike.fault == Fault::Cancel)
            );
            assert_eq!((plan.timeouts, plan.cuts), (0, 0));
            assert_eq!(plan.allowed(), ["40001", "40P01", "22012", "57014"]);
        }
    }
}
