//! Transactions by 64-bit id, and what the validated transaction's snapshot sees of them.

use crate::hotlock::memory;
use crate::pg::local::Local;
use crate::pg::of_transaction::OfTransaction;
use crate::pg::raw;
use crate::pg::xact;
use keyrange::{IntervalSet, Relation, Survey};
use pgrx::pg_sys::{self, TransactionId};
use std::sync::OnceLock;

fn next() -> u64 {
    // SAFETY: reads a shared counter.
    unsafe { raw::ReadNextFullTransactionId().value }
}

/// The transaction that comes next in this server's life.
pub fn next_fxid() -> u64 {
    next()
}

/// The present transaction's id, 0 without one.
pub fn own_fxid() -> u64 {
    // SAFETY: reads backend state.
    unsafe { raw::GetTopFullTransactionIdIfAny().value }
}

/// The 64-bit id of a transaction that is not older than PostgreSQL keeps them apart (2^31).
pub fn widen(xid: u32) -> u64 {
    let next = next();
    let behind = (next as u32).wrapping_sub(xid);
    next - u64::from(behind)
}

/// The transaction that the process runs, 0 without one.
pub fn run_by(process: usize) -> u64 {
    match xact::run_by(process) {
        0 => 0,
        xid => widen(xid),
    }
}

fn narrow(fxid: u64) -> TransactionId {
    TransactionId::from(fxid as u32)
}

/// Under which ids transactions without one register what they have read: this and the number of
/// the process.
pub const READER: u64 = 1 << 62;

/// Whether that top-level transaction is still in progress, or a reader's process may be at work.
pub fn is_running(fxid: u64) -> bool {
    if fxid >= READER {
        return true;
    }
    const DISTANT: u64 = 1 << 31;
    next().saturating_sub(fxid) < DISTANT && xact::is_running(fxid as u32)
}

/// Whether it has rolled back by now; false while it runs. Of ids that some snapshot may not see,
/// whose state is kept.
pub fn did_abort(fxid: u64) -> bool {
    // SAFETY: look-ups by a normal transaction id, in this order, as the C code has it.
    !xact::is_running(fxid as u32) && unsafe { !raw::TransactionIdDidCommit(narrow(fxid)) }
}

/// As `did_abort`, of any id. False, too, if the id is so old that its state is not known any more
/// (xid8funcs.c: TransactionIdInRecentPast).
fn did_abort_long_ago(fxid: u64) -> bool {
    // SAFETY: the commit log is not truncated while the lock is held; an ERROR of the look-up
    // releases it.
    unsafe {
        let lock = &raw mut (*pg_sys::MainLWLockArray.add(XACT_TRUNCATION_LOCK)).lock;
        raw::LWLockAcquire(lock, pg_sys::LWLockMode::LW_SHARED);
        let oldest = widen((*pg_sys::ShmemVariableCache).oldestClogXid.into());
        let result = fxid >= oldest && did_abort(fxid);
        raw::LWLockRelease(lock);
        result
    }
}

/// storage/lwlocknames.h: XactTruncationLock.
const XACT_TRUNCATION_LOCK: usize = 44;

/// The snapshot that all statements of the present transaction have.
fn transaction_snapshot() -> pg_sys::Snapshot {
    // SAFETY: at REPEATABLE READ and above it is the transaction's own, which lives as long as the
    // transaction.
    unsafe { raw::GetTransactionSnapshot() }
}

/// Whether that snapshot sees the same transactions as the present, validated transaction's own:
/// those that run in the same span of ids only become fewer.
///
/// # Safety
/// `other` is a valid snapshot.
pub unsafe fn is_own_snapshot(other: pg_sys::Snapshot) -> bool {
    // SAFETY: by the contract; MVCC snapshots have these fields.
    unsafe {
        let (own, other) = (&*transaction_snapshot(), &*other);
        other.snapshot_type == pg_sys::SnapshotType::SNAPSHOT_MVCC
            && (own.xmin, own.xmax, own.xcnt) == (other.xmin, other.xmax, other.xcnt)
    }
}

/// The xmin of the transaction's snapshot, as a 64-bit id.
static XMIN: Local<OfTransaction<Option<u64>>> = Local::new(OfTransaction::new(None));

