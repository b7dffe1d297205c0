//! Which rows are hot: promotion by contention, cooling by disuse.

use super::hotlog;
use super::session::{SESSION, memory};
use super::settings;
use crate::pg::buffer::Page;
use crate::pg::relation::Key;
use crate::pg::tuple;
use crate::pg::{raw, wait};
use hotrow::{Identity, LABEL_BYTES, Slot};
use pgrx::pg_sys::{self, LockTupleMode, MultiXactStatus, Oid};

/// A hot row that nobody has waited for in this time (microseconds) is an ordinary row again.
const COOL_AFTER: u64 = 5_000_000;

/// The hot row with that identity, if it is one. Cools a row that has not been contended for a while.
pub fn find(identity: &Identity) -> Option<Slot> {
    let memory = memory();
    let slot = memory.directory.find(identity)?;
    let row = &memory.directory.rows[slot as usize];
    let cools = || settings::of(Oid::from(identity.relation)).hot_threshold() > 0;
    if row.is_idle() && is_cold(row, wait::now()) && cools() && cool(slot) {
        return None;
    }
    Some(slot)
}

fn is_cold(row: &hotrow::Row, now: u64) -> bool {
    now.saturating_sub(row.contended_at.get()) > COOL_AFTER
}

/// Removes a hot row that nobody refers to.
fn cool(slot: Slot) -> bool {
    let now = wait::now();
    let memory = memory();
    let removed = memory.with_directory(|directory| {
        memory.with_row(slot, |row, _| {
            let removable = row.is_used() && row.is_idle() && is_cold(row, now);
            removable.then(|| {
                let life = hotlog::Life::of(row, now);
                directory.remove(slot);
                life
            })
        })
    });
    if let Some(life) = &removed {
        memory.totals.coolings.add(1);
        life.log();
    }
    removed.is_some()
}

/// Removes all rows that have cooled down.
pub fn sweep() {
    let now = wait::now();
    let rows = memory().directory.rows;
    for (slot, row) in rows.iter().enumerate() {
        if row.is_used() && row.is_idle() && is_cold(row, now) {
            cool(slot as Slot);
        }
    }
}

/// Who has a hand on a version of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Grip {
    Nobody,
    /// We have written or locked it: others wait for us, so we must not queue behind them.
    Own,
    /// That other running transaction holds it against the lock asked for; of several, the one that has updated it.
    Other(u32),
}

/// Reads who holds a version, against a row lock of that mode.
///
/// # Safety
/// `rel` is open, and the version is one that a scan has found.
pub unsafe fn grip(rel: pg_sys::Relation, version: u64, mode: LockTupleMode::Type) -> Grip {
    // SAFETY: by the contract; the header is read under the buffer's share lock.
    unsafe {
        let page = Page::pin(rel, version);
        page.share();
        let header = page.tuple(version).map(|(header, _)| {
            let xmin = (*header).t_choice.t_heap.t_xmin;
            let masks = ((*header).t_infomask, (*header).t_infomask2);
            (masks, tuple::raw_xmax(header), xmin)
        });
        page.release();
        let Some(((mask, mask2), xmax, xmin)) = header else {
            return Grip::Nobody;
        };
        if raw::TransactionIdIsCurrentTransactionId(xmin) {
            Grip::Own
        } else if tuple::has(
            mask,
            pg_sys::HEAP_XMAX_INVALID | pg_sys::HEAP_XMAX_COMMITTED,
        ) {
            Grip::Nobody
        } else if tuple::has(mask, pg_sys::HEAP_XMAX_IS_MULTI) {
            grip_of_several(mask, xmax, mode)
        } else if raw::TransactionIdIsCurrentTransactionId(xmax) {
            Grip::Own
        } else if conflicts(held(mask, mask2), mode) && raw::TransactionIdIsInProgress(xmax) {
            Grip::Other(u32::from(xmax))
        } else {
            Grip::Nobody
        }
    }
}

/// Whether we have written or locked that version.
///
/// # Safety
/// As for `grip`.
pub unsafe fn is_own(rel: pg_sys::Relation, version: u64) -> bool {
    // SAFETY: by the contract.
    unsafe { grip(rel, version, LockTupleMode::LockTupleExclusive) == Grip::Own }
}

/// The lock that a plain xmax stands for (heapam.c: TUPLOCK_from_mxstatus, get_mxact_status_for_lock).
fn held(mask: u16, mask2: u16) -> LockTupleMode::Type {
    let keys = u32::from(mask2) & pg_sys::HEAP_KEYS_UPDATED != 0;
    let locks = u32::from(mask) & (pg_sys::HEAP_XMAX_EXCL_LOCK | pg_sys::HEAP_XMAX_KEYSHR_LOCK);
    if tuple::is_locked_only(mask) && locks == pg_sys::HEAP_XMAX_KEYSHR_LOCK {
        LockTupleMode::LockTupleKeyShare
    } else if tuple::is_locked_only(mask) && locks != pg_sys::HEAP_XMAX_EXCL_LOCK {
        LockTupleMode::LockTupleShare
    } else if keys {
        LockTupleMode::LockTupleExclusive
    } else {
        LockTupleMode::LockTupleNoKeyExclusive
    }
}

