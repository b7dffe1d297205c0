//! What one transaction has to do with one hot row, as its session knows it: a state machine.
//!
//! The states are those of [`State`], with what is known in each of them inside it. The methods of
//! [`Membership`] that take and return it are the transitions (`transitions.rs`, `list.rs`);
//! nothing else changes one. A transition that makes no sense in a state leaves the membership as
//! it is, and fails in a debug build: see [`Membership::refuse`].
//!
//! The words that other sessions see are `Row` and `Member`; the caller changes those under the
//! row's lock, and this here with it. The diagram is in the crate's README.

mod list;
#[cfg(test)]
mod tests;
mod transitions;

use crate::Slot;

/// An address of a version, as the glue packs it. Never 0.
pub type Address = u64;

/// A statement, by the address of its descriptor. Never 0.
pub type Statement = usize;

/// A membership in a hot row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Membership {
    slot: Slot,
    relation: u32,
    /// The depth of subtransactions that it belongs to.
    level: i32,
    passed_up: bool,
    seen: Option<Seen>,
    state: State,
}

/// The last transaction whose version was looked at or built on while it ran. It stays when that
/// has ended: a snapshot from before its end still shows it as running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    pub xid: u32,
    /// The command that has looked. Snapshots of later commands must show the end of `xid`.
    pub command: u32,
}

/// The states. What is not in one of them cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It stands nowhere: the ticket is about to be asked for, or another transaction has done the
    /// update.
    Asking,
    /// It stands in the ticket queue.
    Queued,
    /// It has the ticket, and no uncommitted version.
    Holding(Hold),
    /// It has the ticket, and the executor looks at an uncommitted version of a predecessor.
    Offered(Hold, Offer),
    /// The offered version was rolled back: with the ticket, the executor starts again from the
    /// version with which it came.
    Restarting(Hold, Restart),
    /// It has the ticket and stands in the list as a reader: it has locked a running predecessor's
    /// version, and the client has seen that. The executor may be looking at a version once more.
    Lent(Loan, Option<Offer>),
    /// It has the ticket, and its place in the list as a writer; the version is being written.
    Reserved(Reservation),
    /// It has written a version of the row.
    Written(Written),
    /// It has looked at an uncommitted version and changed nothing: it commits only after that
    /// one's writer.
    Reader {
        predecessor: Option<u32>,
        /// It stands in the list. False if the writer had left before: then its transaction id
        /// alone says what became of it.
        listed: bool,
        /// Only a statement that has failed has looked. Its error waits for the writer's end, and
        /// what does not wait tells nothing of the version.
        untold: bool,
    },
}

/// What goes with a ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold {
    pub keep: Keep,
    /// The version with which the executor came first.
    pub origin: Option<Address>,
    /// A transaction whose version was looked at, until it is known to have committed.
    pub predecessor: Option<u32>,
}

/// How long a ticket is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// To the end of the transaction, if no statement asks for less.
    ToTheEnd,
    /// To the end of that statement, unless it comes to lock or change the row.
    Until(Statement),
    /// The row is locked by this transaction: to the end, or until its update has been followed.
    Locked {
        /// It stands in the list, as a reader, since it locked an uncommitted version.
        listed: bool,
    },
}

/// An uncommitted version that the executor is looking at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    pub version: Address,
    pub xid: u32,
    /// The version that the executor has in its hands since the last offer.
    pub in_hand: Option<Address>,
}

/// A start from the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restart {
    /// The version, rolled back, that the executor still has in its hands.
    pub in_hand: Option<Address>,
}

/// A running predecessor's version that is locked and was handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loan {
    pub version: Address,
    pub origin: Option<Address>,
    pub predecessor: Option<u32>,
}

/// A place in the list for a version that is being written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reservation {
    pub base: Base,
    /// Where to go back to if the version cannot be written.
    pub from: Looking,
}

/// The states from which a predecessor's version can be built on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Looking {
    Offered(Hold, Offer),
    Lent(Loan, Option<Offer>),
}

/// An own version of the row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    pub version: Version,
    /// The version before it, if a subtransaction has written over it.
    pub before: Option<Version>,
    /// The transaction has deleted the row or changed its key.
    pub gone: bool,
    pub predecessor: Option<u32>,
    pub place: Place,
}

/// A version, and the depth of subtransactions that wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version {
    pub address: Address,
    pub level: i32,
}

