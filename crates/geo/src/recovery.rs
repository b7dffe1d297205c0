//! One pass of the resolver over one node.
//!
//! A pass reads four sets, each as a whole and one after the other:
//!
//! | | |
//! |---|---|
//! | P | the names in the node's `pg_prepared_xacts` |
//! | A | the active slots of this incarnation |
//! | T | the decision rows of this node, with a new snapshot |
//! | Q | P, read again |
//!
//! The types only let them come in this order. The caller must also *read* each of them only
//! after it has the one before.
//!
//! # What the pass relies on
//!
//! 1. A slot opens before the transaction's first PREPARE is sent.
//! 2. A slot closes when the transaction cannot commit any more, or when its decision rows are
//!    visible to new snapshots. It does not open again for that transaction.
//! 3. Rows are written only after all participants have voted YES. So no PREPARE of a transaction
//!    with rows is still under way. No participant sends PREPARE twice.
//! 4. COMMIT PREPARED is sent, and the client told, only when the rows are confirmed.
//! 5. Only the resolver erases rows, one pass at a time, and only if [`Action::Erase`] or
//!    [`Judged::Erase`](crate::Judged::Erase) says so.
//! 6. No incarnation is used twice. When a new one begins the sessions of earlier ones are gone,
//!    and rows that were not durable are, too.
//!
//! # Why ROLLBACK for P − A − T is right
//!
//! Let g be in P. Its PREPARE was sent before P was read, and by 1 its slot was open by then. If
//! its incarnation is ours and g is not in A, which is read later, the slot has closed in between.
//! By 2 the transaction has then failed for good, or its rows were visible before T was read. By 5
//! they still are, as the only pass is this one. A row that an earlier pass has erased was of a
//! participant that is committed for good, which is not in P. So if g is not in T, its transaction
//! has failed. If its incarnation is an earlier one, by 6 nobody can decide any more, and T has
//! what was decided. A failed transaction stays failed, so it does not matter when the ROLLBACK
//! PREPARED arrives.
//!
//! - A before P: the slot opens and the node prepares between the two. The live transaction is
//!   rolled back.
//! - T before A: the rows become visible and the slot closes between the two, with COMMIT PREPARED
//!   still under way. A decided transaction is rolled back.
//! - A slot that opens between P and A, or closes between A and T, does no harm: in the first case
//!   g is not in P, in the second it is in A. A later pass takes it.
//!
//! # Why COMMIT for T ∩ P ∩ Q − A is right
//!
//! A confirmed row alone makes it right, by 3 and 4. Without the confirmation the row may still
//! disappear: T also shows rows that are visible early, or that no standby has. P and Q keep the
//! resolver from what is done. A leaves the commit to its session, which would get an error for it.
//!
//! # Why erasing T − A − P − Q is right
//!
//! An acknowledged row is not needed any more, whatever the other sets say. For others Q comes
//! after T, and by 3 the node had prepared g before the row was visible: if g is not in Q, it was
//! finished or lost, and only the node can tell which. P alone says nothing: the node may prepare
//! g, and its session decide and leave, between P and A. Asking the node guards against that, too,
//! as a prepared transaction is `in progress`; so Q is the second of two guards, and saves
//! questions. It is the only guard if rows are erased without asking.
//!
//! # What a pass leaves alone
//!
//! Other coordinators' names, other nodes' mappings, and later incarnations than ours: the latter
//! mean that we are a restored copy, and the original still runs.

use crate::fault::{Fault, planted};
use crate::gid::Gid;
use crate::slots::Active;
use std::collections::{BTreeMap, BTreeSet};

/// Which names a pass is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scope {
    /// The UUID of the resolver's database.
    pub coordinator: u128,
    /// The incarnation that runs now.
    pub incarnation: u64,
    /// The user mappings of the node. Two servers may lead to one database: each finds the other's
    /// names there, and must not judge them by its own rows.
    pub mappings: Vec<u32>,
}

impl Scope {
    fn contains(&self, gid: &Gid) -> bool {
        gid.coordinator == self.coordinator
            && gid.incarnation <= self.incarnation
            && self.mappings.contains(&gid.mapping)
    }
}

/// A decision row: the participant's transaction is to be committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The participant.
    pub gid: Gid,
    /// An answer to COMMIT PREPARED has come that counts as [`applied`](crate::applied).
    pub acknowledged: bool,
    /// The row is on the coordinator's disk and at its synchronous standbys. A row that is only
    /// visible may be not. So after T the resolver commits a transaction of its own with WAL. If
    /// its wait for the standbys is not cancelled, all rows of T are confirmed.
    pub confirmed: bool,
    /// The node did not know it when it was asked, and somebody has been told. It is a decision all
    /// the same: should the node have it again, it is committed.
    pub lost: bool,
}

