//! The errors that hotlock raises.

use crate::pg::error::Report;

/// A transaction on whose uncommitted version this one built has rolled back (invariant "doomed").
pub const DOOMED: Report = Report {
    code: *b"40001",
    message: c"could not continue: a transaction that this one built on rolled back",
    detail: Some(c"This transaction used a row version that was never committed."),
    hint: Some(c"The transaction might succeed if retried."),
};

/// A session whose update this transaction had done with its own was cancelled before the commit.
pub const ABANDONED: Report = Report {
    code: *b"40001",
    message: c"could not commit: a session whose update was combined with this one has ended",
    detail: Some(c"With txn.combine_updates, updates of several sessions are done in one version of the row."),
    hint: Some(c"The transaction might succeed if retried."),
};

/// Updates of others are in our version, and they must not wait for standbys with us.
pub const NOT_EARLY: Report = Report {
    code: *b"40001",
    message: c"could not commit: updates combined with this one would wait for its standbys",
    detail: Some(c"It cannot become visible early, and has done updates of other sessions."),
    hint: Some(c"The transaction might succeed if retried."),
};

/// The row is gone whose lock the check of a foreign key has deferred (check.rs).
pub const REFERENCED_IS_GONE: Report = Report {
    code: *b"40001",
    message: c"could not lock the row to which a foreign key refers: another transaction has removed it",
    detail: Some(
        c"With txn.group_lock, the check of a foreign key may lock a hot row as late as at its update or at the commit.",
    ),
    hint: Some(c"The transaction might succeed if retried."),
};

/// Somebody has changed or locked the version that this transaction has built on (tam/base.rs).
pub const BASE_TAKEN: Report = Report {
    code: *b"40001",
    message:
        c"could not commit: another transaction has taken the row version that this one built on",
    detail: None,
    hint: Some(c"The transaction might succeed if retried."),
};

/// A follower's function would have to wait within an operation that has a page locked
/// (dependent.rs).
pub const CANNOT_WAIT: Report = Report {
    code: *b"40001",
    message: c"could not wait for a transaction that this one built on",
    detail: Some(c"A function that is called while a page is locked must not wait."),
    hint: Some(c"The transaction might succeed if retried."),
};

/// A nested statement would read with a snapshot that is older than the end of a predecessor
/// (dependent.rs).
pub const STALE_SNAPSHOT: Report = Report {
    code: *b"40001",
    message: c"could not read: the snapshot does not show a transaction that this one built on",
    detail: Some(c"With txn.group_lock, a transaction that follows another reads with snapshots from after its end."),
    hint: Some(c"The transaction might succeed if retried."),
};

/// Somebody has written a table that this transaction has read beside its predecessors (reads.rs).
pub const READ_IS_WRITTEN: Report = Report {
    code: *b"40001",
    message: c"could not continue: a table that this transaction read has been written",
    detail: Some(c"With txn.follower_reads = validated, a transaction on a hot row reads other tables before those ahead of it have ended."),
    hint: Some(c"The transaction might succeed if retried."),
};

/// A definition has changed that a statement was analyzed with before the predecessors had ended
/// (definitions.rs).
pub const DEFINITIONS_CHANGED: Report = Report {
    code: *b"40001",
    message: c"could not continue: a definition in the database was changed meanwhile",
    detail: Some(c"With txn.group_lock, the statement was analyzed before the transactions had ended that this one built on."),
    hint: Some(c"The transaction might succeed if retried."),
};

/// The definition of the hot row's table, or its statistics, changed while the statement followed.
pub const TABLE_CHANGED: Report = Report {
    code: *b"40001",
    message: c"could not update the hot row: the definition of its table was changed meanwhile",
    detail: None,
    hint: Some(c"The transaction might succeed if retried."),
};

/// The transaction wants its own version of a hot row again, and somebody has followed (rule "own
/// row again").
pub const OWN_ROW: Report = Report {
    code: *b"40001",
    message: c"could not change the hot row again: another transaction has already built on it",
    detail: Some(c"With txn.group_lock, a row that several transactions update is changed once per transaction."),
    hint: Some(c"The transaction might succeed if retried."),
};

/// Following would close a cycle of commit order (rule "opposite orders").
pub const CYCLE: Report = Report {
    code: *b"40P01",
    message: c"deadlock detected",
    detail: Some(c"Transactions that update several hot rows in different orders would have to commit before each other."),
    hint: Some(c"The transaction might succeed if retried. Updating hot rows in one order, right after each other, makes this rare."),
};

/// `lock_timeout` has passed, and PostgreSQL has told it as a cancel (pg/cancel.rs).
pub const LOCK_TIMEOUT: Report = Report {
    code: *b"55P03",
    message: c"canceling statement due to lock timeout",
    detail: None,
    hint: None,
};

/// `txn.hot_wait_timeout` has passed.
pub const WAIT_TIMEOUT: Report = Report {
    code: *b"55P03",
    message: c"canceling statement due to txn.hot_wait_timeout",
    detail: Some(
        c"The wait for a hot row, or for a transaction that updated it before, took too long.",
    ),
    hint: None,
};

/// A session that has done an update for this one has not told what it returns
/// (combine_request.rs).
pub const RETURNED_NOTHING: Report = Report {
    code: *b"XX000",
    message: c"could not read the row that a combined update returned",
    detail: None,
    hint: None,
};
