//! Deadlocks over several servers: the waits-for graph, its cycles, and who has to give way.
//!
//! Each server finds the cycles of its own processes. What none finds has a *seam*: a transaction
//! for which somebody waits at one of its processes, and which waits at another one. So a cycle
//! without a seam is left to its server.
//!
//! The servers are asked one after the other, so one look may show waits that have never been at
//! the same time. A wait that both looks show with one beginning has lasted from the first look to
//! the second. The second look began after the first was over. So the waits that both show have all
//! been there between the two.
//!
//! Only a transaction that waits at a node can be told to fail. Each cycle with a seam has one: of
//! its waits at least one is at a node, and there is a transaction behind it, or the cycle is that
//! server's own. The youngest of them is chosen, so that all who look choose alike.

use crate::name::Id;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The place that is the coordinator itself; others are the identifiers of foreign servers.
pub const HERE: u32 = 0;

/// A transaction or a process that waits, or is waited for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Party {
    /// A transaction over several servers, of any coordinator.
    Transaction(Id),
    /// A process that acts for none.
    Process {
        /// Its server.
        place: u32,
        /// Its number there.
        pid: i32,
    },
}

/// A wait.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Edge {
    /// The party that waits.
    pub waiter: Party,
    /// For whom.
    pub holder: Party,
    /// At which server.
    pub place: u32,
    /// The processes there that wait, and are waited for; 0: a prepared transaction.
    pub pids: (i32, i32),
    /// When the wait began: tells it from others of the same process.
    pub since: String,
    /// Whether the waiter is a transaction that can be told to fail.
    pub may_fail: bool,
}

/// What all servers have said, each once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Look {
    /// The waits.
    pub edges: BTreeSet<Edge>,
    /// When transactions began, as far as it is known.
    pub begun: BTreeMap<Id, u64>,
    /// Servers at which more processes wait than were asked for, and how many more.
    pub left_out: BTreeMap<u32, usize>,
}

/// A deadlock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deadlock {
    /// The waits: each waits for the waiter of the next, the last for that of the first.
    pub cycle: Vec<Edge>,
    /// The transaction that has to fail.
    pub victim: Id,
}

/// The deadlocks that both looks show. Once their victims are gone there are no more. The second
/// look has begun after the first was over. `hears` says whether a transaction can be told. Ours
/// can if its session is there and waits where it hears that. Another coordinator's (`true` as the
/// second argument) can if that coordinator sees the cycle, too.
pub fn deadlocks(first: &Look, second: &Look, hears: impl Fn(Id, bool) -> bool) -> Vec<Deadlock> {
    let mut edges: Vec<&Edge> = first.edges.intersection(&second.edges).collect();
    let mut found = Vec::new();
    while let Some(cycle) = cycle(&mut edges) {
        // Waits at a coordinator are seen there only.
        let is_seen_by_all = cycle.iter().all(|edge| edge.place != HERE);
        let fails = |edge: &&Edge| {
            let hears = |id| hears(id, is_seen_by_all);
            edge.may_fail && matches!(edge.waiter, Party::Transaction(id) if hears(id))
        };
        let age = |id: Id| (second.begun.get(&id).copied().unwrap_or(0), id);
        let candidates = cycle
            .iter()
            .filter(fails)
            .filter_map(|edge| match edge.waiter {
                Party::Transaction(id) => Some(id),
                Party::Process { .. } => None,
            });
        match candidates.max_by_key(|id| age(*id)) {
            Some(victim) => {
                let gone = Party::Transaction(victim);
                edges.retain(|edge| edge.waiter != gone && edge.holder != gone);
                found.push(Deadlock { cycle, victim });
            }
            // Nobody can be told: `lock_timeout` ends it.
            None => edges.retain(|edge| !cycle.contains(edge)),
        }
    }
    found
}

/// Leaves only edges that may be part of a cycle: a party that waits for nobody goes, with the
/// edges to it, and so on; then one that nobody waits for.
fn trim(edges: &mut Vec<&Edge>) {
    peel(edges, |edge| (edge.waiter, edge.holder));
    peel(edges, |edge| (edge.holder, edge.waiter));
}

