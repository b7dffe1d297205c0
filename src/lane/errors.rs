//! What clients are told.

use super::target::Unfit;
use crate::pg::error::{Report, Told, in_c};
use crate::pg::{raw, rights};
use crate::range_occ::{key, session, text};
use ::lane::{Item, Malformed, Mode};
use pgrx::pg_sys::Oid;
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

/// `txn.declare` on a server without a lane.
pub const NO_LANE: Report = Report {
    code: *b"55000",
    message: c"cannot declare keys on this server",
    detail: Some(c"The server was started with txn.lane_stripes = 0."),
    hint: Some(c"Set txn.lane_stripes in postgresql.conf, and restart the server."),
};

/// Outside of a transaction block the keys would be let go at once.
pub const NO_BLOCK: Report = Report {
    code: *b"25P01",
    message: c"txn.declare() can only be used in transaction blocks",
    detail: None,
    hint: Some(c"Begin a transaction block, or use txn.declare_procedure() for a procedure."),
};

/// On a standby.
pub const RECOVERY: Report = Report {
    code: *b"0A000",
    message: c"cannot declare keys during recovery",
    detail: None,
    hint: None,
};

/// SSI keeps its snapshot.
pub const SERIALIZABLE: Report = Report {
    code: *b"0A000",
    message: c"cannot declare keys at isolation level SERIALIZABLE",
    detail: None,
    hint: Some(c"Use REPEATABLE READ with txn.range_occ, which is serializable, too."),
};

/// A second declaration.
pub const TWICE: Report = Report {
    code: *b"25001",
    message: c"the transaction has declared its keys already",
    detail: None,
    hint: None,
};

/// Within a savepoint.
pub const SAVEPOINT: Report = Report {
    code: *b"25001",
    message: c"cannot declare keys in a subtransaction",
    detail: None,
    hint: None,
};

/// The transaction has an id.
pub const HAS_WRITTEN: Report = Report {
    code: *b"25001",
    message: c"keys must be declared before anything is written or locked",
    detail: None,
    hint: None,
};

/// The SELECT does something else, too.
pub const NOT_ALONE: Report = Report {
    code: *b"25001",
    message: c"txn.declare() must be a statement of its own",
    detail: None,
    hint: Some(c"Use SELECT txn.declare(...), without anything else."),
};

/// The snapshot has been used.
pub const NOT_FIRST: Report = Report {
    code: *b"25001",
    message: c"txn.declare() must be called before any query",
    detail: Some(c"The transaction's snapshot is taken when it has its keys."),
    hint: None,
};

/// The snapshot is one of all nodes.
pub const GLOBAL_SNAPSHOT: Report = Report {
    code: *b"0A000",
    message: c"cannot declare keys in a transaction with a global snapshot",
    detail: Some(c"The snapshot is taken before the keys are granted, and cannot be taken again."),
    hint: Some(c"Set txn.geo_snapshot to node."),
};

/// Somebody redefines a table again and again.
pub const REDEFINED: Report = Report {
    code: *b"40001",
    message: c"could not declare keys because of concurrent changes of a table's definition",
    detail: None,
    hint: Some(c"The transaction might succeed if retried."),
};

/// An item that is NULL.
pub const NULL_ITEM: Report = Report {
    code: *b"22004",
    message: c"items to declare must not be null",
    detail: None,
    hint: None,
};

/// More tables than items.
pub const TOO_MANY_TABLES: Report = Report {
    code: *b"54000",
    message: c"too many tables in a declaration",
    detail: Some(c"The setting txn.lane_keys has how many items a transaction may declare."),
    hint: None,
};

/// More items than anybody means.
pub const TOO_MANY_ITEMS: Report = Report {
    code: *b"54000",
    message: c"too many items in a declaration",
    detail: Some(c"A transaction may declare 10000 items."),
    hint: Some(c"Declare rows that lie together as one item, such as account(*)."),
};

