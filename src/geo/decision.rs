//! Decision rows: `txn.geo_decision` has one for each node at which a committed transaction was
//! prepared. That a row is there is the decision.

use super::failure::{Failure, NOT_IN_STATE, Outcome};
use geo::Gid;
use pgrx::pg_sys::{self, Datum, Oid};
use std::ffi::CStr;

/// A participant of the transaction.
#[derive(Clone, Debug)]
pub struct Participant {
    pub gid: Gid,
    pub server: Oid,
    /// The system identifier of the node.
    pub system: String,
    /// The id of the transaction at the node.
    pub transaction: u64,
    pub prepared: geo::Prepared,
}

/// A table of ours as this library reads and writes it: its columns with their types.
struct Shape {
    name: &'static CStr,
    columns: &'static [(&'static CStr, Oid)],
}

const DECISION: Shape = Shape {
    name: c"geo_decision",
    columns: &[
        (c"gid", pg_sys::TEXTOID),
        (c"server", pg_sys::OIDOID),
        (c"mapping", pg_sys::OIDOID),
        (c"system", pg_sys::TEXTOID),
        (c"xid", pg_sys::XID8OID),
        (c"timeline", pg_sys::INT4OID),
        (c"lsn", pg_sys::PG_LSNOID),
        (c"decided", pg_sys::TIMESTAMPTZOID),
        (c"lost", pg_sys::BOOLOID),
    ],
};

const COORDINATOR: Shape = Shape {
    name: c"geo_coordinator",
    columns: &[
        (c"uuid", pg_sys::UUIDOID),
        (c"incarnation", pg_sys::INT8OID),
        (c"system_identifier", pg_sys::INT8OID),
        (c"timeline", pg_sys::INT4OID),
        (c"database", pg_sys::OIDOID),
        (c"directory", pg_sys::INT8OID),
    ],
};

/// The table with that name in our schema.
pub fn table(name: &CStr) -> Outcome<Oid> {
    // SAFETY: catalog look-ups.
    let found = unsafe {
        let schema = pg_sys::get_namespace_oid(c"txn".as_ptr(), true);
        pg_sys::get_relname_relid(name.as_ptr(), schema)
    };
    if found == Oid::INVALID {
        return Err(Failure::new(
            NOT_IN_STATE,
            "extension txn is not installed in this database, or is out of date",
        )
        .hint("Run CREATE EXTENSION txn, or ALTER EXTENSION txn UPDATE."));
    }
    Ok(found)
}

/// Which of the columns each attribute is, whatever their order; None: it was dropped. An error if
/// one is missing, of another type, or unknown: the extension's SQL is of another version.
///
/// # Safety
/// `descriptor` is the descriptor of the table.
unsafe fn arrangement(descriptor: pg_sys::TupleDesc, shape: &Shape) -> Outcome<Vec<Option<usize>>> {
    let unfit = |detail: String| {
        let name = shape.name.to_string_lossy();
        Failure::new(
            NOT_IN_STATE,
            format!("table \"txn.{name}\" does not fit the library of extension txn"),
        )
        .detail(detail)
        .hint("ALTER EXTENSION txn UPDATE. After a change of the library restart the server.")
    };
    let mut found = Vec::new();
    // SAFETY: the caller's descriptor is the table's, and has `natts` attributes.
    let attributes = unsafe {
        let count = usize::try_from((*descriptor).natts).unwrap_or(0);
        (*descriptor).attrs.as_slice(count)
    };
    for attribute in attributes {
        if attribute.attisdropped {
            found.push(None);
            continue;
        }
        // SAFETY: a name ends with a zero.
        let name = unsafe { CStr::from_ptr(attribute.attname.data.as_ptr()) };
        let place = shape.columns.iter().position(|column| column.0 == name);
        match place.filter(|&n| shape.columns[n].1 == attribute.atttypid) {
            Some(n) => found.push(Some(n)),
            None => {
                let name = name.to_string_lossy();
                let what = match place {
                    Some(_) => "is of another type",
                    None => "is not known",
                };
                return Err(unfit(format!("Its column \"{name}\" {what}.")));
            }
        }
    }
    match (0..shape.columns.len()).find(|n| !found.contains(&Some(*n))) {
        None => Ok(found),
        Some(n) => {
            let name = shape.columns[n].0.to_string_lossy();
            Err(unfit(format!("It has no column \"{name}\".")))
        }
    }
}

