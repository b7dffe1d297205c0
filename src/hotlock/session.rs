//! What the present transaction of this session has to do with hot rows. Private to the process.

use crate::pg::error::Report;
use crate::pg::local::Local;
use crate::pg::of_transaction::{self, OfTransaction};
use crate::pg::process;
use crate::pg::release;
use crate::shared::memory::{Shared, shared};

use crate::pg::xact;
use hotrow::{Identity, MEMBERS, MemberId, Membership, Patience, Slot, Statement};
use pgrx::pg_sys::Oid;
use std::cell::Cell;

use super::settings::{self, TableMode};
use crate::shared::guc;

/// Rows locked in the ordinary way that are remembered; with more, the transaction queues for none.
const LOCKED: usize = 64;

/// The session's state. Cells, because callbacks nest.
pub struct Session {
    memberships: [Cell<Option<Membership>>; MEMBERS],
    count: Cell<usize>,
    /// No place from here on is taken.
    upto: Cell<usize>,
    /// Hashes of rows that this transaction has locked or changed without a ticket, and marks of
    /// tables in which it may have locked any: it must not queue for them.
    locked: [Cell<u64>; LOCKED],
    locked_count: Cell<usize>,
    /// How often this session has come to depend on a predecessor.
    pub dependencies: Cell<u64>,
    /// The transaction's id, as long as it stands for nothing: heap has asked for it, and come to
    /// nothing since the last ticket.
    pub idle_xid: Cell<u32>,
    /// The contention counter that this session has raised, index + 1.
    pub counted: OfTransaction<u64>,
    /// The hash of a row that is to be hot when this transaction comes to it, 0 for none
    /// (detect.rs).
    pub ripe: OfTransaction<u64>,
    /// Tickets are kept while the client thinks (ticket.rs).
    pub away: OfTransaction<bool>,
    /// How many are behind this transaction on the hot row that it has just left.
    pub behind: Cell<u32>,
    /// Shared words of this session hold something that must be cleared at the end.
    pub published: Cell<bool>,
    /// A point reached in PRE_COMMIT; see commit.rs.
    pub synchronous_commit: OfTransaction<Option<i32>>,
    pub flush_to: Cell<u64>,
    /// The transaction has committed, and leaves its hot rows when its locks are released.
    pub stays: Cell<bool>,
    /// Why the transaction must not commit, whatever becomes of the error that said so.
    pub refusal: OfTransaction<Option<&'static Report>>,
    /// When it first updated a hot row, if it needs no more of its client; 0 otherwise.
    updated_at: Cell<u64>,
    pub lock_timeout: OfTransaction<Option<i32>>,
    /// The setting of `deadlock_timeout` while another one is in force; see waiting.rs.
    pub deadlock_timeout: OfTransaction<Option<i32>>,
}

pub static SESSION: Local<Session> = Local::new(Session {
    memberships: [const { Cell::new(None) }; MEMBERS],
    count: Cell::new(0),
    upto: Cell::new(0),
    locked: [const { Cell::new(0) }; LOCKED],
    locked_count: Cell::new(0),
    dependencies: Cell::new(0),
    idle_xid: Cell::new(0),
    counted: OfTransaction::new(0),
    ripe: OfTransaction::new(0),
    away: OfTransaction::new(false),
    behind: Cell::new(0),
    published: Cell::new(false),
    synchronous_commit: OfTransaction::new(None),
    flush_to: Cell::new(0),
    stays: Cell::new(false),
    refusal: OfTransaction::new(None),
    updated_at: Cell::new(0),
    lock_timeout: OfTransaction::new(None),
    deadlock_timeout: OfTransaction::new(None),
});

impl Session {
    /// Whether the transaction is a member of any hot row.
    #[inline]
    pub fn is_member(&self) -> bool {
        self.count.get() != 0
    }

    pub fn get(&self, n: usize) -> Option<Membership> {
        self.memberships.get(n).and_then(Cell::get)
    }

    /// The transaction, which needs no more of its client, first updates a hot row.
    pub fn note_update(&self, now: u64) {
        self.updated_at.set(now);
    }

    /// When that was, in microseconds.
    pub fn updated_at(&self) -> Option<u64> {
        Some(self.updated_at.get()).filter(|&at| at != 0)
    }

    /// Refuses the transaction: it must not commit, even if it catches this error.
    pub fn refuse(&self, why: &'static Report) -> ! {
        self.refusal.set(Some(why));
        why.raise()
    }

    /// Takes one membership to its next state.
    pub fn step(&self, n: usize, transition: impl FnOnce(Membership) -> Membership) {
        if let Some(membership) = self.get(n) {
            self.memberships[n].set(Some(transition(membership)));
        }
    }