/// Takes away edges into parties without edges out of them, until there are none.
fn peel(edges: &mut Vec<&Edge>, ends: impl Fn(&Edge) -> (Party, Party)) {
    let mut out: BTreeMap<Party, usize> = BTreeMap::new();
    let mut into: BTreeMap<Party, Vec<Party>> = BTreeMap::new();
    for edge in edges.iter() {
        let (from, to) = ends(edge);
        *out.entry(from).or_default() += 1;
        into.entry(to).or_default().push(from);
    }
    let is_end = |party: &Party| !out.contains_key(party);
    let mut ended: Vec<Party> = into.keys().filter(|party| is_end(party)).copied().collect();
    let mut gone: BTreeSet<Party> = ended.iter().copied().collect();
    while let Some(party) = ended.pop() {
        for from in into.get(&party).into_iter().flatten() {
            let left = out.get_mut(from).map_or(0, |count| {
                *count -= 1;
                *count
            });
            if left == 0 && gone.insert(*from) {
                ended.push(*from);
            }
        }
    }
    edges.retain(|edge| !gone.contains(&ends(edge).1));
}

/// Whether the holder of the one waits, as the waiter of the other, in another process.
fn is_seam(one: &Edge, next: &Edge) -> bool {
    one.place != next.place || one.pids.1 != next.pids.0
}

/// A cycle with a seam, if there is one.
fn cycle(edges: &mut Vec<&Edge>) -> Option<Vec<Edge>> {
    trim(edges);
    let mut from: BTreeMap<Party, Vec<&Edge>> = BTreeMap::new();
    for edge in edges.iter() {
        from.entry(edge.waiter).or_default().push(edge);
    }
    for &last in edges.iter() {
        let Some(nexts) = from.get(&last.holder) else {
            continue;
        };
        for &next in nexts.iter().filter(|&&next| is_seam(last, next)) {
            if last.waiter == last.holder {
                // A transaction that waits for itself, in two processes.
                if next == last {
                    return Some(vec![last.clone()]);
                }
                continue;
            }
            if let Some(path) = path(&from, next, last) {
                return Some(path.into_iter().cloned().collect());
            }
        }
    }
    None
}

/// The shortest way that begins with the one edge and ends with the other, whose holder is the
/// first one's waiter, through each party once.
fn path<'a>(
    from: &BTreeMap<Party, Vec<&'a Edge>>,
    first: &'a Edge,
    last: &'a Edge,
) -> Option<Vec<&'a Edge>> {
    // How each party was reached.
    let mut by: BTreeMap<Party, &Edge> = BTreeMap::from([(first.holder, first)]);
    let mut next = VecDeque::from([first.holder]);
    if first.holder == first.waiter {
        return None;
    }
    while let Some(party) = next.pop_front() {
        if party == last.waiter {
            let mut way = vec![last];
            let mut at = party;
            while at != first.waiter {
                let edge = by[&at];
                way.push(edge);
                at = edge.waiter;
            }
            way.reverse();
            return Some(way);
        }
        for edge in from.get(&party).into_iter().flatten() {
            if edge.holder != first.waiter && !by.contains_key(&edge.holder) {
                by.insert(edge.holder, edge);
                next.push_back(edge.holder);
            }
        }
    }
    None
}

impl Deadlock {
    /// What the victim is told: a line for each wait. `server` tells the name of a place, `process`
    /// the process of a transaction whose session is here.
    pub fn told(
        &self,
        server: impl Fn(u32) -> String,
        process: impl Fn(Id) -> Option<i32>,
    ) -> String {
        let who = |party: Party| match party {
            Party::Process { place: HERE, pid } => format!("process {pid}"),
            Party::Process { place, pid } => {
                format!("process {pid} of server \"{}\"", server(place))
            }
            Party::Transaction(id) => match process(id) {
                Some(pid) => format!("process {pid}"),
                None => format!(
                    "process of another coordinator, transaction {}",
                    id.sequence
                ),
            },
        };
        let line = |edge: &Edge| {
            let place = match edge.place {
                HERE => "the coordinator".to_owned(),
                place => format!("server \"{}\"", server(place)),
            };
            let (waiter, holder) = (who(edge.waiter), who(edge.holder));
            // The waiter begins with "process".
            format!("P{} waits for {holder} at {place}.", &waiter[1..])
        };
        let lines: Vec<String> = self.cycle.iter().map(line).collect();
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests;
