//! Which SELECTs may run before the predecessors have ended (`follower_reads = validated`):
//! reads.rs validates them.

use super::quietness;
use super::reads;
use super::session::{SESSION, database, memory, relation_of};
use super::settings;
use crate::pg::{lookup, plan, process, xact};
use crate::shared::guc::{self, FollowerReads};
use hotrow::{Table, WATCHED_TABLES};
use pgrx::pg_sys::{self, Oid};

/// A horizon that many transaction ids old is renewed, long before it is older than ids can tell.
const RENEW: u32 = 1 << 28;

/// `txn.follower_reads_backoff` in microseconds.
fn backoff() -> u64 {
    guc::FOLLOWER_READS_BACKOFF.get().max(0) as u64 * 1000
}

/// Whether the statement may read beside the predecessors. It then takes its snapshot.
///
/// # Safety
/// `query` is about to be started, and has no snapshot.
pub unsafe fn may_go_on(query: *const pg_sys::QueryDesc) -> bool {
    let allows = |relation| settings::of(relation).follower_reads() != FollowerReads::Wait;
    // SAFETY: the caller's query is about to be started, so its plan's relations are locked.
    unsafe {
        if !SESSION.all().all(|(_, m)| allows(relation_of(&m)))
            || !plan::only_reads_tables((*query).plannedstmt)
            || !quietness::is_quiet(query)
        {
            return false;
        }
        let followed_in = |table| {
            let mut followed = SESSION.all().filter(|(_, m)| m.seen().is_some());
            followed.any(|(_, m)| relation_of(&m) == table)
        };
        // One statement takes no more than half of the places.
        let tables = || plan::tables((*query).plannedstmt);
        if tables().any(followed_in) || tables().count() > WATCHED_TABLES / 2 {
            return false;
        }
        let before = reads::noted();
        // All are watched, also when one of them is refused: they gain trust together.
        let mut goes_on = true;
        for table in tables() {
            goes_on &= lookup::is_temporary(table) || watch(table);
        }
        if goes_on {
            memory().totals.validated_reads.add(1);
        } else {
            reads::keep(before);
        }
        goes_on
    }
}

/// Watches the table. Whether it may be read with the next snapshot.
fn watch(table: Oid) -> bool {
    let table = Table {
        database: database(),
        relation: table.into(),
    };
    let (now, backoff) = (process::now(), backoff());
    let read = memory().with_watched(|tables| tables.watch(table, now, backoff, xact::next_xid));
    let Some(read) = read.filter(|read| xact::have_ended_below(read.horizon)) else {
        return false;
    };
    let oldest = xact::oldest_running();
    if oldest.wrapping_sub(read.horizon) > RENEW {
        memory().with_watched(|tables| tables.advance(&read, oldest));
    }
    reads::note(read)
}
