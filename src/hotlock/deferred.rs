//! The locks of foreign keys' checks that the transaction has deferred, the savepoints to which
//! they belong, and whether updates have come of the checks.

use super::session::memory;
use crate::pg::local::Local;
use crate::pg::of_transaction::{self, OfTransaction};
use crate::pg::{raw, tuple, xact};
use hotrow::Identity;
use pgrx::pg_sys;
use std::cell::Cell;

/// Locks that a transaction defers at a time; further checks take theirs at once.
const MOST: usize = 8;

/// A row whose lock is deferred.
#[derive(Clone, Copy)]
pub struct Deferred {
    pub identity: Identity,
    /// A copy of one of its versions, for the key, in the transaction's memory.
    pub copy: pg_sys::HeapTuple,
    /// The level of subtransactions to which the check belongs.
    pub checked_at: i32,
    /// The level to which the lock belongs that has been taken meanwhile; 0 for none.
    pub locked_at: i32,
}

pub struct Checks {
    /// The statement that runs and whose lock may be deferred, as the address of its QueryDesc,
    /// with the row that it asks for.
    pub asking: OfTransaction<Option<(usize, Identity)>>,
    deferred: [Cell<Option<Deferred>>; MOST],
    count: Cell<usize>,
    /// The row that was last checked in PostgreSQL's own way, and not updated since; whether it was
    /// hot then.
    checked: Cell<Option<(Identity, bool)>>,
    /// The locks of the transaction's end have been taken: statements of other extensions may still
    /// come.
    pub is_closed: Cell<bool>,
}
pub static CHECKS: Local<Checks> = Local::new(Checks {
    asking: OfTransaction::new(None),
    deferred: [const { Cell::new(None) }; MOST],
    count: Cell::new(0),
    checked: Cell::new(None),
    is_closed: Cell::new(false),
});

impl Checks {
    pub fn all(&self) -> impl Iterator<Item = Deferred> + '_ {
        self.deferred[..self.count.get()]
            .iter()
            .filter_map(Cell::get)
    }

    /// Takes each to its next state, or out of the list.
    pub fn step(&self, transition: impl Fn(Deferred) -> Option<Deferred>) {
        let mut kept = 0;
        for n in 0..self.count.get() {
            if let Some(next) = self.deferred[n].take().and_then(&transition) {
                self.deferred[kept].set(Some(next));
                kept += 1;
            }
        }
        self.count.set(kept);
    }
}

/// Whether the transaction has deferred locks.
#[inline]
pub fn has_deferred() -> bool {
    CHECKS.count.get() != 0
}

/// Whether it has deferred that row's.
pub fn is_deferred(identity: &Identity) -> bool {
    CHECKS.all().any(|one| one.identity == *identity)
}

pub fn has_room() -> bool {
    CHECKS.count.get() < MOST
}

/// Notes that the lock of the row is deferred of which a version was found.
///
/// # Safety
/// `rel` is open, and `found` is one of its rows, on a pinned page.
pub unsafe fn note(rel: pg_sys::Relation, identity: &Identity, found: pg_sys::HeapTuple) {
    // SAFETY: copied from a pinned page into memory that lasts as long as the transaction. What is
    // stored out of line may go with the row, so it is copied, too.
    let copy = unsafe {
        let context = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = pg_sys::TopTransactionContext;
        let copy = if tuple::has((*(*found).t_data).t_infomask, pg_sys::HEAP_HASEXTERNAL) {
            raw::toast_flatten_tuple(found, (*rel).rd_att)
        } else {
            raw::heap_copytuple(found)
        };
        pg_sys::CurrentMemoryContext = context;
        copy
    };
    of_transaction::note();
    let n = CHECKS.count.get();
    CHECKS.deferred[n].set(Some(Deferred {
        identity: *identity,
        copy,
        checked_at: xact::nest_level(),
        locked_at: 0,
    }));
    CHECKS.count.set(n + 1);
}

/// Before a statement starts: none is known to ask for such a lock.
#[inline]
pub fn forget_asking() {
    CHECKS.asking.clear();
}

/// Nothing is deferred any more: the transaction's locks have been taken, and its end is next.
#[inline]
pub fn close() {
    CHECKS.is_closed.set(true);
}

/// The transaction has ended.
#[inline]
pub fn open() {
    CHECKS.is_closed.set(false);
    CHECKS.checked.set(None);
}

/// Reads nothing but shared memory: it is called after the commit, too.
pub fn note_expectation(identity: &Identity, was_right: bool) {
    if let Some(slot) = memory().directory.find(identity) {
        memory().with_row(slot, |row, _| {
            if row.is(identity) {
                row.note_expectation(was_right);
            }
        });
    }
}

/// A row is locked KEY SHARE in PostgreSQL's own way. If it is not hot it may become so before we
/// update it.
pub fn note_checked(identity: &Identity) {
    let directory = memory().directory;
    let is_hot = directory.used.get() > 0 && directory.find(identity).is_some();
    if is_hot {
        // The end of the transaction has to know.
        of_transaction::note();
    }
    CHECKS.checked.set(Some((*identity, is_hot)));
}

/// A hot row is updated in PostgreSQL's own way: if the check has come before, the next one may
/// expect an update.
pub fn note_updated(identity: &Identity) {
    if CHECKS
        .checked
        .get()
        .is_some_and(|(row, _)| row == *identity)
    {
        CHECKS.checked.set(None);
        note_expectation(identity, true);
    }
}

/// A subtransaction at this depth has rolled back, with its checks, its updates and its locks.
pub fn subtransaction_rolled_back(level: i32) {
    CHECKS.step(|one| {
        let locked_at = if one.locked_at >= level {
            0
        } else {
            one.locked_at
        };
        (one.checked_at < level).then_some(Deferred { locked_at, ..one })
    });
}

/// A subtransaction at this depth has committed into its parent.
pub fn subtransaction_committed(level: i32) {
    CHECKS.step(|one| {
        let up = |at: i32| if at == level { level - 1 } else { at };
        let (checked_at, locked_at) = (up(one.checked_at), up(one.locked_at));
        // What belongs to the transaction as a whole stays.
        (locked_at != 1).then_some(Deferred {
            checked_at,
            locked_at,
            ..one
        })
    });
}

/// The transaction has ended. No update has come of a check. Of a row that was not hot that says
/// nothing: the update may have come before, or nobody has waited for it.
pub fn forget() {
    forget_asking();
    CHECKS.step(|_| None);
    if let Some((identity, true)) = CHECKS.checked.take() {
        note_expectation(&identity, false);
    }
}
