//! What clients are told.

use super::key;
use super::session;
use super::text;
use super::work::Refused;
use crate::hotlock::memory;
use crate::pg::error::{Report, Told, in_c};
use crate::pg::lookup::root_of;
use crate::pg::{process, raw};
use ::lane::{Item, Mode, REFUSAL};
use keyrange::{Conflict, Interval, Refusal, Relation};
use pgrx::pg_sys::Oid;
use std::ffi::{CStr, c_char};

const RETRY: &CStr = c"The transaction might succeed if retried.";
const SERIALIZATION_FAILURE: [u8; 5] = *b"40001";
const NOT_SUPPORTED: [u8; 5] = *b"0A000";

/// A table of `txn_heap` was used when the transaction was about to commit.
pub const SEALED: Report = Report {
    code: *b"25000",
    message: c"tables of txn_heap cannot be used while the transaction commits",
    detail: Some(c"What it reads and writes has been validated and registered."),
    hint: None,
};

/// A transaction that only read, and that another one has moved before, whose writes it did not
/// see.
pub const MOVED: Report = Report {
    code: SERIALIZATION_FAILURE,
    message: c"could not serialize access due to concurrent writes in a range that was read",
    detail: Some(c"A concurrent transaction has taken a place before this one (txn.range_window)."),
    hint: Some(RETRY),
};

/// A validated transaction in recovery.
pub const IN_RECOVERY: Report = Report {
    code: NOT_SUPPORTED,
    message: c"cannot use txn.range_occ during recovery",
    detail: Some(c"Only the primary knows what concurrent transactions write."),
    hint: Some(c"Set txn.range_occ to off, and read with the isolation level REPEATABLE READ."),
};

fn quoted(oid: Oid) -> String {
    // SAFETY: a catalog look-up; null for a table that is gone.
    let name = unsafe { raw::get_rel_name(oid) };
    if name.is_null() {
        return format!("with OID {}", u32::from(oid));
    }
    // SAFETY: a C string.
    format!("\"{}\"", unsafe { CStr::from_ptr(name) }.to_string_lossy())
}

/// What a client is told, with texts made by `make`: message, DETAIL (may be empty), HINT (may be
/// empty).
fn told(code: [u8; 5], make: impl FnOnce() -> [String; 3]) -> Told {
    let texts = make();
    let in_c = |text: &String| -> *const c_char {
        if text.is_empty() {
            std::ptr::null()
        } else {
            in_c(text)
        }
    };
    Told {
        code,
        message: in_c(&texts[0]),
        detail: in_c(&texts[1]),
        hint: in_c(&texts[2]),
    }
}

/// Raises an ERROR with these texts.
fn raise(code: [u8; 5], make: impl FnOnce() -> [String; 3]) -> ! {
    let told = told(code, make);
    // SAFETY: the texts stand in the current memory context; the strings that they were made of are
    // dropped.
    unsafe { told.raise() }
}

/// Raises 40001 for what validation found.
pub fn refuse(refusal: &Refusal) -> ! {
    match refusal {
        Refusal::HistoryLost { .. } => session::note_lost(),
        Refusal::Conflict(conflict) => warm(conflict),
        Refusal::Restarted => {}
    }
    raise(SERIALIZATION_FAILURE, || {
        let detail = match refusal {
            Refusal::Conflict(conflict) => of_conflict(conflict),
            Refusal::HistoryLost {
                relation,
                range,
                fxid,
            } => of_lost_history(*relation, *range, *fxid),
            Refusal::Restarted => {
                "A transaction that was prepared before the server started has not ended."
                    .to_owned()
            }
        };
        let retry = RETRY.to_string_lossy().into_owned();
        let incomplete =
            "could not serialize access because the history of concurrent writes is incomplete";
        match refusal {
            Refusal::Conflict(_) => [
                "could not serialize access due to concurrent writes in a range that was read"
                    .to_owned(),
                detail,
                retry,
            ],
            Refusal::HistoryLost { .. } => [
                incomplete.to_owned(),
                detail,
                format!(
                    "{retry} If this happens often, increase txn.range_slots or txn.range_buckets, or divide the table \
                     with txn.partition_by_range."
                ),
            ],
            Refusal::Restarted => [
                incomplete.to_owned(),
                detail,
                format!("{retry} See pg_prepared_xacts."),
            ],
        }
    })
}

