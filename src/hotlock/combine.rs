//! Combining, the session's side: leaving an update to the transaction that has the ticket, and
//! doing those of others.
//!
//! Both sides are single-statement transactions that commit as soon as the statement has run, with
//! statements of one form (`pg/form`): the holder computes nothing that the waiters' own sessions
//! would compute differently. A waiter that is cancelled, terminated or timed out goes its own way
//! until the holder is about to commit; the holder, whose version has that update in it, then fails
//! with 40001.

use super::detect;
use super::errors;
use super::session::{SESSION, memory};
use super::settings;
use super::whole;
use crate::pg::catch::catching;
use crate::pg::evaluate::{Applied, Update};
use crate::pg::form::{self, Form};
use crate::pg::local::Local;
use crate::pg::plan::Target;
use crate::pg::raw::TimeoutId;
use crate::pg::relation::key_of;
use crate::pg::{frontend, process, raw, tuple, xact};
use crate::shared::guc;
use crate::shared::stop;
use crate::shared::wait;
use crate::tam::{call, wal};
use hotrow::{ARGUMENT_BYTES, Adoption, Identity, RESULT_BYTES, Slot, actor_of};
use pgrx::pg_sys::{self, LockTupleMode, Oid, TM_Result};
use std::cell::Cell;

/// Classes of errors that say something of the server or the session, and nothing of the values:
/// resources, prerequisites, intervention, system, internal.
const NOT_ABOUT_DATA: [[u8; 2]; 5] = [*b"53", *b"55", *b"57", *b"58", *b"XX"];

/// How long a transaction works for others, in microseconds; one statement of theirs may make it a
/// little longer.
const PATIENCE_US: u64 = 5000;

/// How long it is remembered that a statement returned more than can be passed on, in microseconds.
const REMEMBER_US: u64 = 1_000_000;

/// Updates that one transaction does for others at most.
const MOST: usize = 256;

/// An update that we do for another session.
#[derive(Clone, Copy)]
struct Adopted {
    adoption: Adoption,
    /// Rows that it changed.
    rows: u32,
    /// Its arguments.
    arguments: Span,
    /// The row that it returns, if it returns rows and has changed one.
    returned: Span,
}

/// The present statement, if its update may be done by another session or with those of others.
struct Present {
    query: Cell<usize>,
    identity: Cell<Option<Identity>>,
    form: Cell<Option<Form>>,
    /// What we have adopted and not refused: those before `count`, but for the `None`s.
    adopted: [Cell<Option<Adopted>>; MOST],
    count: Cell<usize>,
    slot: Cell<Slot>,
    /// The table's changes are in WAL.
    is_logged: Cell<bool>,
    /// Another session has done and committed our update: what this transaction reports is final.
    is_done: Cell<bool>,
    /// Interrupts are held since `report`, until the COMMIT.
    is_held: Cell<bool>,
    /// The adopted have been told, and are to be woken.
    fulfilled: Cell<bool>,
    /// The digest of a form whose row was too long for the way back, and until when to remember it.
    too_long: Cell<(u64, u64)>,
}

static PRESENT: Local<Present> = Local::new(Present {
    query: Cell::new(0),
    identity: Cell::new(None),
    form: Cell::new(None),
    adopted: [const { Cell::new(None) }; MOST],
    count: Cell::new(0),
    slot: Cell::new(0),
    is_logged: Cell::new(true),
    is_done: Cell::new(false),
    is_held: Cell::new(false),
    fulfilled: Cell::new(false),
    too_long: Cell::new((0, 0)),
});

