//! The present transaction's `Work`: when it begins and ends, and which tables it knows.

use super::key::{self, Table};
use super::view::{self, View};
use super::work::{Whole, Work};
use crate::hotlock::memory;
use crate::pg::local::Local;
use crate::pg::of_transaction::{self, OfTransaction};
use crate::pg::{raw, xact};
use crate::shared::guc;
use keyrange::Csn;
use pgrx::pg_sys::{self, Oid};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Tables of a transaction whose memory is kept for the next one.
const MOST_KEPT: usize = 64;

struct Session {
    /// Whether the present transaction is validated, once that is settled.
    validated: Cell<Option<bool>>,
    /// Whether the present transaction was READ ONLY when that was settled for the first time: it
    /// is until it ends.
    read_only: Cell<Option<bool>>,
    /// Whether it was when the last savepoint outside of any began.
    outer_read_only: Cell<bool>,
    /// The nesting level of a command during which transactions are not validated.
    exempt: Cell<Option<i32>>,
    work: RefCell<Option<Box<Work>>>,
    /// The memory of a transaction that has ended.
    spare: Cell<Option<Box<Work>>>,
    /// Statements that may have read with its snapshot; one more if it is somebody else's.
    snapshot_used: Cell<u32>,
    /// A transaction that this session does not wait for any more; see `ordered`.
    given_up: Cell<u32>,
    /// ROLLBACK TO SAVEPOINT is at work: subtransactions roll back without an error.
    rolls_back_to: Cell<bool>,
    /// It is about to commit: what it reads and writes is settled.
    sealed: Cell<bool>,
    /// What a survey soon after the transaction's snapshot has found, if there was one
    /// (`keyrange::Survey::lasting_prefix`).
    prefix: OfTransaction<Option<Csn>>,
    /// Transactions for which it is still worth while to copy the rings before they read.
    wants_ring_copy: Cell<u32>,
    /// Descriptors of index scans whose keys have not been seen, by address. One that an error has
    /// left behind does no harm.
    expected: RefCell<Vec<usize>>,
    /// Whether there are any.
    is_expecting: Cell<bool>,
}
static SESSION: Local<Session> = Local::new(Session {
    validated: Cell::new(None),
    read_only: Cell::new(None),
    outer_read_only: Cell::new(false),
    exempt: Cell::new(None),
    work: RefCell::new(None),
    spare: Cell::new(None),
    snapshot_used: Cell::new(0),
    given_up: Cell::new(0),
    rolls_back_to: Cell::new(false),
    sealed: Cell::new(false),
    prefix: OfTransaction::new(None),
    wants_ring_copy: Cell::new(0),
    expected: RefCell::new(Vec::new()),
    is_expecting: Cell::new(false),
});

/// Whether the present transaction is validated. Settled once it has its snapshot.
#[inline]
pub fn is_validated() -> bool {
    !xact::is_read_committed() && SESSION.validated.get().unwrap_or_else(settle)
}

fn settle() -> bool {
    // SAFETY: plain reads of backend state. A transaction that has failed keeps its snapshot until
    // ROLLBACK, after its end.
    let (has_snapshot, is_worker) = unsafe {
        (
            pg_sys::FirstSnapshotSet && raw::IsTransactionState(),
            pg_sys::ParallelWorkerNumber >= 0,
        )
    };
    let asks = guc::is_on(&guc::RANGE_OCC) && !xact::is_read_committed();
    let validated = asks && !is_worker && SESSION.exempt.get().is_none();
    if has_snapshot {
        SESSION.validated.set(Some(validated));
        if SESSION.read_only.get().is_none() {
            // What a savepoint sets goes with it.
            let is_outermost = xact::nest_level() == 1;
            let all = is_outermost || SESSION.outer_read_only.get();
            SESSION.read_only.set(Some(all && xact::is_read_only()));
        }
    }
    validated
}

/// Whether the present transaction is validated and READ ONLY, all of it.
pub fn is_read_only() -> bool {
    is_validated() && SESSION.read_only.get() == Some(true) && xact::is_read_only()
}

