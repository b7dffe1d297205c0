//! Decision rows: `txn.geo_decision` has one for each node at which a committed transaction was
//! prepared. That a row is there is the decision.

use super::failure::{Failure, NOT_IN_STATE, Outcome};
use geo::Gid;
use pgrx::pg_sys::{self, Datum, Oid};

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

/// The table with that name in our schema.
pub fn table(name: &std::ffi::CStr) -> Outcome<Oid> {
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
        .hint("CREATE EXTENSION txn, or ALTER EXTENSION txn UPDATE."));
    }
    Ok(found)
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
    let table = table(c"geo_decision")?;
    // SAFETY: a table of ours, with these columns; values of their types. (`CatalogTupleInsert`
    // inserts into the table and its plain indexes.)
    unsafe {
        let relation = pg_sys::table_open(table, pg_sys::RowExclusiveLock as i32);
        for one in participants {
            let mut values = [
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
            let mut nulls = [false; 9];
            let descriptor = (*relation).rd_att;
            let tuple =
                pg_sys::heap_form_tuple(descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
            pg_sys::CatalogTupleInsert(relation, tuple);
            pg_sys::heap_freetuple(tuple);
        }
        pg_sys::table_close(relation, pg_sys::NoLock as i32);
    }
    Ok(())
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
