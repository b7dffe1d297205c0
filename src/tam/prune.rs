//! When those who come upon a page of `txn_heap` prune it. Heap does as soon as the page has less free space than the table's fillfactor asks for, so that
//! it is pruned after nearly every update of one of its rows; here that is put off as long as there is room (`crates/lookahead`).

use crate::pg::buffer::Page;
use crate::pg::{raw, tuple};
use lookahead::Room;
use pgrx::pg_sys::*;
use std::cell::Cell;

/// Of so many times that it could be put off, it is not once: a page that is only read from then on gets rid of what nobody sees.
const PATIENCE: u32 = 16;

struct PutOff(Cell<u32>);
// SAFETY: a backend has one thread.
unsafe impl Sync for PutOff {}
static PUT_OFF: PutOff = PutOff(Cell::new(0));

/// A scan has come to a page.
///
/// # Safety
/// A page of the table, pinned and not locked.
#[inline]
pub unsafe fn come_upon(rel: Relation, page: Page) {
    // SAFETY: by the contract.
    unsafe {
        // Buffers of temporary tables have negative numbers.
        if page.buffer < 0 || is_due(rel, page.bytes()) {
            raw::heap_page_prune_opt(rel, page.buffer);
        }
    }
}

/// Whether heap is asked to prune it, if it can. Looked at as heap does it, without a lock: what is read may be of different moments.
#[inline]
unsafe fn is_due(rel: Relation, page: *mut std::ffi::c_char) -> bool {
    // SAFETY: by the contract of `come_upon`; rd_options of a table, or null.
    unsafe {
        let header = &*page.cast::<PageHeaderData>();
        if header.pd_prune_xid == InvalidTransactionId {
            return false;
        }
        if old_snapshot_threshold >= 0 || header.pd_flags & PD_PAGE_FULL as u16 != 0 {
            return true;
        }
        let options = (*rel).rd_options.cast::<StdRdOptions>().as_ref();
        let fillfactor =
            options.map_or(HEAP_DEFAULT_FILLFACTOR as i32, |options| options.fillfactor);
        let room = Room {
            free: header.pd_upper.saturating_sub(header.pd_lower),
            line_pointers: tuple::count(page),
            reserved: (BLCKSZ as i32 * (100 - fillfactor) / 100) as u16,
        };
        if !room.is_scarce() {
            return false;
        }
        let put_off = PUT_OFF.0.get() + 1;
        let is_due = !room.is_enough(tuple::longest(page)) || put_off >= PATIENCE;
        PUT_OFF.0.set(if is_due { 0 } else { put_off });
        is_due
    }
}
