//! The heap version of a group update: a HOT update of a tuple whose inserter still runs.
//!
//! What `heap_update` (access/heap/heapam.c) does, for the one case that it refuses: the old
//! version's xmin is a predecessor in progress. Everything else about the page stays as
//! `heap_update` leaves it. The case is narrow on purpose. All else (another page, TOAST, an
//! indexed column, row lockers) is `NotPossible`: the caller waits for the predecessor and lets
//! `heap_update` do it.
//!
//! One thing differs from a look at the page: the old version keeps its `t_cid`, which is its
//! inserter's cmin. The inserter still runs and needs it to see its own version; `heap_update`
//! would overwrite it with our cmax. So that the same word serves as our cmax too, our command
//! counter is first brought up to it. Then every later statement of ours has a `curcid` beyond it,
//! and takes the old version for deleted. Nor may the statement itself take our cmax from there,
//! when it comes to the row once more: see `tell_command` (`call.rs`).
//!
//! `CheckForSerializableConflictIn` has nothing to do here: only READ COMMITTED transactions come,
//! and it returns at once for them.

use super::base::Xmax;
use super::wal;
use crate::pg::buffer::Page;
use crate::pg::raw;
use crate::pg::tuple;
use hotrow::Base;
use pgrx::pg_sys::{
    self, Bitmapset, IndexAttrBitmapKind, MultiXactStatus, Relation, TU_UpdateIndexes,
};
use std::ffi::c_int;

/// How far our command counter may be behind the inserter's.
const MAX_COMMANDS_BEHIND: u32 = 64;
/// heaptoast.h: TOAST_TUPLE_THRESHOLD for 8 kB pages.
const TOAST_TUPLE_THRESHOLD: u32 = 2032;

/// What came of a group update.
pub enum Outcome {
    /// The new version's address, packed, and the indexes that want an entry.
    Done(u64, TU_UpdateIndexes::Type),
    /// It does not fit the narrow case.
    NotPossible,
}

/// Updates the predecessor's version `base` of a row of `rel` to the tuple in `slot`. If we have
/// locked `base`, our lock goes on to the new version, as in heap_update: that is how `RETURNING
/// xmax = 0` tells the rows of an INSERT ... ON CONFLICT apart.
///
/// # Safety
/// `rel` is an open heap relation, `slot` holds the new row, and we have the row's ticket and a
/// reservation in its list.
pub unsafe fn update(
    rel: Relation,
    slot: *mut pg_sys::TupleTableSlot,
    cid: pg_sys::CommandId,
    base: &Base,
) -> Outcome {
    // SAFETY: by the contract; the calls follow heap_update's order.
    unsafe {
        let mut free = false;
        let tuple = raw::ExecFetchSlotHeapTuple(slot, true, &mut free);
        (*slot).tts_tableOid = (*rel).rd_id;
        (*tuple).t_tableOid = (*rel).rd_id;
        let outcome = update_tuple(rel, tuple, cid, base);
        if let Outcome::Done(version, _) = outcome {
            (*slot).tts_tid = tuple::unpack(version);
        }
        if free {
            raw::pfree(tuple.cast());
        }
        outcome
    }
}

unsafe fn update_tuple(
    rel: Relation,
    new: pg_sys::HeapTuple,
    cid: pg_sys::CommandId,
    base: &Base,
) -> Outcome {
    // SAFETY: as in `update`.
    unsafe {
        let full_identity = (*(*rel).rd_rel).relreplident as u8 == pg_sys::REPLICA_IDENTITY_FULL;
        if tuple::has((*(*new).t_data).t_infomask, pg_sys::HEAP_HASEXTERNAL)
            || (*new).t_len > TOAST_TUPLE_THRESHOLD
            || (full_identity && wal::is_logically_logged(rel))
        {
            return Outcome::NotPossible;
        }
        raw::MultiXactIdSetOldestMember();
        let blocking = raw::RelationGetIndexAttrBitmap(
            rel,
            IndexAttrBitmapKind::INDEX_ATTR_BITMAP_HOT_BLOCKING,
        );
        let key = raw::RelationGetIndexAttrBitmap(rel, IndexAttrBitmapKind::INDEX_ATTR_BITMAP_KEY);
        let identity = raw::RelationGetIndexAttrBitmap(
            rel,
            IndexAttrBitmapKind::INDEX_ATTR_BITMAP_IDENTITY_KEY,
        );
        let summarized =
            raw::RelationGetIndexAttrBitmap(rel, IndexAttrBitmapKind::INDEX_ATTR_BITMAP_SUMMARIZED);

        let page = Page::pin(rel, base.version);
        page.exclude();
        let fixed = [blocking, key, identity];
        let outcome = match fitting_caught_up(rel, page, new, base, fixed) {
            Some(mut old) => {
                let indexes = if changes(rel, &mut old, new, summarized) {
                    TU_UpdateIndexes::TU_Summarizing
                } else {
                    TU_UpdateIndexes::TU_None
                };
                let xid = raw::GetCurrentTransactionId();
                let (locked, locks_key) = own_lock(old.t_data);
                let xmax = Xmax {
                    updater: xid,
                    locks_key,
                };
                write(rel, page, &old, new, cid, xmax, locked);
                Outcome::Done(tuple::pack(&(*new).t_self), indexes)
            }
            None => Outcome::NotPossible,
        };
        page.release();
        if matches!(outcome, Outcome::Done(..)) {
            raw::pgstat_count_heap_update(rel, true, false);
        }
        [blocking, key, identity, summarized]
            .into_iter()
            .for_each(|set| raw::bms_free(set));
        outcome
    }
}

