//! How a transaction ends on its participants.

/// Whether the transaction has written at a node: whether the node has given it a transaction id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrote {
    /// The node has given no transaction id: a plain COMMIT ends the transaction there.
    Nothing,
    /// The node has given one.
    Something,
}

/// The part of the transaction at the coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Local {
    /// The transaction has a local transaction id: it has written at the coordinator.
    pub has_xid: bool,
    /// Something local may still fail: a deferred constraint, a validation, a predecessor.
    pub may_still_fail: bool,
}

/// What COMMIT does at the participants. Participants that have written nothing get a plain COMMIT
/// in each case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Nothing was written at any node.
    Nothing,
    /// The participant with this index has written, and is committed in one phase.
    OnePhase(usize),
    /// All participants that have written are prepared, and get a decision row each.
    TwoPhase,
}

/// How the transaction ends.
///
/// One phase needs that the node's commit is the only thing left to fail: no other node and no
/// local commit record would have to follow it.
pub fn ending(participants: &[Wrote], local: Local) -> Ending {
    let mut writers = (0..).zip(participants);
    let mut next = || {
        writers
            .by_ref()
            .find(|(_, wrote)| **wrote == Wrote::Something)
    };
    match (next(), next()) {
        (None, _) => Ending::Nothing,
        (Some((index, _)), None) if !local.has_xid && !local.may_still_fail => {
            Ending::OnePhase(index)
        }
        _ => Ending::TwoPhase,
    }
}

#[cfg(test)]
mod tests {
    use super::Wrote::{Nothing, Something};
    use super::*;

    const NO_XID: Local = Local {
        has_xid: false,
        may_still_fail: false,
    };
    const XID: Local = Local {
        has_xid: true,
        may_still_fail: false,
    };
    const MAY_FAIL: Local = Local {
        has_xid: false,
        may_still_fail: true,
    };

    #[test]
    fn readers_prepare_nothing() {
        for local in [NO_XID, XID, MAY_FAIL] {
            assert_eq!(ending(&[], local), Ending::Nothing);
            assert_eq!(ending(&[Nothing, Nothing], local), Ending::Nothing);
        }
    }

    #[test]
    fn one_writing_node_commits_in_one_phase() {
        assert_eq!(ending(&[Something], NO_XID), Ending::OnePhase(0));
        let among_readers = [Nothing, Something, Nothing];
        assert_eq!(ending(&among_readers, NO_XID), Ending::OnePhase(1));
    }

    #[test]
    fn what_may_fail_after_it_needs_two_phases() {
        assert_eq!(ending(&[Something], XID), Ending::TwoPhase);
        assert_eq!(ending(&[Something], MAY_FAIL), Ending::TwoPhase);
        for local in [NO_XID, XID, MAY_FAIL] {
            let writers = [Something, Nothing, Something];
            assert_eq!(ending(&writers, local), Ending::TwoPhase);
        }
    }
}
