//! The version that a follower has built on, and how PostgreSQL may misread it.
//!
//! PostgreSQL's visibility code (access/heap/heapam_visibility.c) knows one way in which a version
//! can be inserted by the current transaction and deleted by another transaction id: the deleter
//! was a subtransaction that has aborted. So it sets HEAP_XMAX_INVALID. With followers a running
//! foreign updater is the rule, and a leader that looks at its own followed version sets that bit
//! by mistake. The look itself gives the right answer: a transaction sees what it wrote.
//!
//! Such a look can come from anywhere: an index scan, a trigger, `currtid2`, a parallel worker, the
//! C code of another extension. So nothing here depends on who looks. The mistake is a single bit,
//! and it does no harm while the inserter runs, because to all others the version does not exist
//! yet. Two checks take the bit back before it could do harm:
//!
//! 1. The inserter, after each statement and just before its commit record, if others are in the
//!    row's list (`restore`): this closes the usual case before anybody else can see the version,
//!    or lock it by way of an older one.
//! 2. The follower, once its inserter has left the list of running transactions, and before its own
//!    commit record. The inserter can look no more. If the version still names the follower as its
//!    updater, the follower may commit, and the bit, if set again, goes. If anybody has taken the
//!    version meanwhile, the follower must not commit: 40001.
//!
//! The second check alone keeps the table whole: a follower never commits unless its base names it
//! as the updater. The first spares followers a needless 40001. The change is logged as a row lock
//! is (`wal.rs`), because a full-page image may have taken the bit to a standby.
//!
//! Between the two events readers are right, too: with the bit, the version is the live one as long
//! as the follower has not committed. Pruning leaves the follower's version alone, because its
//! inserter runs.

use super::wal;
use crate::pg::buffer::Page;
use crate::pg::raw;
use crate::pg::tuple;
use hotrow::Base;
use pgrx::pg_sys::{self, HeapTupleHeader, MultiXactStatus, TransactionId};

/// The xmax that a follower writes into its base: an updater, and perhaps with the row's key
/// locked.
#[derive(Clone, Copy)]
pub struct Xmax {
    pub updater: TransactionId,
    /// The updater has locked the row FOR UPDATE before: nobody gets a key share of it.
    pub locks_key: bool,
}

impl Xmax {
    /// The bits of xl_heap_update and xl_heap_lock.
    pub fn infobits(self) -> u8 {
        if self.locks_key {
            wal::XLHL_KEYS_UPDATED
        } else {
            0
        }
    }

    /// Writes it into a tuple header, leaving `t_cid` alone.
    ///
    /// # Safety
    /// The tuple's page is locked exclusively.
    pub unsafe fn put(self, header: HeapTupleHeader) {
        // SAFETY: the caller has the page locked exclusively, so nobody else reads or writes the
        // header.
        unsafe {
            (*header).t_infomask &= !((pg_sys::HEAP_XMAX_BITS | pg_sys::HEAP_MOVED) as u16);
            (*header).t_infomask2 &= !(pg_sys::HEAP_KEYS_UPDATED as u16);
            if self.locks_key {
                (*header).t_infomask2 |= pg_sys::HEAP_KEYS_UPDATED as u16;
            }
            (*header).t_choice.t_heap.t_xmax = self.updater;
        }
    }
}

/// Whether the version `base` of the table still names `follower` as its updater. If only the hint
/// HEAP_XMAX_INVALID says otherwise, it is taken back, and logged.
///
/// # Safety
/// This transaction holds a lock on the table, and neither a page nor an LWLock is locked.
pub unsafe fn restore(relation: pg_sys::Oid, base: Base, follower: u32) -> bool {
    // SAFETY: the caller's lock on the table lets us open it, and we hold no page lock or LWLock.
    unsafe {
        let rel = raw::RelationIdGetRelation(relation);
        if rel.is_null() {
            return false;
        }
        // A rewrite by this transaction has given the table another file.
        let intact = (*rel).rd_firstRelfilelocatorSubid == 0 && restore_in(rel, base, follower);
        raw::RelationClose(rel);
        intact
    }
}

unsafe fn restore_in(rel: pg_sys::Relation, base: Base, follower: u32) -> bool {
    // SAFETY: as in `restore`; the base's block exists as long as its updater has not ended (nobody
    // can truncate it away).
    unsafe {
        let page = Page::pin(rel, base.version);
        page.share();
        let (intact, hinted) = look(page, base, follower);
        page.unlock();
        let intact = if hinted {
            page.exclude();
            let (intact, hinted) = look(page, base, follower);
            if hinted {
                take_back_hint(rel, page, base, follower);
            }
            page.unlock();
            intact
        } else {
            intact
        };
        page.unpin();
        intact
    }
}

/// Whether the version names the follower as its updater, and whether the hint says that this is
/// void.
unsafe fn look(page: Page, base: Base, follower: u32) -> (bool, bool) {
    let Some((header, _)) = page.tuple(base.version) else {
        return (false, false);
    };
    // SAFETY: the page is pinned and locked.
    unsafe {
        let mask = (*header).t_infomask;
        let is_version = u32::from(tuple::raw_xmin(header)) == base.xid
            && u32::from((*header).t_infomask2) & pg_sys::HEAP_HOT_UPDATED != 0
            && !tuple::is_locked_only(mask);
        let names_follower = if tuple::has(mask, pg_sys::HEAP_XMAX_IS_MULTI) {
            !tuple::has(mask, pg_sys::HEAP_XMAX_INVALID)
                && updater_of(tuple::raw_xmax(header)) == follower
        } else {
            u32::from(tuple::raw_xmax(header)) == follower
        };
        let intact = is_version && names_follower;
        (
            intact,
            intact && tuple::has(mask, pg_sys::HEAP_XMAX_INVALID),
        )
    }
}

/// The updater among the members of a MultiXact, or 0. Others may have taken key shares of the
/// version meanwhile.
unsafe fn updater_of(multi: pg_sys::MultiXactId) -> u32 {
    let mut updater = 0;
    // SAFETY: read from a version whose updater runs, so it is not truncated.
    unsafe {
        tuple::each_member(multi, false, |member| {
            if member.status >= MultiXactStatus::MultiXactStatusNoKeyUpdate {
                updater = u32::from(member.xid);
            }
        });
    }
    updater
}

/// Takes the hint back.
unsafe fn take_back_hint(rel: pg_sys::Relation, page: Page, base: Base, follower: u32) {
    // SAFETY: the page is locked exclusively and the version is there; as heap_lock_tuple writes an
    // xmax.
    unsafe {
        let Some((header, _)) = page.tuple(base.version) else {
            return;
        };
        let xmax = Xmax {
            updater: TransactionId::from(follower),
            locks_key: u32::from((*header).t_infomask2) & pg_sys::HEAP_KEYS_UPDATED != 0,
        };
        pg_sys::CritSectionCount += 1;
        xmax.put(header);
        raw::MarkBufferDirty(page.buffer);
        if (*(*rel).rd_rel).relpersistence as u8 == pg_sys::RELPERSISTENCE_PERMANENT {
            let offset = tuple::offset_of(base.version);
            let lsn = wal::log_xmax(page.buffer, offset, follower, xmax.infobits());
            tuple::set_lsn(page.bytes(), lsn);
        }
        pg_sys::CritSectionCount -= 1;
    }
}
