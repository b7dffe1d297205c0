#![doc = include_str!("../README.md")]

mod brief;
mod chain;
mod combine;
mod contended;
mod definitions;
mod directory;
mod expect;
mod flush;
mod found;
mod gate;
mod graph;
mod guard;
mod identity;
mod membership;
mod mode;
#[cfg(test)]
mod model;
mod obstacle;
mod prepared;
mod processors;
mod row;
mod ticket;
mod turn;
mod watch;
mod word;

pub use combine::{ARGUMENT_BYTES, Adoption, CombineRequest, FORM_BYTES, Outcome, RESULT_BYTES};
pub use contended::{ContendedTables, Contention};
pub use definitions::{Definitions, Scope};
pub use directory::Directory;
pub use flush::{Duty, FlushQueue, end_of_record};
pub use found::{Found, Places};
pub use graph::{Backend, Wait, is_in_circle, is_top, leaders, owner_of, subtransactions_awaited};
pub use guard::{Level, ReadGuard, Verdict};
pub use identity::{Identity, KEY_BYTES, KEY_COLUMNS, LABEL_BYTES};
pub use membership::{
    Address, Base, Hold, Keep, Loan, Looking, Membership, Offer, Place, Reservation, Restart, Seen,
    State, Statement, Version, Written,
};
pub use mode::{Cause, Mode, Trouble};
pub use obstacle::Obstacle;
pub use processors::{Processor, Processors};
pub use row::{Counters, Member, Members, Promotion, Row, Slot, Tail};
pub use ticket::{Acquired, Patience};
pub use watch::{Table, WATCHED_TABLES, Watched, WatchedTables};
pub use word::{Word32, Word64};

/// Hot rows that one transaction can be a member of at a time; a further one is locked the ordinary
/// way.
pub const MEMBERS: usize = 8;

/// Index of a server process in the shared arrays (PostgreSQL's `pgprocno`).
pub type BackendId = u32;

/// Index of a membership: `backend * MEMBERS + n`.
pub type MemberId = u32;

/// The process that a membership belongs to.
pub fn backend_of(member: MemberId) -> BackendId {
    member / MEMBERS as u32
}