/// Whether the version at `version` has the same values in all columns of unique indexes as
/// `found`, a version of the same row. False if it is gone.
///
/// # Safety
/// `rel` is open, and the page of `found` is pinned.
pub unsafe fn has_keys_of(rel: Relation, version: u64, found: &mut pg_sys::HeapTupleData) -> bool {
    // SAFETY: by the contract; tuples stay in place while their pages are pinned.
    unsafe {
        let page = Page::pin(rel, version);
        page.share();
        let other = page.heap_tuple(rel, version);
        page.unlock();
        let same = other.is_some_and(|mut other| {
            let kind = IndexAttrBitmapKind::INDEX_ATTR_BITMAP_KEY;
            let keys = raw::RelationGetIndexAttrBitmap(rel, kind);
            let same = !changes(rel, &mut other, found, keys);
            raw::bms_free(keys);
            same
        });
        page.unpin();
        same
    }
}

/// Locks the predecessor's version `base` for our transaction, as heap_lock_tuple does: FOR UPDATE
/// if `with_key`, else FOR NO KEY UPDATE. A session without hotlock that comes upon the version
/// after its inserter's commit sees the lock. False when the version is not in a state to be
/// locked.
///
/// # Safety
/// As for `update`.
pub unsafe fn lock(rel: Relation, base: &Base, with_key: bool) -> bool {
    // SAFETY: by the contract; page locked exclusively, nothing in the critical section can fail.
    unsafe {
        // Others may put our lock into a MultiXact, and must not forget that while we run.
        raw::MultiXactIdSetOldestMember();
        let xid = raw::GetCurrentTransactionId();
        let page = Page::pin(rel, base.version);
        page.exclude();
        let found = page
            .heap_tuple(rel, base.version)
            .filter(|found| is_open(page, found.t_data, base.xid));
        if let Some(found) = found {
            let header = found.t_data;
            let with_key = with_key || own_lock(header).1;
            pg_sys::CritSectionCount += 1;
            (*header).t_infomask &= !((pg_sys::HEAP_XMAX_BITS | pg_sys::HEAP_MOVED) as u16);
            (*header).t_infomask |=
                (pg_sys::HEAP_XMAX_LOCK_ONLY | pg_sys::HEAP_XMAX_EXCL_LOCK) as u16;
            (*header).t_infomask2 &=
                !((pg_sys::HEAP_KEYS_UPDATED | pg_sys::HEAP_HOT_UPDATED) as u16);
            let mut infobits = wal::XLHL_XMAX_LOCK_ONLY | wal::XLHL_XMAX_EXCL_LOCK;
            if with_key {
                (*header).t_infomask2 |= pg_sys::HEAP_KEYS_UPDATED as u16;
                infobits |= wal::XLHL_KEYS_UPDATED;
            }
            (*header).t_choice.t_heap.t_xmax = xid;
            (*header).t_ctid = found.t_self;
            raw::MarkBufferDirty(page.buffer);
            if (*(*rel).rd_rel).relpersistence as u8 == pg_sys::RELPERSISTENCE_PERMANENT {
                let offset = tuple::offset_of(base.version);
                let lsn = wal::log_xmax(page.buffer, offset, u32::from(xid), infobits);
                tuple::set_lsn(page.bytes(), lsn);
            }
            pg_sys::CritSectionCount -= 1;
        }
        page.release();
        found.is_some()
    }
}

