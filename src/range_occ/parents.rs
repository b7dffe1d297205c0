//! Partitioned tables. They have no rows of their own, but who scans one reads which partitions it has, and reads nothing of those that were
//! detached or dropped: `redefined.rs` registers that as a write of the parent.

use super::{commit, errors, key, session};
use crate::hotlock::memory;
use keyrange::{Count, Csn, Interval, Predicates, RangeMap, Refusal, Validation};
use pgrx::pg_sys::{self, Oid};
use std::time::Instant;

/// Stands for the list of partitions, so that no other ring is looked at than one of ranges and one of relations.
const PARTITIONS: Interval = Interval::point(0);

/// Notes that a statement of a validated transaction, about to start, uses the partitioned table. It stays locked for the transaction.
///
/// # Errors
/// 40001 if the snapshot does not see who has changed the list of partitions last: the plan may be without one that it should have.
pub fn note(oid: Oid) {
    let relation = key::relation_of(oid);
    let known = session::with(|work| work.parents.get(&relation).copied());
    if known == Some(key::invalidations()) {
        return;
    }
    session::keep_locked(oid, pg_sys::AccessShareLock);
    let as_of = key::invalidations();
    session::with(|work| work.read(relation, &[PARTITIONS]));
    session::start_clock();
    let (view, _) = session::reading_point();
    let since = Instant::now();
    let mut partitions = Predicates::new(1);
    partitions.read_one(relation, PARTITIONS);
    // Who has left the list as it is now has committed, and so has a CSN: the table is locked.
    let validation = Validation {
        board: memory().board,
        snapshot: &view,
        before: Csn::MAX,
        prefix: session::prefix(),
        ranges: &|_| RangeMap::WHOLE,
        wait: &|| commit::is_patient(since),
    };
    match validation.run(&partitions).0 {
        Ok(()) => {
            session::with(|work| work.parents.insert(relation, as_of));
            commit::note_read();
        }
        Err(Refusal::Conflict(_)) => {
            memory().ranges.add(Count::FirstTouch, 1);
            errors::redefined(oid);
        }
        Err(refusal) => errors::refuse(&refusal),
    }
}
