//! Keys of partitions are those of the topmost partitioned table that has a range key, whatever key
//! they have themselves: its columns are in all of them. Without such a table, each partition is a
//! table of its own.

use crate::pg::local::Local;
use crate::pg::{lookup, raw};
use crate::range_occ::key::{self, Table};
use keyrange::{Interval, Relation};
use pgrx::pg_sys::{self, Datum, Oid};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::rc::Rc;

/// How keys of a table are declared: under which relation, and by which range key. The key's
/// columns have the numbers that they have in the table.
#[derive(Clone)]
pub struct Place {
    pub relation: Relation,
    pub table: Rc<Table>,
}

struct Cache {
    /// By the partitions' OIDs.
    places: RefCell<BTreeMap<u32, Place>>,
    /// Counts invalidations.
    forgotten: Cell<u64>,
}
static CACHE: Local<Cache> = Local::new(Cache {
    places: RefCell::new(BTreeMap::new()),
    forgotten: Cell::new(0),
});

/// The place of an open table.
///
/// # Safety
/// `rel` is open and locked; nothing with a destructor is alive in the callers.
pub unsafe fn place_of(rel: pg_sys::Relation) -> Place {
    // SAFETY: by the contract.
    unsafe {
        let oid = (*rel).rd_id;
        if !(*(*rel).rd_rel).relispartition {
            return of_itself(rel);
        }
        if let Some(place) = CACHE.places.borrow().get(&u32::from(oid)) {
            return place.clone();
        }
        let before = CACHE.forgotten.get();
        let place = of_partition(rel);
        if CACHE.forgotten.get() == before {
            let mut places = CACHE.places.borrow_mut();
            places.insert(oid.into(), place.clone());
        }
        place
    }
}

/// # Safety
/// As for `place_of`.
unsafe fn of_itself(rel: pg_sys::Relation) -> Place {
    // SAFETY: by the contract.
    unsafe {
        Place {
            relation: key::relation_of((*rel).rd_id),
            table: key::of(rel),
        }
    }
}

/// # Safety
/// As for `place_of`.
unsafe fn of_partition(rel: pg_sys::Relation) -> Place {
    // SAFETY: by the contract.
    unsafe {
        let mut ancestors = lookup::ancestors((*rel).rd_id);
        let place = ancestors.find_map(|ancestor| below(ancestor, rel));
        place.unwrap_or_else(|| of_itself(rel))
    }
}

/// The place of a partition below that table; none if that has no key. The table need not be
/// locked: whoever changes its key invalidates what is remembered.
///
/// # Safety
/// As for `place_of`.
unsafe fn below(ancestor: Oid, rel: pg_sys::Relation) -> Option<Place> {
    // SAFETY: relcache entries are valid while they are open.
    unsafe {
        let top = raw::RelationIdGetRelation(ancestor);
        if top.is_null() {
            return None;
        }
        let number_of = |number: i16| {
            let attribute = &*(*(*top).rd_att).attrs.as_ptr().add(number as usize - 1);
            number_by_name(rel, CStr::from_ptr(attribute.attname.data.as_ptr()))
        };
        let table = key::of(top).of_partition(number_of);
        raw::RelationClose(top);
        Some(Place {
            relation: key::relation_of(ancestor),
            table: Rc::new(table?),
        })
    }
}

/// # Safety
/// `rel` is open.
unsafe fn number_by_name(rel: pg_sys::Relation, name: &CStr) -> Option<i16> {
    // SAFETY: by the contract; names are C strings.
    unsafe {
        let row = (*rel).rd_att;
        let all = std::slice::from_raw_parts((*row).attrs.as_ptr(), (*row).natts as usize);
        all.iter()
            .find(|one| !one.attisdropped && CStr::from_ptr(one.attname.data.as_ptr()) == name)
            .map(|one| one.attnum)
    }
}

/// The relation and the keys under which these keys of a table are declared, as its own range key
/// has them. No keys, if that is not the one by which they are declared: it is not known which.
///
/// # Safety
/// In a transaction; nothing with a destructor is alive in the callers.
pub unsafe fn declared_as(relation: Relation, keys: Interval) -> (Relation, Option<Interval>) {
    // SAFETY: by the contract; relcache entries are valid while they are open.
    unsafe {
        let rel = raw::RelationIdGetRelation(key::oid_of(relation));
        if rel.is_null() {
            return (relation, Some(keys));
        }
        let Place { relation, table } = place_of(rel);
        let is_own = key::of(rel).has_images_of(&table);
        raw::RelationClose(rel);
        (relation, is_own.then_some(keys))
    }
}

/// A relcache entry is not valid any more: that of a partition, or of the table at the top.
pub unsafe extern "C-unwind" fn at_invalidation(_arg: Datum, _relation: Oid) {
    CACHE.forgotten.set(CACHE.forgotten.get() + 1);
    CACHE.places.borrow_mut().clear();
}
