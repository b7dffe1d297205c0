//! What clients are told.

use super::target::Unfit;
use crate::pg::error::Report;
use ::lane::Malformed;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::pg_sys::{self, Oid};
use pgrx::{PgLogLevel, PgSqlErrorCode};
use std::ffi::CStr;

/// A transaction that has declared nothing wants to write to a key that another one has declared
/// for writing: by the time that it could, its snapshot would be too old.
pub const HELD: Report = Report {
    code: *b"40001",
    message: c"could not serialize access due to a declared transaction",
    detail: Some(c"A declared transaction holds the row."),
    hint: Some(c"The transaction might succeed if retried."),
};

/// A row lock with NOWAIT that a declared transaction is in the way of.
pub const NOT_AVAILABLE: Report = Report {
    code: *b"55P03",
    message: c"could not obtain lock on row",
    detail: Some(c"A declared transaction holds the row."),
    hint: None,
};

/// `txn.run` without a statement.
pub const NULL_STATEMENT: Report = Report {
    code: *b"22004",
    message: c"the statement to run must not be null",
    detail: None,
    hint: None,
};

/// `txn.run` where it cannot commit.
pub const RUN_IN_BLOCK: Report = Report {
    code: *b"25001",
    message: c"txn.run() cannot run inside a transaction block",
    detail: Some(c"Each attempt is a transaction of its own."),
    hint: None,
};

/// A number of attempts out of range.
pub const ATTEMPTS: Report = Report {
    code: *b"22023",
    message: c"number of attempts must be between 1 and 1000",
    detail: None,
    hint: None,
};

/// An isolation level that is none.
pub const ISOLATION: Report = Report {
    code: *b"22023",
    message: c"invalid isolation level",
    detail: None,
    hint: Some(c"Valid values are \"read committed\", \"repeatable read\" and \"serializable\"."),
};

/// A command that `txn.run` cannot run.
pub const TRANSACTION_COMMAND: Report = Report {
    code: *b"2D000",
    message: c"txn.run() cannot run transaction commands, or COPY to and from the client",
    detail: None,
    hint: None,
};

/// More parameters than arguments.
pub const TOO_FEW_ARGUMENTS: Report = Report {
    code: *b"22023",
    message: c"the statement has more parameters than there are arguments",
    detail: None,
    hint: None,
};

/// Why nothing can be declared.
#[derive(Clone, Copy)]
pub enum Refusal {
    NoLane,
    NoBlock,
    Recovery,
    Serializable,
    Twice,
    Savepoint,
    HasWritten,
    NotAlone,
    NotFirst,
    NullItem,
    TooManyTables,
    Function,
}

impl Refusal {
    /// SQLSTATE, message, DETAIL and HINT (either may be empty).
    fn texts(self) -> (PgSqlErrorCode, &'static str, &'static str, &'static str) {
        use PgSqlErrorCode::*;
        match self {
            Refusal::NoLane => (
                ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "keys cannot be declared on this server",
                "The server was started with txn.lane_stripes = 0.",
                "Set txn.lane_stripes in postgresql.conf, and restart the server.",
            ),
            Refusal::NoBlock => (
                ERRCODE_NO_ACTIVE_SQL_TRANSACTION,
                "txn.declare() can only be used in transaction blocks",
                "",
                "Begin a transaction block, or use txn.declare_procedure() for a procedure.",
            ),
            Refusal::Recovery => (
                ERRCODE_FEATURE_NOT_SUPPORTED,
                "keys cannot be declared during recovery",
                "",
                "",
            ),
            Refusal::Serializable => (
                ERRCODE_FEATURE_NOT_SUPPORTED,
                "keys cannot be declared at isolation level SERIALIZABLE",
                "",
                "Use REPEATABLE READ with txn.range_occ, which is serializable, too.",
            ),
            Refusal::Twice => (
                ERRCODE_ACTIVE_SQL_TRANSACTION,
                "the transaction has declared its keys already",
                "",
                "",
            ),
            Refusal::Savepoint => (
                ERRCODE_ACTIVE_SQL_TRANSACTION,
                "keys cannot be declared in a subtransaction",
                "",
                "",
            ),
            Refusal::HasWritten => (
                ERRCODE_ACTIVE_SQL_TRANSACTION,
                "keys must be declared before anything is written or locked",
                "",
                "",
            ),
            Refusal::NotAlone => (
                ERRCODE_ACTIVE_SQL_TRANSACTION,
                "txn.declare() must be a statement of its own",
                "",
                "Use SELECT txn.declare(...), without anything else.",
            ),
            Refusal::NotFirst => (
                ERRCODE_ACTIVE_SQL_TRANSACTION,
                "txn.declare() must be called before any query",
                "The transaction's snapshot is taken when it has its keys.",
                "",
            ),
            Refusal::NullItem => (
                ERRCODE_NULL_VALUE_NOT_ALLOWED,
                "items to declare must not be null",
                "",
                "",
            ),
            Refusal::TooManyTables => (
                ERRCODE_PROGRAM_LIMIT_EXCEEDED,
                "too many tables in a declaration",
                "The setting txn.lane_keys has how many items a transaction may declare.",
                "",
            ),
            Refusal::Function => (
                ERRCODE_WRONG_OBJECT_TYPE,
                "keys are declared for procedures, not for functions",
                "",
                "",
            ),
        }
    }
}