/// Where a writer stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// It keeps the ticket to the end, and nobody follows.
    Kept(Keep),
    /// In the list; the ticket is passed on.
    Listed { ground: Ground },
}

/// What a listed version stands on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ground {
    /// Something committed: a leader's, or a follower's whose base is confirmed.
    Firm,
    /// The version of a predecessor.
    On(Base),
    /// Nothing: somebody else has updated or locked the base.
    Taken,
}

/// The version that a follower has built on, and its writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Base {
    pub version: Address,
    pub xid: u32,
}

impl Membership {
    /// A membership that begins at this depth of subtransactions; in `Asking`.
    pub fn begin(slot: Slot, relation: u32, level: i32) -> Self {
        Membership {
            slot,
            relation,
            level,
            passed_up: false,
            seen: None,
            state: State::Asking,
        }
    }

    /// Whether it belongs to the subtransaction at this depth: all that it has goes with that one,
    /// should it roll back.
    #[inline]
    pub fn belongs_to(&self, level: i32) -> bool {
        self.level == level
    }

    #[inline]
    pub fn slot(&self) -> Slot {
        self.slot
    }

    #[inline]
    pub fn relation(&self) -> u32 {
        self.relation
    }

    #[inline]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The transaction that was last seen running.
    #[inline]
    pub fn seen(&self) -> Option<Seen> {
        self.seen
    }

    /// Whether a subtransaction that has locked or written the row has committed. Whoever waits for
    /// such a row's lock waits for the whole transaction (lmgr.c: XactLockTableWait), even if the
    /// lock is rolled back with the subtransaction above.
    #[inline]
    pub fn is_passed_up(&self) -> bool {
        self.passed_up
    }

    /// Whether it has the row's ticket.
    #[inline]
    pub fn has_ticket(&self) -> bool {
        match self.state {
            State::Asking | State::Queued | State::Reader { .. } => false,
            State::Holding(_)
            | State::Offered(..)
            | State::Restarting(..)
            | State::Lent(..)
            | State::Reserved(_) => true,
            State::Written(written) => matches!(written.place, Place::Kept(_)),
        }
    }

    /// Whether there is anything to give back to the ticket queue: the ticket, or a place in it.
    #[inline]
    pub fn is_in_queue(&self) -> bool {
        self.has_ticket() || self.state == State::Queued
    }

    /// Whether it stands in the dependency list, or stood there until it was doomed.
    #[inline]
    pub fn is_listed(&self) -> bool {
        match self.state {
            State::Lent(..) | State::Reserved(_) => true,
            State::Reader { listed, .. } => listed,
            State::Written(Written {
                place: Place::Listed { .. },
                ..
            }) => true,
            _ => self.keep() == Some(Keep::Locked { listed: true }),
        }
    }

    /// Whether a lock of this transaction keeps the ticket: the client may have seen the row.
    #[inline]
    pub fn has_locked(&self) -> bool {
        match self.state {
            State::Lent(..) => true,
            State::Reserved(reserved) => matches!(reserved.from, Looking::Lent(..)),
            _ => matches!(self.keep(), Some(Keep::Locked { .. })),
        }
    }

    /// Whether a statement has taken the ticket and not used it.
    pub fn is_unused(&self) -> bool {
        matches!(self.keep(), Some(Keep::Until(_))) && !self.has_version()
    }

    /// Whether that statement has taken the ticket and not used it.
    #[inline]
    pub fn is_unused_by(&self, statement: usize) -> bool {
        self.keep() == Some(Keep::Until(statement)) && !self.has_version()
    }

    /// The transaction that must commit before this one.
    #[inline]
    pub fn predecessor(&self) -> Option<u32> {
        match self.state {
            State::Asking | State::Queued => None,
            State::Holding(hold) | State::Offered(hold, _) | State::Restarting(hold, _) => {
                hold.predecessor
            }
            State::Lent(loan, _) => loan.predecessor,
            State::Reserved(reserved) => match reserved.from {
                Looking::Offered(hold, _) => hold.predecessor,
                Looking::Lent(loan, _) => loan.predecessor,
            },
            State::Written(written) => written.predecessor,
            State::Reader { predecessor, .. } => predecessor,
        }
    }

    /// Whether another transaction must commit before this one.
    #[inline]
    pub fn depends(&self) -> bool {
        self.predecessor().is_some()
    }

    /// The address of its own version.
    #[inline]
    pub fn version(&self) -> Option<Address> {
        match self.state {
            State::Written(written) => Some(written.version.address),
            _ => None,
        }
    }

