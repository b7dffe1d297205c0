//! Whether there is anything for this library to do.

use crate::hotlock::{check, late_snapshot, readguard, session, settings};
use crate::range_occ;
use crate::tam::swap;

/// Whether all of this holds:
/// - this session uses neither hot rows nor validation now;
/// - no table of the database has settings of its own;
/// - nothing has become visible anywhere before it was durable.
///
/// Then a part of a statement needs no more than its errors watched: a function in it may change
/// any of this.
#[inline]
pub fn is_idle() -> bool {
    settings::session_mode() == settings::TableMode::Off
        && !session::is_in_hot_transaction()
        && !check::has_deferred()
        && !late_snapshot::is_wanted()
        && settings::is_known_to_have_none()
        && !readguard::is_used()
        && swap::heaps_own().is_none()
        && !range_occ::session::is_validated()
}