/// Raises an ERROR.
pub fn refuse(refusal: Refusal) -> ! {
    let (code, message, detail, hint) = refusal.texts();
    raise(code, message.to_owned(), detail, hint)
}

fn raise(code: PgSqlErrorCode, message: String, detail: &str, hint: &str) -> ! {
    let mut report = ErrorReport::new(code, message, "txn.declare");
    if !detail.is_empty() {
        report = report.set_detail(detail);
    }
    if !hint.is_empty() {
        report = report.set_hint(hint);
    }
    report.report(PgLogLevel::ERROR);
    unreachable!("an ERROR does not return")
}

/// An item that is none.
pub fn malformed(item: &str, malformed: Malformed) -> ! {
    refuse_item(item, malformed.text())
}

/// An item that cannot be declared.
pub fn refuse_item(item: &str, detail: &str) -> ! {
    raise(
        PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
        format!("invalid item to declare: \"{item}\""),
        detail,
        "An item is a table with the values of its key, such as account(1).",
    )
}

impl Unfit {
    /// For a DETAIL.
    pub fn detail(self) -> &'static str {
        match self {
            Unfit::NoTable => "There is no such table.",
            Unfit::OtherMethod => "The table is not of the access method txn_heap.",
            Unfit::NoKey => "The table has no range key.",
            Unfit::TooFewValues => {
                "The table's key has more columns; an asterisk stands for any values of the rest."
            }
            Unfit::TooManyValues => "The table's key has fewer columns.",
        }
    }
}

/// A table whose keys cannot be declared.
pub fn unfit(table: &str, unfit: Unfit) -> ! {
    use PgSqlErrorCode::*;
    let code = match unfit {
        Unfit::NoTable => ERRCODE_UNDEFINED_TABLE,
        Unfit::OtherMethod | Unfit::NoKey => ERRCODE_FEATURE_NOT_SUPPORTED,
        Unfit::TooFewValues | Unfit::TooManyValues => ERRCODE_INVALID_PARAMETER_VALUE,
    };
    let message = match unfit {
        Unfit::NoTable => format!("relation \"{table}\" does not exist"),
        _ => format!("keys of \"{table}\" cannot be declared"),
    };
    let detail = match unfit {
        Unfit::NoTable => "",
        other => other.detail(),
    };
    raise(code, message, detail, "")
}

/// A role that may not use the table.
pub fn refuse_use(table: Oid) -> ! {
    // SAFETY: a catalog look-up of a table that was there a moment ago.
    let name = unsafe { pg_sys::get_rel_name(table) };
    let name = if name.is_null() {
        u32::from(table).to_string()
    } else {
        // SAFETY: a C string.
        unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned()
    };
    raise(
        PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
        format!("permission denied for table {name}"),
        "Keys are declared by those who may read the rows, or write to them.",
        "",
    )
}