/// An error unless the extension's tables are as this library has them.
pub fn check_tables() -> Outcome<()> {
    const SHARED: pg_sys::LOCKMODE = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
    for shape in [DECISION, COORDINATOR] {
        let table = table(shape.name)?;
        // SAFETY: a table of ours, opened and closed.
        unsafe {
            let relation = pg_sys::table_open(table, SHARED);
            let arranged = arrangement((*relation).rd_att, &shape);
            pg_sys::table_close(relation, pg_sys::NoLock as i32);
            arranged?;
        }
    }
    Ok(())
}

/// A text as a datum of the current memory context.
pub fn text(value: &str) -> Datum {
    // SAFETY: copies so many bytes.
    let text = unsafe {
        pg_sys::cstring_to_text_with_len(value.as_ptr().cast(), value.len() as std::ffi::c_int)
    };
    Datum::from(text)
}

/// Writes the rows, in this transaction, whoever its user is.
pub fn write(participants: &[Participant]) -> Outcome<()> {
    let table = table(DECISION.name)?;
    // SAFETY: a table of ours, opened and closed.
    unsafe {
        let relation = pg_sys::table_open(table, pg_sys::RowExclusiveLock as i32);
        let arranged = arrangement((*relation).rd_att, &DECISION);
        if let Ok(places) = &arranged {
            for one in participants {
                insert(relation, one, places);
            }
        }
        pg_sys::table_close(relation, pg_sys::NoLock as i32);
        arranged.map(|_| ())
    }
}

/// # Safety
/// The open table, and which of its attributes is which column.
unsafe fn insert(relation: pg_sys::Relation, one: &Participant, places: &[Option<usize>]) {
    // SAFETY: by the contract; values of the columns' types. (`CatalogTupleInsert` inserts into the
    // table and its plain indexes.)
    unsafe {
        // In the order of DECISION.
        let columns = [
            text(&one.gid.to_string()),
            Datum::from(one.server),
            Datum::from(Oid::from(one.gid.mapping)),
            text(&one.system),
            Datum::from(one.transaction),
            Datum::from(one.prepared.timeline as i32),
            Datum::from(one.prepared.lsn),
            Datum::from(pg_sys::GetCurrentTimestamp()),
            Datum::from(false),
        ];
        let value = |place: &Option<usize>| place.map_or(Datum::from(0), |n| columns[n]);
        let mut values: Vec<Datum> = places.iter().map(value).collect();
        let mut nulls: Vec<bool> = places.iter().map(Option::is_none).collect();
        let tuple =
            pg_sys::heap_form_tuple((*relation).rd_att, values.as_mut_ptr(), nulls.as_mut_ptr());
        pg_sys::CatalogTupleInsert(relation, tuple);
        pg_sys::heap_freetuple(tuple);
    }
}

/// Writes the decision durably wherever a failover may look for it: at least as
/// `synchronous_commit = on` does. Until the end of the transaction.
pub fn be_durable() {
    use pg_sys::SyncCommitLevel::SYNCHRONOUS_COMMIT_REMOTE_FLUSH;
    // SAFETY: what SET LOCAL does.
    unsafe {
        if pg_sys::synchronous_commit < SYNCHRONOUS_COMMIT_REMOTE_FLUSH as i32 {
            pg_sys::set_config_option(
                c"synchronous_commit".as_ptr(),
                c"on".as_ptr(),
                pg_sys::GucContext::PGC_USERSET,
                pg_sys::GucSource::PGC_S_SESSION,
                pg_sys::GucAction::GUC_ACTION_LOCAL,
                true,
                0,
                false,
            );
        }
    }
}

/// Whether the synchronous standbys have WAL up to that position on disk, if there have to be any
/// (syncrep.c).
pub fn is_confirmed(lsn: u64) -> bool {
    use pg_sys::SYNC_REP_WAIT_FLUSH;
    // SAFETY: shared memory of walsender_private.h; words that are read without their lock, as
    // SyncRepWaitForLSN does first.
    unsafe {
        let shared = pg_sys::WalSndCtl;
        let is_asked = pg_sys::max_wal_senders > 0
            && !pg_sys::SyncRepStandbyNames.is_null()
            && *pg_sys::SyncRepStandbyNames != 0;
        !is_asked || std::ptr::read_volatile(&(*shared).lsn[SYNC_REP_WAIT_FLUSH as usize]) >= lsn
    }
}
