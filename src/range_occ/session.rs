//! What the present transaction has read and written in tables of `txn_heap`.

use super::key::{self, Table};
use super::view::{self, View};
use super::{errors, guard};
use crate::guc;
use crate::hotlock::memory;
use crate::pg::{raw, xact};
use keyrange::{Conflict, Csn, Interval, Predicates, Relation, WriteSet};
use pgrx::pg_sys::{self, Oid};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Intervals kept for a relation; more are joined.
const MOST_INTERVALS: usize = 256;
/// Ranges that a transaction registers for a relation; with more, it is the whole relation.
const MOST_RANGES: usize = 128;

/// Why a transaction counts as having read a whole table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whole {
    SequentialScan,
    SampleScan,
    TidScan,
    /// The index, or its operators, say nothing of the range key.
    OtherIndex,
    NoKey,
    /// A subtransaction that had written rolled back: an error may have told of rows that nobody has read.
    Rollback,
    /// An index scan whose keys could not be seen.
    Unseen,
}

impl Whole {
    pub fn text(self) -> &'static str {
        match self {
            Whole::SequentialScan => "sequential scan",
            Whole::SampleScan => "sample scan",
            Whole::TidScan => "scan by tuple identifier",
            Whole::OtherIndex => "index or operator that says nothing of the range key",
            Whole::NoKey => "no range key",
            Whole::Rollback => "rolled back subtransaction",
            Whole::Unseen => "index scan with unknown keys",
        }
    }
}

/// A transaction's work, from its first touch of such a table on.
pub struct Work {
    /// The tables as they were when the transaction first touched them.
    tables: Vec<Rc<Table>>,
    pub writes: WriteSet,
    pub predicates: Predicates,
    /// Those that have not been validated when they were captured.
    pub fresh: Predicates,
    pub whole: BTreeMap<Relation, Whole>,
    /// A key that a foreign key's check looks for. If it finds and locks the row, that is no read.
    looked_for: Option<(Relation, Interval)>,
    /// A transaction without writes comes after those with CSNs below this one.
    pub before: Option<Csn>,
    /// Conflicts with transactions that had not ended when they were found.
    pub doubtful: RefCell<Vec<Conflict>>,
    /// Validation has begun.
    pub sealed: bool,
}

impl Work {
    fn new() -> Self {
        Work {
            tables: Vec::new(),
            writes: WriteSet::new(MOST_RANGES),
            predicates: Predicates::new(MOST_INTERVALS),
            fresh: Predicates::new(MOST_INTERVALS),
            whole: BTreeMap::new(),
            looked_for: None,
            before: None,
            doubtful: RefCell::default(),
            sealed: false,
        }
    }

    /// The table, if the transaction has touched it.
    pub fn table(&self, oid: Oid) -> Option<&Rc<Table>> {
        self.tables.iter().rev().find(|table| table.oid == oid)
    }

    /// Notes that a foreign key's check looks for that key of the referenced table.
    pub fn look_for(&mut self, relation: Relation, key: Interval) {
        self.read_looked_for();
        self.looked_for = Some((relation, key));
    }

    /// The check has found the row and locked it: it stays, and stays visible, until the transaction ends, whatever else is
    /// changed in it.
    pub fn found(&mut self, relation: Relation) {
        if self.looked_for.is_some_and(|(of, _)| of == relation) {
            self.looked_for = None;
        }
    }

    /// What was looked for and not found was read.
    pub fn read_looked_for(&mut self) {
        if let Some((relation, key)) = self.looked_for.take() {
            self.read(relation, &[key]);
        }
    }

    /// Notes what was read; what is new is fresh, too.
    pub fn read(&mut self, relation: Relation, intervals: &[Interval]) {
        self.read_looked_for();
        for interval in intervals {
            if !self.predicates.covers(relation, interval) {
                self.predicates.read(relation, &[*interval]);
                self.fresh.read(relation, &[*interval]);
            }
        }
    }

    /// Notes that a whole table was read.
    pub fn read_all(&mut self, relation: Relation, whole: Whole) {
        self.whole.entry(relation).or_insert(whole);
        self.read(relation, &[Interval::ALL]);
    }
}

struct Session {
    /// Whether the present transaction is validated, once that is settled.
    validated: Cell<Option<bool>>,
    work: RefCell<Option<Box<Work>>>,
    /// Descriptors of index scans whose keys have not been seen, by address. One that an error has left behind does no harm.
    expected: RefCell<Vec<usize>>,
}
// SAFETY: a backend has one thread.
unsafe impl Sync for Session {}
static SESSION: Session = Session {
    validated: Cell::new(None),
    work: RefCell::new(None),
    expected: RefCell::new(Vec::new()),
};

/// Whether the present transaction is validated. Settled once it has its snapshot.
#[inline]
pub fn is_validated() -> bool {
    SESSION.validated.get().unwrap_or_else(settle)
}

