//! What a node says about a transaction that it had prepared and does not show any more.

/// The answer of `pg_xact_status(xid)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeStatus {
    /// `committed`.
    Committed,
    /// `aborted`.
    Aborted,
    /// `in progress`, also for a prepared transaction.
    InProgress,
    /// NULL, or an error: the id is too old, or in the future.
    Unknown,
}

/// A position in a node's WAL that is at or behind the end of the PREPARE's record.
///
/// The glue asks for `pg_current_wal_flush_lsn()` behind PREPARE in the same flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prepared {
    /// The timeline of the node at PREPARE.
    pub timeline: u32,
    /// The position.
    pub lsn: u64,
}

/// Where the present WAL of a node comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct History {
    /// The timeline that the node writes now.
    pub timeline: u32,
    /// The lines of its history file: each ancestor, and where it was left. None if the file could
    /// not be read.
    pub switches: Option<Vec<(u32, u64)>>,
}

impl History {
    /// Whether the node's WAL contains the position. None if that cannot be told.
    pub fn contains(&self, prepared: Prepared) -> Option<bool> {
        if prepared.timeline == self.timeline {
            return Some(true);
        }
        let switches = self.switches.as_ref()?;
        let left = switches
            .iter()
            .find(|(timeline, _)| *timeline == prepared.timeline);
        Some(left.is_some_and(|&(_, lsn)| prepared.lsn <= lsn))
    }
}

/// What the resolver has learned from the node about one decision row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The status of the recorded transaction id.
    pub status: NodeStatus,
    /// The asking transaction has written WAL behind its question, and its own COMMIT came without
    /// the standby's warning and with a synchronous `synchronous_commit`: what it saw committed is
    /// at the synchronous standbys, too.
    pub confirmed: bool,
    /// Where the PREPARE stands.
    pub prepared: Prepared,
    /// Where the node's WAL comes from.
    pub history: History,
}

/// What becomes of the decision row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judged {
    /// The participant is committed for good: the row may be erased.
    Erase,
    /// A later pass asks again.
    Wait,
    /// The node has lost or rolled back what it had prepared: alarm, and the row is kept.
    Lost,
}

/// Judges a decision row whose transaction the node does not show as prepared.
///
/// A status counts only if the node's WAL contains the PREPARE. Otherwise the id may belong to
/// another transaction, which has got it after a failover. `committed` alone does not suffice
/// either: a backend whose wait for the standby was cancelled, or a restart, shows commits that a
/// failover still takes back. Then the transaction would be prepared again, without its row.
pub fn judge(asked: &Asked) -> Judged {
    match (asked.history.contains(asked.prepared), asked.status) {
        (Some(false), _) => Judged::Lost,
        (_, NodeStatus::InProgress) => Judged::Wait,
        (Some(true), NodeStatus::Committed) if asked.confirmed => Judged::Erase,
        (Some(true), NodeStatus::Committed) => Judged::Wait,
        _ => Judged::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use NodeStatus::{Aborted, Committed, InProgress, Unknown};

    const THERE: Prepared = Prepared {
        timeline: 3,
        lsn: 500,
    };

    fn asked(status: NodeStatus, timeline: u32, switches: Option<&[(u32, u64)]>) -> Asked {
        Asked {
            status,
            confirmed: true,
            prepared: THERE,
            history: History {
                timeline,
                switches: switches.map(<[_]>::to_vec),
            },
        }
    }

    #[test]
    fn committed_and_on_the_history_is_erased() {
        let histories: [(u32, Option<&[_]>); 4] = [
            (3, None),
            (3, Some(&[(1, 100), (2, 200)])),
            (4, Some(&[(1, 100), (2, 200), (3, 500)])),
            (6, Some(&[(3, 501), (5, 900)])),
        ];
        for (timeline, switches) in histories {
            let asked = asked(Committed, timeline, switches);
            assert_eq!(judge(&asked), Judged::Erase, "{asked:?}");
            let unconfirmed = Asked {
                confirmed: false,
                ..asked
            };
            assert_eq!(judge(&unconfirmed), Judged::Wait, "{unconfirmed:?}");
        }
    }

    #[test]
    fn what_the_node_has_not_kept_is_lost() {
        let cases: [(NodeStatus, u32, Option<&[_]>); 8] = [
            (Aborted, 3, None),
            (Unknown, 3, None),
            (Aborted, 4, Some(&[(3, 900)])),
            // The PREPARE came after the standby was promoted, or was not sent to it.
            (Committed, 4, Some(&[(3, 499)])),
            (InProgress, 4, Some(&[(3, 499)])),
            // The standby had left for another timeline before.
            (Committed, 4, Some(&[(2, 900)])),
            (Committed, 4, None),
            (Aborted, 4, None),
        ];
        for (status, timeline, switches) in cases {
            let asked = asked(status, timeline, switches);
            assert_eq!(judge(&asked), Judged::Lost, "{asked:?}");
        }
    }

    #[test]
    fn what_is_in_progress_is_waited_for() {
        for (timeline, switches) in [(3, None), (4, Some([(3, 500)].as_slice())), (4, None)] {
            let asked = asked(InProgress, timeline, switches);
            assert_eq!(judge(&asked), Judged::Wait, "{asked:?}");
        }
    }
}
