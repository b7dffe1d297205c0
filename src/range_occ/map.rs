//! Which logical ranges a table has: from the catalog table `txn.range_maps`, or by default.
//!
//! The default must be the same for all transactions that overlap. So it comes from the key's types
//! and not from statistics, which change under running transactions. It need not know which keys
//! are there: those of one range are spread over its pieces by a hash (`keyrange`, "Pieces").

use super::column::Column;
use crate::pg::raw;
use crate::shared::guc;
use keyrange::{Grid, Image, Layout, Pieces, RangeMap};
use pgrx::pg_sys::{self, Datum, Oid};
use std::slice;

/// Integers in a range by default.
const INTEGERS: u128 = 1024;
/// Days in a range by default.
const DAYS: u128 = 8;
/// Microseconds in a range by default: an hour.
const MICROSECONDS: u128 = 3_600_000_000;
/// Ranges by default of what has no unit: as many parts of the whole span of images.
const PARTS: u128 = 4096;

/// Pieces of a range that has a bounded number of keys: as many as let each of them be written once
/// in a row.
const PIECES_OF_INTEGERS: u32 = 32;
/// Pieces of a range that may have any number of keys.
const PIECES: u32 = 256;
/// The fewest pieces of a range between sampled boundaries: the first and the last have all keys
/// that come beyond. Where there are few ranges, say because the table was empty when it was
/// divided, together they have `PIECES`.
const PIECES_OF_SAMPLED: u32 = 8;
/// A range has no more pieces than this part of all rings.
const MOST_OF_RINGS: u32 = 16;

/// So many pieces, or what the server's rings allow; the same for all sessions.
fn pieces(wanted: u32, layout: &Layout) -> Pieces {
    let rings = guc::RANGE_BUCKETS.get().max(1) as u32;
    Pieces::new(wanted.min(rings / MOST_OF_RINGS), layout.unused())
}

/// Columns of txn.range_maps.
const RELATION: i32 = 1;
const WIDTH: i32 = 2;
const BOUNDARIES: i32 = 3;

/// How a table's keys are divided.
#[derive(PartialEq, Eq, Debug)]
pub enum Map {
    Grid(Grid),
    Whole,
    Boundaries(Box<[Image]>),
}

impl Map {
    /// All keys are one range.
    pub fn whole() -> Self {
        Map::Whole
    }

    /// What a table has that was never partitioned.
    pub fn default_of(layout: &Layout, columns: &[Column]) -> Self {
        let is_alone = columns.len() == 1;
        let units = match columns[0].typ {
            // With more columns the rows of one first value are a range.
            pg_sys::INT2OID | pg_sys::INT4OID | pg_sys::INT8OID | pg_sys::OIDOID if !is_alone => {
                Some(1)
            }
            pg_sys::INT2OID | pg_sys::INT4OID | pg_sys::INT8OID | pg_sys::OIDOID => Some(INTEGERS),
            pg_sys::DATEOID => Some(DAYS),
            pg_sys::TIMESTAMPOID | pg_sys::TIMESTAMPTZOID | pg_sys::TIMEOID => Some(MICROSECONDS),
            _ => None,
        };
        let width = match units {
            Some(units) => layout.unit().saturating_mul(units),
            None => keyrange::FIRST_NULL / PARTS,
        };
        let wanted = match units {
            Some(INTEGERS) => PIECES_OF_INTEGERS,
            _ => PIECES,
        };
        Map::Grid(Grid::new(width).with_pieces(pieces(wanted, layout)))
    }

    /// The ranges of keys with that layout; without a layout the whole table is one.
    pub fn ranges(&self, layout: Option<&Layout>) -> RangeMap<'_> {
        match (self, layout) {
            (Map::Grid(grid), _) => RangeMap::Grid(*grid),
            (Map::Boundaries(boundaries), Some(layout)) => {
                let ranges = boundaries.len() as u32 + 1;
                let wanted = (PIECES / ranges).max(PIECES_OF_SAMPLED);
                RangeMap::BoundariesInPieces(boundaries, pieces(wanted, layout))
            }
            (Map::Whole, _) | (Map::Boundaries(_), None) => RangeMap::WHOLE,
        }
    }
}

/// A row of txn.range_maps, in PostgreSQL's memory.
#[derive(Clone, Copy)]
pub struct Stored {
    width: *mut pg_sys::varlena,
    boundaries: *mut pg_sys::varlena,
}

impl Stored {
    /// The map; frees the row.
    pub fn take(self) -> Map {
        let map = if self.width.is_null() {
            Map::Boundaries(images(self.boundaries))
        } else {
            let width = images(self.width).first().copied();
            Map::Grid(Grid::new(width.unwrap_or(Image::MAX)))
        };
        for chunk in [self.width, self.boundaries] {
            if !chunk.is_null() {
                // SAFETY: a copy of `stored`'s.
                unsafe { raw::pfree(chunk.cast()) };
            }
        }
        map
    }
}

/// Images of 16 bytes each, the most significant first.
fn images(bytea: *mut pg_sys::varlena) -> Box<[Image]> {
    if bytea.is_null() {
        return Box::default();
    }
    // SAFETY: a plain varlena of `stored`'s.
    let bytes = unsafe {
        slice::from_raw_parts(
            pgrx::varlena::vardata_any(bytea).cast::<u8>(),
            pgrx::varlena::varsize_any_exhdr(bytea),
        )
    };
    let (images, _) = bytes.as_chunks::<16>();
    images
        .iter()
        .map(|&bytes| Image::from_be_bytes(bytes))
        .collect()
}

/// The OID of txn.range_maps, or 0 where the extension is not (or not yet) created.
pub fn catalog() -> Oid {
    // SAFETY: catalog look-ups.
    unsafe {
        let schema = raw::get_namespace_oid(c"txn".as_ptr(), true);
        if schema == Oid::INVALID {
            return Oid::INVALID;
        }
        raw::get_relname_relid(c"range_maps".as_ptr(), schema)
    }
}

/// The table's row in txn.range_maps. In a transaction; nothing with a destructor is alive in the
/// callers.
pub fn stored(table: Oid) -> Option<Stored> {
    const SHARED: pg_sys::LOCKMODE = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
    let catalog = catalog();
    if catalog == Oid::INVALID || catalog == table {
        return None;
    }
    // SAFETY: a scan of a small heap table as of a catalog; its columns are (regclass, bytea,
    // bytea).
    unsafe {
        let mut key = pg_sys::ScanKeyData::default();
        raw::ScanKeyInit(
            &mut key,
            RELATION as pg_sys::AttrNumber,
            pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber,
            pg_sys::F_OIDEQ.into(),
            Datum::from(table),
        );
        let relation = raw::table_open(catalog, SHARED);
        let none = std::ptr::null_mut();
        let scan = raw::systable_beginscan(relation, Oid::INVALID, false, none, 1, &mut key);
        let tuple = raw::systable_getnext(scan);
        let row = (!tuple.is_null()).then(|| {
            let copy = |number| {
                crate::pg::tuple::attribute(tuple, number, (*relation).rd_att)
                    .map_or(std::ptr::null_mut(), |datum| {
                        raw::pg_detoast_datum_copy(datum.cast_mut_ptr())
                    })
            };
            Stored {
                width: copy(WIDTH),
                boundaries: copy(BOUNDARIES),
            }
        });
        raw::systable_endscan(scan);
        raw::table_close(relation, SHARED);
        row
    }
}
