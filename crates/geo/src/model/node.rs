//! A data node with a synchronous standby: a log, of which the standby has at least a part.

use crate::{Answer, Gid, History, NodeStatus, Prepared};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Mutex;
use std::collections::BTreeSet;

/// A record of the log. Its position is the number of records up to it.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Record {
    /// The participant's transaction is prepared, for the transaction with that number.
    Prepare(Gid, usize),
    Commit(Gid),
    RollBack(Gid),
    /// A transaction of no importance.
    Other,
}

struct State {
    log: Vec<Record>,
    /// How much of the log the standby has.
    confirmed: usize,
    /// Commands that wait for the standby hold these.
    waiting: BTreeSet<Gid>,
    timeline: u32,
    switches: Vec<(u32, u64)>,
    /// How often the node has gone down. Connections from before are broken.
    downs: u64,
}

pub struct Node(Mutex<State>);

/// What comes back for a command, unless it is lost on the line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reply {
    tag: Option<&'static str>,
    standby_wait_cancelled: bool,
    /// Where the node's log stood when it had prepared.
    pub prepared: Option<Prepared>,
}

impl Reply {
    pub fn answer(&self) -> Answer<'static> {
        Answer {
            tag: self.tag,
            standby_wait_cancelled: self.standby_wait_cancelled,
        }
    }
}

impl State {
    fn preparation(&self, gid: Gid) -> Option<usize> {
        let is_it =
            |record: &Record| matches!(record, Record::Prepare(prepared, _) if *prepared == gid);
        self.log.iter().rposition(is_it)
    }

    /// Whether the log has the transaction prepared and not finished.
    fn is_open(&self, gid: Gid) -> bool {
        let ends = [Record::Commit(gid), Record::RollBack(gid)];
        let after = |at: usize| self.log[at..].iter();
        self.preparation(gid)
            .is_some_and(|at| !after(at).any(|record| ends.contains(record)))
    }

    fn at(&self) -> Prepared {
        Prepared {
            timeline: self.timeline,
            lsn: self.log.len() as u64,
        }
    }
}

impl Node {
    pub fn new() -> Node {
        Node(Mutex::new(State {
            log: Vec::new(),
            confirmed: 0,
            waiting: BTreeSet::new(),
            timeline: 1,
            switches: Vec::new(),
            downs: 0,
        }))
    }

    /// Begins a transaction on a new connection. Tells which connections it is one of.
    pub fn connect(&self) -> u64 {
        self.0.lock().unwrap().downs
    }

    /// PREPARE TRANSACTION in a block that may have failed. Its wait for the standby is cancelled
    /// if `cancelled`.
    pub fn prepare(
        &self,
        connection: u64,
        (gid, number): (Gid, usize),
        failed: bool,
        cancelled: bool,
    ) -> Reply {
        let prepared = {
            let mut state = self.0.lock().unwrap();
            if state.downs != connection || state.is_open(gid) || state.waiting.contains(&gid) {
                return Reply::default();
            }
            if failed {
                return Reply {
                    tag: Some("ROLLBACK"),
                    ..Reply::default()
                };
            }
            state.log.push(Record::Prepare(gid, number));
            state.waiting.insert(gid);
            state.at()
        };
        let reply = self.wait_for_standby(connection, gid, prepared.lsn, cancelled);
        Reply {
            tag: reply.tag.and(Some("PREPARE TRANSACTION")),
            prepared: Some(prepared),
            ..reply
        }
    }

    /// COMMIT PREPARED or ROLLBACK PREPARED. An error if there is no such transaction, or if
    /// another command holds it.
    pub fn finish(&self, gid: Gid, commit: bool, cancelled: bool) -> Reply {
        let (connection, position) = {
            let mut state = self.0.lock().unwrap();
            if !state.is_open(gid) || state.waiting.contains(&gid) {
                return Reply::default();
            }
            state.log.push(if commit {
                Record::Commit(gid)
            } else {
                Record::RollBack(gid)
            });
            state.waiting.insert(gid);
            (state.downs, state.log.len() as u64)
        };
        let reply = self.wait_for_standby(connection, gid, position, cancelled);
        let tag = if commit {
            "COMMIT PREPARED"
        } else {
            "ROLLBACK PREPARED"
        };
        Reply {
            tag: reply.tag.and(Some(tag)),
            ..reply
        }
    }