/// A command begins, perhaps of several transactions, that tells nobody of rows: what it reads is
/// not validated.
pub fn begin_exempt() {
    if SESSION.exempt.get().is_none() {
        SESSION.exempt.set(Some(xact::nest_level()));
        SESSION.validated.set(None);
    }
}

/// It is over.
pub fn end_exempt() {
    if SESSION.exempt.take().is_some() {
        SESSION.validated.set(None);
    }
}

/// Ends the exemption after an error, if it began at this nesting level or deeper.
pub fn give_up_exempt(level: i32) {
    if SESSION.exempt.get().is_some_and(|at| at >= level) {
        end_exempt();
    }
}

/// Works on the present transaction's work, which is begun if there is none. Nothing of
/// PostgreSQL's is called inside.
pub fn with<R>(body: impl FnOnce(&mut Work) -> R) -> R {
    of_transaction::note();
    let mut work = SESSION.work.borrow_mut();
    let new = || Box::new(Work::new());
    body(work.get_or_insert_with(|| SESSION.spare.take().unwrap_or_else(new)))
}

/// Whether the present transaction has any work.
#[inline]
pub fn has_work() -> bool {
    SESSION.work.borrow().is_some()
}

/// As `with`, but only if the present transaction has any work; `None` otherwise.
pub fn with_present<R>(body: impl FnOnce(&mut Work) -> R) -> Option<R> {
    SESSION.work.borrow_mut().as_mut().map(|work| body(work))
}

/// The present transaction's work, to be looked at while PostgreSQL is asked things: an ERROR then
/// leaves nothing borrowed.
///
/// # Safety
/// It is not changed by `with` while the reference lives.
pub unsafe fn look() -> Option<&'static Work> {
    let work = SESSION.work.as_ptr();
    // SAFETY: by the contract; the box stays where it is until the transaction ends.
    unsafe { (*work).as_deref() }
}

/// The table, if the present transaction has touched it. Good until the transaction ends.
pub fn known(oid: Oid) -> Option<&'static Table> {
    with_present(|work| work.table(oid).map(Rc::as_ptr))
        .flatten()
        // SAFETY: the transaction's work has a share of it, and tables do not change.
        .map(|table| unsafe { &*table })
}

/// Tells the rings, after a server start, that they know nothing of transactions from before.
pub fn start_clock() {
    let clock = memory().rings.clock;
    // SAFETY: reads shared state.
    if clock.complete_from() == 0 && unsafe { !raw::RecoveryInProgress() } {
        clock.start(view::next_fxid());
    }
}

/// The present transaction uses its snapshot now. Whether this is the first time.
#[inline]
pub fn uses_snapshot() -> bool {
    let before = SESSION.snapshot_used.get();
    SESSION.snapshot_used.set(before.saturating_add(1));
    before == 0
}

/// Whether the present transaction may have used its snapshot.
pub fn has_used_snapshot() -> bool {
    SESSION.snapshot_used.get() > 0
}

/// Whether only one statement may have.
pub fn has_used_snapshot_once() -> bool {
    SESSION.snapshot_used.get() == 1
}

/// The transaction for which the session has waited in vain, or 0.
pub fn given_up() -> u32 {
    SESSION.given_up.get()
}

/// It has waited in vain for that one.
pub fn give_up(xid: u32) {
    SESSION.given_up.set(xid);
}

/// Whether the transaction is about to commit.
#[inline]
pub fn is_sealed() -> bool {
    SESSION.sealed.get()
}

/// The transaction is about to commit. From here on it must not touch a table.
pub fn seal() {
    SESSION.sealed.set(true);
}

/// Transactions of a session that are careful after one of them lost its history.
const CAREFUL: u32 = 8;
/// For how long all sessions are, in microseconds: with a pooler between, another one may get the
/// next try.
const ALL_CAREFUL: u64 = 30_000_000;

/// When the present transaction began, in microseconds.
fn now() -> u64 {
    // SAFETY: reads backend state.
    unsafe { raw::GetCurrentTransactionStartTimestamp() }.unsigned_abs()
}

