//! Row locks and DELETE on hot rows.

use super::check;
use super::cold::{self, Place, Turn};
use super::commit;
use super::conflict;
use super::detect;
use super::order;
use super::repeatable;
use super::session::{self, SESSION, memory, statement_of};
use super::settings;
use super::statement;
use super::tail::{await_in_turn, await_tail, forget_offer, offer, refuse_if_shown};
use super::ticket;
use super::update::{Step, await_edge, close_own, end_group_for_others, next_step};
use super::waiting::{self, Reason};
use crate::pg::buffer::Page;
use crate::pg::relation::{Key, key_of};
use crate::pg::{raw, tuple, wait, xact};
use crate::tam::callbacks::{Delete, Lock};
use crate::tam::group;
use crate::tam::swap::{self, OnConflict};
use hotrow::{Base, Contention, Identity, Membership, Slot, Tail};
use pgrx::pg_sys::{self, LockTupleMode, LockWaitPolicy, TM_Result};

/// `tuple_lock` of our routine.
///
/// # Safety
/// The executor's arguments.
pub unsafe fn tuple_lock(call: Lock) -> TM_Result::Type {
    // SAFETY: by the contract.
    unsafe {
        let version = tuple::pack(&*call.tid);
        let result = locked(call);
        check::note_result(call.rel, version, result);
        result
    }
}

unsafe fn locked(call: Lock) -> TM_Result::Type {
    // SAFETY: by the contract; the address points to a valid item pointer.
    unsafe {
        let version = tuple::pack(&*call.tid);
        let relation = (*call.rel).rd_id;
        if let Some((n, membership)) = SESSION.with_version(relation, version) {
            return own_row(call, n, membership);
        }
        if let Some((n, membership)) = SESSION.with_offer(relation, version) {
            return offered(call, n, membership);
        }
        let exclusive = matches!(
            call.mode,
            LockTupleMode::LockTupleNoKeyExclusive | LockTupleMode::LockTupleExclusive
        );
        let Some((key, identity)) = key_of(call.rel)
            .filter(|_| settings::uses(relation))
            .and_then(|key| Some((key, identity_of(call.rel, key, version)?)))
        else {
            note_unseen(call.rel);
            return ordinary(call, version);
        };
        if !exclusive || call.policy != LockWaitPolicy::LockWaitBlock {
            if check::defer(&call, version, &identity) {
                return TM_Result::TM_Ok;
            }
            let result = ordinary(call, version);
            if result == TM_Result::TM_Ok {
                SESSION.note_locked(&identity);
                if call.mode == LockTupleMode::LockTupleKeyShare {
                    check::note_checked(&identity);
                }
                note_if_other(&call, key, |found| *found == identity);
            }
            return result;
        }
        let slot = match find_hot(&call, key, &identity, version) {
            Ok(slot) => slot,
            Err(place) => {
                let result = ordinary(call, version);
                place.into_iter().for_each(Place::done);
                detect::uncount_waiter();
                SESSION.note_locked(&identity);
                if result == TM_Result::TM_Ok {
                    note_if_other(&call, key, |found| *found == identity);
                }
                return result;
            }
        };
        let usage = swap::usage(call.rel);
        if let Some(usage) = usage
            && usage.on_conflict == OnConflict::Update
            && usage.may_follow
            && settings::of(relation).follow()
            && key.has_plain_unique_indexes()
        {
            return conflict::lock(call, slot, &identity, usage);
        }
        let may_follow = usage.is_some_and(|usage| usage.may_follow || usage.only_locks);
        let held = ticket_for(call.rel, slot, &identity, version);
        match held {
            Some(n) => {
                note_unused(n, call.rel);
                if !may_follow {
                    await_list(n, slot);
                } else if let Some(found) = follow(call, n, version) {
                    return found;
                }
            }
            None => SESSION.note_locked(&identity),
        }
        wait_for_lockers(call.rel, version, call.mode);
        let result = waiting::with_ticket(|| call.heap());
        end_wait();
        let is_other =
            result == TM_Result::TM_Ok && note_if_other(&call, key, |found| *found == identity);
        match held {
            Some(n) if is_other => pass_on(n),
            Some(n) => keep_ticket(n, result),
            None => (),
        }
        result
    }
}

