//! The xmax of a version that its running inserter is going to look at again.
//!
//! PostgreSQL's visibility code (access/heap/heapam_visibility.c) takes a version that the current transaction inserted
//! and somebody else's transaction id deleted for one whose deleting *subtransaction* has aborted: it sets
//! HEAP_XMAX_INVALID, and the row has two live versions for ever. With stock PostgreSQL nobody else can update an
//! uncommitted version; with followers it is the rule. A MultiXact in xmax is looked at with more care (its update member
//! is compared, no hint is set), so before an inserter looks at its version again, its xmax becomes a MultiXact of the
//! inserter (key share) and the follower (update).

use super::wal;
use crate::pg::buffer::Page;
use crate::pg::raw;
use crate::pg::tuple;
use pgrx::pg_sys::{self, MultiXactStatus, TransactionId};

/// The deleter of a version: a transaction, or a MultiXact of its inserter and its updater.
#[derive(Clone, Copy)]
pub struct Xmax {
    value: TransactionId,
    is_multi: bool,
    /// The updater has locked the row FOR UPDATE before: nobody gets a key share of it.
    locks_key: bool,
}

impl Xmax {
    pub fn plain(updater: u32, locks_key: bool) -> Self {
        Xmax {
            value: TransactionId::from(updater),
            is_multi: false,
            locks_key,
        }
    }

    /// A MultiXact of both.
    ///
    /// # Safety
    /// Both transactions have called MultiXactIdSetOldestMember; no critical section is open.
    pub unsafe fn shared(inserter: u32, updater: u32, locks_key: bool) -> Self {
        let status = if locks_key {
            MultiXactStatus::MultiXactStatusUpdate
        } else {
            MultiXactStatus::MultiXactStatusNoKeyUpdate
        };
        // SAFETY: by the contract.
        let multi = unsafe {
            raw::MultiXactIdCreate(
                TransactionId::from(inserter),
                MultiXactStatus::MultiXactStatusForKeyShare,
                TransactionId::from(updater),
                status,
            )
        };
        Xmax {
            value: TransactionId::from(u32::from(multi)),
            is_multi: true,
            locks_key,
        }
    }

    /// The bits of xl_heap_update and xl_heap_lock.
    pub fn infobits(self) -> u8 {
        let multi = if self.is_multi {
            wal::XLHL_XMAX_IS_MULTI | wal::XLHL_XMAX_EXCL_LOCK
        } else {
            0
        };
        if self.locks_key {
            multi | wal::XLHL_KEYS_UPDATED
        } else {
            multi
        }
    }

    /// Writes it into a tuple header, leaving `t_cid` alone.
    ///
    /// # Safety
    /// The tuple's page is locked exclusively.
    pub unsafe fn put(self, header: pg_sys::HeapTupleHeader) {
        // SAFETY: by the contract.
        unsafe {
            (*header).t_infomask &= !((pg_sys::HEAP_XMAX_BITS | pg_sys::HEAP_MOVED) as u16);
            (*header).t_infomask2 &= !(pg_sys::HEAP_KEYS_UPDATED as u16);
            if self.locks_key {
                (*header).t_infomask2 |= pg_sys::HEAP_KEYS_UPDATED as u16;
            }
            if self.is_multi {
                (*header).t_infomask |=
                    (pg_sys::HEAP_XMAX_IS_MULTI | pg_sys::HEAP_XMAX_EXCL_LOCK) as u16;
            }
            (*header).t_choice.t_heap.t_xmax = self.value;
        }
    }
}

/// Gives our version at `version`, if the transaction `follower` has updated it, a MultiXact for xmax. If it has only locked
/// it so far, its update will.
///
/// # Safety
/// `rel` is open, and the version is ours.
pub unsafe fn share_xmax(rel: pg_sys::Relation, version: u64, inserter: u32, follower: u32) {
    // SAFETY: by the contract; as heap_lock_tuple writes an xmax.
    unsafe {
        let page = Page::pin(rel, version);
        page.exclude();
        if let Some((header, _)) = page.tuple(version)
            && u32::from(tuple::raw_xmin(header)) == inserter
            && u32::from(tuple::raw_xmax(header)) == follower
            && !tuple::has(
                (*header).t_infomask,
                pg_sys::HEAP_XMAX_INVALID | pg_sys::HEAP_XMAX_IS_MULTI,
            )
            && !tuple::is_locked_only((*header).t_infomask)
        {
            let locks_key = u32::from((*header).t_infomask2) & pg_sys::HEAP_KEYS_UPDATED != 0;
            let xmax = Xmax::shared(inserter, follower, locks_key);
            pg_sys::CritSectionCount += 1;
            xmax.put(header);
            raw::MarkBufferDirty(page.buffer);
            if (*(*rel).rd_rel).relpersistence as u8 == pg_sys::RELPERSISTENCE_PERMANENT {
                let offset = tuple::offset_of(version);
                let lsn =
                    wal::log_xmax(page.buffer, offset, u32::from(xmax.value), xmax.infobits());
                tuple::set_lsn(page.bytes(), lsn);
            }
            pg_sys::CritSectionCount -= 1;
        }
        page.release();
    }
}