fn xmin_of(snapshot: pg_sys::Snapshot) -> u64 {
    XMIN.get().unwrap_or_else(|| {
        // SAFETY: the transaction's snapshot, which lives as long as it.
        let xmin = widen(u32::from(unsafe { (*snapshot).xmin }));
        XMIN.set(Some(xmin));
        xmin
    })
}

/// The transaction has taken its snapshot again, with this xmin.
pub fn retaken(xmin: u32) {
    XMIN.set(Some(widen(xmin)));
}

/// The transaction has ended.
pub fn forget() {
    XMIN.clear();
}

/// Whether the versions in a table show that nobody has written these keys (`versions.rs`).
type ShowNoWriter = fn(&View, Relation, &IntervalSet) -> bool;
static SHOW_NO_WRITER: OnceLock<ShowNoWriter> = OnceLock::new();

/// Says how that is found out. Once, from `_PG_init`.
pub fn init(show: ShowNoWriter) {
    let _ = SHOW_NO_WRITER.set(show);
}

/// The snapshot of a validated transaction.
#[derive(Clone, Copy)]
pub struct View {
    snapshot: pg_sys::Snapshot,
    xmin: u64,
    own: u64,
}

impl View {
    /// The snapshot that all statements of the present transaction have, which is of level
    /// REPEATABLE READ or above and has taken it.
    pub fn of_transaction() -> Self {
        let snapshot = transaction_snapshot();
        View {
            snapshot,
            xmin: xmin_of(snapshot),
            own: own_fxid(),
        }
    }

    /// The snapshot itself.
    pub fn snapshot(&self) -> pg_sys::Snapshot {
        self.snapshot
    }
}

impl keyrange::Snapshot for View {
    fn xmin(&self) -> u64 {
        self.xmin
    }

    /// As XidInMVCCSnapshot (snapmgr.c), which need not look at subtransactions here; asked for
    /// each entry of the rings.
    fn has_ended(&self, fxid: u64) -> bool {
        // SAFETY: the snapshot lives as long as the transaction.
        let snapshot = unsafe { &*self.snapshot };
        let span = u64::from(u32::from(snapshot.xmax).wrapping_sub(self.xmin as u32));
        let Some(behind) = fxid.checked_sub(self.xmin) else {
            return true;
        };
        if behind >= span {
            return false;
        }
        if snapshot.takenDuringRecovery {
            // SAFETY: as above; it keeps all ids with those of subtransactions.
            return !unsafe { raw::XidInMVCCSnapshot(narrow(fxid), self.snapshot) };
        }
        let running = match snapshot.xcnt {
            0 => &[],
            // SAFETY: so many ids are there.
            count => unsafe { std::slice::from_raw_parts(snapshot.xip, count as usize) },
        };
        !running.contains(&narrow(fxid))
    }

    fn did_abort(&self, fxid: u64) -> bool {
        if fxid < self.xmin {
            did_abort_long_ago(fxid)
        } else {
            did_abort(fxid)
        }
    }

    fn survey(&self) -> Survey {
        // SAFETY: the snapshot lives as long as the transaction.
        let snapshot = unsafe { &*self.snapshot };
        if snapshot.takenDuringRecovery {
            return Survey::unknown(self.xmin);
        }
        let running = match snapshot.xcnt {
            0 => &[],
            // SAFETY: so many ids are there.
            count => unsafe { std::slice::from_raw_parts(snapshot.xip, count as usize) },
        };
        // Ids of the snapshot are not below its xmin; of others the result does not matter, but is
        // none of these.
        let widen = |xid: u32| self.xmin + u64::from(xid.wrapping_sub(self.xmin as u32));
        let space = memory().rings;
        Survey::of(
            space.clock,
            space.committers,
            running.iter().map(|&xid| widen(xid.into())),
            widen(snapshot.xmax.into()),
            run_by,
            did_abort,
        )
    }

    fn is_mine(&self, fxid: u64) -> bool {
        fxid == self.own
    }

    fn shows_no_writer(&self, relation: Relation, read: &IntervalSet) -> bool {
        SHOW_NO_WRITER
            .get()
            .is_some_and(|show| show(self, relation, read))
    }
}
