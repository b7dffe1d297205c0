//! What a server says of its waits, as edges of the waits-for graph.

use crate::deadlock::{Edge, HERE, Look, Party};
use crate::gid::Gid;
use crate::name::{Id, Name};
use crate::running::Session;
use std::collections::{BTreeMap, HashMap};

/// So many processes that wait are asked for, at most, and so many for which each of them waits:
/// the next ones have to wait until these are gone. In `waits`.
pub const MOST: usize = 256;

/// The waits at a server, as `Waits::of_rows` reads them. All may ask this, whoever the processes
/// belong to; but for the leaders of parallel workers, which are theirs and `pg_read_all_stats`'.
///
/// A process in a queue waits for all before it, so there are about n²/2 waits of n processes.
/// They come in n rows, one for each process with those it waits for; names come once for each.
/// `pg_blocking_pids` calls prepared transactions 0: their gids come one by one. Those for which
/// `first` is true come first, then those that have waited for long.
fn waits(first: &str) -> String {
    format!(
        "WITH locks AS MATERIALIZED (SELECT * FROM pg_catalog.pg_locks), \
     activity AS MATERIALIZED (SELECT pid, leader_pid, application_name, \
     pg_catalog.starts_with(application_name, 'txn/') IS TRUE AS is_ours \
     FROM pg_catalog.pg_stat_activity), \
     waiting AS MATERIALIZED (SELECT l.*, COALESCE(a.leader_pid, l.pid) AS process \
     FROM locks l LEFT JOIN activity a ON a.pid = l.pid \
     WHERE NOT l.granted AND l.waitstart IS NOT NULL \
     ORDER BY {first} DESC, l.waitstart LIMIT 256), \
     waits AS MATERIALIZED (SELECT w.*, ARRAY(SELECT DISTINCT b.pid \
     FROM pg_catalog.unnest(pg_catalog.pg_blocking_pids(w.pid)) b(pid) LIMIT 256) AS blockers \
     FROM waiting w), \
     named AS (SELECT process AS pid FROM waits UNION \
     SELECT pg_catalog.unnest(blockers) FROM waits) \
     SELECT 'wait', process::text, waitstart::text, \
     pg_catalog.array_to_string(blockers, ' '), NULL, NULL FROM waits \
     UNION ALL \
     SELECT 'name', a.pid::text, a.application_name, NULL, NULL, NULL \
     FROM activity a JOIN named n ON n.pid = a.pid WHERE a.is_ours \
     UNION ALL \
     (SELECT 'prepared', w.process::text, w.waitstart::text, p.gid, w.mode, h.mode \
     FROM waits w \
     JOIN locks h ON h.pid IS NULL AND h.granted AND h.locktype = w.locktype \
     AND (h.database, h.relation, h.page, h.tuple, h.virtualxid, h.transactionid, h.classid, \
     h.objid, h.objsubid) IS NOT DISTINCT FROM \
     (w.database, w.relation, w.page, w.tuple, w.virtualxid, w.transactionid, w.classid, \
     w.objid, w.objsubid) \
     JOIN locks x ON x.pid IS NULL AND x.locktype = 'transactionid' \
     AND x.virtualtransaction = h.virtualtransaction \
     JOIN pg_catalog.pg_prepared_xacts p ON p.transaction = x.transactionid \
     WHERE 0 = ANY (w.blockers) AND pg_catalog.starts_with(p.gid, 'txn/') LIMIT 4096) \
     UNION ALL \
     SELECT 'all', pg_catalog.count(*)::text, NULL, NULL, NULL, NULL FROM locks \
     WHERE NOT granted AND waitstart IS NOT NULL"
    )
}

/// What is asked at a node.
pub fn waits_at_node() -> String {
    waits("a.is_ours IS TRUE")
}

/// What is asked at the server of these sessions.
pub fn waits_here(sessions: impl Iterator<Item = i32>) -> String {
    let pids: Vec<String> = sessions.map(|pid| pid.to_string()).collect();
    let pids = pids.join(",");
    waits(&format!(
        "(a.is_ours IS TRUE OR COALESCE(a.leader_pid, l.pid) = ANY ('{{{pids}}}'))"
    ))
}

