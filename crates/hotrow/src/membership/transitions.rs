//! The ways from state to state with the ticket: asking, holding, looking at versions of others.

use super::{Address, Hold, Keep, Loan, Membership, Offer, Restart, State, Written};
use super::{Place, Seen, Statement};

impl Membership {
    /// `Asking` → `Queued`. The ticket is somebody else's; ours is a place in the queue.
    pub fn queued(self) -> Self {
        match self.state {
            State::Asking => self.to(State::Queued),
            _ => self.refuse("queued"),
        }
    }

    /// Whether it has the ticket and nothing else, so that it may give it to others and queue
    /// again.
    pub fn may_queue_again(&self) -> bool {
        self.hold().is_some_and(|hold| {
            !matches!(hold.keep, Keep::Locked { .. }) && hold.predecessor.is_none()
        }) && !self.is_pending()
    }

    /// `Holding` → `Queued`. Others come first.
    pub fn queues_again(self) -> Self {
        match self.state {
            State::Holding(_) if self.may_queue_again() => self.to(State::Queued),
            _ => self.refuse("queues_again"),
        }
    }

    /// `Asking`, `Queued` → `Holding`. The ticket is ours, for as long as the transaction lasts.
    pub fn granted(self) -> Self {
        match self.state {
            State::Asking | State::Queued => self.to(State::Holding(Hold {
                keep: Keep::ToTheEnd,
                origin: None,
                predecessor: None,
            })),
            _ => self.refuse("granted"),
        }
    }

    /// `Queued` → `Asking`. Another transaction has done our update: we stand nowhere, and the
    /// membership ends.
    pub fn served(self) -> Self {
        match self.state {
            State::Queued => self.to(State::Asking),
            _ => self.refuse("served"),
        }
    }

    /// A statement has come to use the ticket: it goes back at that statement's end if it comes to
    /// nothing. A ticket that another statement answers for, that a lock or a version keeps, or
    /// that is not there stays as it is.
    pub fn claimed_by(self, statement: Option<Statement>) -> Self {
        match (self.hold(), statement) {
            (Some(hold), Some(statement)) if hold.keep == Keep::ToTheEnd => {
                self.with_keep(Keep::Until(statement))
            }
            _ => self,
        }
    }

    /// `Holding` → `Holding`. Another statement takes over a ticket that has not been used.
    pub fn taken_over_by(self, statement: Option<Statement>) -> Self {
        match self.hold().map(|hold| hold.keep) {
            Some(Keep::ToTheEnd | Keep::Until(_)) => {
                self.with_keep(statement.map_or(Keep::ToTheEnd, Keep::Until))
            }
            _ => self,
        }
    }

    /// The executor has come with that version of the row. Only the first is remembered.
    pub fn came_with(self, version: Address) -> Self {
        let origin = self.origin().or(Some(version));
        match self.state {
            State::Holding(hold) => self.to(State::Holding(Hold { origin, ..hold })),
            State::Offered(hold, offer) => self.to(State::Offered(Hold { origin, ..hold }, offer)),
            State::Restarting(hold, restart) => {
                self.to(State::Restarting(Hold { origin, ..hold }, restart))
            }
            State::Lent(loan, offer) => self.to(State::Lent(Loan { origin, ..loan }, offer)),
            State::Written(_) => self,
            _ => self.refuse("came_with"),
        }
    }

    /// → `Offered`, or `Lent` with an offer. The executor is told of that uncommitted version: from
    /// here on we commit only after its writer.
    pub fn offered(mut self, version: Address, xid: u32, command: u32) -> Self {
        let offer = Offer {
            version,
            xid,
            in_hand: match self.state {
                State::Restarting(_, restart) => restart.in_hand,
                _ => self.offer().and_then(|offer| offer.in_hand),
            },
        };
        let predecessor = Some(xid);
        self.seen = Some(Seen { xid, command });
        match self.state {
            State::Holding(hold) | State::Offered(hold, _) | State::Restarting(hold, _) => {
                let hold = Hold {
                    predecessor,
                    ..hold
                };
                self.to(State::Offered(hold, offer))
            }
            State::Lent(loan, _) => {
                let loan = Loan {
                    predecessor,
                    ..loan
                };
                self.to(State::Lent(loan, Some(offer)))
            }
            _ => self.refuse("offered"),
        }
    }

    /// The executor has got the offered version.
    pub fn handed_out(self) -> Self {
        let handed = |offer: Offer| Offer {
            in_hand: Some(offer.version),
            ..offer
        };
        match self.state {
            State::Offered(hold, offer) => self.to(State::Offered(hold, handed(offer))),
            State::Lent(loan, Some(offer)) => self.to(State::Lent(loan, Some(handed(offer)))),
            _ => self.refuse("handed_out"),
        }
    }

