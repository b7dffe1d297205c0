//! A declared transaction's way through the lane. It queues and waits for its keys. Then it lets
//! transactions end that write to these keys and have not declared that. When it has ended, it lets
//! its keys go.

use super::asleep;
use crate::hotlock::awake;
use crate::hotlock::commit;
use crate::hotlock::later_check;
use crate::hotlock::memory;
use crate::hotlock::settings;
use crate::hotlock::waiting::Wait;
use crate::pg::local::Local;
use crate::pg::of_transaction::OfTransaction;
use crate::pg::{process, release, xact};
use crate::range_occ::view;
use crate::shared::guc::{self, LaneMode};
use crate::shared::wait::{self, Wakes};
use ::lane::{Announced, Item, Lane, Mode, SeatId, State, put_in_order};
use keyrange::{Interval, Relation};
use pgrx::pg_sys;
use std::cell::{Cell, Ref, RefCell};
use std::time::Instant;

/// Items that a transaction may declare, before neighbours are joined.
pub const MOST_ITEMS: usize = 10_000;
/// How often a transaction lets those who wait for it go first, to wait for one of them itself.
const DRAINS: u32 = 3;
/// For how long a transaction waits at first for a writer that may be about to wait itself, in
/// milliseconds. Each wait is twice as long as the one before. From the second number on it waits
/// as long as the deadlock detector needs.
const SHORTEST_MS: i32 = 2;
const LONGEST_MS: i32 = 100;
/// How many deadlocks a transaction that waits for its keys leaves to the others in them. It looks
/// for one after each `deadlock_timeout`; the transaction that has closed the cycle looks after two
/// at most. If it finds one still, nobody in it can be the victim but those that have declared.
const LEFT_TO_OTHERS: u32 = 3;
/// How long the next one stays awake for a transaction that is about to end, in microseconds.
const AWAKE_US: u64 = 300;

struct Session {
    /// The transaction has requests in the lane.
    is_in: OfTransaction<bool>,
    /// What it declares.
    items: RefCell<Vec<Item>>,
    /// Writers that were found in its way.
    writers: RefCell<Vec<u64>>,
    /// Requests that were behind its own when it was about to end, `MANY` at most.
    behind: Cell<u32>,
    /// It has locked a row that it has declared to read.
    has_shared: Cell<bool>,
    /// It has used a row that it has not declared, or was going to.
    is_beyond: OfTransaction<bool>,
    /// Declared writes until the next transaction is woken; 0 if it is not, or has been.
    until_wake: Cell<u32>,
}

static SESSION: Local<Session> = Local::new(Session {
    is_in: OfTransaction::new(false),
    items: RefCell::new(Vec::new()),
    writers: RefCell::new(Vec::new()),
    behind: Cell::new(0),
    has_shared: Cell::new(false),
    is_beyond: OfTransaction::new(false),
    until_wake: Cell::new(0),
});

/// The lane, if the server has one and this session uses it.
#[inline]
pub fn lane() -> Option<Lane<'static>> {
    let lane = memory().lane?;
    (guc::LANE.get() != LaneMode::Off && process::is_backend()).then_some(lane)
}

/// Whether the transaction has declared keys that are taken.
#[inline]
pub fn is_in() -> bool {
    SESSION.is_in.get()
}

/// Whether the transaction has declared keys that are taken, and has kept to them.
#[inline]
pub fn is_patient() -> bool {
    is_in() && !SESSION.is_beyond.get()
}

/// The transaction, which has declared keys, uses a row that it has not declared.
#[inline]
pub fn go_beyond() {
    SESSION.is_beyond.set(true);
}

/// Runs what may wait for the lock of a declared row. A patient transaction is not to be the victim
/// of a deadlock: the deadlock detector looks earlier for the others in it. They cannot all be
/// patient. A patient one that keeps another from a declared row has checked a foreign key there,
/// before the other one declared the row. So it is the one that declared earlier, and that cannot
/// be all around a cycle. (A row whose key changes counts by the new key: such cycles may be.)
#[inline]
pub fn patiently<R>(body: impl FnOnce() -> R) -> R {
    if is_patient() {
        later_check::with_later_check(body)
    } else {
        body()
    }
}