/// The conflicts of lock modes (lock.c: LockConflicts), each mode with those that it conflicts
/// with.
const CONFLICTS: [(&str, &[u8]); 8] = [
    ("AccessShareLock", &[7]),
    ("RowShareLock", &[6, 7]),
    ("RowExclusiveLock", &[4, 5, 6, 7]),
    ("ShareUpdateExclusiveLock", &[3, 4, 5, 6, 7]),
    ("ShareLock", &[2, 3, 5, 6, 7]),
    ("ShareRowExclusiveLock", &[2, 3, 4, 5, 6, 7]),
    ("ExclusiveLock", &[1, 2, 3, 4, 5, 6, 7]),
    ("AccessExclusiveLock", &[0, 1, 2, 3, 4, 5, 6, 7]),
];

/// Whether locks of these modes exclude each other. Unknown ones do.
fn conflict(one: &str, other: &str) -> bool {
    let place = |mode| CONFLICTS.iter().position(|known| known.0 == mode);
    match (place(one), place(other)) {
        (Some(one), Some(other)) => CONFLICTS[one].1.contains(&(other as u8)),
        _ => true,
    }
}

/// A process that waits for a lock.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wait {
    /// The process, or its leader if it is a parallel worker.
    pub pid: i32,
    /// When it began to wait, as the server's text.
    pub since: String,
    /// The processes that hold the lock, or are before it in the queue.
    pub holders: Vec<i32>,
}

/// A process that may wait for a prepared transaction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Prepared {
    /// The process that waits, as in `Wait`.
    pub pid: i32,
    /// When it began to wait.
    pub since: String,
    /// The prepared transaction's name.
    pub gid: String,
    /// The mode that is wanted.
    pub wanted: String,
    /// The mode that it has.
    pub held: String,
}

/// What a server says of its waits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Waits {
    /// Waits for processes.
    pub waits: Vec<Wait>,
    /// Waits for prepared transactions.
    pub prepared: Vec<Prepared>,
    /// What processes act for.
    pub names: BTreeMap<i32, Name>,
    /// How many more wait, of which nothing is said.
    pub left_out: usize,
}

impl Waits {
    /// What the rows of `waits` say.
    pub fn of_rows(rows: Vec<Vec<Option<String>>>) -> Waits {
        let mut all = Waits::default();
        let mut count = 0;
        for row in rows {
            let mut fields = row.into_iter().map(Option::unwrap_or_default);
            let mut next = || fields.next().unwrap_or_default();
            let (kind, number) = (next(), next());
            let Ok(number) = number.parse() else { continue };
            match kind.as_str() {
                "wait" => all.waits.push(Wait {
                    pid: number,
                    since: next(),
                    holders: pids(&next()),
                }),
                "name" => all
                    .names
                    .extend(Name::parse(&next()).map(|name| (number, name))),
                "prepared" => all.prepared.push(Prepared {
                    pid: number,
                    since: next(),
                    gid: next(),
                    wanted: next(),
                    held: next(),
                }),
                "all" => count = number as usize,
                _ => {}
            }
        }
        all.left_out = count.saturating_sub(all.waits.len());
        all
    }
}

fn pids(text: &str) -> Vec<i32> {
    text.split(' ').filter_map(|pid| pid.parse().ok()).collect()
}

/// What the coordinator knows that looks.
pub struct Own {
    /// Its number; None: it has none yet.
    coordinator: Option<u128>,
    /// The number of its latest transaction.
    latest: u64,
    by_id: HashMap<Id, Session>,
    by_pid: HashMap<i32, Session>,
}

impl Own {
    /// Its number, if it has one, and that of its latest transaction when these sessions were read,
    /// before the servers were asked.
    pub fn new(coordinator: Option<u128>, latest: u64, sessions: &[Session]) -> Own {
        Own {
            coordinator,
            latest,
            by_id: sessions.iter().map(|one| (one.name.id, *one)).collect(),
            by_pid: sessions.iter().map(|one| (one.pid, *one)).collect(),
        }
    }