    /// `Offered`, `Restarting` → `Holding`. Nothing has come of the offer, and nobody has seen it:
    /// it is no dependency. What was locked before has been seen, and its writer stays our
    /// predecessor.
    pub fn offer_forgotten(mut self) -> Self {
        match self.state {
            State::Holding(hold) | State::Offered(hold, _) | State::Restarting(hold, _) => {
                let hold = unless_seen(hold);
                self.seen = self.seen.filter(|_| hold.predecessor.is_some());
                self.to(State::Holding(hold))
            }
            State::Lent(loan, _) => self.to(State::Lent(loan, None)),
            _ => self.refuse("offer_forgotten"),
        }
    }

    /// `Offered` → `Restarting`. The offered version was rolled back, and nobody has seen it.
    pub fn starts_again(self) -> Self {
        match self.state {
            State::Offered(hold, offer) => {
                let in_hand = offer.in_hand;
                self.to(State::Restarting(unless_seen(hold), Restart { in_hand }))
            }
            _ => self.refuse("starts_again"),
        }
    }

    /// `Offered`, `Lent`, `Restarting` → `Holding`. The writer of what the executor has in its
    /// hands has ended, and the executor is to be shown the last version, not that one. A lock
    /// stays, and so does a predecessor until it is known to have committed.
    pub fn hands_emptied(self) -> Self {
        match self.state {
            State::Offered(hold, _) => self.to(State::Holding(hold)),
            State::Restarting(hold, _) => {
                self.to(State::Restarting(hold, Restart { in_hand: None }))
            }
            State::Lent(loan, _) => self.to(State::Holding(Hold {
                keep: Keep::Locked { listed: true },
                origin: loan.origin,
                predecessor: loan.predecessor,
            })),
            _ => self,
        }
    }

    /// → `Holding`. Nobody runs in the list any more, and heap's own update comes next: the
    /// executor needs no offer.
    pub fn goes_heaps_way(self) -> Self {
        match self.state {
            State::Offered(hold, _) | State::Restarting(hold, _) => self.to(State::Holding(hold)),
            State::Lent(..) => self.hands_emptied(),
            State::Holding(_) | State::Written(_) => self,
            _ => self.refuse("goes_heaps_way"),
        }
    }

    /// Heap has locked the row for us, or deleted it: the ticket stays with the lock.
    pub fn locked(self) -> Self {
        match self.state {
            State::Holding(_) | State::Lent(..) | State::Written(_) => {
                let listed = self.is_listed();
                self.with_keep(Keep::Locked { listed })
            }
            State::Offered(hold, _) | State::Restarting(hold, _) => {
                self.to(State::Holding(hold)).locked()
            }
            _ => self.refuse("locked"),
        }
    }

    /// `Offered`, `Lent` → `Lent`. The offered version is locked by us and handed out; we stand in
    /// the list as a reader.
    pub fn lends(self, version: Address) -> Self {
        let (origin, predecessor) = match self.state {
            State::Offered(hold, _) => (hold.origin, hold.predecessor),
            State::Lent(loan, _) => (loan.origin, loan.predecessor),
            _ => return self.refuse("lends"),
        };
        let loan = Loan {
            version,
            origin,
            predecessor,
        };
        self.to(State::Lent(loan, None))
    }

    /// → `Reader`. The statement has looked at an uncommitted version and changed nothing. The
    /// ticket goes back.
    pub fn reads(self, listed: bool) -> Self {
        self.to_reader(listed, false, "reads")
    }

    /// → `Reader`. As `reads`; the statement has failed, which goes with its subtransaction.
    pub fn fails(self, listed: bool) -> Self {
        self.to_reader(listed, true, "fails")
    }

    fn to_reader(self, listed: bool, fails: bool, name: &'static str) -> Self {
        let (predecessor, untold) = match self.state {
            State::Holding(hold) | State::Offered(hold, _) | State::Restarting(hold, _)
                if !matches!(hold.keep, Keep::Locked { .. }) =>
            {
                (hold.predecessor, fails)
            }
            State::Reader {
                predecessor,
                untold,
                ..
            } => (predecessor, untold && fails),
            _ => return self.refuse(name),
        };
        self.to(State::Reader {
            predecessor,
            listed,
            untold,
        })
    }

    /// The ticket's data before there is a version.
    pub(super) fn hold(&self) -> Option<Hold> {
        match self.state {
            State::Holding(hold) | State::Offered(hold, _) | State::Restarting(hold, _) => {
                Some(hold)
            }
            _ => None,
        }
    }

    fn with_keep(self, keep: Keep) -> Self {
        match self.state {
            State::Holding(hold) => self.to(State::Holding(Hold { keep, ..hold })),
            State::Offered(hold, offer) => self.to(State::Offered(Hold { keep, ..hold }, offer)),
            State::Restarting(hold, restart) => {
                self.to(State::Restarting(Hold { keep, ..hold }, restart))
            }
            State::Written(
                written @ Written {
                    place: Place::Kept(_),
                    ..
                },
            ) => self.to(State::Written(Written {
                place: Place::Kept(keep),
                ..written
            })),
            _ => self,
        }
    }
}

/// What nobody has seen is no dependency.
fn unless_seen(hold: Hold) -> Hold {
    match hold.keep {
        Keep::Locked { .. } => hold,
        Keep::ToTheEnd | Keep::Until(_) => Hold {
            predecessor: None,
            ..hold
        },
    }
}