/// Behind a change of the key the row that has been locked is another than the one asked for, whose ticket we have: remembers it, and
/// says so.
unsafe fn note_if_other(call: &Lock, key: &Key, is_same: impl Fn(&Identity) -> bool) -> bool {
    // SAFETY: as in `tuple_lock`; the slot holds the version that has been locked.
    let found = unsafe {
        if !(*call.failure).traversed {
            return false;
        }
        key.of_slot(call.slot)
    };
    let other = found.filter(|found| !is_same(found));
    other.iter().for_each(|row| SESSION.note_locked(row));
    other.is_some()
}

/// Whoever comes to the row by its old key waits for us with its ticket, so we do not ask for that again.
fn pass_on(n: usize) {
    if let Some(membership) = SESSION.get(n) {
        SESSION.note_locked_by(&membership);
    }
    statement::drop_ticket(n);
}

/// A row of that table is locked or changed while its settings are off: those of a statement that began with them on, or a cursor's.
pub fn note_unseen(rel: pg_sys::Relation) {
    if !settings::uses(relation_of(rel)) {
        SESSION.note_locked_in(relation_of(rel));
    }
}

/// The ticket is the statement's until the row is locked.
fn note_unused(n: usize, rel: pg_sys::Relation) {
    let query = swap::usage(rel).map_or(0, |usage| usage.query);
    SESSION.step(n, |m| m.claimed_by(statement_of(query)));
}

/// Whoever has locked the row keeps its ticket. If the row is gone, nobody waits for whoever has the ticket, but others may have
/// inserted the row again, and we may come to wait for them: then the ticket goes on at once.
pub fn keep_ticket(n: usize, result: TM_Result::Type) {
    match result {
        TM_Result::TM_Ok => SESSION.step(n, Membership::locked),
        TM_Result::TM_Deleted => statement::drop_ticket(n),
        _ => (),
    }
}

/// Heap's own row lock. Predecessors go first, and if it is going to wait for another, circles through hot rows are refused.
///
/// # Safety
/// As for `tuple_lock`.
pub unsafe fn ordinary(call: Lock, version: u64) -> TM_Result::Type {
    // SAFETY: as in `tuple_lock`.
    unsafe {
        let what = match call.mode {
            LockTupleMode::LockTupleKeyShare => Contention::Key,
            _ => Contention::Row,
        };
        order::let_pass_in(relation_of(call.rel), what);
        if call.policy == LockWaitPolicy::LockWaitBlock && SESSION.is_waited_for() {
            wait_for_lockers(call.rel, version, call.mode);
        }
        let result = call.heap();
        end_wait();
        result
    }
}

/// The version that a lock is about: the last one of the row if the caller wants that.
///
/// # Safety
/// As for `tuple_lock`; `version` is one of the row `identity`, and a snapshot of this transaction
/// keeps it.
unsafe fn current_version(call: &Lock, version: u64, identity: &Identity) -> u64 {
    // SAFETY: by the contract.
    unsafe {
        if !finds_last(call) {
            return version;
        }
        let last = detect::last_version(call.rel, version);
        let is_same = || {
            let found = key_of(call.rel).and_then(|key| identity_of(call.rel, key, last));
            found.as_ref() == Some(identity)
        };
        if last == version || is_same() {
            last
        } else {
            version
        }
    }
}

/// Whether the caller wants the last version of the row, and not that one only.
fn finds_last(call: &Lock) -> bool {
    u32::from(call.flags) & pg_sys::TUPLE_LOCK_FLAG_FIND_LAST_VERSION != 0
}

/// The identity of the row to which that version belongs.
pub unsafe fn identity_of(rel: pg_sys::Relation, key: &Key, version: u64) -> Option<Identity> {
    // SAFETY: a version that a scan has found; it stays in place while pinned, so the key is read unlocked.
    unsafe {
        let page = Page::pin(rel, version);
        page.share();
        let tuple = page.heap_tuple(rel, version);
        page.unlock();
        let identity = match tuple {
            Some(mut tuple) => key.of_tuple(&mut tuple, (*rel).rd_att),
            None => None,
        };
        page.unpin();
        identity
    }
}

/// What a lock finds at a row that is not hot.
pub enum Heat {
    /// It makes the row hot.
    Hot(Slot),
    /// Others have it.
    Contended,
    Calm,
}

