//! What a lost reply to a one-phase COMMIT means.
//!
//! The coordinator asks on a new connection, with the transaction id that the node had told
//! before COMMIT.

use crate::status::NodeStatus;

/// Whether the server that answers now is the one that got the COMMIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Server {
    /// It has the system identifier that was noted.
    pub same_system: bool,
    /// It writes the timeline that was noted: it has not failed over.
    pub same_timeline: bool,
    /// Its shared memory is the one of then: it has not restarted. A transaction id of which no WAL
    /// had reached the disk is given again after a crash.
    pub same_start: bool,
}

/// How the transaction has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The transaction is committed, for good.
    Committed,
    /// The transaction is rolled back.
    RolledBack,
    /// The COMMIT is still under way, or not yet confirmed by the standbys.
    AskAgain,
    /// It cannot be told: SQLSTATE 08007, `transaction_resolution_unknown`.
    Unknown,
}

/// How the transaction has ended, by the status of its id. `confirmed` is the flag of
/// [`Asked`](crate::Asked).
pub fn outcome(server: Server, status: NodeStatus, confirmed: bool) -> Outcome {
    if !server.same_system || !server.same_timeline {
        return Outcome::Unknown;
    }
    match status {
        // After a restart this may be another transaction, which has got the id again.
        NodeStatus::Committed if !server.same_start => Outcome::Unknown,
        NodeStatus::Committed if !confirmed => Outcome::AskAgain,
        NodeStatus::Committed => Outcome::Committed,
        // Also after a restart: the id of a committed transaction is not given again.
        NodeStatus::Aborted => Outcome::RolledBack,
        NodeStatus::InProgress => Outcome::AskAgain,
        NodeStatus::Unknown => Outcome::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use NodeStatus::{Aborted, Committed, InProgress, Unknown};

    const SAME: Server = Server {
        same_system: true,
        same_timeline: true,
        same_start: true,
    };

    #[test]
    fn the_status_at_the_unchanged_server_counts() {
        assert_eq!(outcome(SAME, Committed, true), Outcome::Committed);
        assert_eq!(outcome(SAME, Committed, false), Outcome::AskAgain);
        for confirmed in [false, true] {
            assert_eq!(outcome(SAME, Aborted, confirmed), Outcome::RolledBack);
            assert_eq!(outcome(SAME, InProgress, confirmed), Outcome::AskAgain);
            assert_eq!(outcome(SAME, Unknown, confirmed), Outcome::Unknown);
        }
    }

    #[test]
    fn another_server_or_timeline_says_nothing() {
        let others = [
            Server {
                same_system: false,
                ..SAME
            },
            Server {
                same_timeline: false,
                ..SAME
            },
        ];
        for server in others {
            for status in [Committed, Aborted, InProgress, Unknown] {
                assert_eq!(outcome(server, status, true), Outcome::Unknown);
            }
        }
    }

    #[test]
    fn after_a_restart_committed_may_be_another_transaction() {
        let restarted = Server {
            same_start: false,
            ..SAME
        };
        assert_eq!(outcome(restarted, Committed, true), Outcome::Unknown);
        assert_eq!(outcome(restarted, Aborted, true), Outcome::RolledBack);
    }
}
