//! Heap's way to a row: its own update, delete or row lock.
//!
//! Heap waits inside its call for those who hold the row. A transaction for which others may wait
//! must not be lost sight of there: of two waits that close a cycle, the second has to see the
//! first. So heap is called without a wait. If the row is held, we declare the wait, which refuses
//! a cycle, wait, and call heap again. Such a transaction takes no place in heap's queue for the
//! row (heapam.c: heap_acquire_tuplock), either. Who stands there waits for the first of the queue,
//! and of that wait the graph knows nothing.

use super::edge;
use super::later_check;
use super::order;
use super::row_locker::{self, Holders};
use super::session::{SESSION, memory};
use super::sharers::Place;
use super::tail;
use super::text::Text;
use super::ticket;
use crate::pg::context::with_context;
use crate::pg::{process, tuple, xact};
use crate::shared::{stop, wait};
use crate::tam::row_call::{Blocked, RowCall};
use hotrow::{Membership, Wait};
use pgrx::pg_sys::{self, Relation, TM_Result, XLTW_Oper};
use std::ffi::CStr;

/// How often heap is called again, a millisecond later, when nobody seems to hold the row. Its next
/// owner stands in heap's queue, and has not been woken yet. Then heap waits.
const CALLS_AGAIN: u32 = 10;

/// How often a transaction gives way at a row. Then it is refused.
const GIVES_WAY: u32 = 100;

/// How the next wait for the row's holder is done.
enum Next {
    /// In the queue of those who share the row's key, if we may.
    Queue,
    /// As the first of that queue.
    First(Place),
    /// Beside it.
    Alone,
}

impl Next {
    /// Leaves the queue. Nobody is left waiting in it while we wait in a call of heap's.
    fn leave(&mut self) {
        if let Next::First(place) = std::mem::replace(self, Next::Queue) {
            place.done();
        }
    }
}

/// Heap's call on a row.
///
/// # Errors
/// 40P01 if a wait closes a cycle of transactions that have to do with hot rows, or have locked
/// others.
///
/// # Safety
/// The call has the executor's arguments, and a scan of its table has found the version.
pub unsafe fn in_heaps_way(call: impl RowCall) -> TM_Result::Type {
    // SAFETY: by the contract.
    unsafe {
        if !SESSION.is_waited_for() || !call.waits() || is_ours(call) {
            return call.waiting();
        }
        stop::at(stop::Point::HeapsWay);
        let mut next = Next::Queue;
        let result = without_hidden_waits(call, &mut next);
        next.leave();
        if result == TM_Result::TM_Ok {
            SESSION.idle_xid.set(0);
        }
        result
    }
}

unsafe fn without_hidden_waits<C: RowCall>(call: C, next: &mut Next) -> TM_Result::Type {
    let has_only_tickets = SESSION.has_only_tickets();
    let (mut gives_way, mut calls) = (GIVES_WAY, CALLS_AGAIN);
    // SAFETY: as for `in_heaps_way`.
    unsafe {
        while calls > 0 {
            let blocked = match call.at_once() {
                Ok(result) => return result,
                Err(blocked) => blocked,
            };
            if has_only_tickets {
                // Heap has given the transaction an id, and no more.
                SESSION.idle_xid.set(xact::own_xid());
            }
            let holders = row_locker::holders(call.relation(), blocked.version, blocked.mode);
            match holders.other {
                Some(xid) if gives_way > 0 && has_given_way(xid) => gives_way -= 1,
                Some(xid) => {
                    order::note_wait_to_lock((*call.relation()).rd_id, blocked.mode);
                    let now = std::mem::replace(next, Next::Queue);
                    *next = await_holder(call, &blocked, &holders, xid, now);
                    calls = CALLS_AGAIN;
                }
                None if may_go_on::<C>(&blocked, &holders) => {
                    next.leave();
                    return call.waiting();
                }
                None => {
                    // At first, because the holder has ended just now.
                    if calls < CALLS_AGAIN {
                        wait::sleep(1, pg_sys::PG_WAIT_EXTENSION);
                    }
                    calls -= 1;
                }
            }
        }
        next.leave();
        later_check::with_ticket(|| call.waiting())
    }
}