/// A row that is not hot: does this lock make it so?
pub unsafe fn heat(
    rel: pg_sys::Relation,
    key: &Key,
    identity: &Identity,
    version: u64,
    mode: LockTupleMode::Type,
) -> Heat {
    // SAFETY: as in `identity_of`.
    unsafe {
        let contended = detect::is_contended(rel, version, mode);
        if settings::of((*rel).rd_id).hot_threshold() > 0 && !detect::is_ripe(identity) {
            if !contended {
                return Heat::Calm;
            }
            order::note_wait_to_lock((*rel).rd_id, mode);
            if !detect::count_waiter(identity) {
                return Heat::Contended;
            }
            detect::uncount_waiter();
        }
        match detect::promote(rel, key, identity, version) {
            Some(slot) => Heat::Hot(slot),
            None if contended => Heat::Contended,
            None => Heat::Calm,
        }
    }
}

/// The hot row with that identity, which this lock may make hot, or which may become hot while it is awaited. None: heap locks it, with
/// our place in its queue.
unsafe fn find_hot(
    call: &Lock,
    key: &Key,
    identity: &Identity,
    version: u64,
) -> Result<Slot, Option<Place>> {
    if let Some(slot) = detect::find(identity) {
        return Ok(slot);
    }
    // SAFETY: as in `tuple_lock`.
    unsafe {
        let current = || current_version(call, version, identity);
        match heat(call.rel, key, identity, current(), call.mode) {
            Heat::Hot(slot) => Ok(slot),
            Heat::Calm => Err(None),
            // Others in heap's queue may wait for us.
            Heat::Contended if SESSION.has_locked(identity) => Err(None),
            Heat::Contended => {
                order::let_pass_in(relation_of(call.rel), Contention::Row);
                match cold::await_turn(call.rel, current, call.mode, identity) {
                    Turn::Hot(slot) => {
                        detect::uncount_waiter();
                        Ok(slot)
                    }
                    Turn::Ours(place) => Err(place),
                }
            }
        }
    }
}

/// Takes the row's ticket. Returns the membership; None for a row that this transaction has written or locked in another
/// way (behind its predecessors even so), be it in a later version, or that is not hot any more; and if it cannot be had at once by a
/// transaction that cannot use what it would wait for (repeatable.rs).
///
/// # Safety
/// `rel` is open, and the version is one that a scan has found.
pub unsafe fn ticket_for(
    rel: pg_sys::Relation,
    slot: Slot,
    identity: &Identity,
    version: u64,
) -> Option<usize> {
    match SESSION.in_row(slot) {
        Some((n, m)) if m.has_ticket() => Some(n),
        Some((_, m)) if m.has_version() => None,
        found => {
            // SAFETY: a version that a scan has found.
            let is_own = || unsafe { detect::is_own(rel, version) };
            if found.is_some() || SESSION.has_locked(identity) || is_own() {
                // Heap's way has no second look: a predecessor that has only the ticket may come
                // after us.
                commit::wait_for_predecessors(Reason::Order);
                return None;
            }
            statement::drop_unused(swap::usage(rel).map_or(0, |usage| usage.query));
            if xact::is_read_committed() {
                ticket::acquire(slot, identity)
            } else {
                repeatable::take_free(slot, identity)
            }
        }
    }
}

/// With the ticket: locks the last version, and hands it out although its writer still runs (trap 9). Our update will follow
/// it; until then we are a reader. None once nobody runs in the list: heap locks then.
unsafe fn follow(call: Lock, n: usize, version: u64) -> Option<TM_Result::Type> {
    // SAFETY: as in `tuple_lock`; the slot is a buffer heap slot.
    unsafe {
        let slot = SESSION.get(n)?.slot();
        let query = swap::usage(call.rel).map_or(0, |usage| usage.query);
        let with_key = call.mode == LockTupleMode::LockTupleExclusive;
        loop {
            let others_wait = end_group_for_others(slot);
            let tail = match next_step(n, version, false, query) {
                Step::Offer(tail) if finds_last(&call) => tail,
                Step::Await(tail) if others_wait => {
                    await_in_turn(call.rel, version, n, &tail);
                    continue;
                }
                Step::Offer(tail) | Step::Await(tail) | Step::Follow(tail) => {
                    await_tail(n, &tail);
                    continue;
                }
                Step::Ordinary => return None,
            };
            offer(n, &tail);
            if let Some((found, page)) = version_of(call.rel, tail.tid, tail.xid) {
                if lend(&call, n, &tail, with_key) {
                    (*call.failure).traversed = true;
                    hand_out(&call, found, page);
                    return Some(TM_Result::TM_Ok);
                }
                page.unpin();
            }
            forget_offer(n);
            await_tail(n, &tail);
        }
    }
}