    fn wait_for_standby(&self, connection: u64, gid: Gid, position: u64, cancelled: bool) -> Reply {
        let mut state = self.0.lock().unwrap();
        if state.downs != connection {
            return Reply::default();
        }
        state.waiting.remove(&gid);
        if !cancelled {
            state.confirmed = state.confirmed.max(position as usize);
        }
        Reply {
            tag: Some(""),
            standby_wait_cancelled: cancelled,
            prepared: None,
        }
    }

    /// The names in `pg_prepared_xacts`: a transaction stays there while its end waits for the
    /// standby.
    pub fn prepared(&self) -> Vec<Gid> {
        let state = self.0.lock().unwrap();
        let gids = state.log.iter().filter_map(|record| match record {
            Record::Prepare(gid, _) => Some(*gid),
            _ => None,
        });
        let is_shown = |gid: &Gid| state.is_open(*gid) || state.waiting.contains(gid);
        let shown: BTreeSet<Gid> = gids.filter(is_shown).collect();
        shown.into_iter().collect()
    }

    /// The status of the transaction id that the PREPARE at that position had. After a failover the
    /// id may be another transaction's.
    pub fn status(&self, prepared: Prepared) -> (NodeStatus, History) {
        let state = self.0.lock().unwrap();
        let history = History {
            timeline: state.timeline,
            switches: Some(state.switches.clone()),
        };
        let status = match state.log.get(prepared.lsn as usize - 1) {
            Some(Record::Prepare(gid, _)) => {
                if state.is_open(*gid) || state.waiting.contains(gid) {
                    NodeStatus::InProgress
                } else if state.log.contains(&Record::Commit(*gid)) {
                    NodeStatus::Committed
                } else {
                    NodeStatus::Aborted
                }
            }
            Some(_) => NodeStatus::Committed,
            None => NodeStatus::Unknown,
        };
        (status, history)
    }

    /// A transaction with WAL on a connection, whose wait for the standby is cancelled or confirms
    /// all before it. False if the connection is broken.
    pub fn confirm(&self, connection: u64, cancelled: bool) -> bool {
        let mut state = self.0.lock().unwrap();
        if state.downs != connection {
            return false;
        }
        state.log.push(Record::Other);
        if !cancelled {
            state.confirmed = state.log.len();
        }
        !cancelled
    }

    /// Goes down, and comes back: the standby takes over with what it has, or the node restarts
    /// with all of its log.
    pub fn go_down(&self, fails_over: bool) {
        let mut state = self.0.lock().unwrap();
        state.downs += 1;
        state.waiting.clear();
        if fails_over {
            let kept = thread_rng().gen_range(state.confirmed..state.log.len() + 1);
            state.log.truncate(kept);
            let left = (state.timeline, kept as u64);
            state.switches.push(left);
            state.timeline += 1;
            state.confirmed = kept;
        }
    }

    /// Whether the transaction with that number is committed here.
    pub fn has_committed(&self, number: usize) -> bool {
        let state = self.0.lock().unwrap();
        let mut prepared = state.log.iter().enumerate();
        prepared.any(|(at, record)| match record {
            Record::Prepare(gid, its) if *its == number => {
                let after = state.log[at..].iter();
                let is_end =
                    |end: &&Record| [Record::Commit(*gid), Record::RollBack(*gid)].contains(end);
                after.copied().find(|end| is_end(&end)) == Some(Record::Commit(*gid))
            }
            _ => false,
        })
    }
}