/// Whether we have locked the version ourselves, so that heap waits for nobody.
unsafe fn is_ours(call: impl RowCall) -> bool {
    // SAFETY: as for `in_heaps_way`.
    unsafe {
        let (rel, (version, mode)) = (call.relation(), call.wants());
        !row_locker::is_free_at_a_glance(rel, version)
            && row_locker::holders(rel, version, mode).keep_others_out(mode)
    }
}

/// Whether those who hold the row let heap have it. Beside locks that exclude nobody an update goes
/// on by itself: to lock the row first would keep others from following.
fn may_go_on<C: RowCall>(blocked: &Blocked, holders: &Holders) -> bool {
    holders.keep_others_out(blocked.mode) || C::GOES_BESIDE_OTHERS
}

/// Where the transaction has only tickets, and the wait for that other one would close a cycle:
/// gives the row's ticket to those who wait for it, and queues again. Whether it has done so.
fn has_given_way(xid: u32) -> bool {
    let rows = memory().directory.rows;
    let is_of_row = |m: &Membership| !rows[m.slot() as usize].is_gate();
    let Some((n, membership)) = SESSION
        .all()
        .find(|(_, m)| m.may_queue_again() && is_of_row(m))
    else {
        return false;
    };
    let gives_way = SESSION.has_only_tickets() && ticket::is_to_give_way(edge::wait_for(xid));
    if gives_way {
        ticket::give_way(n);
        // Nobody was in the list when heap's way was taken.
        tail::await_list(membership.slot());
    }
    gives_way
}

/// Waits for the transaction that holds the row, or for the first place in the queue. Returns how
/// the next wait is done.
unsafe fn await_holder<C: RowCall>(
    call: C,
    blocked: &Blocked,
    holders: &Holders,
    xid: u32,
    now: Next,
) -> Next {
    let rel = call.relation();
    let tid = tuple::unpack(blocked.version);
    // SAFETY: as for `in_heaps_way`.
    let end = || unsafe { xact::wait_for_end_of_row(xid, rel, tid, C::OPERATION) };
    let sleep = |wait| match wait {
        Wait::Subtransaction { .. } => {
            with_context(told::<C>(rel, blocked.version).as_c_str(), || {
                edge::sleep(wait, end)
            })
        }
        _ => end(),
    };
    let in_queue = match now {
        // SAFETY: as for `in_heaps_way`.
        Next::Queue => unsafe { Place::at(rel, blocked, holders) }.map(|place| place.take(rel)),
        Next::First(place) => Some(place.await_holder(xid, sleep)),
        Next::Alone => None,
    };
    let next = match in_queue {
        Some(place) => place.map_or(Next::Alone, Next::First),
        None => {
            edge::await_holder(xid, sleep);
            Next::Queue
        }
    };
    // A `lock_timeout` of this wait's last moment: the next wait would forget whose interrupt it
    // is.
    process::check_for_interrupts();
    next
}

/// What messages say of a wait for a subtransaction, as of one for a transaction (lmgr.c:
/// XactLockTableWaitErrorCb).
fn told<C: RowCall>(rel: Relation, version: u64) -> Text {
    let doing = match C::OPERATION {
        XLTW_Oper::XLTW_Update => "updating",
        XLTW_Oper::XLTW_Delete => "deleting",
        _ => "locking",
    };
    // SAFETY: the caller's relation is open.
    let name = unsafe { CStr::from_ptr((*(*rel).rd_rel).relname.data.as_ptr()) };
    let (block, offset) = (tuple::block_of(version), tuple::offset_of(version));
    let mut text = Text::new();
    text.add(format_args!(
        "while {doing} tuple ({block},{offset}) in relation \""
    ));
    text.add_bytes(name.to_bytes());
    text.add(format_args!("\""));
    text
}
