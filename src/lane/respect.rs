//! Writers that have declared nothing announce what they write to, and wait for those who hold it.
//!
//! The callbacks of `txn_heap` come here before heap writes or locks a row. They do so in all
//! sessions and at all levels, as soon as any session has declared anything since the server
//! started.

use super::admit;
use super::asleep;
use super::errors;
use super::heat;
use super::partition;
use super::strict;
use crate::hotlock::memory;
use crate::hotlock::waiting::Wait;
use crate::pg::buffer::Page;
use crate::pg::local::Local;
use crate::pg::of_transaction::OfTransaction;
use crate::pg::{process, raw};
use crate::range_occ::key::{self, Table};
use crate::range_occ::{session, view};
use ::lane::{Announced, Item, Lane, Look, Mode, REFUSAL, WAIT};
use keyrange::{Interval, Relation};
use pgrx::pg_sys::{self, LockTupleMode, LockWaitPolicy, TM_Result};
use std::cell::Cell;
use std::rc::Rc;

/// Keys that a transaction announces; of more it only looks who holds them, so that one that
/// changes a whole table does not have all others wait for it.
const MOST_ANNOUNCED: u32 = 256;

static ANNOUNCED: Local<Cell<u32>> = Local::new(Cell::new(0));
/// What the transaction wanted to write to last.
static WANTED: Local<OfTransaction<Option<Item>>> = Local::new(OfTransaction::new(None));
/// It has not written that yet.
static IS_ANNOUNCING: Local<Cell<bool>> = Local::new(Cell::new(false));
/// What it wanted last was not announced before.
static IS_NEW: Local<Cell<bool>> = Local::new(Cell::new(false));
/// What it wants is within its declaration, or in a table that nobody else sees.
static IS_WITHIN: Local<Cell<bool>> = Local::new(Cell::new(false));
/// It is asked for.
static IS_ASKING: Local<Cell<bool>> = Local::new(Cell::new(false));
static IS_WATCHING: Local<OfTransaction<bool>> = Local::new(OfTransaction::new(false));
/// The table that was looked at last, kept alive.
static LAST: Local<Cell<Option<Rc<Table>>>> = Local::new(Cell::new(None));

/// The lane, once anybody has used it.
#[inline]
fn in_use() -> Option<Lane<'static>> {
    memory().lane.filter(Lane::is_used)
}

/// Before the row in the slot is inserted, or takes the place of one with the same key.
///
/// # Safety
/// `rel` is open; the slot holds a row of it. Nothing with a destructor is alive in the callers.
#[inline]
pub unsafe fn before_row(rel: pg_sys::Relation, slot: *mut pg_sys::TupleTableSlot) {
    if let Some(lane) = in_use() {
        begin();
        // SAFETY: the caller's relation is open, and its slot holds a row of it.
        unsafe {
            if let Some((relation, table)) = place_to_write(rel) {
                let keys = table.image_of_slot(slot);
                let wanted = Item {
                    relation,
                    keys,
                    mode: Mode::Write,
                };
                before_write(lane, wanted, LockWaitPolicy::LockWaitBlock);
            }
        }
    }
}

/// Before the version at that address gets another key: of a transaction that is to use no more
/// than it has declared, the old key counts, too.
///
/// # Safety
/// As for `before_delete`.
#[inline]
pub unsafe fn before_change(rel: pg_sys::Relation, packed_tid: u64) {
    if let Some(lane) = in_use().filter(|_| strict::is_on()) {
        // SAFETY: by the contract.
        unsafe {
            if let Some((relation, table)) = place_of(rel) {
                let wanted = Item {
                    relation,
                    keys: image_of_version(table, rel, packed_tid),
                    mode: Mode::Write,
                };
                if lane.declared_for(process::me(), relation, &wanted.keys) != Some(Mode::Write) {
                    strict::check_write(&wanted);
                }
            }
        }
    }
}

