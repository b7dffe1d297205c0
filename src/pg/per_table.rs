//! Something worked out once per table and remembered until the table's relcache entry is
//! invalidated.

use super::local::Local;
use pgrx::pg_sys::Oid;
use std::cell::Cell;

type Place<T> = Cell<Option<(Oid, T)>>;

/// Direct-mapped: two tables may share a place and displace each other.
pub struct PerTable<T: Copy, const PLACES: usize> {
    places: Local<[Place<T>; PLACES]>,
    /// Counts invalidations.
    forgotten: Local<Cell<u64>>,
}

impl<T: Copy, const PLACES: usize> PerTable<T, PLACES> {
    pub const fn new() -> Self {
        PerTable {
            places: Local::new([const { Cell::new(None) }; PLACES]),
            forgotten: Local::new(Cell::new(0)),
        }
    }

    fn place(&self, relation: Oid) -> &Place<T> {
        &self.places[u32::from(relation) as usize % PLACES]
    }

    /// What is remembered of the table, or what `build` makes of the catalogs. That is not kept if
    /// an invalidation came meanwhile: it may have read the state before.
    #[inline]
    pub fn get(&self, relation: Oid, build: impl FnOnce() -> T) -> T {
        match self.place(relation).get() {
            Some((of, value)) if of == relation => value,
            _ => self.fill(relation, build),
        }
    }

    #[cold]
    fn fill(&self, relation: Oid, build: impl FnOnce() -> T) -> T {
        let before = self.forgotten.get();
        let value = build();
        if self.forgotten.get() == before {
            self.place(relation).set(Some((relation, value)));
        }
        value
    }

    /// From a relcache callback: the table has changed, or any table if it is not a valid OID.
    pub fn forget(&self, relation: Oid) {
        self.forgotten.set(self.forgotten.get() + 1);
        if relation == Oid::INVALID {
            self.places.iter().for_each(|place| place.set(None));
        } else {
            let place = self.place(relation);
            if place.get().is_some_and(|(of, _)| of == relation) {
                place.set(None);
            }
        }
    }
}
