//! Partitioned tables. They have no rows of their own. But a scan of one reads which partitions it
//! has, and reads nothing of those that were detached or dropped. `redefined.rs` registers a change
//! of that as a write of the parent. An INSERT reads the lists of partitions along the way that its
//! rows take.

use super::definition;
use super::errors;
use super::key;
use super::reads;
use super::session;
use super::tables;
use super::uses;
use super::validation::{against, is_patient};
use super::work::LIST;
use crate::hotlock::memory;
use crate::pg::local::Local;
use crate::pg::per_table::PerTable;
use crate::pg::{lookup, nodes, raw, xact};
use keyrange::{Count, Csn, DEFINITION, Predicates, RangeMap, Refusal, Relation};
use pgrx::pg_sys::{self, Oid};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

/// The table that one is a partition of, or 0.
static PARENTS: PerTable<Oid, 256> = PerTable::new();

/// Targets whose lists are kept.
const MOST_KEPT: usize = 64;

/// The tables below a target, as of an invalidation.
type Below = (u64, Rc<[Relation]>);

struct Targets(RefCell<BTreeMap<Relation, Below>>);
/// Those of which all that is below has been looked at, and is of access methods that can be used.
static TARGETS: Local<Targets> = Local::new(Targets(RefCell::new(BTreeMap::new())));

/// Counts statements that may send rows to partitions.
static ROUTING: Local<Cell<u64>> = Local::new(Cell::new(0));

/// See `super::forget`.
pub fn forget(relation: Oid) {
    PARENTS.forget(relation);
}

/// Notes that a statement of a validated transaction, about to start, uses the partitioned table.
/// It stays locked for the transaction.
///
/// # Errors
/// 40001 if the snapshot does not see who has changed the list of partitions last: the plan may be
/// without one that it should have.
pub fn note(oid: Oid) {
    let relation = DEFINITION | key::relation_of(oid);
    let known = session::with(|work| work.parents.get(&relation).copied());
    if known == Some(key::invalidations()) {
        return;
    }
    tables::keep_locked(oid, pg_sys::AccessShareLock);
    definition::check(oid);
    let as_of = key::invalidations();
    session::with(|work| work.read(relation, &[LIST]));
    session::start_clock();
    let (view, _) = session::reading_point();
    let since = Instant::now();
    // The transaction that has made the list as it is now has committed, and so has a CSN: the
    // table is locked.
    let wait = || is_patient(since);
    let validation = against(&view, Csn::MAX, &|_| RangeMap::WHOLE, &wait);
    let found = {
        let mut partitions = Predicates::new(1); // not alive where an ERROR is raised
        partitions.read_one(relation, LIST);
        validation.run(&partitions).0
    };
    match found {
        Ok(()) => {
            session::with(|work| work.parents.insert(relation, as_of));
            reads::note_read();
        }
        Err(Refusal::Conflict(_)) => {
            memory().counters().add(Count::FirstTouch, 1);
            errors::redefined(oid);
        }
        Err(refusal) => errors::refuse(&refusal),
    }
}

/// A statement is about to start that may send rows to partitions of the table. In a
/// subtransaction, which may survive the error of a row on its way, it is noted where that may be.
///
/// # Errors
/// 0A000 if there is a partition of another access method.
pub fn begin_routing(target: Oid) {
    ROUTING.set(ROUTING.get() + 1);
    let now = key::invalidations();
    let relation = key::relation_of(target);
    let is_known =
        || matches!(TARGETS.0.borrow().get(&relation), Some((as_of, _)) if *as_of == now);
    if !is_known() {
        session::with(|work| work.walked.clear());
        below(target, &mut |oid| {
            uses::check_method(oid);
            session::with(|work| work.walked.push(key::relation_of(oid)));
        });
        let all = session::with(|work| Rc::from(work.walked.as_slice()));
        let mut targets = TARGETS.0.borrow_mut();
        if targets.len() >= MOST_KEPT {
            targets.clear();
        }
        targets.insert(relation, (now, all));
    }
    if xact::nest_level() > 1
        && let Some((_, all)) = TARGETS.0.borrow().get(&relation)
    {
        session::with(|work| work.targets.insert(relation, Rc::clone(all)));
    }
}

/// After a statement that may have sent rows to any partition of the target: `use_table` gets those
/// that are locked as targets.
pub fn settle_target(target: Oid, use_table: impl Fn(Oid)) {
    begin_routing(target);
    let relation = key::relation_of(target);
    let at = |n| {
        let targets = TARGETS.0.borrow();
        let all = targets.get(&relation).map(|(_, all)| Rc::clone(all));
        all.and_then(|all| all.get(n).copied())
    };
    let mut n = 0;
    while let Some(relation) = at(n) {
        let oid = key::oid_of(relation);
        if lookup::is_locked(oid, pg_sys::RowExclusiveLock) {
            use_table(oid);
        }
        n += 1;
    }
}

/// A row has come to the partition, perhaps from above: the lists on its way were read. Those
/// tables are locked as targets.
///
/// # Errors
/// As for `note`.
///
/// # Safety
/// `rel` is open, in a validated transaction; nothing with a destructor is alive in the callers.
pub unsafe fn note_route(rel: pg_sys::Relation) {
    // SAFETY: the caller's relation is open, so its pg_class row is in the relcache entry.
    let (oid, is_partition) = unsafe { ((*rel).rd_id, (*(*rel).rd_rel).relispartition) };
    if !is_partition {
        return;
    }
    let relation = key::relation_of(oid);
    let now = (key::invalidations(), ROUTING.get());
    if session::with(|work| work.routes.get(&relation) == Some(&now)) {
        return;
    }
    let mut at = PARENTS.get(oid, || parent_of(oid));
    while at != Oid::INVALID {
        if lookup::is_locked(at, pg_sys::RowExclusiveLock) {
            note(at);
        }
        at = PARENTS.get(at, || parent_of(at));
    }
    session::with(|work| work.routes.insert(relation, now));
}

fn parent_of(oid: Oid) -> Oid {
    // SAFETY: a catalog look-up, and a list of its own.
    unsafe {
        let ancestors = raw::get_partition_ancestors(oid);
        let parent = nodes::oids(ancestors).next();
        raw::list_free(ancestors);
        parent.unwrap_or(Oid::INVALID)
    }
}

/// Shows `visit` the partitions of a table and theirs, without locking them. Those that are being
/// dropped may be left out.
fn below(parent: Oid, visit: &mut dyn FnMut(Oid)) {
    // The catalog's row is there, and stays in the cache until a lock is taken, for the next call
    // to find.
    if !uses::is_partitioned_now(parent) {
        return;
    }
    // SAFETY: a catalog look-up.
    let partitions =
        unsafe { raw::find_inheritance_children(parent, pg_sys::NoLock as pg_sys::LOCKMODE) };
    // SAFETY: a list that stays in the current memory context.
    for oid in unsafe { nodes::oids(partitions) } {
        visit(oid);
        below(oid, visit);
    }
}
