//! Combining, the side of the transaction that has the ticket: doing the updates of others together
//! with its own. The waiter's side is in `combine_request.rs`.
//!
//! Both sides are single-statement transactions that commit as soon as the statement has run, with
//! statements of one form (`pg/form`): the holder computes nothing that the waiters' own sessions
//! would compute differently. Triggers that only set columns are a part of the form. A waiter that
//! is cancelled, terminated or timed out goes its own way until the holder is about to commit; the
//! holder, whose version has that update in it, then fails with 40001.

pub use super::combine_request::{consider, end, forget, hear_of_changes, is_done, pack, report};

use super::blocker::in_heaps_way;
use super::combine_request::{PRESENT, form_of};
use super::errors;
use super::readguard;
use super::row_locker::{self, RowLocker};
use super::session::memory;
use super::settings;
use crate::pg::buffer::Page;
use crate::pg::catch::catching;
use crate::pg::column_triggers;
use crate::pg::evaluate::{Applied, Update};
use crate::pg::form::{self, Form};
use crate::pg::local::Local;
use crate::pg::of_transaction;
use crate::pg::{process, raw, tuple};
use crate::shared::stop;
use crate::shared::wait;
use crate::tam::call;
use hotrow::{ARGUMENT_BYTES, Adoption, MemberId, RESULT_BYTES, Slot, backend_of};
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

/// The updates that the present statement does for others.
struct Adopting {
    /// What we have adopted and not refused: those before `count`, but for the `None`s.
    adopted: [Cell<Option<Adopted>>; MOST],
    count: Cell<usize>,
    slot: Cell<Slot>,
    /// The table's changes are in WAL.
    is_logged: Cell<bool>,
    /// The adopted have been told, and are to be woken.
    fulfilled: Cell<bool>,
}

static ADOPTING: Local<Adopting> = Local::new(Adopting {
    adopted: [const { Cell::new(None) }; MOST],
    count: Cell::new(0),
    slot: Cell::new(0),
    is_logged: Cell::new(true),
    fulfilled: Cell::new(false),
});