/// A transaction was refused, or will be, for want of history.
pub fn note_lost() {
    SESSION.wants_ring_copy.set(CAREFUL);
    memory().rings.clock.lose(now());
}

/// Whether the present transaction is careful: it makes a survey of those that its snapshot does
/// not see, and copies the rings, before it reads.
#[inline]
pub fn wants_ring_copy() -> bool {
    SESSION.wants_ring_copy.get() > 0 || {
        let lost_at = memory().rings.clock.lost_at();
        lost_at > 0 && now() < lost_at.saturating_add(ALL_CAREFUL)
    }
}

/// A survey for the snapshot's whole life, once, as early as can be.
pub fn survey(view: &View) {
    if SESSION.prefix.get().is_none() {
        let survey = keyrange::Snapshot::survey(view);
        SESSION.prefix.set(Some(survey.lasting_prefix));
    }
}

/// One of them does.
pub fn ring_copy_tried() {
    SESSION
        .wants_ring_copy
        .set(SESSION.wants_ring_copy.get().saturating_sub(1));
}

/// What `survey` has found; 0 without one.
pub fn prefix() -> Csn {
    SESSION.prefix.get().unwrap_or(0)
}

/// A table's storage is replaced by an empty one.
pub fn note_truncated(rel: pg_sys::Relation) {
    // SAFETY: an open relation, perhaps a new one.
    let (oid, persistence) = unsafe { ((*rel).rd_id, (*(*rel).rd_rel).relpersistence as u8) };
    if persistence != pg_sys::RELPERSISTENCE_TEMP {
        let nesting = nesting(xact::nest_level());
        with(|work| work.writes.write_all(nesting, key::relation_of(oid)));
    }
}

/// The transaction's snapshot, and the CSN before which a transaction that only reads must have
/// seen everything.
pub fn reading_point() -> (View, Csn) {
    let view = View::of_transaction();
    let clock = memory().rings.clock;
    let before = with(|work| *work.before.get_or_insert_with(|| clock.reading_point()));
    (view, before)
}

/// The transaction has taken its snapshot again, and has read nothing: where it stands, and what it
/// has copied, was of the one before.
pub fn retaken() {
    SESSION.prefix.clear();
    with_present(|work| {
        work.before = None;
        work.history = Default::default();
    });
}

/// What is read with that snapshot tells more than the transaction's own does, unless it is the
/// same. Whether it does.
///
/// # Safety
/// A snapshot of kind MVCC or DIRTY, in a validated transaction.
pub unsafe fn note_snapshot(snapshot: pg_sys::Snapshot) -> bool {
    // SAFETY: the caller's snapshot is of kind MVCC or DIRTY, and the transaction has one of its
    // own.
    let is_newer = unsafe { !view::is_own_snapshot(snapshot) };
    if is_newer {
        with(|work| work.saw_beyond = true);
    }
    is_newer
}

/// The transaction was told of another one by what it could not lock or change.
pub fn told_of_others() {
    if is_validated() {
        with(|work| work.saw_beyond = true);
    }
}

/// A utility statement about transactions: whether it is ROLLBACK TO SAVEPOINT, which goes on until
/// a subtransaction begins.
pub fn rolls_back_to(is_one: bool) {
    SESSION.rolls_back_to.set(is_one);
}

/// A subtransaction begins.
pub fn subtransaction_started() {
    SESSION.rolls_back_to.set(false);
    if xact::nest_level() == 2 {
        SESSION.outer_read_only.set(xact::is_read_only());
    }
}

/// Anything may have been read of an open relation without our seeing it.
///
/// # Safety
/// `rel` is open.
pub unsafe fn note_untracked(rel: pg_sys::Relation) {
    // SAFETY: the caller's relation is open, so its pg_class row is in the relcache entry.
    let (oid, persistence) = unsafe { ((*rel).rd_id, (*(*rel).rd_rel).relpersistence as u8) };
    if is_validated() && persistence != pg_sys::RELPERSISTENCE_TEMP {
        with(|work| work.read_all(key::relation_of(oid), Whole::Unseen));
    }
}