/// A transaction was refused because of these keys: the lane is to know (`txn.lane = auto`).
fn warm(conflict: &Conflict) {
    let Some(lane) = memory().lane else { return };
    // What was written is one key more often than what was read.
    let is_one = |keys: &Interval| keys.low() == keys.high();
    let keys = match is_one(&conflict.written) {
        true => conflict.written,
        false => conflict.read,
    };
    // SAFETY: a catalog look-up.
    let root = unsafe { root_of(key::oid_of(conflict.relation)) };
    let item = Item {
        relation: key::relation_of(root),
        keys,
        mode: Mode::Write,
    };
    lane.warm(&item, REFUSAL, process::second());
}

fn of_conflict(conflict: &Conflict) -> String {
    let oid = key::oid_of(conflict.relation);
    let table = session::known(oid).filter(|table| table.may_be_seen());
    let name = quoted(oid);
    let Some(table) = table else {
        return format!("Transaction {} wrote to table {name}.", conflict.fxid);
    };
    let place = match conflict.range {
        Some(range) if range != keyrange::NULL_RANGE => format!("range {range} of table {name}"),
        Some(_) => format!("the range of null keys of table {name}"),
        None => format!("table {name}"),
    };
    let whole = session::with_present(|work| work.whole.get(&conflict.relation).copied()).flatten();
    let read = match whole {
        Some(whole) => format!("the whole table ({})", whole.text()),
        None => text::interval(table, &conflict.read),
    };
    let wrote = text::interval(table, &conflict.written);
    format!(
        "Transaction {} wrote {wrote} in {place}; this transaction read {read}.",
        conflict.fxid
    )
}

fn of_lost_history(relation: Relation, range: Option<u64>, fxid: u64) -> String {
    let oid = key::oid_of(relation);
    let name = quoted(oid);
    let range = range.filter(|_| session::known(oid).is_some_and(|table| table.may_be_seen()));
    let place = match range {
        Some(range) if range != keyrange::NULL_RANGE => format!("range {range} of table {name}"),
        _ => format!("table {name}"),
    };
    format!("Writes of transactions up to {fxid} in {place} have been overwritten.")
}

/// 40001: the transaction does not see the definition of a table that it uses. A savepoint may
/// survive that, the transaction must not.
pub fn redefined(oid: Oid) -> ! {
    session::with(|work| work.refused = Some(Refused::Redefined(oid)));
    raise(SERIALIZATION_FAILURE, || {
        [
            format!(
                "could not serialize access because table {} was redefined by a concurrent transaction",
                quoted(oid)
            ),
            String::new(),
            RETRY.to_string_lossy().into_owned(),
        ]
    })
}

/// The name of an access method; empty if it is gone.
fn method_name(method: Oid) -> String {
    // SAFETY: a catalog look-up, null or a C string.
    unsafe {
        let name = raw::get_am_name(method);
        if name.is_null() {
            return String::new();
        }
        CStr::from_ptr(name).to_string_lossy().into_owned()
    }
}

/// A NOTICE: a READ ONLY transaction reads a table of another access method.
pub fn not_validated(oid: Oid, method: Oid) {
    let notice = told(*b"00000", || {
        [
            format!(
                "what is read of table {} is not validated, as its access method \"{}\" does not support txn.range_occ",
                quoted(oid),
                method_name(method)
            ),
            "The transaction is READ ONLY, and reads such tables as REPEATABLE READ does."
                .to_owned(),
            String::new(),
        ]
    });
    // SAFETY: as in `raise`.
    unsafe { notice.notice() };
}

/// 0A000: a table of another access method.
pub fn other_method(oid: Oid, method: Oid) -> ! {
    raise(NOT_SUPPORTED, || {
        let method = method_name(method);
        let table = quoted(oid);
        let message = if method.is_empty() {
            format!("table {table} cannot be used with txn.range_occ")
        } else {
            format!("access method \"{method}\" of table {table} does not support txn.range_occ")
        };
        [
            message,
            "What transactions read and write there is not known to validation.".to_owned(),
            format!(
                "Use ALTER TABLE {table} SET ACCESS METHOD txn_heap, or set txn.range_occ to off."
            ),
        ]
    })
}
