//! A declared transaction's way through the lane: it queues, waits for its keys, lets those end who
//! write to them without having declared that, and lets its keys go when it has ended.

use crate::hotlock::commit;
use crate::hotlock::memory;
use crate::hotlock::session::SESSION as HOTLOCK;
use crate::hotlock::waiting::{self, Wait};
use crate::pg::local::Local;
use crate::pg::{process, release, xact};
use crate::range_occ::view;
use crate::shared::guc;
use crate::shared::wait::Wakes;
use ::lane::{Item, Lane, Mode, State, put_in_order};
use keyrange::{Interval, Relation};
use std::cell::{Cell, RefCell};

/// How often a transaction lets those who wait for it go first, to wait for one of them itself.
const DRAINS: u32 = 3;
/// How long the next one stays awake for a transaction that is about to end, in microseconds.
const AWAKE_US: u64 = 300;

struct Session {
    /// The transaction has requests in the lane.
    is_in: Cell<bool>,
    /// What it declares.
    items: RefCell<Vec<Item>>,
    /// Requests that were behind its own when it was about to end.
    behind: Cell<u32>,
}

static SESSION: Local<Session> = Local::new(Session {
    is_in: Cell::new(false),
    items: RefCell::new(Vec::new()),
    behind: Cell::new(0),
});

/// The lane, if the server has one and this session uses it.
#[inline]
pub fn lane() -> Option<Lane<'static>> {
    let lane = memory().lane?;
    (guc::is_on(&guc::LANE) && process::is_backend()).then_some(lane)
}

/// Whether the transaction has declared keys that are taken.
#[inline]
pub fn is_in() -> bool {
    SESSION.is_in.get()
}

/// Forgets what a transaction was going to declare.
pub fn begin() {
    SESSION.items.borrow_mut().clear();
}

/// One more item.
pub fn declare(relation: Relation, keys: Interval, mode: Mode) {
    SESSION.items.borrow_mut().push(Item {
        relation,
        keys,
        mode,
    });
}

/// Puts what was declared in order. How many items that is; None if there are more relations than a
/// transaction may declare items.
pub fn settle(lane: Lane<'static>) -> Option<usize> {
    let mut items = SESSION.items.borrow_mut();
    put_in_order(&mut items, lane.most_items()).ok()?;
    Some(items.len())
}

/// Enters the lane with what was declared. Whether it has all its keys at once.
pub fn enter(lane: Lane<'static>) -> bool {
    release::ask();
    SESSION.is_in.set(true);
    HOTLOCK.is_ordinary.set(true);
    memory().totals.lane_taken.add(1);
    let items = SESSION.items.borrow();
    let enter = |lane: Lane<'static>| lane.enter(process::me(), &items);
    memory().with_lane(lane, enter) == 0
}

/// Waits until the transaction has all its keys, and nobody else writes to them who has not
/// declared it.
///
/// # Errors
/// What a wait for a lock may raise: 57014, 55P03, 40P01.
pub fn wait_until_held(lane: Lane<'static>) {
    wait_until_granted(lane);
    let me = process::me();
    for round in 0.. {
        lane.hold(me);
        let own = view::own_fxid();
        let Some(writer) = lane.writer_in_the_way(me, own, view::is_running) else {
            return;
        };
        if round < DRAINS {
            let mut wakes = Wakes::new();
            memory().with_lane(lane, |lane| lane.drain(me, |seat| wakes.push(seat)));
            wakes.deliver();
        }
        memory().totals.lane_drains.add(1);
        let wait = Wait::begin_in_lane();
        wait.in_lock_manager(|| xact::wait_for_end(writer as u32));
        wait.finish();
    }
}

fn wait_until_granted(lane: Lane<'static>) {
    let me = process::me();
    let seat = lane.seat(me);
    if seat.is_granted() {
        return;
    }
    memory().totals.lane_waits.add(1);
    let wait = Wait::begin_in_lane();
    while !seat.is_granted() {
        if seat.take_next() {
            stay_awake(|| seat.is_granted());
        } else if !wait.doze()
            && let Some(blocker) = memory().with_lane(lane, |lane| lane.blocker(me))
        {
            wait.slice_in_lock_manager(|| waiting::await_process(blocker));
        }
    }
    wait.finish();
}

/// Lets others have the processor until `is_over`, for a while.
fn stay_awake(is_over: impl Fn() -> bool) {
    let until = process::now() + AWAKE_US;
    while !is_over() && !process::is_interrupted() && process::now() < until {
        process::give_way();
    }
}

/// The transaction is about to commit: wakes who comes next. Whether anybody waits for its keys.
pub fn about_to_end() -> bool {
    if !is_in() {
        return false;
    }
    let Some(lane) = memory().lane else {
        return false;
    };
    let mut wakes = Wakes::new();
    let me = process::me();
    let behind = memory().with_lane(lane, |lane| {
        lane.about_to_leave(me, |seat| wakes.push(seat))
    });
    wakes.deliver();
    SESSION.behind.set(behind as u32);
    behind > 0
}

/// The transaction is prepared: from now on it is one that has declared nothing.
pub fn prepared() {
    if !is_in() {
        return;
    }
    let Some(lane) = memory().lane else { return };
    let id = view::own_fxid();
    for item in SESSION.items.borrow().iter() {
        let writes = item.mode == Mode::Write;
        if writes && id != 0 && !lane.announce(id, item.relation, &item.keys, view::is_running) {
            memory().totals.lane_overflows.add(1);
        }
    }
}

/// The transaction has ended, and is not running any more. Raises nothing.
#[inline]
pub fn end() {
    if SESSION.is_in.take() {
        HOTLOCK.is_ordinary.set(false);
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
