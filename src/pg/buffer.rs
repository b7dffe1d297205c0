//! A heap page, pinned and locked for a moment.

use super::local::Local;
use super::raw;
use super::tuple;
use pgrx::pg_sys;
use std::cell::Cell;

/// The buffer in which an index scan has last found a row, 0 before: the row's update comes next,
/// and need not look for its page.
static RECENT: Local<Cell<pg_sys::Buffer>> = Local::new(Cell::new(0));

/// An index scan has found a row.
///
/// # Safety
/// `slot` is a buffer heap slot that holds it.
#[inline]
pub unsafe fn note_recent(slot: *mut pg_sys::TupleTableSlot) {
    // SAFETY: the caller's slot is a buffer heap slot.
    RECENT.set(unsafe { (*slot.cast::<pg_sys::BufferHeapTupleTableSlot>()).buffer });
}

/// As `Page::glance`, if the last index scan has found the version's page. Its buffer is looked at
/// without a pin: the scan has one as a rule, and a glance may be wrong.
///
/// # Safety
/// `rel` is open.
#[inline]
pub unsafe fn glance(rel: pg_sys::Relation, packed_tid: u64) -> Option<u16> {
    let recent = RECENT.get();
    if recent <= 0 {
        return None;
    }
    // SAFETY: the caller's relation is open. The number of a shared buffer: its descriptor and its
    // page are there as long as the server runs.
    let has_page = unsafe {
        let descriptor = pg_sys::BufferDescriptors.add(recent as usize - 1);
        let tag = (&raw const (*descriptor).bufferdesc.tag).read_volatile();
        let table = (*rel).rd_locator;
        tag.blockNum == tuple::block_of(packed_tid)
            && tag.relNumber == table.relNumber
            && tag.dbOid == table.dbOid
            && tag.spcOid == table.spcOid
            && tag.forkNum == pg_sys::ForkNumber::MAIN_FORKNUM
    };
    has_page
        .then(|| Page { buffer: recent }.glance(packed_tid))
        .flatten()
}

/// A pinned page. Not released by a destructor: an ERROR would jump over it, and PostgreSQL's
/// resource owner releases pins and locks then. Call `release`.
#[derive(Clone, Copy)]
pub struct Page {
    pub buffer: pg_sys::Buffer,
}

impl Page {
    /// Reads and pins the page with that tuple.
    ///
    /// # Safety
    /// `rel` is open, and the block exists.
    pub unsafe fn pin(rel: pg_sys::Relation, packed_tid: u64) -> Page {
        let (recent, block) = (RECENT.get(), tuple::block_of(packed_tid));
        let fork = pg_sys::ForkNumber::MAIN_FORKNUM;
        // SAFETY: by the contract; a valid number of a shared buffer, of which the call says
        // whether it has that page.
        unsafe {
            let is_there =
                recent > 0 && raw::ReadRecentBuffer((*rel).rd_locator, fork, block, recent);
            let buffer = if is_there {
                recent
            } else {
                raw::ReadBuffer(rel, block)
            };
            Page { buffer }
        }
    }

    pub fn share(self) {
        // SAFETY: pinned.
        unsafe { raw::LockBuffer(self.buffer, pg_sys::BUFFER_LOCK_SHARE as i32) }
    }

    pub fn exclude(self) {
        // SAFETY: pinned.
        unsafe { raw::LockBuffer(self.buffer, pg_sys::BUFFER_LOCK_EXCLUSIVE as i32) }
    }

    pub fn unlock(self) {
        // SAFETY: pinned and locked.
        unsafe { raw::LockBuffer(self.buffer, pg_sys::BUFFER_LOCK_UNLOCK as i32) }
    }

    /// Drops the pin.
    pub fn unpin(self) {
        // SAFETY: pinned, not locked.
        unsafe { raw::ReleaseBuffer(self.buffer) }
    }

    /// Drops lock and pin.
    pub fn release(self) {
        // SAFETY: pinned and locked.
        unsafe { raw::UnlockReleaseBuffer(self.buffer) }
    }

    /// BufferGetPage, for a shared buffer.
    #[inline]
    pub fn bytes(self) -> pg_sys::Page {
        debug_assert!(self.buffer > 0, "a buffer of a temporary table, or none");
        // SAFETY: a positive, pinned buffer number.
        unsafe { pg_sys::BufferBlocks.add((self.buffer as usize - 1) * pg_sys::BLCKSZ as usize) }
    }

    /// The tuple at that address, if the line pointer is in use. The content is locked (or what is
    /// found may be wrong).
    pub fn tuple(self, packed_tid: u64) -> Option<(pg_sys::HeapTupleHeader, u32)> {
        // SAFETY: pinned by the caller; a line pointer leads into the page.
        unsafe { tuple::tuple_at(self.bytes(), tuple::offset_of(packed_tid)) }
    }

    /// The flags of the tuple at that address, of a page that is not locked: they may be of a
    /// moment ago, or other bytes (whoever has pinned the page alone before may be pruning it).
    /// Nothing that has to be right may depend on them.
    pub fn glance(self, packed_tid: u64) -> Option<u16> {
        let (header, _) = self.tuple(packed_tid)?;
        let at = header as usize - self.bytes() as usize;
        let is_whole = at + size_of::<pg_sys::HeapTupleHeaderData>() <= pg_sys::BLCKSZ as usize;
        if !is_whole || !header.is_aligned() {
            return None;
        }
        // SAFETY: within the page's buffer, and aligned; others may write the word meanwhile.
        Some(unsafe { (&raw const (*header).t_infomask).read_volatile() })
    }

    /// The tuple at that address, as a `HeapTupleData` of that relation.
    ///
    /// # Safety
    /// `rel` is open and owns the page; the result is valid while the page is pinned.
    pub unsafe fn heap_tuple(
        self,
        rel: pg_sys::Relation,
        packed_tid: u64,
    ) -> Option<pg_sys::HeapTupleData> {
        let (header, length) = self.tuple(packed_tid)?;
        Some(pg_sys::HeapTupleData {
            t_len: length,
            t_self: tuple::unpack(packed_tid),
            // SAFETY: the caller's relation is open.
            t_tableOid: unsafe { (*rel).rd_id },
            t_data: header,
        })
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
    page: Page,
) {
    // SAFETY: the caller's tuple is on the pinned page, and its slot is a buffer heap slot.
    unsafe {
        let buffer_slot = slot.cast::<pg_sys::BufferHeapTupleTableSlot>();
        let tuple = &raw mut (*buffer_slot).base.tupdata;
        *tuple = found;
        (*slot).tts_tableOid = (*rel).rd_id;
        raw::ExecStorePinnedBufferHeapTuple(tuple, slot, page.buffer);
    }
}