/// Locks the offered version for our update to come: whoever comes upon it after its writer's commit has to wait for us.
/// From here on its writer is our predecessor. False if it has closed its version meanwhile, or that cannot be locked.
///
/// # Safety
/// The executor's arguments; we have the ticket.
pub unsafe fn lend(call: &Lock, n: usize, tail: &Tail, with_key: bool) -> bool {
    let base = Base {
        version: tail.tid,
        xid: tail.xid,
    };
    // SAFETY: by the contract. We stand in the list before our lock shows: the writer must not come to wait for us in the
    // lock manager, to change its version again.
    unsafe {
        raw::GetCurrentTransactionId();
        SESSION.publish();
        if !statement::depend_on_open(n) {
            return false;
        }
        if !group::lock(call.rel, &base, with_key) {
            statement::depend_no_more(n);
            return false;
        }
    }
    SESSION.step(n, |m| m.lends(tail.tid));
    true
}

/// Gives the executor a version in place of the one with which it came.
///
/// # Safety
/// The executor's arguments; the slot is a buffer heap slot, and `page`, that of `found`, is pinned.
pub unsafe fn hand_out(call: &Lock, found: pg_sys::HeapTupleData, page: Page) {
    // SAFETY: by the contract.
    unsafe {
        *call.tid = found.t_self;
        tuple::store(call.rel, call.slot, found, page);
    }
}

/// Takes the ticket and lets everybody in the list end. Returns the membership.
unsafe fn hold(
    rel: pg_sys::Relation,
    slot: Slot,
    identity: &Identity,
    version: u64,
) -> Option<usize> {
    // SAFETY: a version that a scan has found.
    let n = unsafe { ticket_for(rel, slot, identity, version)? };
    await_list(n, slot);
    Some(n)
}

fn await_list(n: usize, slot: Slot) {
    while let Some(tail) = memory().with_row(slot, |row, world| row.tail(world)) {
        await_tail(n, &tail);
    }
}

/// Declares a wait for whoever has that version in its grip, to lock it so.
///
/// # Safety
/// The version is one that a scan of `rel` has found.
pub unsafe fn wait_for_lockers(rel: pg_sys::Relation, version: u64, mode: LockTupleMode::Type) {
    // SAFETY: a version that a scan has found.
    if let detect::Grip::Other(xid) = unsafe { detect::grip(rel, version, mode) } {
        order::note_wait_to_lock(relation_of(rel), mode);
        await_edge(xid);
    }
}

pub fn end_wait() {
    if SESSION.published.get() {
        memory().actors[wait::me() as usize].wait(None);
    }
}

/// Hands out the uncommitted version that `tuple_update` has offered. If its writer has rolled back meanwhile and it is
/// gone, heap finds the right one, from where the executor came.
unsafe fn offered(call: Lock, n: usize, membership: Membership) -> TM_Result::Type {
    // SAFETY: as in `tuple_lock`; the slot is a buffer heap slot, as heapam's own callback wants it.
    unsafe {
        if !membership.is_restarting() {
            let found = membership
                .offer()
                .and_then(|offer| version_of(call.rel, offer.version, offer.xid));
            if let Some((found, page)) = found {
                *call.tid = found.t_self;
                SESSION.step(n, Membership::handed_out);
                (*call.failure).traversed = true;
                tuple::store(call.rel, call.slot, found, page);
                return TM_Result::TM_Ok;
            }
            refuse_if_shown(n);
        }
        forget_offer(n);
        if let Some(origin) = membership.origin() {
            *call.tid = tuple::unpack(origin);
        }
        let result = call.heap();
        let row = &memory().directory.rows[membership.slot() as usize];
        let is_other = result == TM_Result::TM_Ok
            && key_of(call.rel).is_some_and(|key| note_if_other(&call, key, |found| row.is(found)));
        if is_other {
            pass_on(n);
        } else {
            keep_ticket(n, result);
        }
        // The executor wants to hear that it has another version in its hands than before.
        (*call.failure).traversed = true;
        result
    }
}

