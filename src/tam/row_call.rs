//! Heap's calls on a version of a row, with and without the wait for those who hold the row.

use super::call::{Delete, Lock, Update};
use super::group;
use crate::pg::{process, raw, tuple};
use pgrx::pg_sys::{
    self, Buffer, CommandId, HeapTupleData, LockTupleMode, LockWaitPolicy, Relation,
    TM_FailureData, TM_Result, XLTW_Oper,
};

/// What keeps a call of heap's from being done at once.
pub struct Blocked {
    /// The version at which heap would wait.
    pub version: u64,
    /// The row lock for which it would wait there.
    pub mode: LockTupleMode::Type,
}

/// A call of heap's on a version of a row: it waits for those who hold the row.
pub trait RowCall: Copy {
    /// What messages about a wait say that it is for.
    const OPERATION: XLTW_Oper::Type;

    /// Whether heap has the row beside those who hold it with a lock that lets it.
    const GOES_BESIDE_OTHERS: bool;

    /// The table.
    fn relation(self) -> Relation;

    /// The version, and a row lock with which we would have it whatever the call comes to want.
    ///
    /// # Safety
    /// As for `waiting`.
    unsafe fn wants(self) -> (u64, LockTupleMode::Type);

    /// Whether the caller wants heap to wait.
    fn waits(self) -> bool;

    /// The call as it is.
    ///
    /// # Safety
    /// The arguments are those that the executor gave, the address perhaps changed to another
    /// version of the row.
    unsafe fn waiting(self) -> TM_Result::Type;

    /// The call, without a wait: an error if it would have had to.
    ///
    /// # Safety
    /// As for `waiting`.
    unsafe fn at_once(self) -> Result<TM_Result::Type, Blocked>;
}

impl RowCall for Update {
    const OPERATION: XLTW_Oper::Type = XLTW_Oper::XLTW_Update;
    const GOES_BESIDE_OTHERS: bool = true;

    fn relation(self) -> Relation {
        self.rel
    }

    unsafe fn wants(self) -> (u64, LockTupleMode::Type) {
        // SAFETY: by the contract.
        unsafe { (tuple::pack(&*self.otid), LockTupleMode::LockTupleExclusive) }
    }

    fn waits(self) -> bool {
        self.wait
    }

    unsafe fn waiting(self) -> TM_Result::Type {
        // SAFETY: by the contract.
        unsafe { self.heap() }
    }

    unsafe fn at_once(self) -> Result<TM_Result::Type, Blocked> {
        // SAFETY: by the contract. heap_update stores the new version's address in the slot, which
        // may be where the executor keeps the old one's.
        unsafe {
            let mut tid = *self.otid;
            let version = tuple::pack(&tid);
            if process::has_assertions() {
                // heap_update asserts that it may wait (heapam.c).
                let mode = self.row_lock(version);
                let blocked = Blocked { version, mode };
                return match lock_at_once(self.rel, &blocked, self.cid) {
                    true => Ok(self.heap()),
                    false => Err(blocked),
                };
            }
            let result = Update {
                wait: false,
                otid: &raw mut tid,
                ..self
            }
            .heap();
            if result != TM_Result::TM_BeingModified {
                return Ok(result);
            }
            *self.otid = tuple::unpack(version);
            let mode = *self.lockmode;
            Err(Blocked { version, mode })
        }
    }
}

impl Update {
    /// The row lock that heap_update takes on that version.
    ///
    /// # Safety
    /// As for `waiting`.
    unsafe fn row_lock(self, version: u64) -> LockTupleMode::Type {
        // SAFETY: by the contract.
        unsafe {
            let mut free = false;
            let new = raw::ExecFetchSlotHeapTuple(self.slot, true, &mut free);
            let mode = match group::has_keys_of(self.rel, version, &mut *new) {
                true => LockTupleMode::LockTupleNoKeyExclusive,
                false => LockTupleMode::LockTupleExclusive,
            };
            if free {
                raw::pfree(new.cast());
            }
            mode
        }
    }
}

impl RowCall for Delete {
    const OPERATION: XLTW_Oper::Type = XLTW_Oper::XLTW_Delete;
    const GOES_BESIDE_OTHERS: bool = false;

    fn relation(self) -> Relation {
        self.rel
    }

    unsafe fn wants(self) -> (u64, LockTupleMode::Type) {
        // SAFETY: by the contract.
        unsafe { (tuple::pack(&*self.tid), LockTupleMode::LockTupleExclusive) }
    }

    fn waits(self) -> bool {
        self.wait
    }

    unsafe fn waiting(self) -> TM_Result::Type {
        // SAFETY: by the contract.
        unsafe { self.heap() }
    }

    unsafe fn at_once(self) -> Result<TM_Result::Type, Blocked> {
        // SAFETY: by the contract.
        unsafe {
            match (Delete {
                wait: false,
                ..self
            })
            .heap()
            {
                TM_Result::TM_BeingModified => Err(Blocked {
                    version: tuple::pack(&*self.tid),
                    mode: LockTupleMode::LockTupleExclusive,
                }),
                result => Ok(result),
            }
        }
    }
}

impl RowCall for Lock {
    const OPERATION: XLTW_Oper::Type = XLTW_Oper::XLTW_Lock;
    const GOES_BESIDE_OTHERS: bool = false;

    fn relation(self) -> Relation {
        self.rel
    }

    unsafe fn wants(self) -> (u64, LockTupleMode::Type) {
        // SAFETY: by the contract.
        unsafe { (tuple::pack(&*self.tid), self.mode) }
    }

    fn waits(self) -> bool {
        self.policy == LockWaitPolicy::LockWaitBlock
    }

    unsafe fn waiting(self) -> TM_Result::Type {
        // SAFETY: by the contract.
        unsafe { self.heap() }
    }

    unsafe fn at_once(self) -> Result<TM_Result::Type, Blocked> {
        // SAFETY: by the contract.
        unsafe {
            let first = *self.tid;
            let result = Lock {
                policy: LockWaitPolicy::LockWaitSkip,
                ..self
            }
            .heap();
            if result != TM_Result::TM_WouldBlock {
                return Ok(result);
            }
            let version = tuple::pack(&*self.tid);
            *self.tid = first;
            // At later versions it waits for every update (heapam_handler.c: heapam_tuple_lock).
            let mode = match version == tuple::pack(&first) {
                true => self.mode,
                false => self.mode.max(LockTupleMode::LockTupleShare),
            };
            Err(Blocked { version, mode })
        }
    }
}

/// Locks a version without waiting. False if it would have had to.
///
/// # Safety
/// `rel` is open, and a scan has found the version.
unsafe fn lock_at_once(rel: Relation, blocked: &Blocked, cid: CommandId) -> bool {
    // SAFETY: by the contract; what heap_lock_tuple pins is let go.
    unsafe {
        let mut found = HeapTupleData {
            t_self: tuple::unpack(blocked.version),
            ..Default::default()
        };
        let mut buffer = pg_sys::InvalidBuffer as Buffer;
        let mut failure = TM_FailureData::default();
        let result = raw::heap_lock_tuple(
            rel,
            &raw mut found,
            cid,
            blocked.mode,
            LockWaitPolicy::LockWaitSkip,
            false,
            &raw mut buffer,
            &raw mut failure,
        );
        raw::ReleaseBuffer(buffer);
        result != TM_Result::TM_WouldBlock
    }
}