/// Whether two row locks exclude each other (heapam.c: tupleLockExtraInfo). The modes are numbered by strength from 0: the
/// weakest of them only excludes the strongest, the second one the two strongest, and so on.
fn conflicts(one: LockTupleMode::Type, other: LockTupleMode::Type) -> bool {
    one + other >= LockTupleMode::LockTupleExclusive
}

/// The same for a MultiXact.
///
/// # Safety
/// It has been read, with these bits, from a version that a scan has found, so it is not truncated yet.
unsafe fn grip_of_several(mask: u16, xmax: pg_sys::MultiXactId, mode: LockTupleMode::Type) -> Grip {
    let only_locks = tuple::has(mask, pg_sys::HEAP_XMAX_LOCK_ONLY);
    // HEAP_LOCKED_UPGRADED
    if only_locks
        && !tuple::has(
            mask,
            pg_sys::HEAP_XMAX_EXCL_LOCK | pg_sys::HEAP_XMAX_KEYSHR_LOCK,
        )
    {
        return Grip::Nobody;
    }
    let mut list = std::ptr::null_mut();
    // SAFETY: by the contract; PostgreSQL's own list of members, ours to free.
    unsafe {
        let count = raw::GetMultiXactIdMembers(xmax, &mut list, false, only_locks);
        if count <= 0 {
            return Grip::Nobody;
        }
        let members = std::slice::from_raw_parts(list, count as usize);
        let mut grip = Grip::Nobody;
        for member in members {
            if raw::TransactionIdIsCurrentTransactionId(member.xid) {
                grip = Grip::Own;
                break;
            }
            let (held, updates) = match member.status {
                MultiXactStatus::MultiXactStatusNoKeyUpdate => {
                    (LockTupleMode::LockTupleNoKeyExclusive, true)
                }
                MultiXactStatus::MultiXactStatusUpdate => (LockTupleMode::LockTupleExclusive, true),
                // The others are numbered as the modes.
                locks => (locks, false),
            };
            if (grip == Grip::Nobody || updates)
                && conflicts(held, mode)
                && raw::TransactionIdIsInProgress(member.xid)
            {
                grip = Grip::Other(u32::from(member.xid));
            }
        }
        raw::pfree(list.cast());
        grip
    }
}

/// Counts this session among those that wait for a row that is not hot. True when the threshold is reached.
pub fn count_waiter(identity: &Identity) -> bool {
    let threshold = settings::of(Oid::from(identity.relation))
        .hot_threshold()
        .max(1) as u32;
    let counter = memory().directory.contention(identity);
    SESSION.counted.set(identity.hash() | 1 << 63);
    counter.add(1) + 1 >= threshold
}

/// Takes the session off the count. Also called at abort.
pub fn uncount_waiter() {
    let counted = SESSION.counted.take();
    if counted != 0 {
        let counters = memory().directory.contention;
        counters[((counted >> 32) & 0x7fff_ffff) as usize & (counters.len() - 1)].sub(1);
    }
}

/// Makes the row hot. None when the table of hot rows is full.
///
/// # Safety
/// `rel` is open with key `key`, and `version` is a version of that row which a scan has found.
pub unsafe fn promote(
    rel: pg_sys::Relation,
    key: &Key,
    identity: &Identity,
    version: u64,
) -> Option<Slot> {
    let mut label = [0; LABEL_BYTES];
    // SAFETY: by the contract; the tuple stays in place while its page is pinned, so that output functions run unlocked.
    let length = unsafe {
        let page = Page::pin(rel, version);
        page.share();
        let tuple = page.heap_tuple(rel, version);
        page.unlock();
        let length = match tuple {
            Some(mut tuple) => key.label(&mut tuple, (*rel).rd_att, &mut label),
            None => 0,
        };
        page.unpin();
        length
    };
    let found = insert(identity, &label[..length]);
    if found.is_some() {
        return found;
    }
    sweep();
    let found = insert(identity, &label[..length]);
    if found.is_none() {
        memory().totals.table_full.add(1);
    }
    found
}

fn insert(identity: &Identity, label: &[u8]) -> Option<Slot> {
    let memory = memory();
    let now = wait::now();
    let (slot, is_new) = memory.with_directory(|directory| {
        if let Some(slot) = directory.find(identity)
            && directory.rows[slot as usize].is(identity)
        {
            return Some((slot, false));
        }
        let slot = directory.free_slot()?;
        memory.with_row(slot, |_, _| directory.insert(slot, identity, label, now));
        Some((slot, true))
    })?;
    if is_new {
        memory.totals.promotions.add(1);
        hotlog::became_hot(identity, label);
    }
    Some(slot)
}
