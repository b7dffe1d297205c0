//! The arguments of the table access method's callbacks (access/tableam.h), each as one value, and
//! heap's own callbacks.

use super::swap;
use crate::pg::buffer::Page;
use crate::pg::{raw, tuple};
use pgrx::pg_sys::*;

/// The arguments of `tuple_update` (access/tableam.h), so that they travel as one.
#[derive(Clone, Copy)]
pub struct Update {
    pub rel: Relation,
    pub otid: ItemPointer,
    pub slot: *mut TupleTableSlot,
    pub cid: CommandId,
    pub snapshot: Snapshot,
    pub crosscheck: Snapshot,
    pub wait: bool,
    pub failure: *mut TM_FailureData,
    pub lockmode: *mut LockTupleMode::Type,
    pub indexes: *mut TU_UpdateIndexes::Type,
}

/// The arguments of `tuple_lock`.
#[derive(Clone, Copy)]
pub struct Lock {
    pub rel: Relation,
    pub tid: ItemPointer,
    pub snapshot: Snapshot,
    pub slot: *mut TupleTableSlot,
    pub cid: CommandId,
    pub mode: LockTupleMode::Type,
    pub policy: LockWaitPolicy::Type,
    pub flags: uint8,
    pub failure: *mut TM_FailureData,
}

/// The arguments of `tuple_delete`.
#[derive(Clone, Copy)]
pub struct Delete {
    pub rel: Relation,
    pub tid: ItemPointer,
    pub cid: CommandId,
    pub snapshot: Snapshot,
    pub crosscheck: Snapshot,
    pub wait: bool,
    pub failure: *mut TM_FailureData,
    pub changing_part: bool,
}

/// The arguments of `index_fetch_tuple`.
#[derive(Clone, Copy)]
pub struct Fetch {
    pub scan: *mut IndexFetchTableData,
    pub tid: ItemPointer,
    pub snapshot: Snapshot,
    pub slot: *mut TupleTableSlot,
    pub call_again: *mut bool,
    pub all_dead: *mut bool,
}

impl Fetch {
    /// Heap's own fetch.
    ///
    /// # Safety
    /// The arguments are those that the executor gave.
    #[inline]
    pub unsafe fn heap(self) -> bool {
        // SAFETY: heap's routine has every callback.
        unsafe {
            (swap::heap().index_fetch_tuple.unwrap_unchecked())(
                self.scan,
                self.tid,
                self.snapshot,
                self.slot,
                self.call_again,
                self.all_dead,
            )
        }
    }
}

impl Update {
    /// Heap's own update.
    ///
    /// # Safety
    /// The arguments are those that the executor gave, the address perhaps changed to another
    /// version of the row.
    pub unsafe fn heap(self) -> TM_Result::Type {
        // SAFETY: heap's routine has every callback.
        let result = unsafe {
            (swap::heap().tuple_update.unwrap_unchecked())(
                self.rel,
                self.otid,
                self.slot,
                self.cid,
                self.snapshot,
                self.crosscheck,
                self.wait,
                self.failure,
                self.lockmode,
                self.indexes,
            )
        };
        // SAFETY: heap has filled the failure in, if there was one.
        unsafe { tell_command(result, self.rel, self.otid, self.failure) };
        result
    }
}

impl Lock {
    /// Heap's own row lock.
    ///
    /// # Safety
    /// As for `Update::heap`.
    pub unsafe fn heap(self) -> TM_Result::Type {
        // Heap may change the address that it is given.
        // SAFETY: the caller's address; heap's routine has every callback.
        let (result, mut tid) = unsafe {
            let tid = *self.tid;
            let result = (swap::heap().tuple_lock.unwrap_unchecked())(
                self.rel,
                self.tid,
                self.snapshot,
                self.slot,
                self.cid,
                self.mode,
                self.policy,
                self.flags,
                self.failure,
            );
            (result, tid)
        };
        // SAFETY: heap has filled the failure in, if there was one.
        unsafe { tell_command(result, self.rel, &raw mut tid, self.failure) };
        result
    }
}

impl Delete {
    /// Heap's own delete.
    ///
    /// # Safety
    /// As for `Update::heap`.
    pub unsafe fn heap(self) -> TM_Result::Type {
        // SAFETY: heap's routine has every callback.
        let result = unsafe {
            (swap::heap().tuple_delete.unwrap_unchecked())(
                self.rel,
                self.tid,
                self.cid,
                self.snapshot,
                self.crosscheck,
                self.wait,
                self.failure,
                self.changing_part,
            )
        };
        // SAFETY: heap has filled the failure in, if there was one.
        unsafe { tell_command(result, self.rel, self.tid, self.failure) };
        result
    }
}

/// Our own transaction has changed the version before: says with which command. The version that
/// a group update has replaced has its inserter's command in that place (`group.rs`); ours stands
/// in the version that we have put there.
///
/// # Safety
/// An open relation, the address of the version, and what heap has said of it.
#[inline]
unsafe fn tell_command(
    result: TM_Result::Type,
    rel: Relation,
    tid: ItemPointer,
    failure: *mut TM_FailureData,
) {
    if result != TM_Result::TM_SelfModified {
        return;
    }
    // SAFETY: by the contract; the page is pinned and locked meanwhile. The command of a version is
    // asked of its inserter only.
    unsafe {
        let (old, new) = (tuple::pack(&*tid), tuple::pack(&(*failure).ctid));
        if new == old || new == 0 {
            return;
        }
        let page = Page::pin(rel, new);
        page.share();
        if let Some(found) = page.heap_tuple(rel, new)
            && raw::TransactionIdIsCurrentTransactionId(tuple::raw_xmin(found.t_data))
        {
            (*failure).cmax = raw::HeapTupleHeaderGetCmin(found.t_data);
        }
        page.release();
    }
}