    /// All memberships with their numbers.
    pub fn all(&self) -> impl Iterator<Item = (usize, Membership)> + '_ {
        (0..MEMBERS)
            .take_while(|&n| n < self.upto.get())
            .filter_map(|n| self.get(n).map(|m| (n, m)))
    }

    /// Whether the transaction must commit after another one that has not ended, as far as is
    /// known.
    #[inline]
    pub fn is_dependent(&self) -> bool {
        self.is_member() && self.all().any(|(_, m)| m.depends())
    }

    /// Whether the transaction has seen or built on the version of another one that was running
    /// then.
    #[inline]
    pub fn has_followed(&self) -> bool {
        self.is_member() && self.all().any(|(_, m)| m.seen().is_some())
    }

    /// Whether a hot row is locked, and not updated yet.
    pub fn is_to_update(&self) -> bool {
        self.all().any(|(_, m)| m.has_ticket() && !m.has_version())
    }

    /// The membership in that row.
    pub fn in_row(&self, slot: Slot) -> Option<(usize, Membership)> {
        self.all().find(|(_, m)| m.slot() == slot)
    }

    /// The membership whose version of the row has that address.
    pub fn with_version(&self, relation: Oid, version: u64) -> Option<(usize, Membership)> {
        self.all()
            .find(|(_, m)| m.version() == Some(version) && relation_of(m) == relation)
    }

    /// The membership for which the executor looks at a version, or is to start again, and which it
    /// means by `version`.
    pub fn with_offer(&self, relation: Oid, version: u64) -> Option<(usize, Membership)> {
        self.all()
            .find(|(_, m)| relation_of(m) == relation && m.is_looked_for_at(version))
    }

    /// The membership for which the executor has that uncommitted version of a predecessor in its
    /// hands.
    pub fn with_in_hand(&self, relation: Oid, version: u64) -> Option<(usize, Membership)> {
        self.all()
            .find(|(_, m)| relation_of(m) == relation && m.has_in_hand(version))
    }

    /// Begins a membership, if one of the places is free.
    pub fn begin(&self, slot: Slot, relation: Oid) -> Option<usize> {
        release::ask();
        of_transaction::note();
        let n = (0..MEMBERS).find(|&n| self.memberships[n].get().is_none())?;
        let membership = Membership::begin(slot, u32::from(relation), xact::nest_level());
        self.memberships[n].set(Some(membership));
        self.count.set(self.count.get() + 1);
        self.upto.set(self.upto.get().max(n + 1));
        memory().members[member_id(n) as usize].begin(slot);
        if xact::own_xid() != 0 {
            // Others may wait for rows of tables whose locks are not noted one by one.
            self.publish();
        }
        Some(n)
    }

    /// Remembers that the transaction has locked that row in the ordinary way. Others may wait for
    /// it now.
    pub fn note_locked(&self, identity: &Identity) {
        self.publish();
        self.note(identity.hash());
    }

    /// Remembers that the transaction has locked the row of a membership in the ordinary way.
    pub fn note_locked_by(&self, membership: &Membership) {
        self.publish();
        self.note(memory().directory.rows[membership.slot() as usize].mark());
    }

    /// Remembers that it may have locked any row of that table.
    pub fn note_locked_in(&self, relation: Oid) {
        self.note(mark_of(relation));
    }

    fn note(&self, mark: u64) {
        let count = self.locked_count.get();
        if count > LOCKED || self.locked[..count].iter().any(|one| one.get() == mark) {
            return;
        }
        if let Some(place) = self.locked.get(count) {
            place.set(mark);
        }
        self.locked_count.set(count + 1);
    }

    /// Remembers that it may have locked any row.
    pub fn note_locked_something(&self) {
        self.locked_count.set(LOCKED + 1);
    }

    /// Makes the transaction known to those who look for the owner of a row lock (deadlock.rs).
    pub fn publish(&self) {
        self.published.set(true);
        memory().backends[process::me() as usize]
            .xid
            .publish(xact::own_xid());
    }

    /// Whether somebody may wait for this transaction: it is a member of a hot row, or has locked
    /// rows.
    #[inline]
    pub fn is_waited_for(&self) -> bool {
        self.is_member() || !self.has_locked_nothing()
    }

    /// Nobody can be waiting for this transaction yet: it has written nothing, has no ticket, and
    /// is in no other row than the one that it comes to.
    pub fn is_fresh(&self) -> bool {
        self.is_new() && !self.all().any(|(_, m)| m.has_ticket())
    }

    /// Nobody can be waiting for this transaction yet, but for the ticket of the row that it comes
    /// to.
    pub fn is_new(&self) -> bool {
        self.all().count() <= 1 && xact::own_xid() == 0
    }

    /// Whether the transaction has tickets and nothing else: who waits for it waits for one of
    /// those.
    pub fn has_only_tickets(&self) -> bool {
        let xid = xact::own_xid();
        (xid == 0 || xid == self.idle_xid.get())
            && self.has_locked_nothing()
            && self
                .all()
                .all(|(_, m)| m.has_ticket() && !m.has_version() && !m.has_locked() && !m.depends())
    }

    /// Whether the transaction has locked no row in the ordinary way.
    pub fn has_locked_nothing(&self) -> bool {
        self.locked_count.get() == 0
    }

    /// Whether so many are remembered that it counts as having locked any row.
    pub fn may_have_locked_any(&self) -> bool {
        self.locked_count.get() > LOCKED
    }

    /// Whether the transaction has (or may have) locked that row in the ordinary way.
    pub fn has_locked(&self, identity: &Identity) -> bool {
        let of_table = mark_of(Oid::from(identity.relation));
        self.has_noted(&[identity.hash(), of_table])
    }

    /// Whether it has locked the row of that membership so.
    pub fn has_locked_row_of(&self, membership: &Membership) -> bool {
        self.has_noted(&[memory().directory.rows[membership.slot() as usize].mark()])
    }

    fn has_noted(&self, marks: &[u64]) -> bool {
        let noted = &self.locked[..self.locked_count.get().min(LOCKED)];
        self.may_have_locked_any() || noted.iter().any(|one| marks.contains(&one.get()))
    }

    /// At the end of the transaction.
    #[inline]
    pub fn forget_locked(&self) {
        self.updated_at.set(0);
        self.locked_count.set(0);
    }

    /// Ends it.
    pub fn end(&self, n: usize) {
        if self.memberships[n].take().is_some() {
            self.count.set(self.count.get() - 1);
            if !self.is_member() {
                self.upto.set(0);
            }
        }
    }
}