/// Forgets what a transaction was going to declare.
pub fn begin() {
    SESSION.items.borrow_mut().clear();
}

/// One more item. False if there are too many.
pub fn declare(relation: Relation, keys: Interval, mode: Mode) -> bool {
    let mut items = SESSION.items.borrow_mut();
    let has_room = items.len() < MOST_ITEMS;
    if has_room {
        items.push(Item {
            relation,
            keys,
            mode,
        });
    }
    has_room
}

/// The item with that number, in order once they are put so.
pub fn item(n: usize) -> Option<Item> {
    SESSION.items.borrow().get(n).copied()
}

/// All that is going to be declared.
pub fn items() -> Ref<'static, Vec<Item>> {
    SESSION.items.borrow()
}

/// What the transaction has declared, and has taken.
pub fn taken() -> impl Iterator<Item = Item> {
    let lane = memory().lane.filter(|_| is_in());
    let declared = lane.map(|lane| lane.declared(process::me()));
    declared.into_iter().flatten().map(|(item, _)| item)
}

/// Puts what was declared in order. How many items that is; None if there are more relations than a
/// transaction may declare items.
pub fn settle(lane: Lane<'static>) -> Option<usize> {
    let mut items = SESSION.items.borrow_mut();
    put_in_order(&mut items, lane.most_items()).ok()?;
    Some(items.len())
}

/// Enters the lane with what was declared. Whether it has all its keys at once.
///
/// If the transaction has left the lane before, those who slept until its end then notice first: at
/// most a slice of a wait in the lock manager.
///
/// # Errors
/// 57014, if the user cancels it; 55P03 after `txn.hot_wait_timeout` or `lock_timeout`.
pub fn enter(lane: Lane<'static>) -> bool {
    enter_as(lane, false)
}

/// As `enter`. `may_leave`: the transaction may leave the lane soon, and go on.
fn enter_as(lane: Lane<'static>, may_leave: bool) -> bool {
    asleep::await_sleepers(lane);
    release::ask();
    SESSION.is_in.set(true);
    settings::be_ordinary(true);
    memory().totals.lane_taken.add(1);
    let items = SESSION.items.borrow();
    let second = process::second();
    let enter = |lane: Lane<'static>| {
        let me = process::me();
        lane.may_leave(me, may_leave);
        lane.enter(me, &items, second)
    };
    memory().with_lane(lane, enter) == 0
}

/// The transaction leaves the lane and goes on, when those who sleep until its end have noticed.
///
/// # Errors
/// As of `enter`.
fn leave_and_go_on(lane: Lane<'static>) {
    end();
    asleep::await_sleepers(lane);
}

/// Waits until the transaction has all its keys, and nobody else writes to them who has not
/// declared it.
///
/// # Errors
/// What a wait for a lock may raise: 57014, 55P03, 40P01.
pub fn wait_until_held(lane: Lane<'static>) {
    wait_until_held_and_locked(lane, || true, || {});
}

/// Does that with the tables locked at the end, so that nobody redefines them before the
/// transaction has its snapshot. False if `lock` finds that somebody has before: then it has left
/// the lane. Whoever is to end first may want to redefine one of them, and finds them unlocked.
///
/// # Errors
/// As `wait_until_held`.
pub fn wait_until_held_and_locked(
    lane: Lane<'static>,
    lock: impl Fn() -> bool,
    unlock: impl Fn(),
) -> bool {
    wait_until_granted(lane);
    let me = process::me();
    for _ in 0..DRAINS {
        if !lock() {
            unlock();
            leave_and_go_on(lane);
            return false;
        }
        lane.hold(me);
        if !look_for_writers(lane) {
            return true;
        }
        unlock();
        drain(lane);
        for_each_writer(|writer| {
            let wait = Wait::begin_in_lane();
            wait.in_lock_manager(|| xact::wait_for_end(writer as u32));
            wait.finish();
        });
    }
    // Others have come each time. From now on they wait, and those who are there are few.
    if !lock() {
        unlock();
        leave_and_go_on(lane);
        return false;
    }
    lane.insist(me);
    for _ in 0..DRAINS {
        if !look_for_writers(lane) {
            break;
        }
        for_each_writer(|writer| wait_for_rest(lane, writer));
    }
    // Those who stand there now write to other keys of a stripe, or of an item of several keys.
    lane.hold(me);
    true
}