/// Before the version at that address is deleted.
///
/// # Safety
/// `rel` is open and locked, the version visible to the transaction. Nothing with a destructor is
/// alive in the callers.
#[inline]
pub unsafe fn before_delete(rel: pg_sys::Relation, packed_tid: u64) {
    // SAFETY: by the contract.
    unsafe { before_version(rel, packed_tid, Mode::Write, LockWaitPolicy::LockWaitBlock) };
}

/// Before the version at that address is locked. False if it is to be skipped.
///
/// # Safety
/// As for `before_delete`.
#[inline]
pub unsafe fn before_lock(
    rel: pg_sys::Relation,
    packed_tid: u64,
    mode: LockTupleMode::Type,
    policy: LockWaitPolicy::Type,
) -> bool {
    // SAFETY: by the contract.
    unsafe {
        match mode {
            LockTupleMode::LockTupleKeyShare => {
                before_check(rel, packed_tid);
                true
            }
            LockTupleMode::LockTupleShare => before_version(rel, packed_tid, Mode::Read, policy),
            _ => before_version(rel, packed_tid, Mode::Write, policy),
        }
    }
}

/// Before it is locked as a foreign key's check does it, which keeps nobody from writing. Nobody
/// waits for anybody in the lane because of that. Beyond the declaration is only what others have
/// declared to write by now (`admit::patiently` says why).
///
/// # Safety
/// As for `before_delete`.
unsafe fn before_check(rel: pg_sys::Relation, packed_tid: u64) {
    begin();
    if admit::is_patient()
        && let Some(lane) = memory().lane
        // SAFETY: by the contract.
        && let Some((relation, table)) = unsafe { place_of(rel) }
    {
        let me = process::me();
        // SAFETY: by the contract.
        let keys = unsafe { image_of_version(table, rel, packed_tid) };
        let is_within = lane.declared_for(me, relation, &keys).is_some();
        IS_WITHIN.set(is_within);
        let look = |lane: Lane<'static>| lane.is_wanted_by_others(me, relation, keys);
        if !is_within && lane.may_be_held(relation, &keys) && memory().with_lane(lane, look) {
            admit::go_beyond();
        }
    }
}

/// # Safety
/// As for `before_delete`.
unsafe fn before_version(
    rel: pg_sys::Relation,
    packed_tid: u64,
    mode: Mode,
    policy: LockWaitPolicy::Type,
) -> bool {
    let Some(lane) = in_use() else { return true };
    begin();
    // SAFETY: the caller's relation is open and locked, and the transaction sees the version.
    unsafe {
        let Some((relation, table)) = place_to_write(rel) else {
            return true;
        };
        let keys = image_of_version(table, rel, packed_tid);
        let wanted = Item {
            relation,
            keys,
            mode,
        };
        before_write(lane, wanted, policy)
    }
}

/// The transaction wants something else now.
#[inline]
fn begin() {
    WANTED.clear();
    IS_ANNOUNCING.set(false);
    IS_NEW.set(false);
    IS_WITHIN.set(false);
}

/// As `place_of`, of a table that is about to be written. What cannot be declared is beyond every
/// declaration.
///
/// # Safety
/// As for `place_of`.
#[inline]
unsafe fn place_to_write(rel: pg_sys::Relation) -> Option<(Relation, &'static Table)> {
    // SAFETY: by the contract.
    let place = unsafe { place_of(rel) };
    if place.is_none() && !IS_WITHIN.get() && admit::is_in() {
        admit::go_beyond();
        // SAFETY: the caller's relation is open.
        let oid = unsafe { (*rel).rd_id };
        strict::check_write(&Item {
            relation: key::relation_of(oid),
            keys: Interval::ALL,
            mode: Mode::Write,
        });
    }
    place
}

