//! Combining, the session's side: leaving an update to the transaction that has the ticket, and doing those of others.
//!
//! Both sides are single-statement transactions that commit as soon as the statement has run, with statements of one form
//! (`pg/form.rs`). So the holder depends on nobody's patience while others depend on it, and computes nothing that their
//! own sessions would compute differently.

use super::session::{SESSION, memory};
use super::statement;
use crate::guc;
use crate::pg::catch::catching;
use crate::pg::evaluate::{Applied, Update};
use crate::pg::form::{Arguments, Form};
use crate::pg::plan::Target;
use crate::pg::raw::TimeoutId;
use crate::pg::relation::key_of;
use crate::pg::{frontend, raw, wait, xact};
use crate::tam::{callbacks, wal};
use hotrow::{Identity, MemberId, Slot, actor_of};
use pgrx::pg_sys::{self, TM_Result};
use std::cell::Cell;

/// Classes of errors that say something of the values and nothing of the server.
const ABOUT_DATA: [[u8; 2]; 3] = [*b"22", *b"23", *b"54"];

/// Updates that one transaction does for others at most.
const MOST: usize = 256;

/// The present statement, if its update may be done by another session or with those of others.
struct Present {
    query: Cell<usize>,
    identity: Cell<Option<Identity>>,
    form: Cell<Option<Form>>,
    /// The members whose updates are in our version of the row, and how many rows each changed.
    adopted: [Cell<(MemberId, u32)>; MOST],
    count: Cell<usize>,
    slot: Cell<Slot>,
    /// Another session has done and committed our update: what this transaction reports is final.
    is_done: Cell<bool>,
    /// The adopted have been told, and are to be woken.
    fulfilled: Cell<bool>,
}
// SAFETY: a backend has one thread.
unsafe impl Sync for Present {}

static PRESENT: Present = Present {
    query: Cell::new(0),
    identity: Cell::new(None),
    form: Cell::new(None),
    adopted: [const { Cell::new((0, 0)) }; MOST],
    count: Cell::new(0),
    slot: Cell::new(0),
    is_done: Cell::new(false),
    fulfilled: Cell::new(false),
};

/// Before a statement on a hot row starts: whether it may be combined with others. Then it queues when it is about to run,
/// with its permissions checked.
///
/// # Safety
/// `query` is about to be started and `target` is its target.
pub unsafe fn consider(query: *const pg_sys::QueryDesc, target: &Target) -> bool {
    // SAFETY: by the contract.
    unsafe {
        if !guc::COMBINE_UPDATES.get()
            || !guc::GROUP_LOCK.get()
            || SESSION.is_member()
            || !SESSION.has_locked_nothing()
            || xact::own_xid() != 0
            || !statement::is_whole_transaction()
            || !frontend::commits_next(query)
        {
            return false;
        }
        let Some(form) = Form::of_plan((*query).plannedstmt, target) else {
            return false;
        };
        PRESENT.query.set(query as usize);
        PRESENT.identity.set(Some(target.identity));
        PRESENT.form.set(Some(form));
        true
    }
}

/// The row of the statement that is about to run, if it was considered.
pub fn considered(query: usize) -> Option<Identity> {
    (PRESENT.query.get() == query)
        .then(|| PRESENT.identity.get())
        .flatten()
}

/// Packs the statement for others to execute. False if they could not.
///
/// # Safety
/// `query` was considered and has started.
pub unsafe fn pack(query: *mut pg_sys::QueryDesc) -> bool {
    // SAFETY: by the contract.
    unsafe {
        let (Some(form), Some(update)) = (PRESENT.form.get(), Update::of_query(query)) else {
            return false;
        };
        let relation = update.relation();
        let suits = key_of(relation).is_some_and(|key| key.can_combine(form.changed))
            && !wal::is_logically_logged(relation);
        if !suits {
            PRESENT.form.set(None);
            return false;
        }
        let Some((arguments, length)) = form.arguments(query) else {
            return false;
        };
        memory().parcels[wait::me() as usize].pack(
            form.digest(),
            form.bytes(),
            &arguments[..length],
        );
        true
    }
}

/// Another session has done the statement: what its portal and the statistics are told. No error may come any more, the
/// transaction must end well: interrupts wait until it has.
///
/// # Safety
/// `query` was packed, and has let its snapshot go.
pub unsafe fn report(query: *mut pg_sys::QueryDesc, rows: u32) {
    // SAFETY: the executor's counters, as standard_ExecutorRun leaves them; the result relation is open.
    unsafe {
        pg_sys::InterruptHoldoffCount += 1;
        PRESENT.is_done.set(true);
        let estate = (*query).estate;
        (*estate).es_processed = u64::from(rows);
        (*estate).es_total_processed = u64::from(rows);
        (*query).already_executed = true;
        if rows > 0
            && let Some(update) = Update::of_query(query)
        {
            // The update counts, the dead version that it would have left does not.
            raw::pgstat_count_heap_update(update.relation(), true, false);
            if pg_sys::pgstat_track_counts {
                raw::pgstat_update_heap_dead_tuples(update.relation(), 1);
            }
        }
    }
}

/// Whether another session has done the present statement.
pub fn is_done() -> bool {
    PRESENT.is_done.get()
}