/// Does the updates of waiters together with our own, if there are any. None: nothing was done, and
/// the caller goes on as if it had not asked.
///
/// # Safety
/// The executor's arguments, for the row of that slot, whose ticket we have.
pub unsafe fn lead(call: call::Update, slot: Slot, query: usize) -> Option<TM_Result::Type> {
    if query == 0 || memory().directory.rows[slot as usize].waiting() == 0 {
        return None;
    }
    // SAFETY: by the contract; the statement runs.
    unsafe {
        let query = query as *mut pg_sys::QueryDesc;
        let form = form_of(query)?;
        let triggers = PRESENT.triggers.get();
        let update = Update::of_query(query)?.firing(triggers);
        if !update.has_new_row_in(call.slot)
            || !update.is_small(call.slot)
            || !update.replaces_small()
            || form.returns() && update.changes_summarized()
            || is_fatal_to_fail()
            || !readguard::commits_at_once(call.rel)
            || triggers
                .as_ref()
                .is_some_and(|t| !column_triggers::is_current(t))
            || is_held(call, !triggers.is_null())
        {
            return None;
        }
        let own = update.copy_of(call.slot)?;
        adopt((*call.rel).rd_id, slot, &form);
        if ADOPTING.count.get() == 0 {
            raw::pfree(own.cast());
            return None;
        }
        update.prepare_triggers();
        ADOPTING.is_logged.set(update.is_logged());
        apply_all(call.slot, query, &form, update);
        let result = in_heaps_way(call);
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

/// Whether anybody, we too, has written or locked the version that is to be updated. If the table
/// has BEFORE triggers, the executor has locked the row for this statement.
unsafe fn is_held(call: call::Update, locks_first: bool) -> bool {
    // SAFETY: the executor's arguments.
    unsafe {
        let version = tuple::pack(&*call.otid);
        let mode = LockTupleMode::LockTupleExclusive;
        match row_locker::row_locker(call.rel, version, mode) {
            RowLocker::Nobody => false,
            RowLocker::Own => !locks_first || !is_locked_by_us_alone(call.rel, version),
            RowLocker::Other(_) => true,
        }
    }
}

/// Whether this transaction, and nobody besides it, has locked the version and not written it.
unsafe fn is_locked_by_us_alone(rel: pg_sys::Relation, version: u64) -> bool {
    // SAFETY: the executor's arguments; the header is read under the page's lock.
    unsafe {
        let page = Page::pin(rel, version);
        page.share();
        let is_ours = page.tuple(version).is_some_and(|(header, _)| {
            let mask = (*header).t_infomask;
            tuple::is_locked_only(mask)
                && !tuple::has(mask, pg_sys::HEAP_XMAX_IS_MULTI)
                && raw::TransactionIdIsCurrentTransactionId(tuple::raw_xmax(header))
        });
        page.release();
        is_ours
    }
}

/// Whether any error ends the session (`exit_on_error`): also one that belongs to another.
fn is_fatal_to_fail() -> bool {
    // SAFETY: a plain read of a setting.
    unsafe { pg_sys::ExitOnAnyError }
}

/// The session rolls back, and cannot be adopted any more. Another one that has adopted its update
/// may be about to commit: lets that end, as it is going to write the outcome to this place.
pub fn await_seal(me: MemberId) {
    /// It wakes us. So long a sleep looks whether the server is still there.
    const LONG_MS: u64 = 1000;
    while memory().members[me as usize].is_sealed() {
        wait::doze(LONG_MS, pg_sys::PG_WAIT_EXTENSION);
    }
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
    of_transaction::note();
    ADOPTING.count.set(0);
    ADOPTING.slot.set(slot);
    memory().with_row(slot, |row, members| {
        row.adopt(
            members,
            most,
            |member| {
                let request = &memory().combine_requests[backend_of(member) as usize];
                request.has_form(digest, form.bytes()) && ARGUMENTS.has(ARGUMENT_BYTES)
            },
            |adoption| {
                let request = &memory().combine_requests[backend_of(adoption.member) as usize];
                let (bytes, length) = request.arguments();
                let n = ADOPTING.count.get();
                ADOPTING.adopted[n].set(Some(Adopted {
                    adoption,
                    rows: 0,
                    arguments: ARGUMENTS.keep(&bytes[..length]).unwrap_or_default(),
                    returned: Span::default(),
                }));
                ADOPTING.count.set(n + 1);
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
    // SAFETY: by `lead`'s contract.
    unsafe {
        let own = form::Arguments::save(form, query);
        let mut is_too_long = false;
        let until = process::now() + PATIENCE_US;
        for n in 0..ADOPTING.count.get() {
            let Some(mut adopted) = ADOPTING.adopted[n].get() else {
                continue;
            };
            let has_left = !memory().members().is_adopted(adopted.adoption);
            if has_left || is_too_long || process::is_to_fail() || process::now() > until {
                ADOPTING.adopted[n].set(None);
                refuse(adopted.adoption);
                continue;
            }
            let bytes: [u8; ARGUMENT_BYTES] = ARGUMENTS.get(adopted.arguments);
            let bytes = &bytes[..adopted.arguments.length];
            update.keep(slot);
            let Attempt {
                failed,
                applied,
                returned,
            } = attempt(slot, query, form, update, &own, bytes);
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
                ADOPTING.adopted[n].set(Some(adopted));
                continue;
            }
            update.put_back(slot);
            if failed || applied != Applied::Unchanged {
                ADOPTING.adopted[n].set(None);
                refuse(adopted.adoption);
            }
        }
        own.restore(form, query);
    }
}

/// What came of an adopted update. If it has failed, the rest says nothing.
struct Attempt {
    failed: bool,
    applied: Applied,
    /// What it returns, if it does and that is not too long.
    returned: Option<form::Returned>,
}

/// Applies an adopted update to the row that was kept, with its arguments in the place of our own.
#[inline]
unsafe fn attempt(
    slot: *mut pg_sys::TupleTableSlot,
    query: *mut pg_sys::QueryDesc,
    form: &Form,
    update: Update,
    own: &form::Arguments,
    arguments: &[u8],
) -> Attempt {
    let mut applied = Applied::OtherRow;
    let mut returned = None;
    // SAFETY: by `lead`'s contract. Expressions with a form and constraints that were found
    // portable leave nothing behind when they fail with an error about data.
    let failed = unsafe {
        catching(
            || {
                if own.replace(form, query, arguments).is_some() {
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
        )
    };
    Attempt {
        failed,
        applied,
        returned,
    }
}

fn refuse(adoption: Adoption) {
    if memory().members().refuse(adoption) {
        wait::wake(backend_of(adoption.member));
    }
}

fn adopted() -> impl Iterator<Item = Adopted> {
    ADOPTING.adopted[..ADOPTING.count.get()]
        .iter()
        .filter_map(Cell::get)
}

fn refuse_all() {
    adopted().for_each(|adopted| refuse(adopted.adoption));
    ADOPTING.count.set(0);
}

/// Whether the present transaction does updates of others.
pub fn is_adopting() -> bool {
    ADOPTING.count.get() > 0
}

/// Our transaction is about to commit: from now on the adopted cannot leave. 40001 if one has left,
/// or if they would have to wait for standbys with us, where nobody could end them.
#[inline]
pub fn seal(is_early: bool) {
    if is_adopting() {
        if !is_early && readguard::waits_in_commit() {
            errors::NOT_EARLY.raise();
        }
        seal_all();
    }
}

fn seal_all() {
    for place in &ADOPTING.adopted[..ADOPTING.count.get()] {
        match place.get() {
            Some(adopted) if !memory().members().seal(adopted.adoption) => {
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
    if is_adopting() {
        fulfil_all(end);
    }
}

fn fulfil_all(end: u64) {
    // What is not in WAL needs no flush and no standby.
    let durable_at = if ADOPTING.is_logged.get() { end } else { 0 };
    let (mut combined, mut changed) = (0, 0);
    for adopted in adopted() {
        if adopted.returned.length > 0 {
            let row: [u8; RESULT_BYTES] = RETURNED.get(adopted.returned);
            memory().combine_requests[backend_of(adopted.adoption.member) as usize]
                .put_result(&row[..adopted.returned.length]);
        }
        memory()
            .members()
            .fulfil(adopted.adoption, adopted.rows, durable_at);
        combined += 1;
        changed += u64::from(adopted.rows);
    }
    ADOPTING.fulfilled.set(true);
    memory().totals.combined.add(combined);
    memory().with_row(ADOPTING.slot.get(), |row, _| {
        row.counters.combined.add(combined);
        row.counters.updates.add(changed);
    });
}

/// Wakes those whose updates we have committed.
pub fn deliver() {
    if ADOPTING.fulfilled.take() {
        adopted().for_each(|adopted| wait::wake(backend_of(adopted.adoption.member)));
        ADOPTING.count.set(0);
    }
}

/// Our transaction has rolled back: nothing was done for anybody.
pub fn rolled_back() {
    refuse_all();
}
