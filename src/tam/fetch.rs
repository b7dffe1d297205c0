//! Rows of an index scan, looked for ahead on the page that the scan is on (`crates/lookahead`),
//! where heap locks the page for each.
//!
//! What makes it right is what makes heap's own sequential scans right (heapam.c: heapgetpage): the
//! version that an MVCC snapshot sees stays the one, and where it is, as long as the page is
//! pinned. A row of which no version is seen goes heap's way, which says whether it is dead to all.
//! SERIALIZABLE does, too: SSI wants to know of each row.

use super::{call, prune, swap};
use crate::pg::buffer::Page;
use crate::pg::{raw, tuple};
use lookahead::{Known, Pace, Versions};
use pgrx::pg_sys::*;
use std::ops::RangeInclusive;
use std::ptr;

/// Heap's descriptor of an index scan's fetches, and what is known of the page that it has pinned.
#[repr(C)]
struct Fetch {
    rel: IndexFetchTableData,
    buffer: Buffer,
    /// `OURS`. Heap's ends here, and is padded by a zero.
    mark: u32,
    /// The page's number; none (InvalidBlockNumber) when none is pinned.
    block: BlockNumber,
    /// As of which of heap's turns it is: in these, heap may have gone on.
    turn: u64,
    pace: Pace,
    /// Null until the first look.
    ahead: *mut Ahead,
}

const OURS: u32 = u32::from_ne_bytes(*b"txn!");
/// The mark is where heap's descriptor is padded.
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Fetch, buffer) == offset_of!(IndexFetchHeapData, xs_cbuf));
    assert!(offset_of!(Fetch, mark) + size_of::<u32>() == size_of::<IndexFetchHeapData>());
};

struct Ahead {
    versions: Versions,
    /// What the rows were looked for with.
    snapshot: Snapshot,
    command: CommandId,
}

/// `index_fetch_begin`.
///
/// # Safety
/// An open table of `txn_heap`.
pub unsafe fn begin(rel: Relation) -> *mut IndexFetchTableData {
    // SAFETY: the descriptor begins as heap's does, whose callbacks are given it and free it.
    unsafe {
        let fetch = raw::palloc0(size_of::<Fetch>()).cast::<Fetch>();
        (*fetch).rel.rel = rel;
        (*fetch).buffer = InvalidBuffer as Buffer;
        (*fetch).mark = OURS;
        (*fetch).block = InvalidBlockNumber;
        (*fetch).pace = Pace::default();
        fetch.cast()
    }
}

/// What `begin` has returned. Where heap's routine was in place, the scan may have begun with that.
///
/// # Safety
/// An index scan's descriptor, which nobody else refers to.
#[inline]
unsafe fn ours<'a>(fetch: *mut IndexFetchTableData) -> Option<&'a mut Fetch> {
    let fetch = fetch.cast::<Fetch>();
    // SAFETY: by the contract; palloc0 has filled heap's padding, too.
    unsafe { ((*fetch).mark == OURS).then(|| &mut *fetch) }
}

/// `index_fetch_reset`: the page is let go.
///
/// # Safety
/// An index scan's descriptor, perhaps heap's.
pub unsafe fn reset(fetch: *mut IndexFetchTableData) {
    // SAFETY: by the contract; heap's routine has every callback.
    unsafe {
        if let Some(ours) = ours(fetch) {
            ours.block = InvalidBlockNumber;
        }
        (swap::heap().index_fetch_reset.unwrap_unchecked())(fetch);
    }
}

/// `index_fetch_end`.
///
/// # Safety
/// An index scan's descriptor, perhaps heap's; it is gone.
pub unsafe fn end(fetch: *mut IndexFetchTableData) {
    // SAFETY: the caller's descriptor is of an index scan, and not used again; heap's routine has
    // every callback.
    unsafe {
        if let Some(ours) = ours(fetch)
            && !ours.ahead.is_null()
        {
            raw::pfree(ours.ahead.cast());
        }
        (swap::heap().index_fetch_end.unwrap_unchecked())(fetch);
    }
}

