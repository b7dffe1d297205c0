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
//! victim of a deadlock between others. So the first leaves the queue before its own check is due,
//! and waits as if there were none. It does the same where the transaction for which it waits is
//! in a cycle: the next one may be in that cycle, and refuse its own wait.

use super::edge;
use super::row_locker::Holders;
use super::session::memory;
use super::text::Text;
use crate::pg::context::with_context;
use crate::pg::relation::{identity_of, key_of};
use crate::pg::{process, raw, xact};
use crate::shared::stop;
use crate::tam::row_call::Blocked;
use hotrow::{Identity, Wait, is_in_circle, owner_of};
use pgrx::pg_sys::{self, LOCKTAG, LockAcquireResult, LockTupleMode, Relation};
use std::ptr::null_mut;

/// A place in the queue of a row.
pub struct Place {
    /// By which the waits-for graph knows the queue.
    queue: u64,
    lock: LOCKTAG,
}

impl Place {
    const MODE: pg_sys::LOCKMODE = pg_sys::ExclusiveLock as pg_sys::LOCKMODE;

    /// Queues for the row that keeps heap's call from being done at once, until we are the first.
    /// None: the transaction has no place there, and waits as heap does. That is so where its lock
    /// or the lock that it wants is another one, and with `lock_timeout`: in heap's way that is
    /// the time for each holder of the row.
    ///
    /// # Errors
    /// 40P01 if the wait closes a cycle.
    ///
    /// # Safety
    /// `rel` is open, and a scan of it has found the version.
    pub unsafe fn take(rel: Relation, blocked: &Blocked, holders: &Holders) -> Option<Place> {
        // SAFETY: by the contract; a plain read of a setting. After an ERROR in the wait the abort
        // releases the lock.
        unsafe {
            if pg_sys::LockTimeout > 0
                || blocked.mode != LockTupleMode::LockTupleNoKeyExclusive
                || !holders.we_share_the_key()
            {
                return None;
            }
            let place = Self::of(&identity_of(rel, key_of(rel)?, blocked.version)?);
            edge::declare(Wait::Queue(place.queue));
            let told = told(rel);
            let result = with_context(told.as_c_str(), || {
                raw::LockAcquireExtended(&place.lock, Self::MODE, false, false, false, null_mut())
            });
            edge::end_wait();
            // Not: no room in the lock manager's tables.
            (result != LockAcquireResult::LOCKACQUIRE_NOT_AVAIL).then_some(place)
        }
    }

    fn of(identity: &Identity) -> Place {
        let hash = identity.hash();
        Place {
            queue: hash.max(1),
            lock: LOCKTAG {
                locktag_field1: identity.database,
                locktag_field2: identity.relation,
                locktag_field3: hash as u32,
                locktag_field4: (hash >> 32) as u16,
                locktag_type: pg_sys::LockTagType::LOCKTAG_USERLOCK as u8,
                locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
            },
        }
    }

    /// As the first of the queue waits for the transaction `xid`, which holds the row; `wait` does
    /// so in the lock manager. None: the queue has been left.
    ///
    /// # Errors
    /// 40P01 if the wait closes a cycle.
    pub fn await_holder(self, xid: u32, wait: impl FnOnce()) -> Option<Place> {
        stop::at(stop::Point::FirstInQueue);
        edge::await_end(xid);
        // SAFETY: a plain read of a setting.
        let patience = unsafe { pg_sys::DeadlockTimeout } / 4 * 3;
        let has_ended = self.leads(xid) && xact::within(patience, wait);
        edge::end_wait();
        if has_ended {
            return Some(self);
        }
        self.done();
        None
    }

    /// Declares that we are the first of the queue, and wait for that transaction. False: then
    /// transactions of the queue would be in a cycle with it.
    fn leads(&self, xid: u32) -> bool {
        let memory = memory();
        let own = &memory.backends[process::me() as usize];
        let xid = edge::known_as(xid);
        memory.with_graph(|| {
            own.leads(self.queue);
            let Some(awaited) = owner_of(memory.backends, xid) else {
                return true;
            };
            let is_free = !is_in_circle(memory.backends, memory.directory.rows, awaited);
            if !is_free {
                own.leads(0);
            }
            is_free
        })
    }

    /// The row is ours, or another version of it has been found.
    pub fn done(self) {
        // SAFETY: taken by `take`.
        unsafe { raw::LockRelease(&self.lock, Self::MODE, false) };
    }
}

/// What messages about the wait say of it.
unsafe fn told(rel: Relation) -> Text {
    let mut text = Text::new();
    text.add(format_args!("while waiting for its turn to update "));
    // SAFETY: `rel` is open.
    let relation = unsafe { (*rel).rd_id };
    // SAFETY: a plain read.
    let database = unsafe { pg_sys::MyDatabaseId };
    text.add_row(database.into(), relation.into(), b"");
    text
}
