//! Statements that were analyzed while their transaction's predecessors still ran.
//!
//! Stock PostgreSQL would have let the predecessors end before the hot UPDATE, and analyzed and
//! planned the statements after it with all that these had defined: a partition more, another
//! function, a table that hides one of the same name, a right less. Neither a statement that runs
//! beside the predecessors nor one that waits for them is planned again. So if anybody commits a
//! change of definitions in that time, the transaction is refused (40001).
//!
//! A transaction that changes definitions counts that around its commit (crates/hotrow,
//! definitions.rs), and those behind it on a hot row go on when its invalidation messages have been
//! sent.

use super::commit;
use super::dependent;
use super::errors;
use super::session::{SESSION, memory};
use super::waiting;
use crate::fault::{Fault, planted};
use crate::pg::{nesting, wait};
use hotrow::Scope;
use pgrx::pg_sys;
use std::cell::Cell;

/// How often a long transaction asks whether its predecessors have ended, in microseconds.
const ASK: u64 = 10_000;

/// What this transaction has to do with definitions.
struct Noted {
    /// `Definitions::ended` when it came to depend on another one.
    since: Cell<Option<u64>>,
    /// When that was, or when it has asked last.
    asked_at: Cell<u64>,
    /// A statement has been analyzed since then.
    has_analyzed: Cell<bool>,
    /// What it has changed itself.
    changes: Cell<Option<Scope>>,
    /// The others have been told that it has begun to commit that.
    has_begun: Cell<bool>,
}
// SAFETY: a backend has one thread.
unsafe impl Sync for Noted {}
static NOTED: Noted = Noted {
    since: Cell::new(None),
    asked_at: Cell::new(0),
    has_analyzed: Cell::new(false),
    changes: Cell::new(None),
    has_begun: Cell::new(false),
};

fn database() -> u32 {
    // SAFETY: a plain read.
    u32::from(unsafe { pg_sys::MyDatabaseId })
}

/// The transaction comes to depend on another one.
pub fn follow() {
    if NOTED.since.get().is_none() {
        let ended = memory().definitions.ended(database());
        NOTED.since.set(Some(ended));
        NOTED.asked_at.set(wait::now());
    }
}

/// A statement of the client's is about to be started. What anybody defines after the predecessors'
/// end refuses nobody who has asked by then.
#[inline]
pub fn settle() {
    if NOTED.since.get().is_some() && nesting::is_outermost() {
        let now = wait::now();
        if now - NOTED.asked_at.get() >= ASK {
            NOTED.asked_at.set(now);
            if commit::have_predecessors_ended() {
                dependent::let_predecessors_end();
            }
        }
    }
}

/// A statement is about to be planned or started, and so has been analyzed.
#[inline]
pub fn note_analyzed() {
    if NOTED.since.get().is_some() {
        NOTED.has_analyzed.set(true);
    }
}

/// The predecessors have ended: 40001 if definitions have changed that a statement was analyzed
/// with.
pub fn validate() {
    let has_analyzed = NOTED.has_analyzed.take();
    if let Some(since) = NOTED.since.take()
        && has_analyzed
        && memory().definitions.have_changed(database(), since)
        && !planted(Fault::DefinitionsForgotten)
    {
        SESSION.refusal.set(Some(&errors::DEFINITIONS_CHANGED));
    }
    waiting::check_refused();
}

/// A command of the transaction changes definitions.
pub fn note_change(is_of_server: bool) {
    let scope = if is_of_server {
        Scope::Server
    } else {
        Scope::Database(database())
    };
    if NOTED.changes.get() != Some(Scope::Server) {
        NOTED.changes.set(Some(scope));
    }
}

/// Whether the transaction changes definitions.
#[inline]
pub fn are_changed() -> bool {
    NOTED.changes.get().is_some()
}

/// PRE_COMMIT, PRE_PREPARE: nobody sees yet what it has changed. Raises nothing.
#[inline]
pub fn begin() {
    if let Some(scope) = NOTED.changes.get()
        && !NOTED.has_begun.replace(true)
    {
        memory().definitions.begin(scope);
    }
}

/// The transaction has ended, and so has `begin`.
#[inline]
pub fn forget() {
    if let Some(scope) = NOTED.changes.take()
        && NOTED.has_begun.take()
    {
        memory().definitions.end(scope);
    }
    NOTED.since.set(None);
    NOTED.has_analyzed.set(false);
}
