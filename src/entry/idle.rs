//! Whether there is anything for this library to do.

use crate::pg::of_transaction;
use crate::range_occ;
use crate::tam::swap;

/// Whether the present transaction has come to nothing yet that this library has to deal with: it
/// is a member of no hot row, is not validated, and so on. It may come to that in the next part of
/// a statement.
#[inline]
pub fn is_idle() -> bool {
    !of_transaction::is_any_set()
        && !range_occ::session::is_validated()
        && swap::heaps_own().is_none()
}