/// Before a statement on a hot row starts: whether it may be combined with others. Its constants
/// are parameters afterwards. Then it queues when it is about to run, with its permissions checked.
///
/// # Safety
/// `query` is about to be started and `target` is its target.
pub unsafe fn consider(query: *mut pg_sys::QueryDesc, target: &Target) -> bool {
    // SAFETY: by the contract.
    unsafe {
        if !guc::COMBINE_UPDATES.get()
            || !settings::of(Oid::from(target.identity.relation)).follow()
            || SESSION.is_member()
            || !SESSION.has_locked_nothing()
            || xact::own_xid() != 0
            || !whole::is(query)
            || !frontend::commits_next(query)
            || !target.is_only()
        {
            return false;
        }
        form::lift::constants(query);
        let Some(form) = Form::of_plan((*query).plannedstmt) else {
            return false;
        };
        if form.returns() && has_been_too_long(&form) {
            return false;
        }
        PRESENT.query.set(query as usize);
        PRESENT.identity.set(Some(target.identity));
        PRESENT.form.set(Some(form));
        true
    }
}

/// Whether a row of that form was too long for the way back just now: then this one may be, too.
fn has_been_too_long(form: &Form) -> bool {
    let (digest, until) = PRESENT.too_long.get();
    digest == form.digest() && process::now() < until
}

/// The row of the statement that is about to run, if it was considered.
pub fn considered(query: usize) -> Option<Identity> {
    (PRESENT.query.get() == query)
        .then(|| PRESENT.identity.get())
        .flatten()
}

/// Packs the statement for others to execute. False if it cannot be combined after all.
///
/// # Safety
/// `query` was considered and has started.
pub unsafe fn pack(query: *mut pg_sys::QueryDesc) -> bool {
    // SAFETY: by the contract.
    unsafe {
        let packed = (|| {
            let (form, update) = (PRESENT.form.get()?, Update::of_query(query)?);
            let relation = update.relation();
            if !key_of(relation)?.can_combine(form.changed) || wal::is_logically_logged(relation) {
                return None;
            }
            let arguments = form.arguments(query)?;
            memory().combine_requests[process::me() as usize].pack(
                form.digest(),
                form.bytes(),
                arguments.slice(),
            );
            Some(())
        })();
        if packed.is_none() {
            PRESENT.query.set(0);
        }
        packed.is_some()
    }
}

/// Another session has done the statement: what its portal and the statistics are told, and the row
/// that it returns. A cancel or a timer that fires too late is forgotten, as it is when it comes
/// just after a commit, and none may come until the transaction has ended.
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
pub fn is_done() -> bool {
    PRESENT.is_done.get()
}

/// Does the updates of waiters together with our own. None: nothing was done, and the caller goes
/// on as if it had not asked.
///
/// # Safety
/// The executor's arguments, for the row of that slot, whose ticket we have.
pub unsafe fn lead(call: call::Update, slot: Slot, query: usize) -> Option<TM_Result::Type> {
    if query == 0 || PRESENT.query.get() != query {
        return None;
    }
    // SAFETY: by the contract; the statement runs.
    unsafe {
        let query = query as *mut pg_sys::QueryDesc;
        let form = PRESENT.form.get()?;
        let update = Update::of_query(query)?;
        if !update.has_new_row_in(call.slot)
            || !update.is_small(call.slot)
            || !update.replaces_small()
            || form.returns() && update.changes_summarized()
            || is_fatal_to_fail()
            || !commits_early()
            || is_held(call)
        {
            return None;
        }
        let own = update.copy_of(call.slot)?;
        adopt((*call.rel).rd_id, slot, &form);
        if PRESENT.count.get() == 0 {
            raw::pfree(own.cast());
            return None;
        }
        PRESENT.is_logged.set(update.is_logged());
        apply_all(call.slot, query, &form, update);
        let result = call.heap();
        if result != TM_Result::TM_Ok {
            // The executor looks at the row again, and comes back with another new one.
            refuse_all();
        }
        if result != TM_Result::TM_Ok || form.returns() {
            update.put_back_own(own, call.slot);
        } else {
            raw::pfree(own.cast());
        }
        Some(result)
    }
}

/// Whether anybody, we too, has written or locked the version that is to be updated.
unsafe fn is_held(call: call::Update) -> bool {
    // SAFETY: the executor's arguments.
    let locker = unsafe {
        let version = tuple::pack(&*call.otid);
        detect::row_locker(call.rel, version, LockTupleMode::LockTupleExclusive)
    };
    locker != detect::RowLocker::Nobody
}

