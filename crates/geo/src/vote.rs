//! What the answers to PREPARE TRANSACTION and COMMIT PREPARED are worth.
//!
//! Only command tags and source functions are looked at: texts of messages are translated.

use crate::fault::{Fault, planted};

/// What has come back for one command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Answer<'a> {
    /// The command tag of the last result. None for an error, a lost connection or silence.
    pub tag: Option<&'a str>,
    /// A WARNING or NOTICE has come whose source function is `SyncRepWaitForLSN`: the node has
    /// stopped to wait for its standby.
    pub standby_wait_cancelled: bool,
}

/// The vote of a participant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vote {
    /// The participant is prepared, and stays so over restarts and a failover to its standby.
    Yes,
    /// The participant may or may not be prepared. The transaction must not commit.
    No,
}

/// The vote that the answer to PREPARE TRANSACTION is.
///
/// A transaction block that had failed answers `ROLLBACK`, without an error.
pub fn vote(answer: &Answer<'_>) -> Vote {
    let is_tag = answer.tag == Some("PREPARE TRANSACTION")
        || planted(Fault::YesByAnyTag) && answer.tag.is_some();
    let may_be_lost = answer.standby_wait_cancelled && !planted(Fault::YesWithoutStandby);
    if is_tag && !may_be_lost {
        Vote::Yes
    } else {
        Vote::No
    }
}

/// Whether the answer to COMMIT PREPARED shows that the commit stays: its decision row may be
/// erased.
///
/// `synchronous_commit` tells whether the setting was synchronous at the node, see
/// [`is_synchronous`]. Otherwise a failover of the node can bring the prepared transaction back.
pub fn applied(answer: &Answer<'_>, synchronous_commit: bool) -> bool {
    let may_be_lost = answer.standby_wait_cancelled && !planted(Fault::AppliedWithoutStandby);
    answer.tag == Some("COMMIT PREPARED") && !may_be_lost && synchronous_commit
}

/// Whether a commit under this value of `synchronous_commit` waits until the synchronous standbys
/// have it on disk.
pub fn is_synchronous(setting: &str) -> bool {
    matches!(setting, "on" | "remote_apply")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(tag: &str) -> Answer<'_> {
        Answer {
            tag: Some(tag),
            standby_wait_cancelled: false,
        }
    }

    #[test]
    fn only_the_exact_tag_is_yes() {
        assert_eq!(vote(&answer("PREPARE TRANSACTION")), Vote::Yes);
        for tag in ["ROLLBACK", "PREPARE", "COMMIT", "prepare transaction", ""] {
            assert_eq!(vote(&answer(tag)), Vote::No, "{tag}");
        }
        assert_eq!(vote(&Answer::default()), Vote::No);
    }

    #[test]
    fn a_cancelled_wait_for_the_standby_is_no() {
        let cancelled = Answer {
            standby_wait_cancelled: true,
            ..answer("PREPARE TRANSACTION")
        };
        assert_eq!(vote(&cancelled), Vote::No);
    }

    #[test]
    fn applied_is_what_a_failover_cannot_take_back() {
        let good = answer("COMMIT PREPARED");
        assert!(applied(&good, true));
        assert!(!applied(&good, false));
        assert!(!applied(&Answer::default(), true));
        assert!(!applied(&answer("ROLLBACK PREPARED"), true));
        let cancelled = Answer {
            standby_wait_cancelled: true,
            ..good
        };
        assert!(!applied(&cancelled, true));
    }

    #[test]
    fn settings_that_do_not_wait_for_the_standbys_disk_are_not_synchronous() {
        assert!(is_synchronous("on") && is_synchronous("remote_apply"));
        for setting in ["off", "local", "remote_write"] {
            assert!(!is_synchronous(setting), "{setting}");
        }
    }
}