    /// Whether it has written a version of the row.
    #[inline]
    pub fn has_version(&self) -> bool {
        self.version().is_some()
    }

    /// Whether it has written a version, and then deleted the row or changed its key.
    #[inline]
    pub fn is_gone(&self) -> bool {
        matches!(self.state, State::Written(written) if written.gone)
    }

    /// What its version was built on; None for a leader.
    #[inline]
    pub fn base(&self) -> Option<Base> {
        match self.state {
            State::Written(Written {
                place:
                    Place::Listed {
                        ground: Ground::On(base),
                    },
                ..
            }) => Some(base),
            _ => None,
        }
    }

    /// Whether somebody else has what its version was built on.
    #[inline]
    pub fn has_lost_base(&self) -> bool {
        matches!(
            self.state,
            State::Written(Written {
                place: Place::Listed {
                    ground: Ground::Taken
                },
                ..
            })
        )
    }

    /// The uncommitted version that the executor is looking at.
    #[inline]
    pub fn offer(&self) -> Option<Offer> {
        match self.state {
            State::Offered(_, offer) => Some(offer),
            State::Lent(_, offer) => offer,
            State::Reserved(reserved) => match reserved.from {
                Looking::Offered(_, offer) => Some(offer),
                Looking::Lent(_, offer) => offer,
            },
            _ => None,
        }
    }

    /// The running predecessor's version that it has locked and handed out.
    #[inline]
    pub fn lent(&self) -> Option<Address> {
        match self.state {
            State::Lent(loan, _) => Some(loan.version),
            State::Reserved(reserved) => match reserved.from {
                Looking::Lent(loan, _) => Some(loan.version),
                Looking::Offered(..) => None,
            },
            _ => None,
        }
    }

    /// The version with which the executor came first.
    #[inline]
    pub fn origin(&self) -> Option<Address> {
        match self.state {
            State::Holding(hold) | State::Offered(hold, _) | State::Restarting(hold, _) => {
                hold.origin
            }
            State::Lent(loan, _) => loan.origin,
            _ => None,
        }
    }

    /// Whether the executor is to start again from the version with which it came first.
    #[inline]
    pub fn is_restarting(&self) -> bool {
        matches!(self.state, State::Restarting(..))
    }

    /// Whether the executor looks at a version of the row, or is to start again, and means that by
    /// `version`.
    #[inline]
    pub fn is_looked_for_at(&self, version: Address) -> bool {
        let in_hand = match self.state {
            State::Restarting(_, restart) => restart.in_hand,
            _ => match self.offer() {
                Some(offer) => offer.in_hand,
                None => return false,
            },
        };
        self.origin() == Some(version) || in_hand == Some(version)
    }

    /// Whether the executor has looked at that version of a predecessor: an update of it can
    /// follow.
    #[inline]
    pub fn has_looked_at(&self, version: Address) -> bool {
        self.lent() == Some(version) || self.offer().is_some_and(|offer| offer.version == version)
    }

    /// Whether the executor has (or may have) an uncommitted version of a predecessor in its hands.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.in_hands().iter().any(Option::is_some)
    }

    /// Whether that is this version.
    #[inline]
    pub fn has_in_hand(&self, version: Address) -> bool {
        self.in_hands().contains(&Some(version))
    }

    #[inline]
    fn in_hands(&self) -> [Option<Address>; 3] {
        let offer = self.offer();
        let in_hand = match self.state {
            State::Restarting(_, restart) => restart.in_hand,
            _ => offer.and_then(|offer| offer.in_hand),
        };
        [offer.map(|offer| offer.version), in_hand, self.lent()]
    }

    #[inline]
    fn keep(&self) -> Option<Keep> {
        match self.state {
            State::Holding(hold) | State::Offered(hold, _) | State::Restarting(hold, _) => {
                Some(hold.keep)
            }
            State::Written(Written {
                place: Place::Kept(keep),
                ..
            }) => Some(keep),
            _ => None,
        }
    }

    fn to(self, state: State) -> Self {
        Membership { state, ..self }
    }

    /// A transition that makes no sense in this state is a mistake of the caller. The membership
    /// stays as it is, which loses no duty: a ticket is still given back, a place in the list left,
    /// a predecessor waited for.
    #[track_caller]
    fn refuse(self, transition: &str) -> Self {
        debug_assert!(false, "{transition} in {:?}", self.state);
        self
    }
}
