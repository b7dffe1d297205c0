//! The steps of a statement's start on hot rows, each with the snapshot let go where it waits.

use super::combine;
use super::definitions;
use super::dependent;
use super::detect;
use super::early_reads;
use super::gate;
use super::latest;
use super::order;
use super::predecessors;
use super::repeatable;
use super::session::{SESSION, memory, statement_of};
use super::settings;
use super::ticket::{self, Turn};
use crate::pg::local::Local;
use crate::pg::of_transaction::OfTransaction;
use crate::pg::plan::{self, Target};
use crate::pg::{nodes, pre_lock_effects, snapshot, xact};
use hotrow::{Contention, Identity, Slot};
use pgrx::pg_sys::{self, CmdType, Oid};

/// A statement's snapshot, let go at most once.
pub struct Replaced {
    query: *mut pg_sys::QueryDesc,
    let_go: bool,
}

impl Replaced {
    /// That of a statement that is about to be started.
    pub fn of(query: *mut pg_sys::QueryDesc) -> Replaced {
        Replaced {
            query,
            let_go: false,
        }
    }

    /// # Safety
    /// The query is about to be started.
    pub unsafe fn let_go(&mut self) {
        // SAFETY: the query is about to be started.
        unsafe {
            if !self.let_go && snapshot::is_replaceable(self.query) {
                snapshot::let_go(self.query);
                self.let_go = true;
            }
        }
    }

    /// Takes a fresh one, if it was let go.
    ///
    /// # Safety
    /// As for `let_go`.
    pub unsafe fn finish(&self) {
        if self.let_go {
            // SAFETY: after `let_go`.
            unsafe { snapshot::take(self.query) }
        }
    }

    /// `finish` for a statement that is done without having run.
    ///
    /// # Safety
    /// As for `let_go`.
    pub unsafe fn finish_with_none(&self) {
        if self.let_go {
            // SAFETY: after `let_go`.
            unsafe { snapshot::take_none() }
        }
    }
}

/// The row that the statement changes or locks, if its key is known from the plan.
///
/// # Safety
/// `query` is what ExecutorStart is given.
pub unsafe fn target(query: *const pg_sys::QueryDesc) -> Option<Target> {
    // SAFETY: the executor's query is about to be started, so it has a plan.
    unsafe {
        let locks = matches!(
            (*query).operation,
            CmdType::CMD_UPDATE | CmdType::CMD_INSERT
        ) || !(*(*query).plannedstmt).rowMarks.is_null();
        if locks { plan::target(query) } else { None }
    }
}

/// Whether the statement reads only one row of that table, by its key, and we are no member of that
/// row.
fn passes_by(target: Option<&Target>, relation: Oid) -> bool {
    target.is_some_and(|target| {
        target.identity.relation == u32::from(relation)
            && target.is_alone()
            && !SESSION
                .all()
                .any(|(_, m)| memory().directory.rows[m.slot() as usize].is(&target.identity))
    })
}

/// Whether the statement reads only one row, by its key and nothing else, and we have that row's
/// ticket and its lock. See the rule "FOR UPDATE, then UPDATE". Other conditions would be asked of
/// the version that the snapshot shows, not of the one that we have locked.
fn is_locked_by_us(target: &Target) -> bool {
    target.is_unconditional()
        && SESSION.all().any(|(_, m)| {
            let row = &memory().directory.rows[m.slot() as usize];
            m.has_locked() && !m.has_version() && row.is(&target.identity)
        })
}

/// Whether the statement comes to one row only, by its key: another one than ours, or one that we
/// have locked and now update.
unsafe fn comes_by_key(query: *const pg_sys::QueryDesc, target: Option<&Target>) -> bool {
    // SAFETY: as in `before_start`.
    target.is_some_and(|target| unsafe {
        passes_by(Some(target), Oid::from(target.identity.relation))
            || (*query).operation == CmdType::CMD_UPDATE && is_locked_by_us(target)
    })
}

/// Lets the predecessors end if the statement reads what they may still change.
///
/// # Safety
/// ExecutorStart's argument, of `replaced`.
#[inline]
pub unsafe fn let_predecessors_end(replaced: &mut Replaced, target: Option<&Target>) {
    if SESSION.is_member() || definitions::are_noted() {
        // SAFETY: by the contract.
        unsafe { let_them_end(replaced, target) }
    }
}

/// # Safety
/// As for `let_predecessors_end`.
unsafe fn let_them_end(replaced: &mut Replaced, target: Option<&Target>) {
    let query = replaced.query;
    // SAFETY: the executor's query is about to be started, and `replaced` holds its snapshot.
    unsafe {
        if dependent::is_to_settle() {
            // The snapshot may be older than their end.
            replaced.let_go();
            dependent::let_predecessors_end();
        }
        if !SESSION.has_followed() || dependent::may_go_on(query, comes_by_key(query, target)) {
            return;
        }
        if SESSION.is_dependent() {
            replaced.let_go();
            if !replaced.let_go || predecessors::have_ended() || !early_reads::may_go_on(query) {
                dependent::let_predecessors_end();
            }
        }
        if !replaced.let_go {
            dependent::before_reading(query);
        }
    }
}

