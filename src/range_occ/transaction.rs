//! The end of transactions and subtransactions, for all that range OCC keeps of them.

use super::{existence, redefined, session, view};

/// A subtransaction at this nesting level (2 is the first) has rolled back.
pub fn subtransaction_rolled_back(level: i32) {
    existence::reset();
    redefined::end_utility();
    session::subtransaction_rolled_back(level);
}

/// The transaction has ended.
#[inline]
pub fn end() {
    existence::reset();
    redefined::end_utility();
    redefined::forget();
    view::forget();
    session::end();
}
