//! The ways from state to state of those that write, and the ends of predecessors and
//! subtransactions.

use super::{Address, Base, Ground, Hold, Keep, Loan, Looking, Membership, Place};
use super::{Reservation, Seen, State, Version, Written};

impl Membership {
    /// `Offered`, `Lent` → `Reserved`. Our place in the list is behind the writer of `base`, on
    /// which we are about to build.
    pub fn reserves(self, base: Base) -> Self {
        let from = match self.state {
            State::Offered(hold, offer) => Looking::Offered(hold, offer),
            State::Lent(loan, offer) => Looking::Lent(loan, offer),
            _ => return self.refuse("reserves"),
        };
        self.to(State::Reserved(Reservation { base, from }))
    }

    /// `Reserved` → `Offered`, `Lent`. The version could not be written. Who has lent the version
    /// keeps its place as a reader, who has not is out of the list.
    pub fn steps_back(self) -> Self {
        match self.state {
            State::Reserved(reserved) => self.to(match reserved.from {
                Looking::Offered(hold, offer) => State::Offered(hold, offer),
                Looking::Lent(loan, offer) => State::Lent(loan, offer),
            }),
            _ => self.refuse("steps_back"),
        }
    }

    /// `Reserved` → `Written`, a follower. Its version is on the page, and the ticket is passed on.
    pub fn follows(mut self, address: Address, level: i32, command: u32) -> Self {
        self.seen = self.seen.map(|seen| Seen { command, ..seen });
        match self.state {
            State::Reserved(reserved) => self.to(State::Written(Written {
                version: Version { address, level },
                before: None,
                gone: false,
                predecessor: self.predecessor(),
                place: Place::Listed {
                    ground: Ground::On(reserved.base),
                },
            })),
            _ => self.refuse("follows"),
        }
    }

    /// `Written` → `Written`. The predecessor has ended, and its version names us as its updater.
    pub fn base_confirmed(self) -> Self {
        self.stands_on(Ground::Firm, "base_confirmed")
    }

    /// `Written` → `Written`. The predecessor has ended, and its version names somebody else.
    pub fn base_taken(self) -> Self {
        self.stands_on(Ground::Taken, "base_taken")
    }

    fn stands_on(self, ground: Ground, name: &'static str) -> Self {
        match self.state {
            State::Written(
                written @ Written {
                    place: Place::Listed { .. },
                    ..
                },
            ) => self.to(State::Written(Written {
                place: Place::Listed { ground },
                ..written
            })),
            _ => self.refuse(name),
        }
    }

    /// `Holding`, or `Written` with the ticket → `Written`. Heap has written our version; the
    /// ticket stays for now.
    pub fn writes(self, address: Address, level: i32) -> Self {
        let version = Version { address, level };
        match self.state {
            State::Holding(hold) => self.to(State::Written(Written {
                version,
                before: None,
                gone: false,
                predecessor: hold.predecessor,
                place: Place::Kept(match hold.keep {
                    Keep::Locked { listed } => Keep::Locked { listed },
                    Keep::ToTheEnd | Keep::Until(_) => Keep::ToTheEnd,
                }),
            })),
            State::Written(
                written @ Written {
                    place: Place::Kept(_),
                    ..
                },
            ) => self.to(State::Written(Written { version, ..written })),
            _ => self.refuse("writes"),
        }
    }

    /// `Written` → `Written`, a leader. It stands in the list with its version, and the ticket is
    /// passed on.
    pub fn leads(self) -> Self {
        match self.state {
            State::Written(
                written @ Written {
                    place: Place::Kept(_),
                    ..
                },
            ) => self.to(State::Written(Written {
                place: Place::Listed {
                    ground: Ground::Firm,
                },
                ..written
            })),
            _ => self.refuse("leads"),
        }
    }

    /// `Written` → `Written`. It has updated its own version, at that depth of subtransactions.
    pub fn writes_again(self, address: Address, level: i32, other_key: bool) -> Self {
        match self.state {
            State::Written(written) => {
                let over = (level > written.version.level).then_some(written.version);
                self.to(State::Written(Written {
                    version: Version { address, level },
                    before: written.before.or(over),
                    gone: written.gone || other_key,
                    ..written
                }))
            }
            _ => self.refuse("writes_again"),
        }
    }