/// `index_fetch_tuple`. What is not known goes heap's way, or another one that does what heap's
/// does.
///
/// # Safety
/// `call` has the executor's arguments, which are valid until this returns.
#[inline]
pub unsafe fn tuple(call: call::Fetch, heaps_way: impl FnOnce(call::Fetch) -> bool) -> bool {
    // SAFETY: the executor's descriptor, slot and flags are valid until the call returns.
    unsafe {
        let Some(ours) = ours(call.scan) else {
            return heaps_way(call);
        };
        let (block, row) = (block_of(call.tid), (*call.tid).ip_posid);
        if !ours.is_on(block) {
            ours.turn_to_page(row);
            ours.pin(block);
        } else if !*call.call_again {
            let version = match ours.known(row, call.snapshot) {
                Known::Version(version) => {
                    ours.pace.serve(row);
                    Some(version)
                }
                known => {
                    ours.pace.miss(row);
                    ours.look(row, known, call.snapshot)
                }
            };
            if let Some(version) = version {
                tuple::prefetch(ours.page().bytes(), ours.pace.upcoming(row));
                (*call.tid).ip_posid = version;
                ours.store(&*call.tid, call.slot);
                if !call.all_dead.is_null() {
                    *call.all_dead = false;
                }
                return true;
            }
        }
        let found = heaps_way(call);
        let fetch = call.scan.cast::<Fetch>();
        (*fetch).block = block;
        (*fetch).turn = swap::heaps_turns();
        found
    }
}

unsafe fn block_of(tid: ItemPointer) -> BlockNumber {
    // SAFETY: the address that the executor gave.
    tuple::block_of(tuple::pack(unsafe { &*tid }))
}

/// Whether what is seen with the snapshot stays, and nobody else has to know of each row.
unsafe fn can_look_ahead(snapshot: Snapshot) -> bool {
    // SAFETY: a snapshot; reads backend state.
    unsafe {
        (*snapshot).snapshot_type == SnapshotType::SNAPSHOT_MVCC
            && XactIsoLevel != XACT_SERIALIZABLE as i32
    }
}

impl Fetch {
    fn page(&self) -> Page {
        Page {
            buffer: self.buffer,
        }
    }

    /// Whether that is the pinned page. While heap's routine is in place, who rewinds a cursor
    /// (execMain.c: ExecutorRewind), which calls no hook, may let the page go, or go on to another
    /// one.
    #[inline]
    fn is_on(&self, block: BlockNumber) -> bool {
        block == self.block && self.turn == swap::heaps_turns()
    }

    #[inline]
    unsafe fn turn_to_page(&mut self, row: OffsetNumber) {
        // Until heap has pinned it: an ERROR in between may leave none.
        self.block = InvalidBlockNumber;
        if self.pace.turn_to_page(row) {
            // SAFETY: ours as long as the descriptor; not null once there has been a look.
            unsafe { (*self.ahead).versions.clear() };
        }
    }

    /// Pins the page before heap does, which then takes it for the one that it has been on, and
    /// leaves it unpruned.
    #[inline]
    unsafe fn pin(&mut self, block: BlockNumber) {
        let before = self.buffer;
        // SAFETY: the page of a row that the index has; what is pinned is ours.
        unsafe {
            self.buffer = raw::ReleaseAndReadBuffer(before, self.rel.rel, block);
            if self.buffer != before {
                prune::come_upon(self.rel.rel, self.page());
            }
        }
    }

    /// What is known of a row of the pinned page.
    #[inline]
    unsafe fn known(&self, row: OffsetNumber, snapshot: Snapshot) -> Known {
        // SAFETY: ours as long as the descriptor; a snapshot.
        unsafe {
            match self.ahead.as_ref() {
                Some(ahead) if ahead.is_by(snapshot) => ahead.versions.known(row),
                _ => Known::Nothing,
            }
        }
    }

