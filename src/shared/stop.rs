//! Stop events: named points at which a test can hold a session. Compiled in with the feature
//! `stop_events` only.

/// A point at which a test can hold a session.
#[derive(Clone, Copy)]
pub enum Point {
    /// The ticket is ours after a wait for it; the statement has no snapshot yet.
    TicketGiven,
    /// A transaction for which others may wait is about to call heap on a row.
    HeapsWay,
    /// A transaction is the first of those who have checked the row, and has not declared that.
    FirstInQueue,
    /// The transaction that has held the row has ended, and we have not said that we wait no more.
    HolderEnded,
    /// The ticket is ours, the row is not changed yet.
    TicketTaken,
    /// A running predecessor's version is offered, and nothing has come of that yet.
    Offered,
    /// A follower has its place in the list, and has not changed the row yet.
    Reserved,
    /// The row is changed; others cannot see that in the list yet, and the ticket is still ours.
    PassingTicket,
    /// The row is changed and the ticket has gone on.
    Updated,
    /// PRE_COMMIT begins.
    BeforeCommitWait,
    /// All predecessors have committed; our commit record is not written yet.
    AfterCommitWait,
    /// Those whose updates are in our version cannot leave any more.
    Sealed,
    /// The transaction is committed and visible, and still in the lists of its rows.
    Committed,
    /// It has left them and given its locks back, and its commit record is not flushed.
    Visible,
    /// The transaction has rolled back; those behind it in a row's list are not doomed yet.
    RollingBack,
    /// Those behind it are doomed, and have not been woken.
    Doomed,
    /// A prepared transaction has ended, and its places are still in the lists.
    PreparedEnded,
    /// What the transaction wrote to tables of txn_heap is registered; it has no CSN yet.
    Registered,
    /// It has its CSN, and is not validated.
    Numbered,
    /// It is validated, if it is to be, and has not committed yet.
    Validated,
    /// All nodes have voted for the transaction; its decision rows are not written yet.
    GeoPrepared,
    /// It is committed and durable, and no node has been told.
    GeoDecided,
    /// One node has been told.
    GeoApplying,
    /// The resolver has seen what is prepared at the nodes, and not which transactions are active.
    GeoListed,
}

#[cfg(not(feature = "stop_events"))]
#[inline]
pub fn at(_point: Point) {}

/// Whether `txn.stop_at` names the point.
#[cfg(not(feature = "stop_events"))]
#[inline]
pub const fn is_wanted(_point: Point) -> bool {
    false
}

/// Stops if `txn.stop_at` names the point and a test holds its advisory lock. The wait is an
/// ordinary lock wait, so `pg_blocking_pids` and isolationtester see it. Where the real code cannot
/// fail, the wait cannot either, and shows as the wait event PgSleep.
#[cfg(feature = "stop_events")]
pub fn at(point: Point) {
    if !is_wanted(point) {
        return;
    }
    let (name, may_fail) = describe(point);
    let tag = advisory_tag(name);
    if may_fail {
        hold(&tag);
    } else {
        hold_on(&tag);
    }
}

/// Whether `txn.stop_at` names the point.
#[cfg(feature = "stop_events")]
pub fn is_wanted(point: Point) -> bool {
    let (name, _) = describe(point);
    crate::shared::guc::STOP_AT.get().is_some_and(|wanted| {
        let wanted = wanted.to_string_lossy();
        wanted.split(',').any(|one| one.trim() == name)
    })
}

/// Its name, and whether the real code may fail there.
#[cfg(feature = "stop_events")]
fn describe(point: Point) -> (&'static str, bool) {
    match point {
        Point::TicketGiven => ("ticket_given", true),
        Point::HeapsWay => ("heaps_way", true),
        Point::FirstInQueue => ("first_in_queue", true),
        Point::HolderEnded => ("holder_ended", true),
        Point::TicketTaken => ("ticket_taken", true),
        Point::Offered => ("offered", true),
        Point::Reserved => ("reserved", true),
        Point::PassingTicket => ("passing_ticket", false),
        Point::Updated => ("updated", true),
        Point::BeforeCommitWait => ("before_commit_wait", true),
        Point::AfterCommitWait => ("after_commit_wait", true),
        Point::Sealed => ("sealed", true),
        Point::Committed => ("committed", false),
        Point::Visible => ("visible", false),
        Point::RollingBack => ("rolling_back", false),
        Point::Doomed => ("doomed", false),
        Point::PreparedEnded => ("prepared_ended", true),
        Point::Registered => ("registered", true),
        Point::Numbered => ("numbered", true),
        Point::Validated => ("validated", true),
        Point::GeoPrepared => ("geo_prepared", true),
        Point::GeoDecided => ("geo_decided", false),
        Point::GeoApplying => ("geo_applying", false),
        Point::GeoListed => ("geo_resolver_listed", true),
    }
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
        // SAFETY: a global of this backend, which has one thread.
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

/// As `hold`, without an ERROR: no deadlock is looked for, and no interrupt is heard.
#[cfg(feature = "stop_events")]
fn hold_on(tag: &pgrx::pg_sys::LOCKTAG) {
    use crate::pg::raw;
    use crate::shared::wait;
    use pgrx::pg_sys::{self, LockAcquireResult::LOCKACQUIRE_NOT_AVAIL};
    // SAFETY: an advisory lock of the session, which needs no resource owner, taken without
    // waiting.
    unsafe {
        let take = || raw::LockAcquire(tag, pg_sys::ShareLock as i32, true, true);
        while take() == LOCKACQUIRE_NOT_AVAIL {
            wait::doze(1, pg_sys::WaitEventTimeout::WAIT_EVENT_PG_SLEEP);
        }
        raw::LockRelease(tag, pg_sys::ShareLock as i32, true);
    }
}