/// What the resolver does about a participant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Action {
    /// ROLLBACK PREPARED at the node.
    RollBack(Gid),
    /// COMMIT PREPARED at the node.
    Commit(Gid),
    /// The decision row is deleted.
    Erase(Gid),
    /// The node is asked for the status of the recorded id, for [`judge`](crate::judge()).
    AskStatus(Gid),
}

/// A pass that has read nothing.
#[derive(Clone, Debug)]
pub struct Pass {
    scope: Scope,
}

impl Pass {
    /// A pass over the node whose mappings the scope has.
    pub fn of(scope: Scope) -> Pass {
        Pass { scope }
    }

    /// P has been read at the node.
    pub fn prepared(self, prepared: Vec<Gid>) -> ReadActive {
        let scope = self.scope;
        let prepared = within(&scope, prepared);
        ReadActive { scope, prepared }
    }
}

fn within(scope: &Scope, gids: Vec<Gid>) -> BTreeSet<Gid> {
    let gids = gids.into_iter();
    gids.filter(|gid| scope.contains(gid)).collect()
}

/// A pass that has P, and reads A next.
#[derive(Clone, Debug)]
pub struct ReadActive {
    scope: Scope,
    prepared: BTreeSet<Gid>,
}

impl ReadActive {
    /// A has been read, after P.
    pub fn active(self, active: Active) -> ReadDecided {
        ReadDecided {
            scope: self.scope,
            prepared: self.prepared,
            active,
        }
    }
}

/// A pass that has P and A, and reads T next.
#[derive(Clone, Debug)]
pub struct ReadDecided {
    scope: Scope,
    prepared: BTreeSet<Gid>,
    active: Active,
}

impl ReadDecided {
    /// T has been read, after A, with a new snapshot. Rows of other nodes may be among them.
    pub fn decided(self, decided: Vec<Decision>) -> ReadAgain {
        let rows = decided
            .into_iter()
            .filter(|row| self.scope.contains(&row.gid));
        let decided = rows.map(|row| (row.gid, row)).collect();
        ReadAgain {
            scope: self.scope,
            prepared: self.prepared,
            active: self.active,
            decided,
        }
    }
}

/// A pass that has P, A and T, and reads Q next.
#[derive(Clone, Debug)]
pub struct ReadAgain {
    scope: Scope,
    prepared: BTreeSet<Gid>,
    active: Active,
    decided: BTreeMap<Gid, Decision>,
}

impl ReadAgain {
    /// Q has been read at the node, after T. What is to be done, in the order of names; what is not
    /// named is left for a later pass.
    pub fn prepared_again(self, again: Vec<Gid>) -> Vec<Action> {
        let again = if planted(Fault::NoSecondLook) {
            self.prepared.clone()
        } else {
            within(&self.scope, again)
        };
        let undecided = self.prepared.iter().filter(|gid| {
            let is_decided = self.decided.contains_key(gid);
            !is_decided && !self.is_active(gid)
        });
        let rollbacks = undecided.map(|&gid| Action::RollBack(gid));
        let decided = self.decided.values();
        let others = decided.filter_map(|row| self.decided_action(row, &again));
        rollbacks.chain(others).collect()
    }

    /// What is to be done for a decision row.
    fn decided_action(&self, row: &Decision, again: &BTreeSet<Gid>) -> Option<Action> {
        let gid = row.gid;
        let is_confirmed = row.confirmed || planted(Fault::UnconfirmedCommitted);
        if self.is_active(&gid) || !is_confirmed {
            return None;
        }
        match (self.prepared.contains(&gid), again.contains(&gid)) {
            (true, true) => Some(Action::Commit(gid)),
            (false, false) if row.lost => None,
            (false, false) if row.acknowledged || planted(Fault::ErasedUnasked) => {
                Some(Action::Erase(gid))
            }
            (false, false) => Some(Action::AskStatus(gid)),
            _ => None,
        }
    }

    /// Whether a session may still decide or apply the transaction. Those of earlier incarnations
    /// have none.
    fn is_active(&self, gid: &Gid) -> bool {
        gid.incarnation == self.scope.incarnation
            && self.active.contains(gid.sequence)
            && !planted(Fault::ActiveIgnored)
    }
}

#[cfg(test)]
mod tests;
