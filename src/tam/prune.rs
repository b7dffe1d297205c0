//! Decides whether an index scan prunes a page of `txn_heap` that it comes to. Heap prunes as soon
//! as a page has less free space than the table's fillfactor asks for. So a page that is filled to
//! this reserve is pruned after nearly every update of one of its rows. Here, in tables whose rows
//! stay on their pages, pruning is put off as long as the page has room (`crates/lookahead`).

use crate::pg::buffer::Page;
use crate::pg::local::Local;
use crate::pg::{raw, tuple};
use lookahead::{Room, Trust};
use pgrx::pg_sys::*;
use std::cell::Cell;

const _: () = assert!(BLCKSZ == lookahead::PAGE as u32);

/// Of so many times that it could be put off, it is not once, by lot: a page that is only read from
/// then on gets rid of what nobody sees.
const PATIENCE: u64 = 16;
/// Tables of which a session remembers how their updates fare; two may displace each other.
const TABLES: usize = 64;

struct State {
    tables: [Cell<(Oid, Trust)>; TABLES],
    lot: Cell<u64>,
}
static STATE: Local<State> = Local::new(State {
    tables: [const { Cell::new((Oid::INVALID, Trust::NEW)) }; TABLES],
    lot: Cell::new(0),
});

fn trust(table: Oid) -> (&'static Cell<(Oid, Trust)>, Trust) {
    let place = &STATE.tables[u32::from(table) as usize % TABLES];
    let (of, trust) = place.get();
    let trust = if of == table {
        trust
    } else {
        trust.of_another_table()
    };
    (place, trust)
}

/// Whether it is the one time of many (Knuth's linear congruential generator).
fn is_drawn() -> bool {
    // SAFETY: a plain read of backend state.
    let seed = unsafe { MyProcPid } as u64;
    let last = match STATE.lot.get() {
        0 => seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        last => last,
    };
    let next = last
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    STATE.lot.set(next);
    (next >> 33).is_multiple_of(PATIENCE)
}

/// A row of the table at `old` has been updated.
///
/// # Safety
/// The slot holds the new version.
#[inline]
pub unsafe fn updated(table: Oid, old: &ItemPointerData, new: *mut TupleTableSlot) {
    // SAFETY: the caller's slot holds the new version, with its address.
    let (at, length) = unsafe { (&(*new).tts_tid, tuple::length_in(new)) };
    let (place, mut trust) = trust(table);
    let has_stayed = tuple::block_of(tuple::pack(old)) == tuple::block_of(tuple::pack(at));
    trust.updated(length, has_stayed);
    place.set((table, trust));
}

/// A scan has come to a page.
///
/// # Safety
/// A page of the table, pinned and not locked.
#[inline]
pub unsafe fn come_upon(rel: Relation, page: Page) {
    // SAFETY: the caller's page is of `rel`, pinned and not locked, as heap_page_prune_opt wants
    // it.
    unsafe {
        // Buffers of temporary tables have negative numbers.
        if page.buffer < 0 || is_due(rel, page.bytes()) {
            raw::heap_page_prune_opt(rel, page.buffer);
        }
    }
}

/// Whether heap is asked to prune it, if it can. Looked at as heap does it, without a lock: what is
/// read may be of different moments.
#[inline]
unsafe fn is_due(rel: Relation, page: *mut std::ffi::c_char) -> bool {
    // SAFETY: by the contract of `come_upon`; rd_options of a table, or null.
    unsafe {
        let header = page.cast::<PageHeaderData>();
        if (*header).pd_prune_xid == InvalidTransactionId {
            return false;
        }
        let (_, trust) = trust((*rel).rd_id);
        if old_snapshot_threshold >= 0
            || (*header).pd_flags & PD_PAGE_FULL as u16 != 0
            || !trust.is_earned()
        {
            return true;
        }
        let options = (*rel).rd_options.cast::<StdRdOptions>().as_ref();
        let fillfactor =
            options.map_or(HEAP_DEFAULT_FILLFACTOR as i32, |options| options.fillfactor);
        let room = Room {
            free: (*header).pd_upper.saturating_sub((*header).pd_lower),
            line_pointers: tuple::count(page),
            reserved: (BLCKSZ as i32 * (100 - fillfactor) / 100) as u16,
        };
        room.is_scarce() && (!room.is_enough(trust.longest()) || is_drawn())
    }
}