/// The declaration of a function.
pub const FUNCTION: Report = Report {
    code: *b"42809",
    message: c"cannot declare keys for a function",
    detail: None,
    hint: None,
};

/// Raises an ERROR where values with destructors are alive.
pub fn refuse(report: &Report) -> ! {
    rights::unwinding(|| report.raise())
}

/// The text in PostgreSQL's memory; null if it is empty.
fn in_c_or_null(text: &str) -> *const std::ffi::c_char {
    if text.is_empty() {
        std::ptr::null()
    } else {
        in_c(text)
    }
}

/// Raises an ERROR where values with destructors are alive. DETAIL and HINT may be empty.
fn raise(code: [u8; 5], message: &str, detail: &str, hint: &str) -> ! {
    rights::unwinding(|| {
        let told = Told {
            code,
            message: in_c(message),
            detail: in_c_or_null(detail),
            hint: in_c_or_null(hint),
        };
        // SAFETY: texts in the current memory context.
        unsafe { told.raise() }
    })
}

/// An item that is none.
pub fn malformed(item: &str, malformed: Malformed) -> ! {
    refuse_item(item, malformed.text())
}

/// An item that cannot be declared.
pub fn refuse_item(item: &str, detail: &str) -> ! {
    raise(
        *b"22023",
        &format!("invalid item to declare: \"{item}\""),
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
    let code = match unfit {
        Unfit::NoTable => *b"42P01",
        Unfit::OtherMethod | Unfit::NoKey => *b"0A000",
        Unfit::TooFewValues | Unfit::TooManyValues => *b"22023",
    };
    match unfit {
        Unfit::NoTable => raise(
            code,
            &format!("relation \"{table}\" does not exist"),
            "",
            "",
        ),
        other => {
            let message = format!("cannot declare keys of \"{table}\"");
            raise(code, &message, other.detail(), "")
        }
    }
}

/// The name of a table, or its number if it is gone.
fn name_of(table: Oid) -> String {
    // SAFETY: a catalog look-up; null or a C string.
    unsafe {
        let name = raw::get_rel_name(table);
        if name.is_null() {
            return u32::from(table).to_string();
        }
        CStr::from_ptr(name).to_string_lossy().into_owned()
    }
}

/// A role that may not use the table.
pub fn refuse_use(table: Oid) -> ! {
    let name = rights::unwinding(|| name_of(table));
    raise(
        *b"42501",
        &format!("permission denied for table {name}"),
        "Keys are declared by those who may read the rows, or write to them.",
        "",
    )
}

/// Raises 55000: a declared transaction uses what it has not declared, and `txn.lane_beyond` is
/// `error`. Nothing with a destructor is alive in the callers.
pub fn beyond(item: &Item) -> ! {
    let does = match item.mode {
        Mode::Read => "It has read",
        Mode::Write => "It writes to, or locks,",
    };
    let oid = key::oid_of(item.relation);
    let told = {
        let name = name_of(oid);
        let table = key::cached(oid).filter(|table| table.may_be_seen());
        let whole = session::with_present(|work| work.whole.get(&key::relation_of(oid)).copied());
        let detail = match (table, whole.flatten()) {
            (Some(_), Some(whole)) if item.mode == Mode::Read => {
                format!("{does} all of table \"{name}\" ({}).", whole.text())
            }
            (Some(table), _) => {
                let keys = text::interval(&table, &item.keys);
                format!("{does} {keys} of table \"{name}\".")
            }
            (None, _) => format!("{does} rows of table \"{name}\"."),
        };
        Told {
            code: *b"55000",
            message: c"the transaction uses keys that it has not declared".as_ptr(),
            detail: in_c(&detail),
            hint: c"Declare them as well, or set txn.lane_beyond to validate.".as_ptr(),
        }
    };
    // SAFETY: texts in the current memory context, or static ones.
    unsafe { told.raise() }
}
