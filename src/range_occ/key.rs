//! The range key of a table: the index of its replica identity if it has one of its own, else its
//! primary key; and what is known of the table besides. (If one of the two is dropped the other
//! does not step in: that would leave no trace in the catalogs by which older transactions could be
//! refused.)

use super::column::Column;
use super::map::{self, Map};
use super::value;
use crate::pg::local::Local;
use crate::pg::tuple::attribute;
use crate::pg::{nodes, raw, rights};
use keyrange::{COLUMNS, Interval, Kind, Layout, RangeMap, Value};
use pgrx::pg_sys::{self, Oid};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::c_int;
use std::rc::Rc;

/// What is known of a table of `txn_heap`; the same for all transactions that overlap (README,
/// "Range keys").
#[derive(PartialEq, Eq, Debug)]
pub struct Table {
    pub oid: Oid,
    pub relation: keyrange::Relation,
    /// The index of the range key, 0 without one.
    pub index: Oid,
    /// The columns that have a part in the image; none: all rows are one range.
    pub columns: Vec<Column>,
    /// They are all columns of a unique index, so that there is one row at most with given values,
    /// none of them NULL.
    pub is_whole_key: bool,
    pub layout: Option<Layout>,
    /// There are unique indexes or constraints of other columns.
    pub has_other_keys: bool,
    /// There are some that are checked later.
    pub has_deferrable: bool,
    map: Map,
}

impl Table {
    /// Whether the present user may be shown keys of the table, and so bounds of its ranges and
    /// what was written there.
    pub fn may_be_seen(&self) -> bool {
        rights::may_see(self.oid, self.columns.iter().map(|column| column.number))
    }

    /// Whether rows have the same images by both.
    pub fn has_images_of(&self, other: &Table) -> bool {
        (&self.columns, &self.layout) == (&other.columns, &other.layout)
    }

    /// This key in a partition, in which its columns have the numbers that `number_of` says. None
    /// without a key, or if a column is not there.
    pub fn of_partition(&self, number_of: impl Fn(i16) -> Option<i16>) -> Option<Table> {
        let layout = Some(self.layout?);
        let columns = self.columns.iter().map(|column| {
            let number = number_of(column.number)?;
            Some(Column { number, ..*column })
        });
        Some(Table {
            columns: columns.collect::<Option<_>>()?,
            layout,
            map: Map::whole(),
            ..*self
        })
    }

    /// Whether the other definition of the table has the same images of rows, in the same ranges.
    pub fn has_same_key(&self, other: &Table) -> bool {
        (&self.columns, &self.layout, &self.map) == (&other.columns, &other.layout, &other.map)
            && self.is_whole_key == other.is_whole_key
    }
}

/// `keyrange`'s name of a table of this database.
pub fn relation_of(oid: Oid) -> keyrange::Relation {
    // SAFETY: a global of this backend, which has one thread.
    let database = unsafe { pg_sys::MyDatabaseId };
    u64::from(u32::from(database)) << 32 | u64::from(u32::from(oid))
}

/// The table of a `keyrange::Relation` of this database.
pub fn oid_of(relation: keyrange::Relation) -> Oid {
    Oid::from(relation as u32)
}

/// Tables known to this process until their relcache entries are invalidated.
struct Cache {
    tables: RefCell<Option<HashMap<Oid, Rc<Table>>>>,
    /// Counts invalidations.
    forgotten: Cell<u64>,
}
static CACHE: Local<Cache> = Local::new(Cache {
    tables: RefCell::new(None),
    forgotten: Cell::new(0),
});

/// See `super::forget`.
pub fn forget(relation: Oid) {
    CACHE.forgotten.set(CACHE.forgotten.get() + 1);
    if let Some(tables) = CACHE.tables.borrow_mut().as_mut() {
        if relation == Oid::INVALID {
            tables.clear();
        } else {
            tables.remove(&relation);
        }
    }
}

/// How often relcache entries have been invalidated.
pub fn invalidations() -> u64 {
    CACHE.forgotten.get()
}

/// What is known of a table, if it is known.
pub fn cached(oid: Oid) -> Option<Rc<Table>> {
    CACHE.tables.borrow().as_ref()?.get(&oid).cloned()
}

/// What is known of an open table. Reads the catalogs the first time.
///
/// # Safety
/// `rel` is open and locked; nothing with a destructor is alive in the callers.
pub unsafe fn of(rel: pg_sys::Relation) -> Rc<Table> {
    // SAFETY: the caller's relation is open.
    let oid = unsafe { (*rel).rd_id };
    if let Some(table) = cached(oid) {
        return table;
    }
    let before = CACHE.forgotten.get();
    // SAFETY: the caller's relation is open and locked, and no frame above needs its destructors to
    // run.
    let table = Rc::new(unsafe { build(rel) });
    if CACHE.forgotten.get() == before {
        let mut tables = CACHE.tables.borrow_mut();
        tables
            .get_or_insert_default()
            .insert(oid, Rc::clone(&table));
    }
    table
}