/// Whether any error ends the session (`exit_on_error`): also one that belongs to another.
fn is_fatal_to_fail() -> bool {
    // SAFETY: a plain read of a setting.
    unsafe { pg_sys::ExitOnAnyError }
}

/// Whether our commit goes on before the standbys have it: their silence must not keep others
/// waiting.
fn commits_early() -> bool {
    // SAFETY: a plain read of a setting.
    guc::EARLY_VISIBILITY.get()
        || unsafe { pg_sys::synchronous_commit }
            <= pg_sys::SyncCommitLevel::SYNCHRONOUS_COMMIT_OFF as i32
}

/// A part of `Room`.
#[derive(Clone, Copy, Default)]
struct Span {
    start: usize,
    length: usize,
}

/// Room for the arguments of all that are adopted, or for the rows that they return.
struct Room {
    bytes: [Cell<u8>; ROOM],
    used: Cell<usize>,
}
const ROOM: usize = 8192;
static ARGUMENTS: Local<Room> = Local::new(Room::new());
static RETURNED: Local<Room> = Local::new(Room::new());

impl Room {
    const fn new() -> Room {
        Room {
            bytes: [const { Cell::new(0) }; ROOM],
            used: Cell::new(0),
        }
    }

    fn clear(&self) {
        self.used.set(0);
    }

    fn has(&self, length: usize) -> bool {
        self.used.get() + length <= ROOM
    }

    /// Keeps a copy. None if it does not fit.
    fn keep(&self, bytes: &[u8]) -> Option<Span> {
        let (start, length) = (self.used.get(), bytes.len());
        for (to, from) in self.bytes.get(start..start + length)?.iter().zip(bytes) {
            to.set(*from);
        }
        self.used.set(start + length);
        Some(Span { start, length })
    }

    /// What was kept, in a buffer that is long enough.
    fn get<const N: usize>(&self, span: Span) -> [u8; N] {
        let mut bytes = [0; N];
        let kept = &self.bytes[span.start..span.start + span.length];
        for (to, from) in bytes.iter_mut().zip(kept) {
            *to = from.get();
        }
        bytes
    }
}

/// Adopts waiters whose statements have the form. Their arguments are copied: a request is its
/// owner's again when the owner goes its own way.
fn adopt(relation: Oid, slot: Slot, form: &Form) {
    let digest = form.digest();
    let most = (settings::of(relation).group_size() as usize).min(MOST);
    ARGUMENTS.clear();
    RETURNED.clear();
    PRESENT.count.set(0);
    PRESENT.slot.set(slot);
    memory().with_row(slot, |row, world| {
        row.adopt(
            world,
            most,
            |member| {
                let request = &memory().combine_requests[actor_of(member) as usize];
                request.has_form(digest, form.bytes()) && ARGUMENTS.has(ARGUMENT_BYTES)
            },
            |adoption| {
                let request = &memory().combine_requests[actor_of(adoption.member) as usize];
                let (bytes, length) = request.arguments();
                let n = PRESENT.count.get();
                PRESENT.adopted[n].set(Some(Adopted {
                    adoption,
                    rows: 0,
                    arguments: ARGUMENTS.keep(&bytes[..length]).unwrap_or_default(),
                    returned: Span::default(),
                }));
                PRESENT.count.set(n + 1);
            },
        );
    });
}