/// Whether we have locked the version, and whether FOR UPDATE, which our update must not weaken.
unsafe fn own_lock(header: pg_sys::HeapTupleHeader) -> (bool, bool) {
    // SAFETY: the tuple's page is locked.
    unsafe {
        let mask = (*header).t_infomask;
        if tuple::has(mask, pg_sys::HEAP_XMAX_INVALID) || !tuple::is_locked_only(mask) {
            return (false, false);
        }
        let xmax = tuple::raw_xmax(header);
        if tuple::has(mask, pg_sys::HEAP_XMAX_IS_MULTI) {
            let mut own = (false, false);
            tuple::each_member(xmax, true, |member| {
                if raw::TransactionIdIsCurrentTransactionId(member.xid) {
                    let keys = member.status == MultiXactStatus::MultiXactStatusForUpdate;
                    own = (true, own.1 || keys);
                }
            });
            return own;
        }
        let locked = raw::TransactionIdIsCurrentTransactionId(xmax);
        let keys = u32::from((*header).t_infomask2) & pg_sys::HEAP_KEYS_UPDATED != 0;
        (locked, locked && keys)
    }
}

/// Whether the version on the locked page is that inserter's, running as far as hints know, and
/// nobody stands in its xmax.
unsafe fn is_open(page: Page, header: pg_sys::HeapTupleHeader, inserter: u32) -> bool {
    // SAFETY: the tuple's page is locked.
    unsafe {
        let mask = (*header).t_infomask;
        u32::from(tuple::raw_xmin(header)) == inserter
            && !tuple::has(mask, pg_sys::HEAP_MOVED)
            && u32::from(mask) & pg_sys::HEAP_XMIN_FROZEN != pg_sys::HEAP_XMIN_INVALID
            && !tuple::is_all_visible(page.bytes())
            && xmax_is_free(header, inserter)
    }
}

/// The old version, if a HOT update of it is possible on its page. The content is locked.
unsafe fn fitting(
    rel: Relation,
    page: Page,
    new: pg_sys::HeapTuple,
    base: &Base,
    unchanged: [*mut Bitmapset; 3],
) -> Option<pg_sys::HeapTupleData> {
    // SAFETY: as in `update`.
    unsafe {
        let mut old = page.heap_tuple(rel, base.version)?;
        let header = old.t_data;
        let mask = (*header).t_infomask;
        if !is_open(page, header, base.xid)
            || tuple::has(mask, pg_sys::HEAP_HASEXTERNAL | pg_sys::HEAP_COMBOCID)
        {
            return None;
        }
        let needed = ((*new).t_len as usize).next_multiple_of(size_of::<u64>());
        if needed > raw::PageGetHeapFreeSpace(page.bytes()) {
            return None;
        }
        unchanged
            .iter()
            .all(|&set| !changes(rel, &mut old, new, set))
            .then_some(old)
    }
}

/// As `fitting`, with our command counter brought up to the old version's cmin. For that the
/// content is unlocked and locked exclusively again, and the version looked at once more.
#[inline]
unsafe fn fitting_caught_up(
    rel: Relation,
    page: Page,
    new: pg_sys::HeapTuple,
    base: &Base,
    unchanged: [*mut Bitmapset; 3],
) -> Option<pg_sys::HeapTupleData> {
    // SAFETY: as in `update`.
    unsafe {
        let old = fitting(rel, page, new, base, unchanged)?;
        let inserter_cmin = (*old.t_data).t_choice.t_heap.t_field3.t_cid;
        if raw::GetCurrentCommandId(true) >= inserter_cmin {
            return Some(old);
        }
        page.unlock();
        let reached = catch_up(inserter_cmin);
        page.exclude();
        if reached {
            fitting(rel, page, new, base, unchanged)
        } else {
            None
        }
    }
}

/// No running updater or locker and no committed updater stands in the tuple's xmax, but for locks
/// of the inserter and of ourselves. heap_update leaves the inserter's when it has locked the
/// version before; its update of that one holds more than the lock. Ours is `lock`'s.
unsafe fn xmax_is_free(header: pg_sys::HeapTupleHeader, inserter: u32) -> bool {
    // SAFETY: the tuple's page is locked.
    unsafe {
        let mask = (*header).t_infomask;
        if tuple::has(mask, pg_sys::HEAP_XMAX_INVALID) {
            return true;
        }
        let is_nobodys = |xid: pg_sys::TransactionId| {
            u32::from(xid) == inserter
                || raw::TransactionIdIsCurrentTransactionId(xid)
                || !raw::TransactionIdIsInProgress(xid)
        };
        if tuple::is_locked_only(mask) {
            let xmax = tuple::raw_xmax(header);
            if !tuple::has(mask, pg_sys::HEAP_XMAX_IS_MULTI) {
                return is_nobodys(xmax);
            }
            let mut is_free = true;
            tuple::each_member(xmax, true, |member| is_free &= is_nobodys(member.xid));
            return is_free;
        }
        if tuple::has(
            mask,
            pg_sys::HEAP_XMAX_IS_MULTI | pg_sys::HEAP_XMAX_COMMITTED,
        ) {
            return false;
        }
        let xmax = tuple::raw_xmax(header);
        !raw::TransactionIdIsCurrentTransactionId(xmax)
            && !raw::TransactionIdIsInProgress(xmax)
            && !raw::TransactionIdDidCommit(xmax)
    }
}