/// The table of a membership's row.
pub fn relation_of(membership: &Membership) -> Oid {
    Oid::from(membership.relation())
}

/// The present database.
pub fn database() -> u32 {
    // SAFETY: a global of this backend, which has one thread.
    u32::from(unsafe { pgrx::pg_sys::MyDatabaseId })
}

/// The slot of membership `n`.
pub fn membership_slot(n: usize) -> Slot {
    SESSION.get(n).map_or(0, |m| m.slot())
}

/// A statement as a membership remembers it, by the address of its QueryDesc; 0 for none.
pub fn statement_of(query: usize) -> Option<Statement> {
    (query != 0).then_some(query)
}

/// What stands for a table among the hashes of rows; a hash that happens to be the same costs an
/// early place in the queue.
fn mark_of(relation: Oid) -> u64 {
    u64::from(u32::from(relation))
}

/// A membership's number in shared memory.
pub fn member_id(n: usize) -> MemberId {
    process::me() * MEMBERS as u32 + n as u32
}

/// Waiters that stay awake for a moment to take a released ticket at once. More of them only take
/// processor time from the transaction that has it.
const COMPETITORS: u32 = 2;

/// The patience that the settings ask for.
pub fn patience() -> Patience {
    Patience {
        fair_every: guc::value(&guc::FAIR_EVERY).max(1) as u32,
        longest_wait: guc::value(&guc::LONGEST_WAIT).max(0) as u64 * 1000,
        newest_first: guc::value(&guc::NEWEST_FIRST).max(0) as u64 * 1000,
        holds: false,
        competitors: COMPETITORS,
    }
}

/// `patience`, of a transaction that may have to queue.
pub fn waiters_patience() -> Patience {
    Patience {
        holds: !SESSION.is_fresh(),
        ..patience()
    }
}

/// Whether this transaction may use hot rows at all.
#[inline]
pub fn is_allowed() -> bool {
    process::is_backend()
}

/// Whether this transaction may come to use the hot rows of some table: the session's settings say
/// so, or the database has tables with settings of their own (settings.rs says which).
#[inline]
pub fn is_enabled() -> bool {
    is_allowed() && (settings::session_mode() != TableMode::Off || settings::exist())
}

/// The shared memory. Only for callbacks, which are not installed without it.
#[inline]
pub fn memory() -> &'static Shared {
    match shared() {
        Some(shared) => shared,
        None => std::process::abort(),
    }
}

/// Whether the present transaction is a member of any hot row.
#[inline]
pub fn is_in_hot_transaction() -> bool {
    SESSION.is_member()
}