    /// `Written` → `Written`. It has deleted its own version.
    pub fn deletes(self) -> Self {
        match self.state {
            State::Written(written) => self.to(State::Written(Written {
                gone: true,
                ..written
            })),
            _ => self.refuse("deletes"),
        }
    }

    /// The predecessor has committed: nothing depends on it any more.
    pub fn predecessor_committed(self) -> Self {
        let none = |hold: Hold| Hold {
            predecessor: None,
            ..hold
        };
        match self.state {
            State::Asking | State::Queued => self,
            State::Holding(hold) => self.to(State::Holding(none(hold))),
            State::Offered(hold, offer) => self.to(State::Offered(none(hold), offer)),
            State::Restarting(hold, restart) => self.to(State::Restarting(none(hold), restart)),
            State::Lent(loan, offer) => {
                let loan = Loan {
                    predecessor: None,
                    ..loan
                };
                self.to(State::Lent(loan, offer))
            }
            State::Reserved(_) => self.refuse("predecessor_committed"),
            State::Written(written) => self.to(State::Written(Written {
                predecessor: None,
                ..written
            })),
            State::Reader { listed, untold, .. } => self.to(State::Reader {
                predecessor: None,
                listed,
                untold,
            }),
        }
    }

    /// Whether a rollback at that depth takes the version back with which it stands in the list, or
    /// its reservation for one: those behind it are doomed, and it is a writer no more.
    pub fn loses_place(&self, level: i32) -> bool {
        let is_lost = |version: &Version| version.level >= level;
        match self.state {
            State::Reserved(_) => self.level >= level,
            State::Written(Written {
                version,
                before,
                place: Place::Listed { .. },
                ..
            }) => is_lost(&version) && before.as_ref().is_none_or(is_lost),
            _ => false,
        }
    }

    /// A subtransaction at that depth has rolled back. None: the membership was its own, and ends.
    /// It stays as a reader if its client may have seen a version of a predecessor. A version that
    /// the subtransaction wrote is gone; one that it wrote over is ours again.
    pub fn subtransaction_rolled_back(self, level: i32) -> Option<Self> {
        if self.level >= level || self.loses_place(level) {
            return self.without_the_row();
        }
        let State::Written(written) = self.state else {
            return Some(self);
        };
        if written.version.level < level {
            return Some(self);
        }
        let before = written.before.filter(|before| before.level < level);
        Some(match (before, written.place) {
            (Some(version), _) => self.to(State::Written(Written {
                version,
                before: None,
                ..written
            })),
            (None, Place::Kept(keep)) => self.to(State::Holding(Hold {
                keep,
                origin: None,
                predecessor: written.predecessor,
            })),
            (None, Place::Listed { .. }) => self.refuse("subtransaction_rolled_back"),
        })
    }

    /// All that it had of the row is rolled back. What its client has seen stays seen. What only a
    /// failed statement has looked at needs not be remembered.
    fn without_the_row(self) -> Option<Self> {
        let is_untold = match self.state {
            State::Offered(..) | State::Restarting(..) | State::Reserved(_) => !self.has_locked(),
            State::Reader { untold, .. } => untold,
            _ => false,
        };
        let predecessor = self.predecessor().filter(|_| !is_untold);
        let listed = match self.state {
            State::Written(Written {
                place: Place::Listed { .. },
                ..
            }) => predecessor.is_some(),
            _ => self.is_listed() && !is_untold,
        };
        (predecessor.is_some() || listed).then_some(Membership {
            level: 1,
            state: State::Reader {
                predecessor,
                listed,
                untold: false,
            },
            ..self
        })
    }

    /// A subtransaction at that depth has committed: what was its own is its parent's.
    pub fn subtransaction_committed(self, level: i32) -> Self {
        let wrote = |version: &Version| version.level >= level;
        let has_written = matches!(&self.state, State::Written(written) if wrote(&written.version));
        if self.level < level && !has_written {
            return self;
        }
        let up = |version: Version| Version {
            level: version.level.min(level - 1),
            ..version
        };
        let state = match self.state {
            State::Written(written) => {
                let version = up(written.version);
                // No rollback separates versions of one level.
                let before = written
                    .before
                    .map(up)
                    .filter(|before| before.level < version.level);
                State::Written(Written {
                    version,
                    before,
                    ..written
                })
            }
            state => state,
        };
        Membership {
            level: self.level.min(level - 1),
            passed_up: self.passed_up || self.has_locked() || self.has_version(),
            state,
            ..self
        }
    }
}
