//! A validated transaction uses a table: it becomes known, or it is refused.

use super::errors;
use super::key;
use super::parents;
use super::session::{self, with_present};
use super::tables;
use super::uses::{Use, known_use};
use pgrx::pg_sys::{self, Oid};

/// A validated transaction is about to use the table, which is locked in `mode`. 0A000 if it
/// cannot, 40001 if it does not see its definition, or which partitions it has.
pub fn check_table(oid: Oid, mode: u32) {
    match known_use(oid) {
        Use::Free => {}
        // SAFETY: by what was said, and nothing in the callers has a destructor.
        Use::Ours => unsafe { tables::touch_locked(oid, mode) },
        Use::Partitioned => parents::note(oid),
        // Nothing is written by what is read there.
        Use::Refused(method) if session::is_read_only() => note_unvalidated(oid, method),
        Use::Refused(method) => errors::other_method(oid, method),
    }
}

/// A READ ONLY transaction reads a table of another access method as its snapshot shows it. Its
/// client is told of the first.
fn note_unvalidated(oid: Oid, method: Oid) {
    if !session::with(|work| std::mem::replace(&mut work.reads_others, true)) {
        errors::not_validated(oid, method);
    }
}

/// `check_table` for a table that is written to, whose rows may go to partitions.
pub fn check_target(oid: Oid, mode: u32) {
    check_table(oid, mode);
    if matches!(known_use(oid), Use::Partitioned) {
        parents::begin_routing(oid);
    }
}

/// What `keep_routed` has left.
///
/// # Errors
/// As for `touch`.
pub fn settle_routed() {
    while let Some(relation) = with_present(|work| work.routed.pop_first()).flatten() {
        check_table(key::oid_of(relation), pg_sys::RowExclusiveLock);
    }
}
