//! Combining, the waiter's side: leaving an update to the transaction that has the ticket, and
//! reporting what it has done.

use super::errors;
use super::session::{SESSION, memory};
use super::settings;
use super::whole;
use crate::pg::column_triggers::{self, program::Program};
use crate::pg::evaluate::Update;
use crate::pg::form::{self, Form};
use crate::pg::local::Local;
use crate::pg::of_transaction::OfTransaction;
use crate::pg::plan::Target;
use crate::pg::raw::TimeoutId;
use crate::pg::relation::{key_of, key_of_locked};
use crate::pg::{frontend, process, raw, xact};
use crate::shared::guc;
use crate::tam::wal;
use pgrx::pg_sys::{self, Oid};
use std::cell::Cell;
use std::ptr;

/// The present statement, if its update may be done by another session or with those of others.
pub struct Present {
    query: OfTransaction<usize>,
    /// What is still to be found out before it has a form: whether it comes to no other row.
    target: Cell<Option<Target>>,
    /// See `form_of`.
    form: Cell<Option<Form>>,
    /// What the table's BEFORE triggers do, in the statement's memory; null for a table without.
    pub triggers: Cell<*mut Program>,
    /// Another session has done and committed our update: what this transaction reports is final.
    is_done: OfTransaction<bool>,
    /// Interrupts are held since `report`, until the COMMIT.
    is_held: OfTransaction<bool>,
    /// The digest of a form whose row was too long for the way back, and until when to remember it.
    pub too_long: Cell<(u64, u64)>,
}

pub static PRESENT: Local<Present> = Local::new(Present {
    query: OfTransaction::new(0),
    target: Cell::new(None),
    form: Cell::new(None),
    triggers: Cell::new(ptr::null_mut()),
    is_done: OfTransaction::new(false),
    is_held: OfTransaction::new(false),
    too_long: Cell::new((0, 0)),
});

/// Before a statement on a hot row starts: notes it if it may be combined with others. The rest is
/// found out when somebody waits for the row (`form_of`), but for what must be known by now: what
/// triggers do, and constants that are to be parameters.
///
/// # Safety
/// `query` is about to be started and `target` is its target. Both stay until `end` or `forget`.
pub unsafe fn consider(query: *mut pg_sys::QueryDesc, target: Target) {
    let relation = Oid::from(target.identity.relation);
    // SAFETY: the caller's query is about to be started, so it has a plan, and its tables are
    // locked.
    unsafe {
        if !guc::is_on(&guc::COMBINE_UPDATES)
            || !settings::of(relation).follow()
            || SESSION.is_member()
            || !SESSION.has_locked_nothing()
            || xact::own_xid() != 0
            || xact::is_replay()
            || !whole::is(query)
            || !frontend::commits_next(query)
        {
            return;
        }
        let mut triggers = ptr::null_mut();
        let fires = key_of_locked(relation).is_some_and(|key| key.has_row_triggers());
        let can_wait = !fires && !form::lift::applies();
        if !can_wait {
            if !target.is_only()
                && !target.is_only_beside_triggers(|rel, updated| {
                    triggers = column_triggers::program(rel, updated)?;
                    Some((*triggers).columns)
                })
            {
                return;
            }
            form::lift::constants(query);
        }
        PRESENT.query.set(query as usize);
        PRESENT.target.set(can_wait.then_some(target));
        PRESENT.form.set(None);
        PRESENT.triggers.set(triggers);
    }
}

/// The form of the present statement, if that is `query` and it can be combined with others.
///
/// # Safety
/// `query` has started.
pub unsafe fn form_of(query: *mut pg_sys::QueryDesc) -> Option<Form> {
    if PRESENT.query.get() != query as usize {
        return None;
    }
    if PRESENT.form.get().is_none() {
        // SAFETY: by the contract.
        match unsafe { find_form(query) } {
            None => PRESENT.query.clear(),
            form => PRESENT.form.set(form),
        }
    }
    PRESENT.form.get()
}

/// # Safety
/// `query` is the present statement, and has started.
unsafe fn find_form(query: *mut pg_sys::QueryDesc) -> Option<Form> {
    if PRESENT.target.take().is_some_and(|one| !one.is_only()) {
        return None;
    }
    // SAFETY: by the contract; it comes to no other row, and its table is open.
    unsafe {
        let form = Form::of_plan((*query).plannedstmt, PRESENT.triggers.get())?;
        form.arguments(query)?;
        let relation = Update::of_query(query)?.relation();
        let combines = key_of(relation)?.can_combine(form.changed)
            && !wal::is_logically_logged(relation)
            && !(form.returns() && has_been_too_long(&form));
        combines.then_some(form)
    }
}

/// Whether a row of that form was too long for the way back just now: then this one may be, too.
fn has_been_too_long(form: &Form) -> bool {
    let (digest, until) = PRESENT.too_long.get();
    digest == form.digest() && process::now() < until
}

