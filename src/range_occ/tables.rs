//! The tables that the present transaction has touched, which stay as they are until it ends.

use super::definition;
use super::errors;
use super::key::{self, Table};
use super::redefined;
use super::session::{self, known, start_clock, with, with_present};
use super::work::{Known, Whole};
use crate::pg::{lookup, raw};
use keyrange::Relation;
use pgrx::pg_sys::{self, Oid};
use std::rc::Rc;

/// The present transaction's first touch of an open table makes it known; `None` for tables that
/// nobody else can see. From then on until the end of the transaction, savepoints or not, its
/// definition stays.
///
/// # Errors
/// 40001 if the transaction is validated and does not see the table's definition; 0A000 in
/// recovery; 25000 once validation has begun.
///
/// # Safety
/// `rel` is open and locked in `mode`, of the access method `txn_heap`; nothing with a destructor
/// is alive in the callers.
pub unsafe fn touch(rel: pg_sys::Relation, mode: u32) -> Option<&'static Table> {
    // SAFETY: the caller's relation is open, so its pg_class row is in the relcache entry.
    let (oid, persistence) = unsafe { ((*rel).rd_id, (*(*rel).rd_rel).relpersistence as u8) };
    if persistence == pg_sys::RELPERSISTENCE_TEMP || u32::from(oid) < pg_sys::FirstNormalObjectId {
        return None;
    }
    if session::is_sealed() {
        errors::SEALED.raise();
    }
    let relation = key::relation_of(oid);
    let touched = with_present(|work| {
        let known = work.tables.get(&relation);
        known.map(|known| (Rc::as_ptr(&known.table), known.as_of))
    });
    match touched.flatten() {
        // SAFETY: as in `known`.
        Some((table, as_of)) if as_of == key::invalidations() => return Some(unsafe { &*table }),
        Some(_) => {
            // SAFETY: the caller's relation is open and locked.
            unsafe { look_again(rel) };
            return known(oid);
        }
        None => {}
    }
    start_clock();
    keep_locked(oid, mode);
    if session::is_validated() {
        definition::refuse_recovery();
        definition::check(oid);
    }
    let as_of = key::invalidations();
    // SAFETY: the caller's relation is open and locked.
    let (is_own, table) = unsafe { (redefined::is_own(rel), key::of(rel)) };
    with(|work| {
        if is_own {
            work.note_own(table.relation);
        }
        let before = Vec::new();
        let known = Known {
            table,
            as_of,
            before,
        };
        work.tables.insert(relation, known);
    });
    known(oid)
}

/// As `touch`, for a table that a statement, about to start, has locked in `mode`. Even if it is
/// not scanned, its definition has a part in what the statement tells.
///
/// # Safety
/// As for `touch`, but that the table need not be open.
pub unsafe fn touch_locked(oid: Oid, mode: u32) {
    let relation = key::relation_of(oid);
    let as_of = with_present(|work| work.tables.get(&relation).map(|known| known.as_of));
    if as_of.flatten() == Some(key::invalidations()) {
        return;
    }
    // SAFETY: the caller has locked the table; it is opened and closed here.
    unsafe {
        let rel = raw::RelationIdGetRelation(oid);
        if !rel.is_null() {
            touch(rel, mode);
            raw::RelationClose(rel);
        }
    }
}

/// After the error of a row that was on its way to the partition, or through it: it stays locked,
/// and its definition, or its list of partitions, counts as read when the transaction ends. Nothing
/// is looked up here.
fn keep_routed(oid: Oid) {
    if lookup::is_locked(oid, pg_sys::RowExclusiveLock) {
        keep_locked(oid, pg_sys::RowExclusiveLock);
        with(|work| {
            work.saw_beyond = true;
            work.routed.insert(key::relation_of(oid));
        });
    }
}

/// `keep_routed` for all to which a row may have been on its way: those that are locked.
pub fn keep_all_routed() {
    let mut at = (0, 0);
    // The table at that place of the lists, and the next place.
    let next = |(target, n): (Relation, usize)| {
        with_present(|work| {
            let mut targets = work.targets.range(target..);
            let (&first, all) = targets.next()?;
            let n = if first == target { n } else { 0 };
            match all.get(n) {
                Some(&relation) => Some((Some(relation), (first, n + 1))),
                None => Some((None, (first + 1, 0))),
            }
        })
        .flatten()
    };
    while let Some((relation, after)) = next(at) {
        if let Some(relation) = relation {
            keep_routed(key::oid_of(relation));
        }
        at = after;
    }
}

/// Takes a lock that no savepoint gives back, so that nobody else redefines the table before the
/// transaction ends.
pub fn keep_locked(oid: Oid, mode: u32) {
    // SAFETY: a lock on a table that is locked already, or is about to be; an ERROR in between ends
    // in an abort, which sets the current owner anew.
    unsafe {
        let owner = pg_sys::CurrentResourceOwner;
        pg_sys::CurrentResourceOwner = pg_sys::TopTransactionResourceOwner;
        raw::LockRelationOid(oid, mode as pg_sys::LOCKMODE);
        pg_sys::CurrentResourceOwner = owner;
    }
}

/// After an invalidation: the transaction itself may have redefined the table, or somebody else its
/// indexes.
///
/// # Safety
/// As for `touch`.
unsafe fn look_again(rel: pg_sys::Relation) {
    let as_of = key::invalidations();
    if session::is_validated() {
        // SAFETY: the caller's relation is open.
        definition::check(unsafe { (*rel).rd_id });
    }
    // SAFETY: the caller's relation is open and locked.
    let (is_own, table) = unsafe { (redefined::is_own(rel), key::of(rel)) };
    with(|work| {
        let Some(known) = work.tables.get_mut(&table.relation) else {
            return;
        };
        known.as_of = as_of;
        if known.table == table {
            return;
        }
        // What others can change under weaker locks leaves that as it is.
        let is_other = is_own || !known.table.has_same_key(&table);
        let relation = table.relation;
        known
            .before
            .push(std::mem::replace(&mut known.table, table));
        if is_other {
            work.saw_beyond = true;
            work.note_own(relation);
            work.read_all(relation, Whole::Redefined);
        }
    });
}