/// Under which relation the table's keys are declared, and by which range key; none if they cannot
/// be. Good until the next one is asked for.
///
/// # Safety
/// `rel` is open and locked; nothing with a destructor is alive in the callers.
#[inline]
unsafe fn place_of(rel: pg_sys::Relation) -> Option<(Relation, &'static Table)> {
    // SAFETY: by the contract.
    let place = unsafe {
        let row = &*(*rel).rd_rel;
        if row.relpersistence as u8 == pg_sys::RELPERSISTENCE_TEMP {
            IS_WITHIN.set(true);
            return None;
        }
        if row.relispartition {
            let place = partition::place_of(rel);
            (place.relation, kept(place.table))
        } else {
            let oid = (*rel).rd_id;
            let known = session::known(oid).unwrap_or_else(|| kept(key::of(rel)));
            (key::relation_of(oid), known)
        }
    };
    Some(place).filter(|(_, table)| table.layout.is_some())
}

/// Keeps it alive until the next one comes.
fn kept(table: Rc<Table>) -> &'static Table {
    let place = Rc::as_ptr(&table);
    LAST.set(Some(table));
    // SAFETY: LAST has a share of it.
    unsafe { &*place }
}

/// # Safety
/// As for `before_version`.
unsafe fn image_of_version(table: &Table, rel: pg_sys::Relation, packed_tid: u64) -> Interval {
    // SAFETY: by the contract; the version stays where it is while its page is pinned.
    unsafe {
        let page = Page::pin(rel, packed_tid);
        page.share();
        let tuple = page.heap_tuple(rel, packed_tid);
        page.unlock();
        let image = match tuple {
            Some(mut tuple) => table.image_of_tuple(&raw mut tuple, (*rel).rd_att),
            None => Interval::ALL,
        };
        page.unpin();
        image
    }
}

/// Whether a transaction that has declared keys has declared this use of one, which is noted.
fn is_declared(lane: Lane<'static>, wanted: &Item) -> bool {
    match lane.declared_for(process::me(), wanted.relation, &wanted.keys) {
        Some(Mode::Write) => admit::note_write(lane),
        Some(Mode::Read) if wanted.mode == Mode::Read => admit::note_share(),
        _ => {
            admit::go_beyond();
            strict::check_write(wanted);
            return false;
        }
    }
    true
}

/// # Safety
/// Nothing with a destructor is alive in the callers.
unsafe fn before_write(lane: Lane<'static>, wanted: Item, policy: LockWaitPolicy::Type) -> bool {
    let me = process::me();
    if admit::is_in() && is_declared(lane, &wanted) {
        IS_WITHIN.set(true);
        return true;
    }
    WANTED.set(Some(wanted));
    IS_ANNOUNCING.set(true);
    IS_NEW.set(false);
    let mut announced = announce(lane, &wanted);
    loop {
        if !lane.may_be_held(wanted.relation, &wanted.keys) {
            IS_NEW.set(announced == Announced::Now);
            return true;
        }
        IS_WATCHING.set(true);
        let id = view::own_fxid();
        let look = |lane: Lane<'static>| lane.look(me, id, wanted, announced);
        let (mode, is_taken_back) = match memory().with_lane(lane, look) {
            Look::Free => {
                IS_NEW.set(announced == Announced::Now);
                return true;
            }
            Look::Again => {
                forget_one();
                announce(lane, &wanted);
                announced = Announced::Before;
                continue;
            }
            Look::Wait {
                mode,
                is_taken_back,
            } => (mode, is_taken_back),
        };
        if is_taken_back {
            forget_one();
            announced = Announced::Before;
        }
        IS_NEW.set(announced == Announced::Now);
        // Of a holder that only reads the snapshot misses nothing.
        let is_refused = session::is_validated() && mode == Mode::Write;
        if policy != LockWaitPolicy::LockWaitBlock || is_refused {
            lane.stop_watching(me);
            leave();
        }
        if policy == LockWaitPolicy::LockWaitSkip {
            return false;
        }
        if policy == LockWaitPolicy::LockWaitError {
            errors::NOT_AVAILABLE.raise();
        }
        if is_refused {
            heat::warm(&wanted, REFUSAL);
            errors::HELD.raise();
        }
        heat::warm(&wanted, WAIT);
        await_holder(lane);
        if announce(lane, &wanted) == Announced::Now {
            announced = Announced::Now;
        }
    }
}