    /// Whether it is a transaction of this coordinator that has ended.
    fn has_ended(&self, id: Id) -> bool {
        self.coordinator == Some(id.coordinator)
            && id.sequence <= self.latest
            && !self.by_id.contains_key(&id)
    }
}

/// A server whose waits are looked at.
struct Place<'a> {
    place: u32,
    cluster: u64,
    names: &'a BTreeMap<i32, Name>,
    own: &'a Own,
}

impl Place<'_> {
    /// The session that is a process of this server.
    fn session_here(&self, pid: i32) -> Option<&Session> {
        let own = self.own.by_pid.get(&pid);
        own.filter(|_| self.place == HERE)
    }

    /// The party of that process. None: it acts for nobody any more.
    fn party(&self, pid: i32) -> Option<(Party, Option<Name>)> {
        let place = self.place;
        if let Some(one) = self.session_here(pid) {
            let party = (Party::Transaction(one.name.id), Some(one.name));
            return (!one.is_told).then_some(party);
        }
        let Some(name) = self.names.get(&pid) else {
            return Some((Party::Process { place, pid }, None));
        };
        let is_over = match self.own.by_id.get(&name.id) {
            Some(one) => {
                one.is_told || one.has_lost_more || one.lost.contains(&(self.cluster, pid))
            }
            // Its process may not know yet.
            None => self.own.has_ended(name.id),
        };
        (!is_over).then_some((Party::Transaction(name.id), Some(*name)))
    }

    /// Whether that process waits for a transaction that can be told to fail.
    fn may_fail(&self, pid: i32) -> bool {
        let session = |name: &Name| self.own.by_id.get(&name.id);
        let is_protected = |name: &Name| session(name).is_some_and(|one| one.is_protected);
        let name = self.names.get(&pid);
        let name = name.filter(|_| self.session_here(pid).is_none());
        name.is_some_and(|name| !is_protected(name))
    }
}

impl Look {
    /// Adds what a running server says, which is called `place` here. `HERE` is this one, at which
    /// the processes of the sessions are.
    pub fn add(&mut self, place: u32, cluster: u64, waits: &Waits, own: &Own) {
        let at = Place {
            place,
            cluster,
            names: &waits.names,
            own,
        };
        if waits.left_out > 0 {
            self.left_out.insert(place, waits.left_out);
        }
        for wait in &waits.waits {
            for &holder in wait.holders.iter().filter(|holder| **holder != 0) {
                if let Some((party, name)) = at.party(holder) {
                    self.note(name);
                    self.add_wait(&at, (wait.pid, holder), &wait.since, party);
                }
            }
        }
        for wait in &waits.prepared {
            // A prepared transaction that is none of a coordinator's waits for nobody.
            let gid = Gid::parse(&wait.gid).filter(|_| conflict(&wait.wanted, &wait.held));
            if let Some(gid) = gid {
                self.add_wait(
                    &at,
                    (wait.pid, 0),
                    &wait.since,
                    Party::Transaction(id_of(&gid)),
                );
            }
        }
    }

    fn add_wait(&mut self, at: &Place<'_>, pids: (i32, i32), since: &str, holder: Party) {
        let Some((waiter, name)) = at.party(pids.0) else {
            return;
        };
        self.note(name);
        self.edges.insert(Edge {
            waiter,
            holder,
            place: at.place,
            pids,
            since: since.to_owned(),
            may_fail: at.may_fail(pids.0),
        });
    }

    fn note(&mut self, name: Option<Name>) {
        self.begun.extend(name.map(|name| (name.id, name.begun)));
    }
}

fn id_of(gid: &Gid) -> Id {
    Id {
        coordinator: gid.coordinator,
        incarnation: gid.incarnation,
        sequence: gid.sequence,
    }
}

#[cfg(test)]
mod tests;