/// Enters the lane and waits for the keys until then. It raises nothing for what others do. False
/// if the keys do not come in time: then the transaction has left the lane. Nobody sleeps until it
/// ends because of that.
///
/// # Errors
/// 57014, if the user cancels it.
pub fn enter_before(lane: Lane<'static>, until: Instant) -> bool {
    let (me, seat) = (process::me(), lane.seat(process::me()));
    enter_as(lane, true);
    let rest_ms = || {
        let rest = until.saturating_duration_since(Instant::now());
        rest.as_micros().div_ceil(1000) as u64
    };
    let wait = Wait::begin_in_lane();
    if !seat.is_granted() {
        memory().totals.lane_waits.add(1);
    }
    while !seat.is_granted() && rest_ms() > 0 {
        if let Some(last) = seat.take_last_before() {
            stay_awake(last, || seat.is_granted());
        } else {
            wait::doze(rest_ms(), pg_sys::PG_WAIT_EXTENSION);
            process::check_for_interrupts();
        }
    }
    let mut is_held = false;
    while !is_held && seat.is_granted() && rest_ms() > 0 {
        lane.hold(me);
        is_held = !look_for_writers(lane);
        if !is_held {
            drain(lane);
            for_each_writer(|writer| {
                let ms = rest_ms().max(1) as i32;
                xact::wait_for_end_within(writer as u32, ms);
            });
        }
    }
    wait.finish();
    lane.may_leave(me, false);
    if !is_held {
        end();
    }
    is_held
}

/// Lets those go first who wait for this transaction, as it is going to wait for one of them.
fn drain(lane: Lane<'static>) {
    let me = process::me();
    let mut wakes = Wakes::new();
    memory().with_lane(lane, |lane| lane.drain(me, |seat| wakes.push(seat)));
    wakes.deliver();
}

/// Whether anybody who has declared nothing runs, and may have written to our keys.
fn look_for_writers(lane: Lane<'static>) -> bool {
    // SAFETY: nobody else comes to the list meanwhile. It is not borrowed, as an ERROR in
    // `is_running` (a page of a log that cannot be read) would leave that so.
    let writers = unsafe { &mut *SESSION.writers.as_ptr() };
    let (me, own) = (process::me(), view::own_fxid());
    lane.writers_in_the_way(me, own, view::is_running, writers);
    !writers.is_empty()
}

/// Waits for each of those that were found.
fn for_each_writer(wait_for: impl Fn(u64)) {
    let next = |n: usize| SESSION.writers.borrow().get(n).copied();
    let mut n = 0;
    while let Some(writer) = next(n) {
        if view::is_running(writer) {
            memory().totals.lane_drains.add(1);
            wait_for(writer);
        }
        n += 1;
    }
}

/// Waits until that writer has ended, or taken back its announcement: then it waits for us.
fn wait_for_rest(lane: Lane<'static>, writer: u64) {
    let me = process::me();
    let wait = Wait::begin_in_lane().leaving_to_others(LEFT_TO_OTHERS);
    let mut patience = SHORTEST_MS;
    while view::is_running(writer) && lane.is_in_the_way(me, writer) {
        if patience < LONGEST_MS {
            xact::wait_for_end_within(writer as u32, patience);
            patience *= 2;
        } else {
            wait.slice_in_lock_manager(|| xact::wait_for_end(writer as u32));
        }
    }
    wait.finish();
}

fn wait_until_granted(lane: Lane<'static>) {
    let me = process::me();
    let seat = lane.seat(me);
    if seat.is_granted() {
        return;
    }
    memory().totals.lane_waits.add(1);
    let wait = Wait::begin_in_lane().leaving_to_others(LEFT_TO_OTHERS);
    while !seat.is_granted() {
        if let Some(last) = seat.take_last_before() {
            stay_awake(last, || seat.is_granted());
        } else {
            asleep::doze(lane, &wait);
        }
    }
    wait.finish();
}

