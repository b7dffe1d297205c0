//! Heap tuples: the macros of htup_details.h, itemptr.h and bufpage.h that bindings do not have.

use super::raw;
use pgrx::pg_sys::{self, Datum, HeapTuple, HeapTupleHeader, TupleDesc};
use std::ffi::c_int;

/// A tuple's address as one word: block number, then offset. 0 is no address.
#[inline]
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

#[inline]
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
    // SAFETY: the caller's tuple is on a pinned page.
    unsafe { (*header).t_choice.t_heap.t_xmin }
}

/// HeapTupleHeaderGetRawXmax.
///
/// # Safety
/// `header` is a tuple on a pinned page.
pub unsafe fn raw_xmax(header: HeapTupleHeader) -> pg_sys::TransactionId {
    // SAFETY: the caller's tuple is on a pinned page.
    unsafe { (*header).t_choice.t_heap.t_xmax }
}

/// The transaction that has removed or replaced the tuple (HeapTupleHeaderGetUpdateXid); `None` if
/// none has.
///
/// # Safety
/// `header` is a tuple on a pinned page whose content is locked.
pub unsafe fn remover(header: HeapTupleHeader) -> Option<pg_sys::TransactionId> {
    // SAFETY: the caller's tuple is on a pinned page whose content is locked, so the fields agree.
    unsafe {
        let mask = (*header).t_infomask;
        if has(mask, pg_sys::HEAP_XMAX_INVALID) || is_locked_only(mask) {
            return None;
        }
        let xid = if has(mask, pg_sys::HEAP_XMAX_IS_MULTI) {
            raw::HeapTupleGetUpdateXid(header)
        } else {
            raw_xmax(header)
        };
        (xid >= pg_sys::FirstNormalTransactionId).then_some(xid)
    }
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

/// The members of a tuple's MultiXact; none if they are known to have ended.
///
/// # Safety
/// It has been read from a tuple that a scan has found, so it is not truncated yet; `only_locks`
/// was said of it there.
pub unsafe fn each_member(
    multixact: pg_sys::MultiXactId,
    only_locks: bool,
    mut body: impl FnMut(&pg_sys::MultiXactMember),
) {
    let mut list = std::ptr::null_mut();
    // SAFETY: by the contract; PostgreSQL's own list of members, ours to free.
    unsafe {
        let count = raw::GetMultiXactIdMembers(multixact, &mut list, false, only_locks);
        if count > 0 {
            std::slice::from_raw_parts(list, count as usize)
                .iter()
                .for_each(&mut body);
            raw::pfree(list.cast());
        }
    }
}

/// PageGetMaxOffsetNumber.
///
/// # Safety
/// `page` is a pinned page whose content is locked.
#[inline]
pub unsafe fn count(page: pg_sys::Page) -> pg_sys::OffsetNumber {
    // SAFETY: the caller has the page pinned and its content locked.
    let lower = usize::from(unsafe { (*page.cast::<pg_sys::PageHeaderData>()).pd_lower });
    let pointers = lower.saturating_sub(std::mem::offset_of!(pg_sys::PageHeaderData, pd_linp));
    (pointers / size_of::<pg_sys::ItemIdData>()) as pg_sys::OffsetNumber
}

/// The length of the tuple in a slot, 0 if it is none of heap's.
///
/// # Safety
/// `slot` is not empty.
pub unsafe fn length_in(slot: *mut pg_sys::TupleTableSlot) -> u16 {
    // SAFETY: by the contract; slots of these kinds begin as a HeapTupleTableSlot does
    // (tuptable.h).
    unsafe {
        let kind = (*slot).tts_ops;
        if kind != &raw const pg_sys::TTSOpsBufferHeapTuple
            && kind != &raw const pg_sys::TTSOpsHeapTuple
        {
            return 0;
        }
        let tuple = (*slot.cast::<pg_sys::HeapTupleTableSlot>()).tuple.as_ref();
        tuple.map_or(0, |tuple| u16::try_from(tuple.t_len).unwrap_or(u16::MAX))
    }
}

/// What a line pointer leads to.
pub enum Item {
    /// A tuple of that length.
    Normal(HeapTupleHeader, u32),
    /// Another line pointer.
    Redirect(pg_sys::OffsetNumber),
}

/// PageGetItemId and PageGetItem: what is at an offset, if it is in use.
///
/// # Safety
/// As for `count`; or nothing that has to be right depends on what is found.
#[inline]
pub unsafe fn item_at(page: pg_sys::Page, offset: pg_sys::OffsetNumber) -> Option<Item> {
    // SAFETY: pd_lower bounds the line pointer array.
    unsafe {
        if offset == 0 || offset > count(page) {
            return None;
        }
        let header = page.cast::<pg_sys::PageHeaderData>();
        // Read once: of a page that is not locked it may change meanwhile.
        let item = (*header)
            .pd_linp
            .as_ptr()
            .add(usize::from(offset) - 1)
            .read_volatile();
        match item.lp_flags() {
            pg_sys::LP_NORMAL => Some(Item::Normal(
                page.wrapping_add(item.lp_off() as usize).cast(),
                item.lp_len(),
            )),
            pg_sys::LP_REDIRECT => Some(Item::Redirect(item.lp_off() as pg_sys::OffsetNumber)),
            _ => None,
        }
    }
}

/// Asks the processor for a tuple's memory. A hint: there may be no such tuple.
///
/// # Safety
/// `page` is a pinned page, `offset` not beyond its largest possible one.
#[inline]
pub unsafe fn prefetch(page: pg_sys::Page, offset: pg_sys::OffsetNumber) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: line pointers up to the largest offset are on the page; a prefetch may be of any
    // address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let header = page.cast::<pg_sys::PageHeaderData>();
        let pointers = (*header).pd_linp.as_ptr();
        let item = &*pointers.add(usize::from(offset).saturating_sub(1));
        _mm_prefetch::<_MM_HINT_T0>(page.wrapping_add(item.lp_off() as usize).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (page, offset);
}

/// The tuple at an offset, if there is a normal one.
///
/// # Safety
/// As for `count`, or the tuple is one that the caller sees, and the page is pinned.
pub unsafe fn tuple_at(
    page: pg_sys::Page,
    offset: pg_sys::OffsetNumber,
) -> Option<(HeapTupleHeader, u32)> {
    // SAFETY: the caller's page is pinned, and its content locked or the tuple seen by the caller.
    match unsafe { item_at(page, offset) }? {
        Item::Normal(header, length) => Some((header, length)),
        Item::Redirect(_) => None,
    }
}

/// HeapTupleHeaderIsHeapOnly.
///
/// # Safety
/// `header` is a tuple on a pinned page.
pub unsafe fn is_heap_only(header: HeapTupleHeader) -> bool {
    // SAFETY: the caller's tuple is on a pinned page.
    u32::from(unsafe { (*header).t_infomask2 }) & pg_sys::HEAP_ONLY_TUPLE != 0
}

/// HeapTupleHeaderIsHotUpdated.
///
/// # Safety
/// `header` is a tuple on a pinned page.
pub unsafe fn is_hot_updated(header: HeapTupleHeader) -> bool {
    // SAFETY: the caller's tuple is on a pinned page.
    let (mask, more) = unsafe { ((*header).t_infomask, (*header).t_infomask2) };
    u32::from(more) & pg_sys::HEAP_HOT_UPDATED != 0
        && !has(mask, pg_sys::HEAP_XMAX_INVALID)
        && u32::from(mask) & pg_sys::HEAP_XMIN_FROZEN != pg_sys::HEAP_XMIN_INVALID
}

/// HeapTupleHeaderXminFrozen.
///
/// # Safety
/// `header` is a tuple on a pinned page.
pub unsafe fn is_frozen(header: HeapTupleHeader) -> bool {
    // SAFETY: the caller's tuple is on a pinned page.
    let mask = unsafe { (*header).t_infomask };
    u32::from(mask) & pg_sys::HEAP_XMIN_FROZEN == pg_sys::HEAP_XMIN_FROZEN
}

/// PageIsAllVisible.
///
/// # Safety
/// `page` is a pinned page.
pub unsafe fn is_all_visible(page: pg_sys::Page) -> bool {
    // SAFETY: the caller has the page pinned, so it starts with a page header.
    unsafe {
        (*page.cast::<pg_sys::PageHeaderData>()).pd_flags & pg_sys::PD_ALL_VISIBLE as u16 != 0
    }
}

/// PageSetPrunable.
///
/// # Safety
/// `page` is a page whose content is locked exclusively.
pub unsafe fn set_prunable(page: pg_sys::Page, xid: pg_sys::TransactionId) {
    // SAFETY: the caller has the page's content locked exclusively.
    unsafe {
        let header = page.cast::<pg_sys::PageHeaderData>();
        let old = (*header).pd_prune_xid;
        if old == pg_sys::TransactionId::INVALID || precedes(xid, old) {
            (*header).pd_prune_xid = xid;
        }
    }
}

/// TransactionIdPrecedes for two normal ids.
pub fn precedes(a: pg_sys::TransactionId, b: pg_sys::TransactionId) -> bool {
    (u32::from(a).wrapping_sub(u32::from(b)) as i32) < 0
}

/// PageSetLSN.
///
/// # Safety
/// `page` is a page whose content is locked exclusively.
pub unsafe fn set_lsn(page: pg_sys::Page, lsn: pg_sys::XLogRecPtr) {
    // SAFETY: the caller has the page's content locked exclusively.
    unsafe {
        let header = page.cast::<pg_sys::PageHeaderData>();
        (*header).pd_lsn.xlogid = (lsn >> 32) as u32;
        (*header).pd_lsn.xrecoff = lsn as u32;
    }
}