fn settle() -> bool {
    // SAFETY: plain reads of backend state.
    let (has_snapshot, is_worker) =
        unsafe { (pg_sys::FirstSnapshotSet, pg_sys::ParallelWorkerNumber >= 0) };
    let validated = guc::RANGE_OCC.get() && !xact::is_read_committed() && !is_worker;
    if has_snapshot {
        SESSION.validated.set(Some(validated));
    }
    validated
}

/// Works on the present transaction's work, which is begun if there is none. Nothing of PostgreSQL's is called inside.
pub fn with<R>(body: impl FnOnce(&mut Work) -> R) -> R {
    let mut work = SESSION.work.borrow_mut();
    body(work.get_or_insert_with(|| Box::new(Work::new())))
}

/// The same if there is any.
pub fn with_present<R>(body: impl FnOnce(&mut Work) -> R) -> Option<R> {
    SESSION.work.borrow_mut().as_mut().map(|work| body(work))
}

/// The present transaction's work, to be looked at while PostgreSQL is asked things: an ERROR then leaves nothing borrowed.
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

/// The present transaction's first touch of an open table makes it known; `None` for tables that nobody else can see.
///
/// # Errors
/// 40001 if the transaction is validated and does not see the table's definition; 0A000 in recovery; 25000 once validation
/// has begun.
///
/// # Safety
/// `rel` is open and locked, of the access method `txn_heap`; nothing with a destructor is alive in the callers.
pub unsafe fn touch(rel: pg_sys::Relation) -> Option<&'static Table> {
    // SAFETY: by the contract.
    let (oid, persistence) = unsafe { ((*rel).rd_id, (*(*rel).rd_rel).relpersistence as u8) };
    if with_present(|work| work.sealed) == Some(true) {
        errors::SEALED.raise();
    }
    let table = known(oid);
    if table.is_some() {
        return table;
    }
    if persistence == pg_sys::RELPERSISTENCE_TEMP || u32::from(oid) < pg_sys::FirstNormalObjectId {
        return None;
    }
    start_clock();
    if is_validated() {
        guard::refuse_recovery();
        // SAFETY: by the contract.
        let index = unsafe { key::of(rel).index };
        guard::check_definition(oid, index);
    }
    // SAFETY: by the contract.
    let table = unsafe { key::of(rel) };
    with(|work| work.tables.push(table));
    known(oid)
}

/// Tells the rings, after a server start, that they know nothing of transactions from before.
pub fn start_clock() {
    let clock = memory().board.clock;
    // SAFETY: reads shared state.
    if clock.complete_from() == 0 && unsafe { !raw::RecoveryInProgress() } {
        clock.start(view::next_fxid());
    }
}

/// The transaction's snapshot, and the CSN before which a transaction that only reads must have seen everything.
pub fn reading_point() -> (View, Csn) {
    let view = View::of_transaction();
    let clock = memory().board.clock;
    let before = with(|work| *work.before.get_or_insert_with(|| clock.reading_point()));
    (view, before)
}

/// A subtransaction at this nesting level (2 is the first) has rolled back. What it wrote is not written; but whoever
/// wrote it may have been told of other rows with these keys.
pub fn subtransaction_rolled_back(level: i32) {
    let validated = is_validated();
    with_present(|work| {
        let nesting = nesting(level);
        work.read_looked_for();
        if validated {
            let attempted: Vec<_> = work.writes.inside(nesting).collect();
            for written in attempted {
                let oid = key::oid_of(written.relation);
                let has_other_keys = work.table(oid).is_none_or(|table| table.has_other_keys);
                match written.place {
                    Some((_, keys)) if !has_other_keys => work.read(written.relation, &[keys]),
                    _ => work.read_all(written.relation, Whole::Rollback),
                }
            }
        }
        work.writes.roll_back(nesting);
    });
}

/// A subtransaction at this nesting level has committed into its parent.
pub fn subtransaction_committed(level: i32) {
    with_present(|work| work.writes.release(nesting(level)));
}

/// `keyrange`'s depth of a nesting level of PostgreSQL's, which counts the transaction itself as 1.
pub fn nesting(level: i32) -> u32 {
    (level - 1).max(0) as u32
}

/// The keys of the index scan with that descriptor are to be seen.
pub fn expect(descriptor: usize) {
    SESSION.expected.borrow_mut().push(descriptor);
}

/// Whether they were still to be seen. They are not any more.
#[inline]
pub fn was_expected(descriptor: usize) -> bool {
    let mut expected = SESSION.expected.borrow_mut();
    let before = expected.len();
    expected.retain(|&one| one != descriptor);
    expected.len() < before
}

/// The transaction has ended.
pub fn end() {
    SESSION.validated.set(None);
    SESSION.work.borrow_mut().take();
    SESSION.expected.borrow_mut().clear();
}