/// # Safety
/// As for `of`.
unsafe fn build(rel: pg_sys::Relation) -> Table {
    let mut columns = [None; COLUMNS];
    let index_oid;
    let mut has_other_keys = false;
    let mut has_deferrable = false;
    let mut length = 0;
    // SAFETY: relcache entries are valid while open; nothing here has a destructor.
    let stored = unsafe {
        let list = raw::RelationGetIndexList(rel);
        let identity = (*(*rel).rd_rel).relreplident as u8;
        index_oid = if identity == pg_sys::REPLICA_IDENTITY_INDEX {
            (*rel).rd_replidindex
        } else {
            (*rel).rd_pkindex
        };
        for oid in nodes::oids(list) {
            let index = raw::RelationIdGetRelation(oid);
            if !index.is_null() {
                let form = (*index).rd_index;
                let is_key = (*form).indisunique || (*form).indisexclusion;
                has_other_keys |= is_key && oid != index_oid;
                has_deferrable |= is_key && !(*form).indimmediate;
                raw::RelationClose(index);
            }
        }
        raw::list_free(list);
        if index_oid != Oid::INVALID {
            let index = raw::RelationIdGetRelation(index_oid);
            if !index.is_null() {
                let form = (*index).rd_index;
                if (*form).indisunique && (*form).indimmediate {
                    length = (*form).indnkeyatts as usize;
                }
                columns_of(rel, index, &mut columns);
                raw::RelationClose(index);
            }
        }
        map::stored((*rel).rd_id)
    };
    let columns: Vec<Column> = columns.iter().map_while(|column| *column).collect();
    let kinds: Vec<Kind> = columns.iter().map(|column| column.kind).collect();
    let layout = (!kinds.is_empty()).then(|| Layout::fit(&kinds));
    // SAFETY: the caller's relation is open.
    let oid = unsafe { (*rel).rd_id };
    Table {
        oid,
        relation: relation_of(oid),
        index: index_oid,
        map: match (&layout, stored) {
            (None, _) => Map::whole(),
            (Some(_), Some(stored)) => stored.take(),
            (Some(layout), None) => Map::default_of(layout, &columns),
        },
        is_whole_key: columns.len() == length,
        columns,
        layout,
        has_other_keys,
        has_deferrable,
    }
}

/// The first columns of an index that have images.
unsafe fn columns_of(
    rel: pg_sys::Relation,
    index: pg_sys::Relation,
    columns: &mut [Option<Column>; COLUMNS],
) {
    // SAFETY: both are open.
    unsafe {
        let form = (*index).rd_index;
        let count = (*form).indnkeyatts as usize;
        let numbers = (*form).indkey.values.as_slice(count);
        for (n, (place, &number)) in columns.iter_mut().zip(numbers).enumerate() {
            if number <= 0 {
                return;
            }
            let attribute = &*(*(*rel).rd_att).attrs.as_ptr().add(number as usize - 1);
            let typ = raw::getBaseType(attribute.atttypid);
            let Some(kind) = value::kind_of(typ) else {
                return;
            };
            let flags = pg_sys::TYPECACHE_BTREE_OPFAMILY | pg_sys::TYPECACHE_HASH_OPFAMILY;
            let entry = raw::lookup_type_cache(typ, flags as c_int);
            let collation = *(*index).rd_indcollation.add(n);
            let is_text = kind == Kind::Text;
            if *(*index).rd_opfamily.add(n) != (*entry).btree_opf
                || (is_text && !raw::get_collation_isdeterministic(collation))
            {
                return;
            }
            *place = Some(Column {
                number,
                kind,
                typ,
                family: (*entry).btree_opf,
                hash_family: (*entry).hash_opf,
                is_ordered: !is_text || raw::lc_collate_is_c(collation),
            });
        }
    }
}

impl Table {
    /// The logical ranges of the table.
    pub fn ranges(&self) -> RangeMap<'_> {
        self.map.ranges(self.layout.as_ref())
    }

    /// The place of a table column in the range key.
    pub fn position(&self, number: i16) -> Option<usize> {
        self.columns.iter().position(|c| c.number == number)
    }

    /// The images that the row in a slot can have.
    ///
    /// # Safety
    /// `slot` holds a row of this table.
    pub unsafe fn image_of_slot(&self, slot: *mut pg_sys::TupleTableSlot) -> Interval {
        // SAFETY: the columns up to the last one asked for are deformed before they are read.
        unsafe {
            let last = self.columns.iter().map(|c| c.number).max().unwrap_or(0);
            if (*slot).tts_nvalid < last {
                raw::slot_getsomeattrs_int(slot, c_int::from(last));
            }
            self.image(|column| {
                let at = column.number as usize - 1;
                let is_null = *(*slot).tts_isnull.add(at);
                (!is_null).then(|| *(*slot).tts_values.add(at))
            })
        }
    }

    /// The images that a heap tuple can have.
    ///
    /// # Safety
    /// `tuple` is a row of this table with descriptor `desc`, pinned or local.
    pub unsafe fn image_of_tuple(
        &self,
        tuple: pg_sys::HeapTuple,
        desc: pg_sys::TupleDesc,
    ) -> Interval {
        // SAFETY: the caller's row is pinned or local, and `desc` is its descriptor.
        unsafe { self.image(|column| attribute(tuple, c_int::from(column.number), desc)) }
    }

    /// # Safety
    /// `value_of` gives the value of a column, `None` for NULL, that stays while this runs.
    unsafe fn image(&self, value_of: impl Fn(&Column) -> Option<pg_sys::Datum>) -> Interval {
        let Some(layout) = &self.layout else {
            return Interval::ALL;
        };
        let by_value = |column: &Column| {
            !matches!(
                column.kind,
                Kind::Text | Kind::Bytes | Kind::Numeric | Kind::Uuid
            )
        };
        let convert = || {
            let mut values = [Value::Null; COLUMNS];
            for (place, column) in values.iter_mut().zip(&self.columns) {
                if let Some(datum) = value_of(column) {
                    // SAFETY: a value of the column, by the contract.
                    *place = unsafe { value::of_datum(column.typ, column.typ, datum) };
                }
            }
            layout.image(&values[..self.columns.len()])
        };
        if self.columns.iter().all(by_value) {
            convert()
        } else {
            value::with_scratch(convert)
        }
    }
}