    /// Puts a version that is seen on the pinned page into the slot; execTuples.c:
    /// tts_buffer_heap_store_tuple.
    #[inline]
    unsafe fn store(&self, tid: &ItemPointerData, slot: *mut TupleTableSlot) {
        // SAFETY: neither a version that is seen nor its line pointer is touched as long as the
        // page is pinned. A slot that has this page's pin already, from the row before, keeps it.
        unsafe {
            let rel = self.rel.rel;
            let page = self.page().bytes();
            let pointers = (*page.cast::<PageHeaderData>()).pd_linp.as_ptr();
            let item = &*pointers.add(usize::from(tid.ip_posid) - 1);
            let buffered = &mut *slot.cast::<BufferHeapTupleTableSlot>();
            buffered.base.tupdata = HeapTupleData {
                t_len: item.lp_len(),
                t_self: *tid,
                t_tableOid: (*rel).rd_id,
                t_data: page.add(item.lp_off() as usize).cast(),
            };
            (*slot).tts_tableOid = (*rel).rd_id;
            let stored = &raw mut buffered.base.tupdata;
            let has_pin = buffered.buffer == self.buffer
                && u32::from((*slot).tts_flags) & (TTS_FLAG_SHOULDFREE | TTS_FLAG_EMPTY) == 0;
            if has_pin {
                (*slot).tts_nvalid = 0;
                (*slot).tts_tid = *tid;
                buffered.base.tuple = stored;
                buffered.base.off = 0;
            } else {
                raw::ExecStoreBufferHeapTuple(stored, slot, self.buffer);
            }
        }
    }

    /// Looks for a row that was missed, and for those that come next, if that is worth while.
    /// Returns the row's version, if it has been looked for and is seen.
    #[inline]
    unsafe fn look(
        &mut self,
        row: OffsetNumber,
        known: Known,
        snapshot: Snapshot,
    ) -> Option<OffsetNumber> {
        // Temporary tables, whose buffers have negative numbers, have nobody to lock a page
        // against.
        if known != Known::Nothing || !self.pace.is_worthwhile() || self.buffer < 0 {
            return None;
        }
        // SAFETY: as in `tuple`.
        unsafe {
            let last = tuple::count(self.page().bytes());
            let rows = self.pace.rows_ahead(row, last)?;
            can_look_ahead(snapshot).then(|| self.look_for(row, rows, snapshot))?
        }
    }

    #[cold]
    #[inline(never)]
    unsafe fn look_for(
        &mut self,
        row: OffsetNumber,
        rows: RangeInclusive<OffsetNumber>,
        snapshot: Snapshot,
    ) -> Option<OffsetNumber> {
        // SAFETY: what is allocated lives as long as the descriptor; the page stays pinned.
        unsafe {
            if self.ahead.is_null() {
                let context = raw::GetMemoryChunkContext(ptr::from_mut(self).cast());
                self.ahead = raw::MemoryContextAlloc(context, size_of::<Ahead>()).cast();
                self.ahead.write(Ahead {
                    versions: Versions::default(),
                    snapshot,
                    command: (*snapshot).curcid,
                });
            }
            let ahead = &mut *self.ahead;
            if !ahead.is_by(snapshot) {
                ahead.versions.clear();
                ahead.snapshot = snapshot;
                ahead.command = (*snapshot).curcid;
            }
            let sight = Sight {
                rel: self.rel.rel,
                page: self.page(),
                block: self.block,
                snapshot,
            };
            sight.page.share();
            for row in rows {
                if ahead.versions.look(row, |row| sight.version(row)) {
                    self.pace.looked();
                }
            }
            sight.page.unlock();
            match ahead.versions.known(row) {
                Known::Version(version) => {
                    self.pace.found();
                    Some(version)
                }
                _ => None,
            }
        }
    }
}

impl Ahead {
    /// Whether the rows were looked for with that snapshot.
    #[inline]
    unsafe fn is_by(&self, snapshot: Snapshot) -> bool {
        // SAFETY: a snapshot.
        ptr::eq(self.snapshot, snapshot) && self.command == unsafe { (*snapshot).curcid }
    }
}