/// A subtransaction at this nesting level (2 is the first) has rolled back. What it wrote is not
/// written; but whoever wrote it may have been told of other rows with these keys, which the
/// snapshot need not see.
pub fn subtransaction_rolled_back(level: i32) {
    give_up_exempt(level);
    let validated = is_validated();
    // An error that is caught may have told of anything: of a later version, of a lock that others
    // have, of a definition.
    // SAFETY: a global of this backend, which has one thread.
    if !SESSION.rolls_back_to.get() && unsafe { pg_sys::FirstSnapshotSet } {
        told_of_others();
    }
    with_present(|work| {
        let nesting = nesting(level);
        work.read_looked_for();
        if validated {
            for (_, relation, key) in work
                .found
                .extract_if(.., |(at, ..)| *at >= nesting)
                .collect::<Vec<_>>()
            {
                work.read(relation, &[key]);
            }
            // The lock may be gone that kept others from writing there.
            for relation in std::mem::take(&mut work.seen_whole) {
                work.read_all(relation, Whole::Rollback);
            }
            // A deferred constraint may have been checked for what was written before.
            let relations = work.writes.iter().map(|written| written.relation);
            let deferrable: BTreeSet<_> = relations
                .filter(|&relation| {
                    work.any_definition(relation, |table| table.has_deferrable) == Some(true)
                })
                .collect();
            for relation in deferrable {
                work.saw_beyond = true;
                work.read_all(relation, Whole::Rollback);
            }
            let attempted: Vec<_> = work.writes.inside(nesting).collect();
            work.saw_beyond |= !attempted.is_empty();
            for written in attempted {
                let other_keys =
                    work.any_definition(written.relation, |table| table.has_other_keys);
                match written.place {
                    Some((_, keys)) if other_keys == Some(false) => {
                        work.read(written.relation, &[keys])
                    }
                    _ => work.read_all(written.relation, Whole::Rollback),
                }
            }
        }
        work.writes.roll_back(nesting);
    });
}

/// A subtransaction at this nesting level has committed into its parent.
pub fn subtransaction_committed(level: i32) {
    with_present(|work| {
        let nesting = nesting(level);
        work.writes.release(nesting);
        for (at, ..) in &mut work.found {
            *at = (*at).min(nesting - 1);
        }
        work.found.retain(|(at, ..)| *at > 0);
    });
}

/// `keyrange`'s depth of a nesting level of PostgreSQL's, which counts the transaction itself as 1.
pub fn nesting(level: i32) -> u32 {
    (level - 1).max(0) as u32
}

/// The keys of the index scan with that descriptor are to be seen.
pub fn expect(descriptor: usize) {
    of_transaction::note();
    SESSION.expected.borrow_mut().push(descriptor);
    SESSION.is_expecting.set(true);
}

/// Whether keys of any scan are to be seen. Asked for every row.
#[inline]
pub fn is_expecting() -> bool {
    SESSION.is_expecting.get()
}

/// Whether they were still to be seen. They are not any more.
pub fn was_expected(descriptor: usize) -> bool {
    let mut expected = SESSION.expected.borrow_mut();
    let before = expected.len();
    expected.retain(|&one| one != descriptor);
    SESSION.is_expecting.set(!expected.is_empty());
    expected.len() < before
}

/// The memory of a transaction that is over is kept for the next one, unless it is much.
fn end_work() {
    if let Some(mut work) = SESSION.work.borrow_mut().take()
        && work.tables.len() <= MOST_KEPT
    {
        work.reset();
        SESSION.spare.set(Some(work));
    }
}

/// Any transaction has ended.
#[inline]
pub fn end_any() {
    SESSION.snapshot_used.set(0);
    SESSION.rolls_back_to.set(false);
    SESSION.sealed.set(false);
    SESSION.validated.set(None);
    SESSION.read_only.set(None);
}

/// A transaction has ended that may have had work.
#[inline]
pub fn end() {
    SESSION.prefix.clear();
    if has_work() {
        end_work();
    }
    if SESSION.is_expecting.replace(false) {
        SESSION.expected.borrow_mut().clear();
    }
}
