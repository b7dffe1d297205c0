//! The keys of tables, remembered until they are invalidated.

pub use super::key::{Key, is_used_as_catalog};

use super::buffer::Page;
use super::key::{NO_KEY, build};
use super::local::Local;
use super::per_table::PerTable;
use super::raw;
use hotrow::Identity;
use pgrx::pg_sys::{self, Datum, Oid};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// The way to the keys of most tables.
static KEYS: PerTable<&'static Key, 256> = PerTable::new();

/// Tables whose keys are remembered longer than a transaction.
const MOST_KEPT: usize = 4096;

/// What `KEYS` leads to. All pointers are of boxes.
struct Kept {
    keys: RefCell<BTreeMap<u32, *mut Key>>,
    /// What has been invalidated, and may be in somebody's hands until the transaction ends.
    old: RefCell<Vec<*mut Key>>,
    has_old: Cell<bool>,
    invalidations: Cell<u64>,
}
static KEPT: Local<Kept> = Local::new(Kept {
    keys: RefCell::new(BTreeMap::new()),
    old: RefCell::new(Vec::new()),
    has_old: Cell::new(false),
    invalidations: Cell::new(0),
});

impl Kept {
    /// Keeps a key that has been built since there were so many invalidations. It stays where it is
    /// until a transaction ends.
    fn keep(&self, key: Key, since: u64) -> *mut Key {
        let relation = u32::from(key.relation);
        let key = Box::into_raw(Box::new(key));
        if self.invalidations.get() != since {
            // It may have been built from what was before.
            self.retire([key]);
            return key;
        }
        if self.keys.borrow().len() >= MOST_KEPT {
            self.retire_all();
        }
        self.retire(self.keys.borrow_mut().insert(relation, key));
        key
    }

    fn retire(&self, keys: impl IntoIterator<Item = *mut Key>) {
        let mut old = self.old.borrow_mut();
        old.extend(keys);
        self.has_old.set(!old.is_empty());
    }

    fn retire_all(&self) {
        KEYS.forget(Oid::INVALID);
        self.retire(self.keys.take().into_values());
    }

    fn free_old(&self) {
        self.has_old.set(false);
        for key in self.old.take() {
            // SAFETY: from `Box::into_raw`; the transaction has ended in which somebody had it in
            // hand.
            drop(unsafe { Box::from_raw(key) });
        }
    }
}

unsafe extern "C-unwind" fn forget(_arg: Datum, relation: Oid) {
    KEPT.invalidations.set(KEPT.invalidations.get() + 1);
    if relation == Oid::INVALID {
        KEPT.retire_all();
    } else {
        KEYS.forget(relation);
        KEPT.retire(KEPT.keys.borrow_mut().remove(&u32::from(relation)));
    }
}

/// Frees what nobody has in hand any more: the transaction has ended.
#[inline]
pub fn transaction_ended() {
    if KEPT.has_old.get() {
        KEPT.free_old();
    }
}

/// Registers the invalidation callback. Once, from `_PG_init`.
pub fn init() {
    // SAFETY: the callback touches only process-local cells.
    unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(forget), Datum::from(0)) };
}

/// The key of an open table, or None when its rows have no identity for us: no usable key,
/// temporary, a catalog. Good until the transaction ends.
#[inline]
pub fn key_of(rel: pg_sys::Relation) -> Option<&'static Key> {
    // SAFETY: `rel` is an open relation.
    let key = unsafe { KEYS.get((*rel).rd_id, || known_or_built(rel)) };
    (key.count > 0).then_some(key)
}

/// `key_of` a table that is locked. It is not opened if its key is remembered.
///
/// # Safety
/// The table is locked.
#[inline]
pub unsafe fn key_of_locked(table: Oid) -> Option<&'static Key> {
    // SAFETY: by the contract.
    let key = unsafe { KEYS.get(table, || open_and_look(table)) };
    (key.count > 0).then_some(key)
}

/// # Safety
/// As for `key_of_locked`.
unsafe fn open_and_look(table: Oid) -> &'static Key {
    // SAFETY: by the contract; opened and closed.
    unsafe {
        let rel = raw::RelationIdGetRelation(table);
        if rel.is_null() {
            return &NO_KEY;
        }
        let key = known_or_built(rel);
        raw::RelationClose(rel);
        key
    }
}

/// # Safety
/// `rel` is an open relation.
unsafe fn known_or_built(rel: pg_sys::Relation) -> &'static Key {
    // SAFETY: by the contract. Keys do not change, and stay until the transaction ends in which
    // they are invalidated.
    unsafe {
        let table = u32::from((*rel).rd_id);
        let kept = KEPT.keys.borrow().get(&table).copied();
        let since = KEPT.invalidations.get();
        &*kept.unwrap_or_else(|| KEPT.keep(build(rel), since))
    }
}

/// The identity of the row to which that version belongs.
///
/// # Safety
/// `rel` is open, `key` is its key, and the version is one that a scan has found.
pub unsafe fn identity_of(rel: pg_sys::Relation, key: &Key, version: u64) -> Option<Identity> {
    // SAFETY: by the contract; the version stays in place while pinned, so the key is read
    // unlocked.
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