/// How versions of a locked page are looked at.
struct Sight {
    rel: Relation,
    page: Page,
    block: BlockNumber,
    snapshot: Snapshot,
}

impl Sight {
    /// The line pointer of the version of a row that the snapshot sees; heapam.c:
    /// heap_hot_search_buffer. None may also be what is left to that.
    #[inline]
    unsafe fn version(&self, row: OffsetNumber) -> Option<OffsetNumber> {
        // SAFETY: the page is pinned and locked.
        unsafe {
            match tuple::item_at(self.page.bytes(), row)? {
                tuple::Item::Normal(header, _) if tuple::is_heap_only(header) => None,
                tuple::Item::Normal(header, length) if self.sees(row, header, length) => Some(row),
                tuple::Item::Normal(header, _) => self.follow(header),
                tuple::Item::Redirect(at) => match tuple::item_at(self.page.bytes(), at)? {
                    tuple::Item::Normal(header, length) if self.sees(at, header, length) => {
                        Some(at)
                    }
                    tuple::Item::Normal(header, _) => self.follow(header),
                    tuple::Item::Redirect(_) => None,
                },
            }
        }
    }

    /// The version that is seen of those that come after one on the page.
    unsafe fn follow(&self, mut header: HeapTupleHeader) -> Option<OffsetNumber> {
        // SAFETY: the page is pinned and locked, and `header` is a version on it.
        unsafe {
            loop {
                let mask = (*header).t_infomask;
                let goes_on =
                    tuple::is_hot_updated(header) && !tuple::has(mask, HEAP_XMAX_IS_MULTI);
                let at = (*header).t_ctid.ip_posid;
                let updater = tuple::raw_xmax(header);
                match tuple::item_at(self.page.bytes(), at).filter(|_| goes_on)? {
                    tuple::Item::Normal(next, length)
                        if tuple::raw_xmin(next) == updater && !tuple::is_frozen(next) =>
                    {
                        if self.sees(at, next, length) {
                            return Some(at);
                        }
                        header = next;
                    }
                    _ => return None,
                }
            }
        }
    }

    /// Whether the snapshot sees the version at a line pointer. Versions of this transaction are
    /// not judged here: a follower may have built on one (base.rs), and the scan did not ask for
    /// it. They are left to heap.
    #[inline]
    unsafe fn sees(&self, at: OffsetNumber, header: HeapTupleHeader, length: u32) -> bool {
        // SAFETY: the page is pinned and locked, `header` is a version on it, and `rel` is open.
        unsafe {
            if self.is_old(header) {
                return true;
            }
            if !tuple::has((*header).t_infomask, HEAP_XMIN_COMMITTED)
                && raw::TransactionIdIsCurrentTransactionId(tuple::raw_xmin(header))
            {
                return false;
            }
            let mut found = HeapTupleData {
                t_len: length,
                t_self: tuple::unpack((u64::from(self.block) << 16) | u64::from(at)),
                t_tableOid: (*self.rel).rd_id,
                t_data: header,
            };
            raw::HeapTupleSatisfiesVisibility(&mut found, self.snapshot, self.page.buffer)
        }
    }

    /// Whether hints say that a version is seen: made by a transaction that ended before all that
    /// ran, and locked or deleted by nobody.
    #[inline]
    unsafe fn is_old(&self, header: HeapTupleHeader) -> bool {
        // SAFETY: the page is pinned and locked, and `header` is a version on it; the scan has the
        // snapshot.
        unsafe {
            let mask = (*header).t_infomask;
            tuple::has(mask, HEAP_XMIN_COMMITTED)
                && tuple::has(mask, HEAP_XMAX_INVALID)
                && (tuple::is_frozen(header)
                    || tuple::precedes(tuple::raw_xmin(header), (*self.snapshot).xmin))
        }
    }
}
