//! Followers and logical replication (`wal_level = logical`).
//!
//! A walsender that holds more than `logical_decoding_work_mem` of changes streams those of the
//! largest running transaction. A subscription with `streaming = parallel` applies them before it
//! hears of the commit. A follower's update of the hot row could come there before its
//! predecessor's commit. Then the predecessor would wait for the row, and the follower for the
//! predecessor's commit: a deadlock, which comes again at each new start. So a follower stays too
//! small to be the largest. A transaction that has written more than its part does not follow, and
//! a follower lets its predecessors end before it writes more.

use super::session::SESSION;
use crate::pg::local::Local;
use crate::pg::plan::{self, Target};
use crate::pg::raw;
use pgrx::pg_sys::{self, CmdType};
use std::cell::Cell;

/// WAL that this process had written when its last transaction ended, in bytes.
static BEFORE: Local<Cell<u64>> = Local::new(Cell::new(0));

/// Changes take more memory in a walsender than in WAL (reorderbuffer.c: ReorderBufferChangeSize),
/// at most by this factor.
const GROWTH: u64 = 4;

fn written() -> u64 {
    // SAFETY: a counter of this process (executor/instrument.h).
    unsafe { pg_sys::pgWalUsage.wal_bytes }
}

fn is_decoded() -> bool {
    // SAFETY: a plain read of a setting.
    unsafe { pg_sys::wal_level >= pg_sys::WalLevel::WAL_LEVEL_LOGICAL as i32 }
}

/// What each of as many transactions as there may be can write without any of them being streamed.
fn part() -> u64 {
    // SAFETY: plain reads of settings; the first is in kilobytes.
    unsafe {
        let memory = 1024 * pg_sys::logical_decoding_work_mem.max(0) as u64;
        let transactions = (pg_sys::MaxBackends + raw::max_prepared_xacts).max(1) as u64;
        memory / transactions / GROWTH
    }
}

/// Whether the transaction has written so much that a walsender might stream it before it commits.
pub fn is_large() -> bool {
    is_decoded() && written() - BEFORE.get() > part()
}

/// Whether predecessors must end before a statement of their follower, because the transaction is
/// large, or the statement could make it so.
///
/// # Safety
/// The statement is about to be started, and `target` is its target.
pub unsafe fn must_wait(query: *const pg_sys::QueryDesc, target: Option<&Target>) -> bool {
    is_decoded()
        && SESSION.all().any(|(_, m)| m.depends())
        // SAFETY: the caller's statement is about to be started, and `target` is its target.
        && unsafe { writes(query) && (is_large() || !writes_one_row(query, target)) }
}

unsafe fn writes(query: *const pg_sys::QueryDesc) -> bool {
    // SAFETY: as in `must_wait`.
    unsafe { (*query).operation != CmdType::CMD_SELECT || (*(*query).plannedstmt).hasModifyingCTE }
}

unsafe fn writes_one_row(query: *const pg_sys::QueryDesc, target: Option<&Target>) -> bool {
    // SAFETY: as in `must_wait`.
    unsafe {
        !(*(*query).plannedstmt).hasModifyingCTE
            && match (*query).operation {
                CmdType::CMD_INSERT => plan::has_one_source_row((*query).plannedstmt),
                CmdType::CMD_UPDATE => target.is_some_and(Target::is_only),
                _ => false,
            }
    }
}

/// At the end of a transaction.
#[inline]
pub fn forget() {
    BEFORE.set(written());
}
