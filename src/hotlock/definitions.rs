//! Statements that were analyzed while their transaction's predecessors still ran.
//!
//! Stock PostgreSQL would have let the predecessors end before the hot UPDATE. It would have
//! analyzed and planned the statements after it with all that these had defined: a partition more,
//! another function, a table that hides one of the same name, a right less. Neither a statement
//! that runs beside the predecessors nor one that waits for them is planned again. So if anybody
//! commits a change of definitions in that time, the transaction is refused (40001). That holds
//! also if the analysis has failed, and the error was caught: it comes by no hook, so each rollback
//! of a subtransaction may be due to one.
//!
//! A transaction that changes definitions counts that around its commit (crates/hotrow,
//! definitions.rs). Its followers on a hot row go on when its invalidation messages have been sent.

use super::errors;
use super::session::{SESSION, database, memory};
use super::waiting;
use crate::pg::local::Local;
use crate::pg::of_transaction::OfTransaction;
use crate::pg::{process, release};
use crate::shared::fault::{Fault, planted};
use hotrow::Scope;
use std::cell::Cell;

/// How often a long transaction asks whether its predecessors have ended, in microseconds.
const ASK: u64 = 10_000;

/// What this transaction has to do with definitions.
struct Noted {
    /// `Definitions::ended` when it came to depend on another one.
    since: OfTransaction<Option<u64>>,
    /// When that was, or when it has asked last.
    asked_at: Cell<u64>,
    /// A statement has been analyzed since then.
    has_analyzed: Cell<bool>,
    /// What it has changed itself.
    changes: OfTransaction<Option<Scope>>,
    /// Of that, what the others have been told that it begins to commit.
    begun: Cell<Option<Scope>>,
}
static NOTED: Local<Noted> = Local::new(Noted {
    since: OfTransaction::new(None),
    asked_at: Cell::new(0),
    has_analyzed: Cell::new(false),
    changes: OfTransaction::new(None),
    begun: Cell::new(None),
});

/// The transaction comes to depend on another one.
pub fn follow() {
    if NOTED.since.get().is_none() {
        let ended = memory().definitions.ended(database());
        NOTED.since.set(Some(ended));
        NOTED.asked_at.set(process::now());
    }
}

/// Whether the transaction has come to depend on another one.
#[inline]
pub fn are_noted() -> bool {
    NOTED.since.get().is_some()
}

/// Whether the transaction is to ask again whether its predecessors have ended: what anybody
/// defines after that refuses nobody.
#[inline]
pub fn is_to_ask() -> bool {
    NOTED.since.get().is_some() && {
        let now = process::now();
        let is_due = now.saturating_sub(NOTED.asked_at.get()) >= ASK;
        if is_due {
            NOTED.asked_at.set(now);
        }
        is_due
    }
}

/// Whether some are being changed just now: whoever follows now does not know which it will see.
pub fn are_changing() -> bool {
    let (definitions, database) = (memory().definitions, database());
    definitions.have_changed(database, definitions.ended(database))
}

/// The transaction depends on nobody any more, and nobody that it has depended on has committed.
pub fn drop_dependency() {
    NOTED.since.clear();
    NOTED.has_analyzed.set(false);
}

/// A statement is about to be planned or started, and so has been analyzed; or that may have
/// failed.
#[inline]
pub fn note_analyzed() {
    if NOTED.since.get().is_some() {
        NOTED.has_analyzed.set(true);
    }
}

/// The predecessors have ended: 40001 if definitions have changed that a statement was analyzed
/// with.
#[inline]
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
    release::ask();
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
        && NOTED.begun.get().is_none()
    {
        NOTED.begun.set(Some(scope));
        memory().definitions.begin(scope);
    }
}

/// The transaction has ended, and so has `begin`.
#[inline]
pub fn forget() {
    NOTED.changes.clear();
    if let Some(scope) = NOTED.begun.take() {
        memory().definitions.end(scope);
    }
    drop_dependency();
}
