//! Reads beside running predecessors, validated before the commit (`follower_reads = validated`).
//!
//! A follower's snapshot does not show what its predecessors have written, nor what anybody has
//! committed since. PostgreSQL would have let the predecessors end before the UPDATE, and read
//! afterwards. A SELECT of tables that nobody writes meanwhile finds the same rows now as then, so
//! it need not wait. Whether somebody has written them is asked when the predecessors have ended
//! (crates/hotrow, watch.rs): at the commit, at the next statement that lets them end, and before
//! an error is reported. Then the transaction fails with 40001. One that ends in ROLLBACK is not
//! asked; its client may have seen what nobody would have seen later.
//!
//! - Every transaction that writes a watched table notes that at its PRE_COMMIT, whatever its
//!   settings, while nobody sees what it has written.
//! - Who writes a table holds ROW EXCLUSIVE or a stronger lock on it to its end, so nobody needs to
//!   remember what it has written. The lock of a savepoint goes when that is rolled back.
//! - A command that changes definitions counts as a change of all tables (pg/utility.rs has a list
//!   of those that do not).
//! - Catalogs, sequences, foreign tables and materialized views are not read so. They can be
//!   changed in other ways.

use super::definitions;
use super::errors;
use super::session::{SESSION, database, memory};
use super::waiting;
use crate::pg::local::Local;
use crate::pg::of_transaction;
use crate::pg::{lookup, process, xact};
use crate::shared::fault::{Fault, planted};
use hotrow::{Table, Watched};
use pgrx::pg_sys::{self, Oid};
use std::cell::Cell;

/// Reads that one transaction remembers; a further one waits.
const READS: usize = 32;

/// Locks of those who may have written rows of a table.
const WRITE_MODES: [u32; 5] = [
    pg_sys::RowExclusiveLock,
    pg_sys::ShareLock,
    pg_sys::ShareRowExclusiveLock,
    pg_sys::ExclusiveLock,
    pg_sys::AccessExclusiveLock,
];

/// What the transaction has read beside predecessors that may still run.
struct Noted {
    reads: [Cell<Option<Watched>>; READS],
    count: Cell<usize>,
}
static NOTED: Local<Noted> = Local::new(Noted {
    reads: [const { Cell::new(None) }; READS],
    count: Cell::new(0),
});

impl Noted {
    fn all(&self) -> impl Iterator<Item = Watched> + '_ {
        let noted = &self.reads[..self.count.get()];
        noted.iter().filter_map(Cell::get)
    }

    /// False if there is no room for it.
    fn add(&self, read: Watched) -> bool {
        if self.all().any(|one| one == read) {
            return true;
        }
        let place = self.reads.get(self.count.get());
        if let Some(place) = place {
            of_transaction::note();
            place.set(Some(read));
            self.count.set(self.count.get() + 1);
            memory().watched.hold(&read);
        }
        place.is_some()
    }

    /// Forgets all but the first ones.
    fn keep(&self, count: usize) {
        for read in self.all().skip(count) {
            memory().watched.release(&read);
        }
        self.count.set(count);
    }
}

/// How many reads are noted.
#[inline]
pub fn noted() -> usize {
    NOTED.count.get()
}

/// Notes one. False if there is no room for it.
pub fn note(read: Watched) -> bool {
    NOTED.add(read)
}

/// Forgets all but the first ones.
pub fn keep(count: usize) {
    NOTED.keep(count);
}

/// The predecessors have ended: fails with 40001 if somebody has changed what was read beside them.
#[inline]
pub fn validate() {
    if NOTED.count.get() > 0 {
        let now = process::now();
        let is_unwritten = planted(Fault::ReadsNotValidated)
            || memory().with_watched(|tables| {
                let changed = NOTED.all().filter(|read| !tables.is_unwritten(read));
                changed.map(|read| tables.distrust(&read, now)).count() == 0
            });
        NOTED.keep(0);
        if !is_unwritten {
            memory().totals.refused_reads.add(1);
            SESSION.refusal.set(Some(&errors::READ_IS_WRITTEN));
        }
    }
    waiting::check_refused();
}

/// PRE_COMMIT, PRE_PREPARE: nothing more is written, and nobody sees what was. Raises nothing.
#[inline]
pub fn note_writes() {
    if memory().watched.is_used() && xact::own_xid() != 0 {
        note_watched();
    }
}

fn note_watched() {
    let (database, now) = (database(), process::now());
    if memory().watched.has_unused(now) {
        memory().with_watched(|tables| tables.forget_unused(now));
    }
    for (place, relation) in memory().watched.of_database(database) {
        let holds = |mode| lookup::is_locked(Oid::from(relation), mode);
        let writes = WRITE_MODES.into_iter().any(holds);
        // ANALYZE has that lock, and so has who gives the table another to inherit from it.
        if writes || definitions::are_changed() || holds(pg_sys::ShareUpdateExclusiveLock) {
            let table = Table { database, relation };
            let written_at = writes.then_some(now);
            memory().with_watched(|tables| {
                tables.note_change(place, table, xact::next_xid, written_at);
            });
        }
    }
}

/// The transaction has ended.
#[inline]
pub fn forget() {
    if NOTED.count.get() > 0 {
        NOTED.keep(0);
    }
}