/// Stays awake until `is_over`, for a while at most, and while that process runs on another
/// processor.
fn stay_awake(other: SeatId, is_over: impl Fn() -> bool) {
    let until = process::now() + AWAKE_US;
    while !is_over()
        && awake::runs_elsewhere(other)
        && !process::is_interrupted()
        && process::now() < until
    {
        process::give_way();
    }
}

/// The transaction has its keys, and ends without going back to the client. Who is next is awake by
/// then: it is woken when half of the declared writes are made.
pub fn runs_to_its_end() {
    let items = SESSION.items.borrow();
    if items.iter().any(Item::is_wide) {
        // Nobody knows how many writes there are going to be.
        return;
    }
    let writes = items.iter().filter(|item| item.mode == Mode::Write);
    SESSION.until_wake.set((writes.count() as u32).div_ceil(2));
}

/// The transaction writes to a key that it has declared.
#[inline]
pub fn note_write(lane: Lane<'static>) {
    let left = SESSION.until_wake.get();
    if left > 0 {
        SESSION.until_wake.set(left - 1);
        if left == 1 {
            wake_next(lane);
        }
    }
}

/// The transaction keeps others from writing to a key that it has declared to read: they are to
/// know that should it be prepared.
pub fn note_share() {
    SESSION.has_shared.set(true);
}

/// Wakes who has all its keys when this transaction has gone. How many requests are behind its own,
/// `MANY` at most.
fn wake_next(lane: Lane<'static>) -> usize {
    let mut wakes = Wakes::new();
    let me = process::me();
    awake::note();
    let behind = memory().with_lane(lane, |lane| {
        lane.about_to_leave(me, commit::MANY as usize, |seat| wakes.push(seat))
    });
    wakes.deliver();
    behind
}

/// The transaction is about to commit: wakes who comes next. Whether it is to become
/// visible before its flush, as somebody waits for its keys.
#[inline]
pub fn about_to_end() -> bool {
    is_in() && tell_next()
}

fn tell_next() -> bool {
    let Some(lane) = memory().lane else {
        return false;
    };
    let behind = wake_next(lane);
    SESSION.behind.set(behind as u32);
    // A transaction without an id writes no commit record.
    behind > 0 && xact::own_xid() != 0
}

/// A transaction is going to write to these keys, or may have.
pub fn announce(lane: Lane<'static>, id: u64, wanted: &Item) -> Announced {
    let surplus = || {
        memory().totals.lane_overflows.add(1);
    };
    let writer = (process::me(), id);
    let (relation, keys) = (wanted.relation, &wanted.keys);
    lane.announce(writer, relation, keys, view::is_running, surplus)
}

/// It is not going to write to them after all.
pub fn take_back(lane: Lane<'static>, id: u64, wanted: &Item) {
    let writer = (process::me(), id);
    memory().with_lane(lane, |lane| {
        lane.take_back(writer, wanted.relation, &wanted.keys)
    });
}

/// The transaction is prepared: from now on it is one that has declared nothing.
pub fn prepared() {
    if !is_in() {
        return;
    }
    let Some(lane) = memory().lane else { return };
    let id = view::own_fxid();
    let is_kept = |item: &Item| item.mode == Mode::Write || SESSION.has_shared.get();
    for item in taken().filter(|item| id != 0 && is_kept(item)) {
        announce(lane, id, &item);
    }
}

/// The transaction has ended, and is not running any more. Raises nothing.
#[inline]
pub fn end() {
    asleep::wakes_up();
    if SESSION.is_in.take() {
        settings::be_ordinary(false);
        SESSION.until_wake.set(0);
        SESSION.has_shared.set(false);
        SESSION.is_beyond.clear();
        leave();
    }
}

fn leave() {
    let Some(lane) = memory().lane else { return };
    let me = process::me();
    let mut wakes = Wakes::new();
    if lane.seat(me).state() != State::Idle {
        memory().with_lane(lane, |lane| lane.leave(me, |seat| wakes.push(seat)));
    }
    wakes.deliver();
    commit::note_behind(SESSION.behind.take());
}