/// Waits until the holder that it watches is not in the way any more.
fn await_holder(lane: Lane<'static>) {
    memory().totals.lane_waits.add(1);
    let seat = lane.seat(process::me());
    let wait = Wait::begin_in_lane();
    while_asking(|| {
        while seat.is_watching() {
            asleep::doze(lane, &wait);
        }
    });
    wait.finish();
}

/// The transaction does not write to what it wanted last, nor lock it, and may go on: nobody is to
/// wait for it because of that.
pub fn leave() {
    if IS_NEW.take()
        && let Some(lane) = memory().lane
        && let Some(wanted) = WANTED.get()
    {
        admit::take_back(lane, view::own_fxid(), &wanted);
        forget_one();
    }
}

/// One announcement less: it is taken back.
fn forget_one() {
    ANNOUNCED.set(ANNOUNCED.get() - 1);
}

/// Runs what may fail to get what the transaction wanted last.
#[inline]
fn while_asking<R>(body: impl FnOnce() -> R) -> R {
    IS_ASKING.set(true);
    let result = body();
    IS_ASKING.set(false);
    result
}

/// Locks, or writes to, the row that the transaction wanted last: patiently, if that is within its
/// declaration.
#[inline]
pub fn asking(heap: impl FnOnce() -> TM_Result::Type) -> TM_Result::Type {
    let result = while_asking(|| {
        if IS_WITHIN.get() {
            admit::patiently(heap)
        } else {
            heap()
        }
    });
    if result == TM_Result::TM_WouldBlock {
        leave();
    }
    result
}

/// Tries to lock the row that the transaction wanted last; `lock` says whether it has.
pub fn trying(lock: impl FnOnce() -> bool) {
    if !while_asking(lock) {
        leave();
    }
}

/// A subtransaction has rolled back, perhaps because a row could not be had.
pub fn subtransaction_rolled_back() {
    asleep::wakes_up();
    if IS_ASKING.take() {
        leave();
    }
}

/// Announces the write, unless the transaction has announced so many.
fn announce(lane: Lane<'static>, wanted: &Item) -> Announced {
    if ANNOUNCED.get() >= MOST_ANNOUNCED {
        return Announced::Before;
    }
    // SAFETY: the transaction is about to write, for which it needs an id.
    unsafe { raw::GetCurrentTransactionId() };
    let id = view::own_fxid();
    let announced = admit::announce(lane, id, wanted);
    if announced == Announced::Now {
        ANNOUNCED.set(ANNOUNCED.get() + 1);
    }
    announced
}

/// The transaction has written what it wanted to.
#[inline]
pub fn written() {
    if IS_ANNOUNCING.take() {
        WANTED.clear();
    }
}

/// What the transaction wanted to write to last, or to lock, without having declared it.
pub fn wanted() -> Option<Item> {
    WANTED.get()
}

/// The transaction was refused because of the key that it was about to write to or to lock.
pub fn refused() {
    if let Some(item) = WANTED.get().filter(|_| IS_ANNOUNCING.get()) {
        heat::warm(&item, REFUSAL);
    }
}

/// The transaction has ended.
#[inline]
pub fn end() {
    WANTED.clear();
    IS_ANNOUNCING.set(false);
    IS_NEW.set(false);
    IS_WITHIN.set(false);
    IS_ASKING.set(false);
    ANNOUNCED.set(0);
    if IS_WATCHING.take()
        && let Some(lane) = memory().lane
    {
        lane.stop_watching(process::me());
    }
}
