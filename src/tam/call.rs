//! The arguments of the table access method's callbacks (access/tableam.h), each as one value, and
//! heap's own callbacks.

use super::swap;
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
        unsafe {
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
        }
    }
}

impl Lock {
    /// Heap's own row lock.
    ///
    /// # Safety
    /// As for `Update::heap`.
    pub unsafe fn heap(self) -> TM_Result::Type {
        // SAFETY: heap's routine has every callback.
        unsafe {
            (swap::heap().tuple_lock.unwrap_unchecked())(
                self.rel,
                self.tid,
                self.snapshot,
                self.slot,
                self.cid,
                self.mode,
                self.policy,
                self.flags,
                self.failure,
            )
        }
    }
}

impl Delete {
    /// Heap's own delete.
    ///
    /// # Safety
    /// As for `Update::heap`.
    pub unsafe fn heap(self) -> TM_Result::Type {
        // SAFETY: heap's routine has every callback.
        unsafe {
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
        }
    }
}
