//! UPDATE of a row that the transaction's snapshot shows in an older version.
//!
//! At READ COMMITTED the executor looks at the row's last version by itself (EvalPlanQual). At
//! REPEATABLE READ it refuses with 40001. For a statement before a late snapshot
//! (`late_snapshot.rs`) the same steps are done here (nodeModifyTable.c: ExecUpdate): lock the last
//! version, ask the statement's conditions of it, compute the new row, try again.

use super::late_snapshot;
use super::lock;
use super::repeatable;
use super::update;
use crate::pg::evaluate::{self, Applied};
use crate::tam::call::{Lock, Update};
use crate::tam::swap;
use pgrx::pg_sys::{self, LockWaitPolicy, TM_Result};

/// `tuple_update` of our routine.
///
/// # Safety
/// `call` has the executor's arguments, which are valid until this returns.
pub unsafe fn tuple_update(call: Update) -> TM_Result::Type {
    // SAFETY: the caller's arguments are the executor's.
    unsafe {
        let result = update::tuple_update(call);
        if result == TM_Result::TM_Updated && late_snapshot::is_allowed() {
            on_last_version(call)
        } else {
            result
        }
    }
}

/// The update of a row of which the executor has come with an older version.
///
/// A row that has been deleted, or that has another key by now, is left to the executor to refuse:
/// the late snapshot may show another row with that key.
unsafe fn on_last_version(call: Update) -> TM_Result::Type {
    // SAFETY: the caller's arguments are the executor's, and the statement that is allowed runs.
    // The old row's slot is a buffer heap slot, as table_slot_create makes it for heap tables.
    unsafe {
        let query = swap::usage(call.rel).map_or(0, |usage| usage.query);
        let of_query = query as *mut pg_sys::QueryDesc;
        let Some(update) = (late_snapshot::is_allowed_for(query)
            && repeatable::is_simple(of_query))
        .then(|| evaluate::Update::of_query(of_query))
        .flatten()
        .filter(|update| update.has_new_row_in(call.slot)) else {
            return TM_Result::TM_Updated;
        };
        late_snapshot::note_built();
        loop {
            let last = Lock {
                rel: call.rel,
                tid: call.otid,
                snapshot: call.snapshot,
                slot: update.old_row(),
                cid: call.cid,
                mode: *call.lockmode,
                policy: LockWaitPolicy::LockWaitBlock,
                flags: pg_sys::TUPLE_LOCK_FLAG_FIND_LAST_VERSION as u8,
                failure: call.failure,
            };
            let mut locked = lock::tuple_lock(last);
            loop {
                if locked != TM_Result::TM_Ok {
                    return locked;
                }
                match update.apply() {
                    Applied::Changed => break,
                    Applied::OtherRow => return TM_Result::TM_Updated,
                    // The late snapshot is to show the row as it is now, so nobody else may change
                    // it before.
                    Applied::Unchanged => match lock::lock_when_ended(last) {
                        Some(result) => locked = result,
                        None => return nothing_to_do(call),
                    },
                }
            }
            let result = update::tuple_update(call);
            if result != TM_Result::TM_Updated {
                return result;
            }
        }
    }
}

/// The answer on which the executor goes on with the next row: the statement has dealt with this
/// one already.
unsafe fn nothing_to_do(call: Update) -> TM_Result::Type {
    // SAFETY: the executor's result argument is valid.
    unsafe { (*call.failure).cmax = call.cid };
    TM_Result::TM_SelfModified
}
