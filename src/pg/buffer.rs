//! A heap page, pinned and locked for a moment.

use super::raw;
use super::tuple;
use pgrx::pg_sys;

/// A pinned page. Not released by a destructor: an ERROR would jump over it, and PostgreSQL's resource owner releases
/// pins and locks then. Call `release`.
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
        // SAFETY: by the contract.
        let buffer = unsafe { raw::ReadBuffer(rel, tuple::block_of(packed_tid)) };
        Page { buffer }
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

    /// The tuple at that address, if the line pointer is in use. The content is locked.
    pub fn tuple(self, packed_tid: u64) -> Option<(pg_sys::HeapTupleHeader, u32)> {
        // SAFETY: pinned and locked by the caller.
        unsafe { tuple::tuple_at(self.bytes(), tuple::offset_of(packed_tid)) }
    }

    /// The same as a `HeapTupleData` of that relation.
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
            // SAFETY: by the contract.
            t_tableOid: unsafe { (*rel).rd_id },
            t_data: header,
        })
    }
}