/// Queues for the row of the statement if it is hot.
///
/// # Safety
/// ExecutorStart's argument, of `replaced`.
pub unsafe fn queue(replaced: &mut Replaced, target: Target, is_first: bool) {
    let query = replaced.query;
    let relation = Oid::from(target.identity.relation);
    let slot = match settings::uses(relation) {
        true => detect::find(&target.identity),
        false => None,
    };
    // SAFETY: the executor's query is about to be started, and `replaced` holds its snapshot.
    unsafe {
        let Some(slot) = slot else {
            return let_pass(replaced, &target.identity);
        };
        if pre_lock_effects::locks_first(query) {
            return;
        }
        if !xact::is_read_committed() {
            if !is_first {
                return;
            }
            if !repeatable::allow_late(query, &target) {
                return repeatable::queue(query, slot, &target.identity);
            }
        }
        if pre_lock_effects::starts_quietly((*query).plannedstmt) {
            QUEUES.set(Some((query as usize, target.identity)));
            latest::allow(query, slot, &target);
            combine::consider(query, target);
        } else {
            queue_early(replaced, slot, &target.identity, || ticket::acquire_turn);
        }
    }
}

/// Before a statement on a row that is not hot: predecessors that may come to it go first.
///
/// # Safety
/// As for `queue_early`.
pub unsafe fn let_pass(replaced: &mut Replaced, identity: &Identity) {
    if order::may_overtake_in(Oid::from(identity.relation), Contention::Row) {
        // SAFETY: by the contract.
        unsafe { replaced.let_go() };
        detect::while_waiting_for(identity, || {
            order::let_pass();
        });
    }
}

/// The statement that queues when it is about to run, and its row. What the start of a statement
/// costs is then no part of the row's turn.
static QUEUES: Local<OfTransaction<Option<(usize, Identity)>>> =
    Local::new(OfTransaction::new(None));

/// Another statement is about to start, or one ends, or a command runs: a statement that has
/// started and not run (a portal's) queues when it comes to its row. Its snapshot must not show
/// what others of this transaction do.
#[inline]
pub fn forget_queueing() {
    QUEUES.clear();
    latest::forget();
}

/// The row for which that statement is to queue, for the first part of it that runs.
#[inline]
pub fn takes_queueing(query: usize) -> Option<Identity> {
    QUEUES
        .take()
        .filter(|(of, _)| *of == query)
        .map(|(_, row)| row)
}

/// Before an INSERT of a member: predecessors that may come to its value go first.
///
/// # Safety
/// ExecutorStart's argument, of `replaced`.
pub unsafe fn let_inserts_go_first(replaced: &mut Replaced) {
    let may_overtake = |relation| order::may_overtake_in(relation, Contention::Value);
    let query = replaced.query;
    // SAFETY: the executor's query is about to be started, so it has a plan.
    unsafe {
        if (*query).operation == CmdType::CMD_INSERT
            && nodes::oids((*(*query).plannedstmt).relationOids).any(may_overtake)
        {
            replaced.let_go();
            order::let_pass();
        }
    }
}

/// Takes the ticket of the row that the statement is going to update or lock, before it has cost
/// anything. `how_to_queue` is asked if the ticket is not free.
///
/// # Safety
/// The query is about to be started, or to run.
pub unsafe fn queue_early(
    replaced: &mut Replaced,
    slot: Slot,
    identity: &Identity,
    how_to_queue: impl FnOnce() -> fn(Slot, &Identity) -> Option<Turn>,
) -> Option<Turn> {
    if SESSION.in_row(slot).is_some() || SESSION.has_locked(identity) {
        return None;
    }
    // SAFETY: as in `before_start`.
    unsafe {
        if order::may_overtake_at(slot) {
            replaced.let_go();
        }
        let turn = match ticket::try_acquire(slot, identity) {
            Some(n) => Some(Turn::Own(n)),
            // A user without the right to run the statement does not wait for the ticket.
            None if (*replaced.query).estate.is_null() && !plan::is_allowed(replaced.query) => {
                gate::leave_if_alone();
                return None;
            }
            None => {
                let acquire = how_to_queue();
                replaced.let_go();
                acquire(slot, identity)
            }
        };
        let Some(Turn::Own(n)) = turn else {
            return turn;
        };
        let query = replaced.query as usize;
        SESSION.step(n, |m| m.claimed_by(statement_of(query)));
        let row = &memory().directory.rows[slot as usize];
        let last = row.last_xid.get();
        if !replaced.let_go
            && last != 0
            && row.listed() == 0
            && snapshot::is_replaceable(replaced.query)
            && snapshot::misses(replaced.query, last)
        {
            replaced.let_go();
        }
        turn
    }
}