/// Applies the adopted updates to the new row, one after the other. Those that fail, and those that
/// make the row large, are refused: their sessions do them by themselves.
unsafe fn apply_all(
    slot: *mut pg_sys::TupleTableSlot,
    query: *mut pg_sys::QueryDesc,
    form: &Form,
    update: Update,
) {
    // SAFETY: by `lead`'s contract. Expressions with a form and constraints that were found
    // portable leave nothing behind when they fail with an error about data.
    unsafe {
        let own = form::Arguments::save(form, query);
        let mut is_too_long = false;
        let until = process::now() + PATIENCE_US;
        for n in 0..PRESENT.count.get() {
            let Some(mut adopted) = PRESENT.adopted[n].get() else {
                continue;
            };
            let has_left = !memory().world().is_adopted(adopted.adoption);
            if has_left || is_too_long || process::is_to_fail() || process::now() > until {
                PRESENT.adopted[n].set(None);
                refuse(adopted.adoption);
                continue;
            }
            let bytes: [u8; ARGUMENT_BYTES] = ARGUMENTS.get(adopted.arguments);
            let bytes = &bytes[..adopted.arguments.length];
            update.keep(slot);
            let mut applied = Applied::OtherRow;
            let mut returned = None;
            let failed = catching(
                || {
                    if own.replace(form, query, bytes).is_some() {
                        applied = update.apply();
                    }
                    if applied == Applied::Changed && form.returns() {
                        returned = form.pack_returned(update.return_row(slot));
                    }
                },
                |code| {
                    let is_about_data = !NOT_ABOUT_DATA.iter().any(|class| code.starts_with(class));
                    if !is_about_data {
                        own.restore(form, query);
                    }
                    is_about_data
                },
            );
            if !failed && applied == Applied::Changed && form.returns() && returned.is_none() {
                is_too_long = true;
                let until = process::now() + REMEMBER_US;
                PRESENT.too_long.set((form.digest(), until));
            }
            let returned = if form.returns() {
                returned.and_then(|row| RETURNED.keep(row.slice()))
            } else {
                Some(Span::default())
            };
            if !failed
                && applied == Applied::Changed
                && update.is_small(slot)
                && let Some(returned) = returned
            {
                adopted.rows = 1;
                adopted.returned = returned;
                PRESENT.adopted[n].set(Some(adopted));
                continue;
            }
            update.put_back(slot);
            if failed || applied != Applied::Unchanged {
                PRESENT.adopted[n].set(None);
                refuse(adopted.adoption);
            }
        }
        own.restore(form, query);
    }
}

fn refuse(adoption: Adoption) {
    if memory().world().refuse(adoption) {
        wait::wake(actor_of(adoption.member));
    }
}

fn adopted() -> impl Iterator<Item = Adopted> {
    PRESENT.adopted[..PRESENT.count.get()]
        .iter()
        .filter_map(Cell::get)
}

fn refuse_all() {
    adopted().for_each(|adopted| refuse(adopted.adoption));
    PRESENT.count.set(0);
}

/// Our transaction is about to commit: from now on the adopted cannot leave. 40001 if one has left.
#[inline]
pub fn seal() {
    if PRESENT.count.get() > 0 {
        seal_all();
    }
}

fn seal_all() {
    for place in &PRESENT.adopted[..PRESENT.count.get()] {
        match place.get() {
            Some(adopted) if !memory().world().seal(adopted.adoption) => {
                place.set(None);
                if adopted.rows > 0 {
                    memory().totals.abandoned.add(1);
                    errors::ABANDONED.raise();
                }
            }
            _ => {}
        }
    }
    stop::at(stop::Point::Sealed);
}

/// Our transaction has committed, its record ending at `end`: so have the updates that we did for
/// others. They are woken by `deliver`.
#[inline]
pub fn committed(end: u64) {
    if PRESENT.count.get() > 0 {
        fulfil_all(end);
    }
}

fn fulfil_all(end: u64) {
    // What is not in WAL needs no flush and no standby.
    let durable_at = if PRESENT.is_logged.get() { end } else { 0 };
    let (mut combined, mut changed) = (0, 0);
    for adopted in adopted() {
        if adopted.returned.length > 0 {
            let row: [u8; RESULT_BYTES] = RETURNED.get(adopted.returned);
            memory().combine_requests[actor_of(adopted.adoption.member) as usize]
                .put_result(&row[..adopted.returned.length]);
        }
        memory()
            .world()
            .fulfil(adopted.adoption, adopted.rows, durable_at);
        combined += 1;
        changed += u64::from(adopted.rows);
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
        adopted().for_each(|adopted| wait::wake(actor_of(adopted.adoption.member)));
        PRESENT.count.set(0);
    }
}

/// Our transaction has rolled back: nothing was done for anybody.
pub fn rolled_back() {
    refuse_all();
}

/// At the end of a statement.
#[inline]
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
