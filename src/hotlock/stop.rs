//! Stop events: named points at which a test can hold a session. Compiled in with the feature `stop_events` only.

/// The points.
#[derive(Clone, Copy)]
pub enum Point {
    /// The ticket is ours, the row is not changed yet.
    TicketTaken,
    /// A follower has its place in the list, and has not changed the row yet.
    Reserved,
    /// The row is changed and the ticket has gone on.
    Updated,
    /// PRE_COMMIT begins.
    BeforeCommitWait,
    /// All predecessors have committed; our commit record is not written yet.
    AfterCommitWait,
    /// Those whose updates are in our version cannot leave any more.
    Sealed,
    /// What the transaction wrote to tables of txn_heap is registered; it has no CSN yet.
    Registered,
    /// It has its CSN, and is not validated.
    Numbered,
    /// It is validated, if it is to be, and has not committed yet.
    Validated,
}

#[cfg(not(feature = "stop_events"))]
#[inline]
pub fn at(_point: Point) {}

/// Stops if `txn.stop_at` names the point and a test holds its advisory lock. The wait is an ordinary lock wait, so
/// `pg_blocking_pids` and isolationtester see it.
#[cfg(feature = "stop_events")]
pub fn at(point: Point) {
    let name = match point {
        Point::TicketTaken => "ticket_taken",
        Point::Reserved => "reserved",
        Point::Updated => "updated",
        Point::BeforeCommitWait => "before_commit_wait",
        Point::AfterCommitWait => "after_commit_wait",
        Point::Sealed => "sealed",
        Point::Registered => "registered",
        Point::Numbered => "numbered",
        Point::Validated => "validated",
    };
    let tag = {
        let Some(wanted) = crate::guc::STOP_AT.get() else {
            return;
        };
        if !wanted
            .to_string_lossy()
            .split(',')
            .any(|one| one.trim() == name)
        {
            return;
        }
        advisory_tag(name)
    };
    hold(&tag);
}

/// The tag of `pg_advisory_lock(hashtext('txn.' || name))` (utils/adt/lockfuncs.c).
#[cfg(feature = "stop_events")]
fn advisory_tag(name: &str) -> pgrx::pg_sys::LOCKTAG {
    use pgrx::pg_sys;
    let text = format!("txn.{name}");
    // SAFETY: hashes the bytes given, as hashtext does for a deterministic collation.
    let key =
        i64::from(unsafe { crate::pg::raw::hash_bytes(text.as_ptr(), text.len() as i32) } as i32)
            as u64;
    pg_sys::LOCKTAG {
        // SAFETY: a plain read.
        locktag_field1: u32::from(unsafe { pg_sys::MyDatabaseId }),
        locktag_field2: (key >> 32) as u32,
        locktag_field3: key as u32,
        locktag_field4: 1,
        locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
        locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
    }
}

#[cfg(feature = "stop_events")]
fn hold(tag: &pgrx::pg_sys::LOCKTAG) {
    use crate::pg::raw;
    use pgrx::pg_sys;
    // SAFETY: an ordinary advisory lock; after an ERROR in the wait there is nothing to release.
    unsafe {
        raw::LockAcquire(tag, pg_sys::ShareLock as i32, false, false);
        raw::LockRelease(tag, pg_sys::ShareLock as i32, false);
    }
}
