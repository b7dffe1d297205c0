//! The queue of transactions that share a row's key and wait to update the row.
//!
//! They have checked a foreign key to the row, so they hold a KEY SHARE lock of it. In heap's own
//! queue a DELETE may stand before them, and wait for that lock. So heap lets them take no place
//! there (heapam.c: heap_update, `current_is_member`). PostgreSQL wakes all of them at each commit,
//! and one of them gets the row.
//!
//! Here they queue for a lock of our own, one for each row. The first of the queue waits for the
//! transaction that holds the row, and the others for the first. All want NO KEY UPDATE, and hold
//! no more than KEY SHARE, which does not exclude it. So all of them wait for the same
//! transactions: the queue closes no cycle that was none without it.
//!
//! The deadlock detector sees the queue as waits for its first. It could choose the first as the
//! victim of a deadlock between others, and it looks at a wait in the queue only once. So whoever
//! is in the queue leaves it before a check is due, and waits as if there were none. The first does
//! the same where the transaction for which it waits is in a cycle: the next one may be in that
//! cycle, and refuse its own wait.
//!
//! Others may wait for the row's holder too, such as sessions with hotlock off. At each commit each
//! of them would be woken beside one of the queue, however long that is. So the first leaves the
//! queue where it finds others, and those behind it do the same.

use super::deadlock;
use super::edge;
use super::later_check;
use super::row_locker::Holders;
use super::session::memory;
use super::text::Text;
use crate::pg::context::with_context;
use crate::pg::relation::{identity_of, key_of};
use crate::pg::{cancel, process, raw, xact};
use crate::shared::stop;
use crate::tam::row_call::Blocked;
use hotrow::{Identity, Wait, leaders};
use pgrx::pg_sys::{self, LOCKTAG, LockTupleMode, Relation};
use std::ptr::null_mut;
use std::time::Instant;

/// A place in the queue of a row.
pub struct Place {
    /// By which the waits-for graph knows the queue.
    queue: u64,
    lock: LOCKTAG,
    /// When we came to the queue.
    since: Instant,
}

impl Place {
    const MODE: pg_sys::LOCKMODE = pg_sys::ExclusiveLock as pg_sys::LOCKMODE;

    /// The place that we may take in the queue of the row which keeps heap's call from being done
    /// at once. None: we wait as heap does.
    ///
    /// # Safety
    /// `rel` is open, and a scan of it has found the version.
    pub unsafe fn at(rel: Relation, blocked: &Blocked, holders: &Holders) -> Option<Place> {
        if blocked.mode != LockTupleMode::LockTupleNoKeyExclusive
            || !holders.we_share_the_key()
            || !may_queue()
        {
            return None;
        }
        // SAFETY: by the contract.
        let identity = unsafe { identity_of(rel, key_of(rel)?, blocked.version)? };
        Some(Self::of(&identity))
    }

    /// Waits until we are the first of the queue. None: we have left it.
    ///
    /// # Errors
    /// 40P01 if the wait closes a cycle.
    pub fn take(self, rel: Relation) -> Option<Place> {
        edge::declare(Wait::Queue(self.queue));
        let told = told(rel);
        with_context(told.as_c_str(), || self.before_a_check(|| self.lock()));
        edge::end_wait();
        // SAFETY: looks at this process's own locks. The time may have been over just when the lock
        // was granted, and there may have been no room in the lock manager's tables.
        unsafe { raw::LockHeldByMe(&self.lock, Self::MODE) }.then_some(self)
    }

    fn lock(&self) {
        // SAFETY: after an ERROR in the wait the abort releases the lock.
        unsafe {
            raw::LockAcquireExtended(&self.lock, Self::MODE, false, false, false, null_mut());
        }
    }

    fn of(identity: &Identity) -> Place {
        let key = identity.hash() as u32;
        Place {
            queue: u64::from(identity.relation) << 32 | u64::from(key),
            lock: LOCKTAG {
                locktag_field1: identity.database,
                locktag_field2: identity.relation,
                locktag_field3: key,
                locktag_field4: 0,
                locktag_type: pg_sys::LockTagType::LOCKTAG_USERLOCK as u8,
                locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
            },
            since: Instant::now(),
        }
    }

    /// As the first of the queue waits for the (sub)transaction `xid`, which holds the row; `body`
    /// does so in the lock manager. None: we have left the queue.
    ///
    /// # Errors
    /// 40P01 if the wait closes a cycle.
    pub fn await_holder(self, xid: u32, body: impl FnOnce(Wait)) -> Option<Place> {
        stop::at(stop::Point::FirstInQueue);
        let wait = edge::await_end(xid);
        let has_ended = !is_beside_others(wait)
            && deadlock::may_lead(self.queue)
            && self.before_a_check(|| body(wait));
        edge::end_wait();
        if has_ended {
            return Some(self);
        }
        self.done();
        None
    }

    /// Waits in the lock manager, but not until the deadlock detector looks at a wait in the queue.
    /// Whether the wait has come to its end.
    fn before_a_check(&self, wait: impl FnOnce()) -> bool {
        // SAFETY: a plain read of a setting.
        let patience = unsafe { pg_sys::DeadlockTimeout } / 4 * 3;
        let rest = patience - self.since.elapsed().as_millis().min(patience as u128) as i32;
        rest > 0 && later_check::with_later_check(|| xact::within(rest, wait))
    }

    /// The row is ours, or another version of it has been found.
    pub fn done(self) {
        // SAFETY: taken by `take`.
        unsafe { raw::LockRelease(&self.lock, Self::MODE, false) };
    }
}

/// Whether the transaction may queue. It may not
/// - in a stricter isolation level: it fails once the row's holder has committed, and waits for
///   nobody else;
/// - with `lock_timeout`: in heap's way that is the time for each holder of the row;
/// - behind a predecessor: an error of the first of the queue would wait for it;
/// - where a cancel could be lost with the end of a limited wait.
fn may_queue() -> bool {
    // SAFETY: a plain read of a setting.
    let has_lock_timeout = unsafe { pg_sys::LockTimeout } > 0;
    xact::is_read_committed()
        && !has_lock_timeout
        && !memory().backends[process::me() as usize].has_predecessor()
        && cancel::is_heard()
}

/// Whether others than the first of queues wait so.
fn is_beside_others(wait: Wait) -> bool {
    match wait {
        Wait::Xid(xid) | Wait::Subtransaction { xid, .. } => {
            xact::waiters(xid) as usize > leaders(memory().backends, xid)
        }
        Wait::Ticket(_) | Wait::Queue(_) => false,
    }
}

/// What messages about the wait say of it.
fn told(rel: Relation) -> Text {
    let mut text = Text::new();
    text.add(format_args!("while waiting for its turn to update "));
    // SAFETY: a plain read, and one of an open relation.
    let (database, relation) = unsafe { (pg_sys::MyDatabaseId, (*rel).rd_id) };
    text.add_row(database.into(), relation.into(), b"");
    text
}
