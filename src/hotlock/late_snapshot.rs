//! The late snapshot: that of a REPEATABLE READ transaction whose first statement has built on a
//! version that the transaction's snapshot does not show.
//!
//! The statement updates one row, which it finds by its key, and looks at nothing else. So it may
//! work on the row's last version, as at READ COMMITTED, and the transaction's snapshot is taken
//! when that version's writer has committed. The row is then as the statement found it: nobody else
//! can have changed it since. Until the snapshot is taken nothing may read with the old one; see
//! `snapshot_due.rs`.

use crate::pg::local::Local;
use crate::pg::of_transaction::OfTransaction;
use crate::pg::{snapshot, xact};

#[derive(Clone, Copy, Default)]
enum Late {
    /// The transaction has the snapshot that it will have.
    #[default]
    Taken,
    /// The first statement runs, as the address of its QueryDesc, and may build on what the
    /// snapshot does not show.
    Allowed(usize),
    /// As `Allowed`, and it has.
    Built(usize),
    /// It has, and has ended. The snapshot is to be taken again. The number is what
    /// `snapshot::definitions` said then.
    Due(u64),
}

static LATE: Local<OfTransaction<Late>> = Local::new(OfTransaction::new(Late::Taken));

/// The transaction's first statement may build on what the snapshot does not show.
pub fn allow(query: usize) {
    LATE.set(Late::Allowed(query));
}

/// The statement is not to build on such a version after all. It has not.
pub fn disallow() {
    LATE.clear();
}

/// Whether the statement that runs may.
#[inline]
pub fn is_allowed() -> bool {
    matches!(LATE.get(), Late::Allowed(..) | Late::Built(..))
}

/// Whether the statement that runs works on the last versions of rows, and not only on those that
/// its snapshot shows: at READ COMMITTED, and before a late snapshot.
#[inline]
pub fn builds_on_last() -> bool {
    xact::is_read_committed() || is_allowed()
}

/// Whether that statement may.
pub fn is_allowed_for(query: usize) -> bool {
    matches!(LATE.get(), Late::Allowed(of) | Late::Built(of) if of == query)
}

/// The statement has come to another version than its snapshot shows.
pub fn note_built() {
    if let Late::Allowed(query) = LATE.get() {
        LATE.set(Late::Built(query));
    }
}

/// A statement ends.
#[inline]
pub fn end_of_statement(query: usize) {
    match LATE.get() {
        Late::Allowed(of) if of == query => LATE.clear(),
        Late::Built(of) if of == query => LATE.set(Late::Due(snapshot::definitions())),
        _ => {}
    }
}

/// Whether nothing may read with the snapshot that the transaction has.
#[inline]
pub fn is_wanted() -> bool {
    matches!(LATE.get(), Late::Built(_) | Late::Due(_))
}

/// If the snapshot can be taken again, because the first statement has ended: what
/// `snapshot::definitions` said then.
pub fn due_since() -> Option<u64> {
    match LATE.get() {
        Late::Due(definitions) => Some(definitions),
        _ => None,
    }
}

/// It has been taken, or the transaction has ended.
#[inline]
pub fn forget() {
    LATE.clear();
}
