//! Heap tuples: the macros of htup_details.h, itemptr.h and bufpage.h that bindings do not have.

use super::raw;
use pgrx::pg_sys::{self, Datum, HeapTuple, HeapTupleHeader, TupleDesc};
use std::ffi::c_int;

/// A tuple's address as one word: block number, then offset. 0 is no address.
pub fn pack(tid: &pg_sys::ItemPointerData) -> u64 {
    let block = (u64::from(tid.ip_blkid.bi_hi) << 16) | u64::from(tid.ip_blkid.bi_lo);
    (block << 16) | u64::from(tid.ip_posid)
}

pub fn unpack(packed: u64) -> pg_sys::ItemPointerData {
    pg_sys::ItemPointerData {
        ip_blkid: pg_sys::BlockIdData {
            bi_hi: (packed >> 32) as u16,
            bi_lo: (packed >> 16) as u16,
        },
        ip_posid: packed as u16,
    }
}

pub fn block_of(packed: u64) -> pg_sys::BlockNumber {
    (packed >> 16) as pg_sys::BlockNumber
}

pub fn offset_of(packed: u64) -> pg_sys::OffsetNumber {
    packed as pg_sys::OffsetNumber
}

/// heap_getattr for a user column; None for NULL.
///
/// # Safety
/// `tuple` is valid for `desc` while this runs; `number` is one of its columns, counted from 1.
pub unsafe fn attribute(tuple: HeapTuple, number: c_int, desc: TupleDesc) -> Option<Datum> {
    // SAFETY: as heap_getattr and fastgetattr do.
    unsafe {
        let header = (*tuple).t_data;
        if number > c_int::from((*header).t_infomask2 & pg_sys::HEAP_NATTS_MASK as u16) {
            let mut is_null = false;
            let value = raw::getmissingattr(desc, number, &mut is_null);
            return (!is_null).then_some(value);
        }
        if (*header).t_infomask & pg_sys::HEAP_HASNULL as u16 != 0 {
            let bit = (number - 1) as usize;
            let byte = *(*header).t_bits.as_ptr().add(bit / 8);
            if byte & (1 << (bit % 8)) == 0 {
                return None;
            }
        }
        Some(raw::nocachegetattr(tuple, number, desc))
    }
}

/// HeapTupleHeaderGetRawXmin.
///
/// # Safety
/// `header` is a tuple on a pinned page.
pub unsafe fn raw_xmin(header: HeapTupleHeader) -> pg_sys::TransactionId {
    // SAFETY: by the contract.
    unsafe { (*header).t_choice.t_heap.t_xmin }
}

/// HeapTupleHeaderGetRawXmax.
///
/// # Safety
/// `header` is a tuple on a pinned page.
pub unsafe fn raw_xmax(header: HeapTupleHeader) -> pg_sys::TransactionId {
    // SAFETY: by the contract.
    unsafe { (*header).t_choice.t_heap.t_xmax }
}

pub fn has(header_mask: u16, flag: u32) -> bool {
    header_mask & flag as u16 != 0
}

/// HEAP_XMAX_IS_LOCKED_ONLY.
pub fn is_locked_only(infomask: u16) -> bool {
    has(infomask, pg_sys::HEAP_XMAX_LOCK_ONLY)
        || u32::from(infomask) & (pg_sys::HEAP_XMAX_IS_MULTI | pg_sys::HEAP_LOCK_MASK)
            == pg_sys::HEAP_XMAX_EXCL_LOCK
}

/// PageGetItemId and PageGetItem: the tuple at an offset, if there is a normal one.
///
/// # Safety
/// `page` is a pinned page whose content is locked.
pub unsafe fn tuple_at(
    page: pg_sys::Page,
    offset: pg_sys::OffsetNumber,
) -> Option<(HeapTupleHeader, u32)> {
    // SAFETY: pd_lower bounds the line pointer array, as PageGetMaxOffsetNumber has it.
    unsafe {
        let header = page.cast::<pg_sys::PageHeaderData>();
        let lower = usize::from((*header).pd_lower);
        let count = lower.saturating_sub(std::mem::offset_of!(pg_sys::PageHeaderData, pd_linp))
            / size_of::<pg_sys::ItemIdData>();
        if offset == 0 || usize::from(offset) > count {
            return None;
        }
        let item = &*(*header).pd_linp.as_ptr().add(usize::from(offset) - 1);
        (item.lp_flags() == pg_sys::LP_NORMAL)
            .then(|| (page.add(item.lp_off() as usize).cast(), item.lp_len()))
    }
}

/// PageIsAllVisible.
///
/// # Safety
/// `page` is a pinned page.
pub unsafe fn is_all_visible(page: pg_sys::Page) -> bool {
    // SAFETY: by the contract.
    unsafe {
        (*page.cast::<pg_sys::PageHeaderData>()).pd_flags & pg_sys::PD_ALL_VISIBLE as u16 != 0
    }
}

/// PageSetPrunable.
///
/// # Safety
/// `page` is a page whose content is locked exclusively.
pub unsafe fn set_prunable(page: pg_sys::Page, xid: pg_sys::TransactionId) {
    // SAFETY: by the contract.
    unsafe {
        let header = page.cast::<pg_sys::PageHeaderData>();
        let old = (*header).pd_prune_xid;
        if old == pg_sys::TransactionId::INVALID || precedes(xid, old) {
            (*header).pd_prune_xid = xid;
        }
    }
}

/// TransactionIdPrecedes for two normal ids.
fn precedes(a: pg_sys::TransactionId, b: pg_sys::TransactionId) -> bool {
    (u32::from(a).wrapping_sub(u32::from(b)) as i32) < 0
}

/// PageSetLSN.
///
/// # Safety
/// `page` is a page whose content is locked exclusively.
pub unsafe fn set_lsn(page: pg_sys::Page, lsn: pg_sys::XLogRecPtr) {
    // SAFETY: by the contract.
    unsafe {
        let header = page.cast::<pg_sys::PageHeaderData>();
        (*header).pd_lsn.xlogid = (lsn >> 32) as u32;
        (*header).pd_lsn.xrecoff = lsn as u32;
    }
}

/// Puts a version into a slot of the table's type, which takes over the pin of its page.
///
/// # Safety
/// `found` is a tuple of `rel` on the pinned page, and `slot` a buffer heap slot.
pub unsafe fn store(
    rel: pg_sys::Relation,
    slot: *mut pg_sys::TupleTableSlot,
    found: pg_sys::HeapTupleData,
    page: super::buffer::Page,
) {
    // SAFETY: by the contract.
    unsafe {
        let buffer_slot = slot.cast::<pg_sys::BufferHeapTupleTableSlot>();
        let tuple = &raw mut (*buffer_slot).base.tupdata;
        *tuple = found;
        (*slot).tts_tableOid = (*rel).rd_id;
        raw::ExecStorePinnedBufferHeapTuple(tuple, slot, page.buffer);
    }
}