/// Does the updates of waiters together with our own. None: nothing was done, and the caller goes on as if it had not
/// asked.
///
/// # Safety
/// The executor's arguments, for the row of that slot, whose ticket we have.
pub unsafe fn lead(call: callbacks::Update, slot: Slot, query: usize) -> Option<TM_Result::Type> {
    if query == 0 || PRESENT.query.get() != query {
        return None;
    }
    // SAFETY: by the contract; the statement runs.
    unsafe {
        let query = query as *mut pg_sys::QueryDesc;
        let form = PRESENT.form.get()?;
        let update = Update::of_query(query)?;
        if !update.has_new_row_in(call.slot) || !commits_early() {
            return None;
        }
        adopt(slot, &form);
        if PRESENT.count.get() == 0 {
            return None;
        }
        let copy = (*(*call.slot).tts_ops).copy_heap_tuple?;
        let own = copy(call.slot);
        apply_all(call, query, &form, update);
        // Nobody must wait for us while we wait for a row lock.
        let result = call.heap_at_once();
        if result == TM_Result::TM_Ok {
            raw::pfree(own.cast());
            PRESENT.slot.set(slot);
            return Some(result);
        }
        refuse_all();
        raw::ExecForceStoreHeapTuple(own, call.slot, true);
        (result != TM_Result::TM_BeingModified).then_some(result)
    }
}

/// Whether our commit goes on before the standbys have it: their silence must not keep others waiting.
fn commits_early() -> bool {
    // SAFETY: a plain read of a setting.
    guc::EARLY_VISIBILITY.get()
        || unsafe { pg_sys::synchronous_commit }
            <= pg_sys::SyncCommitLevel::SYNCHRONOUS_COMMIT_OFF as i32
}

fn adopt(slot: Slot, form: &Form) {
    let digest = form.digest();
    let most = (guc::GROUP_SIZE.get().max(1) as usize).min(MOST);
    PRESENT.count.set(0);
    memory().with_row(slot, |row, world| {
        row.adopt(
            world,
            most,
            |member| memory().parcels[actor_of(member) as usize].has_form(digest, form.bytes()),
            |member| {
                let n = PRESENT.count.get();
                PRESENT.adopted[n].set((member, 0));
                PRESENT.count.set(n + 1);
            },
        );
    });
}

/// Applies the adopted updates to the new row, one after the other. Those that fail are refused: their sessions will meet
/// the error by themselves.
unsafe fn apply_all(
    call: callbacks::Update,
    query: *mut pg_sys::QueryDesc,
    form: &Form,
    update: Update,
) {
    // SAFETY: by `lead`'s contract. Expressions with a form and constraints that were found portable leave nothing behind
    // when they fail with an error about data.
    unsafe {
        let arguments = Arguments::save(form, query);
        let mut kept = 0;
        for n in 0..PRESENT.count.get() {
            let (member, _) = PRESENT.adopted[n].get();
            let (bytes, length) = memory().parcels[actor_of(member) as usize].arguments();
            update.keep(call.slot);
            let mut applied = Applied::OtherRow;
            let failed = catching(
                || {
                    if arguments.put(form, query, &bytes[..length]).is_some() {
                        applied = update.apply();
                    }
                },
                |code| ABOUT_DATA.iter().any(|class| code.starts_with(class)),
            );
            if failed || applied != Applied::Changed {
                update.put_back(call.slot);
            }
            if failed || applied == Applied::OtherRow {
                refuse(member);
            } else {
                let rows = u32::from(applied == Applied::Changed);
                PRESENT.adopted[kept].set((member, rows));
                kept += 1;
            }
        }
        PRESENT.count.set(kept);
        arguments.restore(form, query);
    }
}

fn refuse(member: MemberId) {
    memory().members[member as usize].refuse();
    wait::wake(actor_of(member));
}

fn adopted() -> impl Iterator<Item = (MemberId, u32)> {
    PRESENT.adopted[..PRESENT.count.get()].iter().map(Cell::get)
}

fn refuse_all() {
    adopted().for_each(|(member, _)| refuse(member));
    PRESENT.count.set(0);
}

/// Our transaction has committed, its record ending at `end`: so have the updates that we did for others. They are woken
/// by `deliver`.
pub fn committed(end: u64) {
    if PRESENT.count.get() == 0 {
        return;
    }
    let (mut combined, mut changed) = (0, 0);
    for (member, rows) in adopted() {
        memory().members[member as usize].fulfil(rows, end);
        combined += 1;
        changed += u64::from(rows);
    }
    PRESENT.fulfilled.set(true);
    memory().totals.combined.add(combined);
    memory().with_row(PRESENT.slot.get(), |row, _| {
        row.counters.combined.add(combined);
        row.counters.updates.add(changed);
    });
}

/// Wakes those whose updates we have committed.
pub fn deliver() {
    if PRESENT.fulfilled.take() {
        adopted().for_each(|(member, _)| wait::wake(actor_of(member)));
        PRESENT.count.set(0);
    }
}

/// Our transaction has rolled back: nothing was done for anybody.
pub fn rolled_back() {
    refuse_all();
}

/// At the end of a statement.
pub fn end(query: usize) {
    if PRESENT.query.get() == query {
        PRESENT.query.set(0);
    }
}

/// At the end of a transaction. An ERROR has let go of interrupts by itself.
pub fn forget(committed: bool) {
    PRESENT.query.set(0);
    PRESENT.form.set(None);
    PRESENT.identity.set(None);
    if PRESENT.is_done.take() && committed {
        // SAFETY: gives back what `report` took. A cancel, or a timer that asks for one, was for the statement that has
        // succeeded; disable_statement_timeout() leaves one that has fired.
        unsafe {
            raw::disable_timeout(TimeoutId::StatementTimeout, false);
            raw::disable_timeout(TimeoutId::LockTimeout, false);
            pg_sys::QueryCancelPending = 0;
            pg_sys::InterruptHoldoffCount -= 1;
        }
    }
}
