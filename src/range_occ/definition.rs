//! Whether a transaction sees the definitions that it uses.

use super::errors;
use super::key;
use super::session;
use super::validation::of_definitions;
use super::view::View;
use super::work::Change;
use crate::hotlock::memory;
use crate::pg::raw;
use keyrange::{Count, Csn};
use pgrx::pg_sys::Oid;

/// 0A000 on a standby: the rings are the primary's.
pub fn refuse_recovery() {
    // SAFETY: reads shared state.
    if unsafe { raw::RecoveryInProgress() } {
        errors::IN_RECOVERY.raise();
    }
}

/// The transaction uses the table by a definition of which its snapshot may be too old: then it
/// stands where that definition was there, at its CSN, whatever it reads. The table is locked.
///
/// # Errors
/// 40001 if others could not use the table when it was redefined: it may have been truncated,
/// rewritten or divided anew, and its writers registered by another key. They would be found at the
/// end, too.
pub fn check(oid: Oid) {
    let view = View::of_transaction();
    let validation = of_definitions(&view, Csn::MAX);
    let (mut is_newer, mut is_redefined) = (false, false);
    let is_known = validation.definition_is_seen(key::relation_of(oid), &mut |change| {
        is_newer = true;
        is_redefined |= Change::is_whole(change);
    });
    if is_redefined {
        memory().counters().add(Count::FirstTouch, 1);
        errors::redefined(oid);
    }
    if is_newer || !is_known {
        session::with(|work| work.saw_beyond = true);
    }
}

/// Whether the snapshot sees all changes of the table's definition, and these are known.
pub fn is_seen(view: &View, oid: Oid) -> bool {
    let validation = of_definitions(view, Csn::MAX);
    let mut is_newer = false;
    validation.definition_is_seen(key::relation_of(oid), &mut |_| is_newer = true) && !is_newer
}

/// Whether all definitions are as that snapshot sees them.
pub fn all_are_seen(view: &View) -> bool {
    of_definitions(view, Csn::MAX).definitions_are_seen()
}
