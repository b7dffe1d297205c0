//! What an update or a lock of a hot row does next, with the row's ticket.

use super::definitions;
use super::errors;
use super::handover;
use super::prepared;
use super::quietness;
use super::session::{SESSION, member_id, membership_slot, memory, relation_of};
use super::settings::{self, Settings};
use super::streaming;
use super::whole;
use crate::pg::{process, tuple, xact};
use hotrow::{MemberId, Obstacle, Row, Slot, Tail, backend_of};
use pgrx::pg_sys;

/// What to do next on a hot row whose ticket we have.
pub enum Step {
    /// Nobody in the list: heap's own update.
    Ordinary,
    /// Let the executor look at that version. Its writer does not change it meanwhile.
    Offer(Tail),
    /// Update on top of it; our place in the list is reserved.
    Follow(Tail),
    /// Not to be followed: let it end first.
    Await(Tail),
}

/// Decides under the row's lock, and reserves our place if we follow. A statement that is not quiet
/// (dependent.rs) does not get to see what may still roll back: it waits.
///
/// # Safety
/// `query` is the running statement, as the address of its QueryDesc, or 0.
pub unsafe fn next_step(n: usize, version: u64, looked_at: bool, query: usize) -> Step {
    // SAFETY: by the contract.
    unsafe { decide(n, looked_at.then_some(version), query, Row::note_obstacle) }
}

/// The version of a running predecessor that a statement may have which has looked at none. None
/// also where `next_step` is to be asked, which counts what is in the way.
///
/// # Safety
/// As for `next_step`.
pub unsafe fn version_to_offer(n: usize, query: usize) -> Option<Tail> {
    let slot = membership_slot(n);
    if memory().directory.rows[slot as usize].listed() == 0 || end_group_for_others(slot) {
        return None;
    }
    // SAFETY: by the contract.
    match unsafe { decide(n, None, query, |_, _| ()) } {
        Step::Offer(tail) => Some(tail),
        _ => None,
    }
}

/// `looked_at` is the version that the executor has looked at. `note` is told what is in the way of
/// following.
unsafe fn decide(
    n: usize,
    looked_at: Option<u64>,
    query: usize,
    note: impl FnOnce(&Row, Obstacle),
) -> Step {
    let (me, slot) = (member_id(n), membership_slot(n));
    // SAFETY: `query` is 0 or the address of the running statement. Nobody writes into the list but
    // who has the ticket, which is us.
    let is_quiet = unsafe {
        query != 0
            && memory().directory.rows[slot as usize].listed() > 0
            && quietness::is_quiet_in(query as *const pg_sys::QueryDesc, table_of(n))
    };
    let (xid, now) = (announce_writer(n), process::now());
    let settings = settings_of(n);
    let (follows, size) = (settings.follow(), settings.group_size());
    let own = if is_above(n) {
        Some(Obstacle::Subtransaction)
    } else if !is_quiet {
        Some(Obstacle::Statement)
    } else if definitions::are_changing() && !whole::is_running() {
        // Its next statements would be refused.
        Some(Obstacle::Definitions)
    } else if streaming::is_large() {
        Some(Obstacle::Large)
    } else {
        None
    };
    prepared::settle_in(slot);
    memory().with_row(slot, |row, members| {
        row.take_back_tail();
        let Some(tail) = row.tail(members) else {
            return Step::Ordinary;
        };
        if row.group_length() >= size {
            row.end_group(members);
        }
        row.contended_at.set(now);
        let obstacle = own.or_else(|| row.obstacle_behind(&tail, size, now));
        if let Some(obstacle) = obstacle.filter(|_| follows) {
            note(row, obstacle);
        }
        if !follows || obstacle.is_some() {
            Step::Await(tail)
        } else if looked_at == Some(tail.tid) {
            row.link_writer(members, me, xid, 0);
            Step::Follow(tail)
        } else {
            row.offer_tail(tail.member);
            Step::Offer(tail)
        }
    })
}

/// The id with which this (sub)transaction is going to stand in the row's list, known to those who
/// will depend on it.
pub fn announce_writer(n: usize) -> u32 {
    let xid = xact::writing_xid();
    if xact::nest_level() > 1 {
        // Those who wait for it wait for the whole transaction, too, once it is released.
        SESSION.publish();
        memory().backends[process::me() as usize].writes_as(n, xid);
    }
    xid
}

/// Whether something of what the transaction has of the row belongs to a level above the present
/// subtransaction: a rollback of this one would leave it with that, and without the ticket.
pub fn is_above(n: usize) -> bool {
    let level = xact::nest_level();
    level > 1 && !SESSION.get(n).is_some_and(|m| m.belongs_to(level))
}

/// Ends the group if an ordinary waiter waits for the row (rule "ordinary waiters"): its session
/// has hotlock off, or wants a lock that does not follow. Then the waiter gets the row, and the
/// transaction with the ticket queues behind it in the lock manager. Such a waiter works its way
/// along the versions, so most of the time it waits for the first transaction of the list.
pub fn end_group_for_others(slot: Slot) -> bool {
    let others_wait = memory()
        .with_row(slot, |row, members| row.head(members))
        .is_some_and(|(head, xid, patient)| waiters(head, xid) > patient);
    if others_wait {
        memory().with_row(slot, |row, members| row.end_group(members));
    }
    others_wait
}

/// How many wait for that writer in the lock manager: for its subtransaction, or, once that has
/// committed, for the transaction.
fn waiters(head: MemberId, xid: u32) -> u32 {
    let top = memory().backends[backend_of(head) as usize].xid.get();
    let of_top = if top == xid || top == 0 {
        0
    } else {
        xact::waiters(top)
    };
    xact::waiters(xid) + of_top
}

/// The settings of the table of membership `n`.
pub fn settings_of(n: usize) -> Settings {
    settings::of(table_of(n))
}

fn table_of(n: usize) -> pg_sys::Oid {
    let membership = SESSION.get(n);
    membership.map_or(pg_sys::Oid::INVALID, |m| relation_of(&m))
}

/// Makes sure that nobody follows our version any more; 40001 if somebody already has.
pub fn close_own(n: usize) {
    let Some(membership) = SESSION.get(n) else {
        return;
    };
    if !membership.is_listed() {
        return;
    }
    let me = member_id(n);
    if !memory().with_row(membership.slot(), |row, members| {
        !row.is_linked(members, me) || row.close(members, me)
    }) {
        memory().totals.own_row.add(1);
        handover::note_trouble(membership.slot(), hotrow::Trouble::OwnRow);
        errors::OWN_ROW.raise();
    }
}

/// Makes sure that nobody follows any of our versions in that table; 40001 if somebody already has.
pub fn close_all_in(relation: pg_sys::Oid) {
    for (n, membership) in SESSION.all() {
        if relation_of(&membership) == relation {
            close_own(n);
        }
    }
}

/// What goes with `TM_Updated`: where the newer version is, and whose.
///
/// # Safety
/// `failure` is the executor's, to be filled in.
pub unsafe fn name_version(failure: *mut pg_sys::TM_FailureData, version: u64, xid: u32) {
    // SAFETY: the executor's result argument is valid.
    unsafe {
        (*failure).ctid = tuple::unpack(version);
        (*failure).xmax = pg_sys::TransactionId::from(xid);
        (*failure).cmax = pg_sys::InvalidCommandId;
        (*failure).traversed = false;
    }
}