/// Packs the statement for others to execute. False if it cannot be combined.
///
/// # Safety
/// `query` has started.
pub unsafe fn pack(query: *mut pg_sys::QueryDesc) -> bool {
    // SAFETY: by the contract.
    unsafe {
        let packed = form_of(query).and_then(|form| Some((form, form.arguments(query)?)));
        if let Some((form, arguments)) = &packed {
            memory().combine_requests[process::me() as usize].pack(
                form.digest(),
                form.bytes(),
                arguments.slice(),
            );
        }
        packed.is_some()
    }
}

/// Before our own run, after we may have waited: functions of triggers may have been replaced.
///
/// # Safety
/// The statement is about to run.
pub unsafe fn hear_of_changes() {
    if !PRESENT.triggers.get().is_null() {
        // SAFETY: as whenever a statement opens another table.
        unsafe { raw::AcceptInvalidationMessages() };
    }
}

/// Another session has done the statement. Tells the portal and the statistics of it, and sends the
/// row that it returns. A cancel or a timer that fires too late is forgotten, as it is when it
/// comes just after a commit. None may come until the transaction has ended.
///
/// # Safety
/// `query` was packed, and has let its snapshot go.
pub unsafe fn report(query: *mut pg_sys::QueryDesc, rows: u32) {
    // SAFETY: the executor's counters, as standard_ExecutorRun leaves them; the result relation is
    // open; `forget` gives back the holdoff.
    unsafe {
        pg_sys::QueryCancelHoldoffCount += 1;
        PRESENT.is_done.set(true);
        raw::disable_timeout(TimeoutId::StatementTimeout, false);
        raw::disable_timeout(TimeoutId::LockTimeout, false);
        pg_sys::QueryCancelPending = 0;
        let estate = (*query).estate;
        (*estate).es_processed = u64::from(rows);
        (*estate).es_total_processed = u64::from(rows);
        (*query).already_executed = true;
        let update = Update::of_query(query);
        if let (Some(update), Some(form)) = (update, PRESENT.form.get())
            && form.returns()
        {
            send(query, update, &form, rows);
        } else if raw::IsTransactionBlock() {
            // The COMMIT of a block is a statement of its own: nobody may end the session before.
            // A large row, for a client that does not read, could hold it for ever.
            pg_sys::InterruptHoldoffCount += 1;
            PRESENT.is_held.set(true);
        }
        if rows > 0
            && let Some(update) = update
        {
            // The update counts, the dead version that it would have left does not.
            raw::pgstat_count_heap_update(update.relation(), true, false);
            if pg_sys::pgstat_track_counts {
                raw::pgstat_update_heap_dead_tuples(update.relation(), 1);
            }
        }
    }
}

/// Sends the row that the statement returns, if it changed one, where the executor would
/// (execMain.c: standard_ExecutorRun). Nothing here depends on the row, so that it does not fail:
/// the update is committed.
unsafe fn send(query: *mut pg_sys::QueryDesc, update: Update, form: &Form, rows: u32) {
    // SAFETY: as for `report`; a receiver has all its operations, and slots have theirs.
    unsafe {
        let to = (*query).dest;
        if let Some(start_up) = (*to).rStartup {
            start_up(to, (*query).operation as i32, (*query).tupDesc);
        }
        if rows > 0
            && let Some(row) = update.returned_slot()
            && let Some(clear) = (*(*row).tts_ops).clear
        {
            clear(row);
            let (bytes, length) = memory().combine_requests[process::me() as usize].result();
            if !form.unpack_returned(&bytes[..length], row) {
                errors::RETURNED_NOTHING.raise();
            }
            raw::ExecStoreVirtualTuple(row);
            if let Some(receive) = (*to).receiveSlot {
                receive(row, to);
            }
        }
        if let Some(shut_down) = (*to).rShutdown {
            shut_down(to);
        }
    }
}

/// Whether another session has done the present statement.
#[inline]
pub fn is_done() -> bool {
    PRESENT.is_done.get()
}

/// At the end of a statement.
#[inline]
pub fn end(query: usize) {
    if PRESENT.query.get() == query {
        PRESENT.query.clear();
        PRESENT.target.set(None);
        PRESENT.triggers.set(ptr::null_mut());
    }
}

/// At the end of a transaction. An ERROR has let go of interrupts by itself.
#[inline]
pub fn forget(committed: bool) {
    PRESENT.query.clear();
    PRESENT.target.set(None);
    PRESENT.form.set(None);
    PRESENT.triggers.set(ptr::null_mut());
    // SAFETY: gives back what `report` took; a cancel was for the statement, which has succeeded.
    unsafe {
        if PRESENT.is_done.take() && committed && pg_sys::QueryCancelHoldoffCount > 0 {
            pg_sys::QueryCancelHoldoffCount -= 1;
            pg_sys::QueryCancelPending = 0;
        }
        if PRESENT.is_held.take() && committed && pg_sys::InterruptHoldoffCount > 0 {
            pg_sys::InterruptHoldoffCount -= 1;
        }
    }
}
