//! Errors of statements that have run beside running predecessors.
//!
//! Such a statement has a snapshot from before the predecessors' end. An UPDATE by key builds on
//! the last version of its row; but a CHECK may fail before that, for the version that the snapshot
//! shows. An INSERT reads nothing; but a unique index says what stands there before the
//! predecessors have ended. In stock PostgreSQL the predecessors would have ended before the
//! statement began. So when an error has waited for them, it is asked whether what it comes of is
//! still so. If not, or if that is not known, the transaction fails with 40001. It must not commit
//! then, even if it catches that: what it does instead would come of an error that nobody else saw.

use super::errors;
use super::handover;
use super::predecessors;
use super::session::{SESSION, relation_of};
use super::settings;
use super::twice;
use crate::pg::catch::Code;
use crate::pg::{nodes, plan, tuple};
use crate::shared::guc::FollowerReads;
use hotrow::{Membership, Trouble};
use pgrx::pg_sys::{self, NodeTag};
use std::ptr;

/// Whether the statement, which has failed, has been offered a predecessor's version, or has built
/// on one: what it has looked at is the last one then.
///
/// # Safety
/// The query has started and not ended.
pub unsafe fn has_last(query: *const pg_sys::QueryDesc) -> bool {
    // SAFETY: by the contract; its executor state is null or valid.
    let command = unsafe {
        let estate = (*query).estate;
        (!estate.is_null()).then(|| (*estate).es_output_cid)
    };
    let is_offered = |m: &Membership| m.is_unused_by(query as usize) && m.offer().is_some();
    let is_built_on =
        |m: &Membership| m.has_version() && m.seen().map(|seen| seen.command) == command;
    SESSION
        .all()
        .any(|(_, m)| is_offered(&m) || command.is_some() && is_built_on(&m))
}

/// Whether an index has found a row twice (unique_violation, exclusion_violation). It looks at what
/// stands there now, whatever the statement itself builds on.
pub fn is_twice(code: Code) -> bool {
    code == *b"23505" || code == *b"23P01"
}

/// The statement has failed, and its predecessors have ended: 40001 if it might not fail now.
///
/// # Safety
/// The query has started and not ended, and holds no lock of a page.
pub unsafe fn refuse(query: *const pg_sys::QueryDesc, code: Code) {
    let waits =
        |m: &Membership| settings::of(relation_of(m)).follower_reads() != FollowerReads::Immediate;
    // SAFETY: by the contract; its snapshot is null or valid.
    unsafe {
        let snapshot = (*query).snapshot;
        let (membership, is_true) = if let Some(stale) = predecessors::stale(snapshot).find(waits) {
            (stale, is_still_so(query, code))
        } else if is_twice(code)
            && let Some(unseen) = predecessors::unseen_by(snapshot).find(waits)
        {
            // The statement itself follows: it has computed the row from the last versions.
            (unseen, twice::is_there_still())
        } else {
            return;
        };
        if is_true {
            return;
        }
        handover::note_trouble(membership.slot(), Trouble::OwnRow);
    }
    SESSION.refuse(&errors::STALE_SNAPSHOT);
}

/// # Safety
/// As for `refuse`.
unsafe fn is_still_so(query: *const pg_sys::QueryDesc, code: Code) -> bool {
    // SAFETY: by the contract; the states are read as what their tags say.
    unsafe {
        let top = (*query).planstate;
        match nodes::tag(top) {
            NodeTag::T_ModifyTableState => {
                let state = top.cast::<pg_sys::ModifyTableState>();
                let builds_on_last = match (*state).operation {
                    pg_sys::CmdType::CMD_INSERT => plan::reads_nothing((*query).plannedstmt),
                    pg_sys::CmdType::CMD_UPDATE => {
                        let old = (*(*state).resultRelInfo).ri_oldTupleSlot;
                        looked_at_last(&(*state).mt_epqstate, old, (*top).lefttree)
                    }
                    _ => false,
                };
                builds_on_last && (!is_twice(code) || twice::is_there_still())
            }
            NodeTag::T_LockRowsState => {
                let state = top.cast::<pg_sys::LockRowsState>();
                looked_at_last(&(*state).lr_epqstate, ptr::null_mut(), (*top).lefttree)
            }
            // What it reads is validated (reads.rs); or it has not come to read.
            _ => true,
        }
    }
}

/// Whether the version that was looked at last, if any was, is the row's last one. That is one that
/// the executor has locked, and checks; or the one of which it has made a new one; or else the one
/// with which the scan by key has come.
///
/// # Safety
/// The states of a statement that has started and not ended, and its slot for the old version, or
/// null.
unsafe fn looked_at_last(
    epq: &pg_sys::EPQState,
    old: *mut pg_sys::TupleTableSlot,
    scan: *const pg_sys::PlanState,
) -> bool {
    // SAFETY: by the contract; the states are read as what their tags say.
    unsafe {
        if nodes::tag(scan) != NodeTag::T_IndexScanState {
            return false;
        }
        let scan = &(*scan.cast::<pg_sys::IndexScanState>()).ss;
        let place = (*scan.ps.plan.cast::<pg_sys::Scan>()).scanrelid as usize - 1;
        let newer = (!epq.relsubs_slot.is_null()).then(|| *epq.relsubs_slot.add(place));
        let slots = newer.into_iter().chain([old, scan.ss_ScanTupleSlot]);
        let is_full = |slot: &*mut pg_sys::TupleTableSlot| {
            !slot.is_null() && u32::from((**slot).tts_flags) & pg_sys::TTS_FLAG_EMPTY == 0
        };
        let mut slots = slots.filter(is_full);
        slots.next().is_none_or(|slot| {
            twice::is_live(
                scan.ss_currentRelation,
                tuple::pack(&(*slot).tts_tid),
                false,
            )
        })
    }
}