/// The version at that address, if it is that transaction's, with its page pinned.
pub unsafe fn version_of(
    rel: pg_sys::Relation,
    version: u64,
    xid: u32,
) -> Option<(pg_sys::HeapTupleData, Page)> {
    // SAFETY: `rel` is open; the header is read under the page's lock.
    unsafe {
        let page = Page::pin(rel, version);
        page.share();
        let found = page
            .heap_tuple(rel, version)
            .filter(|found| u32::from(tuple::raw_xmin(found.t_data)) == xid);
        page.unlock();
        if found.is_none() {
            page.unpin();
        }
        found.map(|found| (found, page))
    }
}

/// The transaction locks its own version. It already holds more than any share (nobody can delete the row or change its
/// key before it ends), so there is nothing to stamp (trap 7); a stronger lock is a claim to change the row again.
unsafe fn own_row(call: Lock, n: usize, membership: Membership) -> TM_Result::Type {
    // SAFETY: as in `tuple_lock`.
    unsafe {
        let shared = matches!(
            call.mode,
            LockTupleMode::LockTupleKeyShare | LockTupleMode::LockTupleShare
        );
        if !shared {
            close_own(n);
            return call.heap();
        }
        let Some(version) = membership.version().filter(|_| membership.is_listed()) else {
            return call.heap();
        };
        let page = Page::pin(call.rel, version);
        page.share();
        let found = page.heap_tuple(call.rel, version);
        page.unlock();
        match found {
            Some(found) => {
                (*call.failure).traversed = false;
                tuple::store(call.rel, call.slot, found, page);
                TM_Result::TM_Ok
            }
            None => {
                page.unpin();
                call.heap()
            }
        }
    }
}

fn relation_of(rel: pg_sys::Relation) -> pg_sys::Oid {
    // SAFETY: an open relation.
    unsafe { (*rel).rd_id }
}

/// A MERGE may go on to delete the version that its update was offered. If the writer has rolled back, that is 40001.
fn refuse_what_was_lent(relation: pg_sys::Oid, version: u64) {
    let lent = SESSION.all().filter(|(_, m)| {
        session::relation_of(m) == relation && m.has_in_hand(version) && m.depends()
    });
    for (n, membership) in lent {
        // It has left the list. Prepared, it runs.
        commit::wait_for_predecessor(n, &membership, Reason::Fallback);
    }
}

/// `tuple_delete` of our routine.
///
/// # Safety
/// The executor's arguments.
pub unsafe fn tuple_delete(call: Delete) -> TM_Result::Type {
    // SAFETY: by the contract; the address points to a valid item pointer.
    unsafe {
        let version = tuple::pack(&*call.tid);
        check::take_in((*call.rel).rd_id);
        if let Some((n, _)) = SESSION.with_version((*call.rel).rd_id, version) {
            close_own(n);
            SESSION.step(n, Membership::deletes);
            return call.heap();
        }
        order::let_pass_in(relation_of(call.rel), Contention::Row);
        let relation = relation_of(call.rel);
        let are_hot = memory().directory.used.get() > 0;
        let identity = key_of(call.rel)
            .filter(|_| settings::uses(relation))
            .filter(|_| are_hot || !SESSION.may_have_locked_any())
            .and_then(|key| identity_of(call.rel, key, version));
        let held = identity.as_ref().and_then(|identity| {
            let slot = detect::find(identity)?;
            hold(call.rel, slot, identity, version)
        });
        if let Some(n) = held {
            note_unused(n, call.rel);
        }
        refuse_what_was_lent(relation, version);
        if SESSION.is_waited_for() {
            wait_for_lockers(call.rel, version, LockTupleMode::LockTupleExclusive);
        }
        let result = waiting::with_ticket(|| call.heap());
        end_wait();
        let is_done = result == TM_Result::TM_Ok;
        if let Some(n) = held {
            keep_ticket(n, result);
        } else if is_done && let Some(identity) = identity {
            SESSION.note_locked(&identity);
        }
        result
    }
}