/// Whether any column of `set` (numbers offset by FirstLowInvalidHeapAttributeNumber) differs;
/// HeapDetermineColumnsInfo.
unsafe fn changes(
    rel: Relation,
    old: &mut pg_sys::HeapTupleData,
    new: pg_sys::HeapTuple,
    set: *const Bitmapset,
) -> bool {
    // SAFETY: both tuples are valid for the relation's descriptor.
    unsafe {
        let desc = (*rel).rd_att;
        let mut at = raw::bms_next_member(set, -1);
        while at >= 0 {
            let number = at + pg_sys::FirstLowInvalidHeapAttributeNumber;
            if number <= 0 {
                return true;
            }
            let attr = &*(*desc).attrs.as_ptr().add(number as usize - 1);
            let same = match (
                tuple::attribute(old, number, desc),
                tuple::attribute(new, number, desc),
            ) {
                (None, None) => true,
                (Some(a), Some(b)) => {
                    raw::datumIsEqual(a, b, attr.attbyval, c_int::from(attr.attlen))
                }
                _ => false,
            };
            if !same {
                return true;
            }
            at = raw::bms_next_member(set, at);
        }
        false
    }
}

/// Brings our command counter up to the old version's cmin. False when it is too far behind. No
/// buffer lock is held: invalidations may be processed.
unsafe fn catch_up(inserter_cmin: u32) -> bool {
    // SAFETY: CommandCounterIncrement only wants the current command to be used.
    unsafe {
        if inserter_cmin - raw::GetCurrentCommandId(true) > MAX_COMMANDS_BEHIND {
            return false;
        }
        while raw::GetCurrentCommandId(true) < inserter_cmin {
            raw::CommandCounterIncrement();
        }
        true
    }
}

/// Puts the new version on the page and links the old one to it.
unsafe fn write(
    rel: Relation,
    page: Page,
    old: &pg_sys::HeapTupleData,
    new: pg_sys::HeapTuple,
    cid: pg_sys::CommandId,
    xmax: Xmax,
    locks: bool,
) {
    // SAFETY: as heap_update does: page locked exclusively, space checked, nothing in the critical
    // section can fail.
    unsafe {
        let xid = raw::GetCurrentTransactionId();
        let fresh = (*new).t_data;
        (*fresh).t_infomask &= !(pg_sys::HEAP_XACT_MASK as u16);
        (*fresh).t_infomask2 &= !(pg_sys::HEAP2_XACT_MASK as u16);
        let (own_xmax, bits) = if locks {
            let bits = pg_sys::HEAP_XMAX_LOCK_ONLY | pg_sys::HEAP_XMAX_KEYSHR_LOCK;
            (xid, bits)
        } else {
            (pg_sys::TransactionId::INVALID, pg_sys::HEAP_XMAX_INVALID)
        };
        (*fresh).t_infomask |= (pg_sys::HEAP_UPDATED | bits) as u16;
        (*fresh).t_infomask2 |= pg_sys::HEAP_ONLY_TUPLE as u16;
        (*fresh).t_choice.t_heap.t_xmin = xid;
        (*fresh).t_choice.t_heap.t_field3.t_cid = cid;
        (*fresh).t_choice.t_heap.t_xmax = own_xmax;

        pg_sys::CritSectionCount += 1;
        tuple::set_prunable(page.bytes(), xid);
        (*old.t_data).t_infomask2 |= pg_sys::HEAP_HOT_UPDATED as u16;
        raw::RelationPutHeapTuple(rel, page.buffer, new, false);
        xmax.put(old.t_data);
        (*old.t_data).t_ctid = (*new).t_self;
        raw::MarkBufferDirty(page.buffer);
        if (*(*rel).rd_rel).relpersistence as u8 == pg_sys::RELPERSISTENCE_PERMANENT {
            let lsn = wal::log_hot_update(rel, page.buffer, old, &*new, xmax.infobits());
            tuple::set_lsn(page.bytes(), lsn);
        }
        pg_sys::CritSectionCount -= 1;
    }
}
