//! `txn.partition_by_range`: divides the keys of a table into logical ranges.

use super::key::{self, Table};
use super::{session, value};
use crate::pg::{nodes, raw};
use keyrange::{Image, Interval, Kind, NARROWEST, Value, boundaries};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use pgrx::{AnyNumeric, PgRelation, PgSqlErrorCode, Spi};
use std::ffi::{CStr, CString, c_int};

/// The most ranges that a table may be divided into by boundaries or number.
const MOST_RANGES: i32 = 1_000_000;
/// Rows looked at for each boundary.
const SAMPLE: f64 = 32.0;
const MICROSECONDS: i64 = 1_000_000;

/// How a table is to be divided.
enum Division {
    Ranges(i32),
    Width(AnyNumeric),
}

/// Divides the keys of a table, or of all partitions of one, into `ranges` ranges, or into ranges
/// of `width` units. The units are those of the key's first column (integers: 1, dates: days,
/// times: seconds). The caller must own the table. Takes ACCESS EXCLUSIVE locks.
///
/// # Errors
/// - 22023 for other than one of the two arguments, and for numbers out of range;
/// - 42501 for a user that does not own the table;
/// - 42809 for a relation that is no table;
/// - 55000 for tables of other access methods, and for tables without a key;
/// - 0A000 for a width where the key's first column has no unit.
#[pg_extern(sql = false)]
fn partition_by_range(
    relation: Option<pg_sys::Oid>,
    ranges: Option<i32>,
    width: Option<AnyNumeric>,
) {
    let Some(relation) = relation else {
        refuse(
            PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED,
            "the table must not be null",
            "",
        );
    };
    let division = match (ranges, width) {
        (Some(ranges), None) => Division::Ranges(ranges),
        (None, Some(width)) => Division::Width(width),
        _ => {
            refuse(
                PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
                "either the number of ranges or their width must be given",
                "Use txn.partition_by_range(table, ranges => n) or txn.partition_by_range(table, width => w).",
            );
        }
    };
    if let Division::Ranges(ranges) = division
        && !(1..=MOST_RANGES).contains(&ranges)
    {
        ereport!(
            ERROR,
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            format!("number of ranges must be between 1 and {MOST_RANGES}")
        );
    }
    check_owner(relation);
    const EXCLUSIVE: pg_sys::LOCKMODE = pg_sys::AccessExclusiveLock as pg_sys::LOCKMODE;
    // SAFETY: locks the table and its partitions until the end of the transaction.
    let all = unsafe {
        pg_sys::LockRelationOid(relation, EXCLUSIVE);
        pg_sys::ffi::pg_guard_ffi_boundary(|| {
            raw::find_all_inheritors(relation, EXCLUSIVE, std::ptr::null_mut())
        })
    };
    // SAFETY: a list of OIDs.
    let all: Vec<pg_sys::Oid> = unsafe { nodes::oids(all) }.collect();
    let is_alone = all.len() == 1;
    for oid in all {
        // SAFETY: locked above; closed when it is dropped.
        let table = unsafe { PgRelation::open(oid) };
        match class(&table).relkind as u8 {
            pg_sys::RELKIND_RELATION | pg_sys::RELKIND_MATVIEW => divide(&table, &division),
            pg_sys::RELKIND_PARTITIONED_TABLE if !is_alone => {}
            _ => {
                ereport!(
                    ERROR,
                    PgSqlErrorCode::ERRCODE_WRONG_OBJECT_TYPE,
                    format!("\"{}\" is not a table with rows", table.name())
                );
            }
        }
    }
}

fn refuse(code: PgSqlErrorCode, message: &str, hint: &str) -> ! {
    let report = ErrorReport::new(code, message.to_owned(), "partition_by_range");
    let report = if hint.is_empty() {
        report
    } else {
        report.set_hint(hint.to_owned())
    };
    report.report(PgLogLevel::ERROR);
    unreachable!()
}

/// A relation's row of pg_class.
fn class(rel: &PgRelation) -> pg_sys::FormData_pg_class {
    // SAFETY: the relation is open.
    unsafe { *rel.rd_rel }
}

fn check_owner(relation: pg_sys::Oid) {
    // SAFETY: catalog look-ups; the name is null for a table that is gone.
    unsafe {
        let name = pg_sys::get_rel_name(relation);
        if name.is_null() {
            ereport!(
                ERROR,
                PgSqlErrorCode::ERRCODE_UNDEFINED_TABLE,
                format!("relation with OID {} does not exist", relation.to_u32())
            );
        }
        let class = pg_sys::RelationRelationId;
        if !pg_sys::object_ownercheck(class, relation, pg_sys::GetUserId()) {
            let name = CStr::from_ptr(name).to_string_lossy();
            refuse(
                PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
                &format!("must be owner of table {name}"),
                "",
            );
        }
    }
}

fn divide(rel: &PgRelation, division: &Division) {
    // SAFETY: catalog look-ups.
    let method = unsafe { pg_sys::get_am_oid(c"txn_heap".as_ptr(), false) };
    if class(rel).relam != method {
        ereport!(
            ERROR,
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!(
                "table \"{}\" does not use the access method txn_heap",
                rel.name()
            ),
            format!(
                "Use ALTER TABLE \"{}\" SET ACCESS METHOD txn_heap.",
                rel.name()
            )
        );
    }
    // SAFETY: open and locked. An ERROR in it would leave nothing behind that was made here.
    let table = unsafe { key::of(rel.as_ptr()) };
    let Some(unit) = table.layout.as_ref().map(keyrange::Layout::unit) else {
        ereport!(
            ERROR,
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("table \"{}\" has no range key", rel.name()),
            "The range key is the primary key, or the index of the replica identity, if its first column has a built-in \
             type of numbers, times, texts or bytes, with the default operators."
        );
    };
    let (width, boundaries) = match division {
        Division::Width(width) => (Some(grid(rel, &table, width, unit)), Vec::new()),
        // Of several columns, the first may have few values with many rows each.
        Division::Ranges(ranges) if has_unit(&table) && table.columns.len() == 1 => {
            (Some(spread(rel, &table, *ranges as u128, unit)), Vec::new())
        }
        Division::Ranges(ranges) => (None, sampled(rel, &table, *ranges as usize)),
    };
    store(
        rel.oid(),
        width.map(|width| width.max(NARROWEST)),
        &boundaries,
    );
    touch_class(rel.oid());
}

/// Whether there is a distance between values of the key's first column that has a name.
fn has_unit(table: &Table) -> bool {
    matches!(
        table.columns[0].kind,
        Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Oid
    )
}

/// A width in images.
fn grid(rel: &PgRelation, table: &Table, width: &AnyNumeric, unit: u128) -> u128 {
    if !has_unit(table) {
        refuse(
            PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
            &format!("ranges of table \"{}\" cannot have a width", rel.name()),
            "Only those of integers, dates and times can. Give the number of ranges.",
        );
    }
    let is_time = matches!(
        table.columns[0].typ,
        pg_sys::TIMESTAMPOID | pg_sys::TIMESTAMPTZOID | pg_sys::TIMEOID
    );
    let factor = if is_time { MICROSECONDS } else { 1 };
    let units = i64::try_from((width.clone() * AnyNumeric::from(factor)).floor());
    match units {
        Ok(units) if units > 0 => unit.saturating_mul(units as u128),
        _ => {
            ereport!(
                ERROR,
                PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
                "width of ranges is out of range"
            );
        }
    }
}

/// The key columns' names, quoted.
fn names(rel: &PgRelation, columns: usize, table: &Table) -> Vec<String> {
    let descriptor = rel.tuple_desc();
    let of = table.columns.iter().take(columns);
    of.filter_map(|column| descriptor.get(column.number as usize - 1))
        .map(|attribute| spi::quote_identifier(attribute.name()))
        .collect()
}

/// Runs a query that reads the table as it is now; shows the values of each row, `None` for NULL.
/// Nobody else can write to the table, and nobody is told of its rows, so that this is not
/// validated.
fn select(query: &str, columns: usize, mut each: impl FnMut(&[Option<pg_sys::Datum>])) {
    let query = CString::new(query).unwrap_or_default();
    Spi::connect(|_| {
        // SAFETY: SPI is connected; the result stays until it is finished.
        unsafe {
            session::begin_exempt();
            pg_sys::PushActiveSnapshot(pg_sys::GetLatestSnapshot());
            pg_sys::SPI_execute(query.as_ptr(), true, 0);
            pg_sys::PopActiveSnapshot();
            session::end_exempt();
            let result = pg_sys::SPI_tuptable;
            for n in 0..(*result).numvals as usize {
                let row = *(*result).vals.add(n);
                let values: Vec<_> = (1..=columns as c_int)
                    .map(|number| {
                        let mut is_null = false;
                        let datum =
                            pg_sys::SPI_getbinval(row, (*result).tupdesc, number, &mut is_null);
                        (!is_null).then_some(datum)
                    })
                    .collect();
                each(&values);
            }
        }
    });
}

/// The lowest image of a key with these values in its first columns.
fn image(table: &Table, values: &[Option<pg_sys::Datum>]) -> Image {
    let values: Vec<Value> = table
        .columns
        .iter()
        .zip(values)
        .map(|(column, datum)| match datum {
            // SAFETY: a value of that column.
            Some(datum) => unsafe { value::of_datum(column.typ, column.typ, *datum) },
            None => Value::Null,
        })
        .collect();
    let layout = table.layout.as_ref();
    layout
        .map_or(Interval::ALL, |layout| layout.image(&values))
        .low()
}

/// A width in images with which the present keys are in so many ranges.
fn spread(rel: &PgRelation, table: &Table, ranges: u128, unit: u128) -> u128 {
    let name = names(rel, 1, table).concat();
    let query = format!(
        "SELECT min({name}), max({name}) FROM ONLY {}",
        qualified(rel)
    );
    let mut span = None;
    select(&query, 2, |values| {
        if let [Some(low), Some(high)] = values {
            span = Some((image(table, &[Some(*low)]), image(table, &[Some(*high)])));
        }
    });
    match span {
        Some((low, high)) => ((high - low) / unit + 1)
            .div_ceil(ranges)
            .saturating_mul(unit),
        None => keyrange::FIRST_NULL / ranges,
    }
}

/// Boundaries between ranges that have about as many of the present rows each.
fn sampled(rel: &PgRelation, table: &Table, ranges: usize) -> Vec<Image> {
    let columns = table.columns.len();
    let names = names(rel, columns, table).join(", ");
    let rows = f64::from(class(rel).reltuples).max(1.0);
    let share = 100.0 * SAMPLE * ranges as f64 / rows;
    let sample = if class(rel).reltuples < 0.0 || share >= 50.0 {
        String::new()
    } else {
        format!(" TABLESAMPLE BERNOULLI ({share})")
    };
    let mut images = Vec::new();
    let query = format!("SELECT {names} FROM ONLY {}{sample}", qualified(rel));
    select(&query, columns, |values| images.push(image(table, values)));
    boundaries(&mut images, ranges)
}

fn qualified(rel: &PgRelation) -> String {
    spi::quote_qualified_identifier(rel.namespace(), rel.name())
}

/// Writes the table's row of txn.range_maps, as the owner of that.
fn store(table: pg_sys::Oid, width: Option<u128>, boundaries: &[Image]) {
    let hex = |images: &[Image]| {
        let digits: String = images.iter().map(|image| format!("{image:032x}")).collect();
        format!("'\\x{digits}'::pg_catalog.bytea")
    };
    let (width, boundaries) = match width {
        Some(width) => (hex(&[width]), "NULL".to_owned()),
        None => ("NULL".to_owned(), hex(boundaries)),
    };
    let command = format!(
        "INSERT INTO txn.range_maps (relation, width, boundaries) \
         VALUES ({}::pg_catalog.oid, {width}, {boundaries}) \
         ON CONFLICT (relation) DO UPDATE SET width = excluded.width, boundaries = excluded.boundaries",
        table.to_u32()
    );
    let mut user = pg_sys::Oid::INVALID;
    let mut context = 0;
    // SAFETY: as ri_triggers.c changes the user for its queries; the end of a (sub)transaction that
    // fails sets it back.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&mut user, &mut context);
        pg_sys::SetUserIdAndSecContext(
            owner_of_maps(),
            context | pg_sys::SECURITY_LOCAL_USERID_CHANGE as c_int,
        );
    }
    if let Err(error) = Spi::run(&command) {
        pgrx::error!("{error}");
    }
    // SAFETY: sets back what GetUserIdAndSecContext has told above.
    unsafe { pg_sys::SetUserIdAndSecContext(user, context) };
}

fn owner_of_maps() -> pg_sys::Oid {
    let maps = super::map::catalog();
    // SAFETY: the extension's table; opened for a moment.
    let maps = unsafe { PgRelation::with_lock(maps, pg_sys::RowExclusiveLock as pg_sys::LOCKMODE) };
    class(&maps).relowner
}

/// Writes a new version of the table's row of pg_class, by which transactions with older snapshots
/// are refused (`tables::touch`), and everybody's cache is told.
fn touch_class(table: pg_sys::Oid) {
    const MODE: pg_sys::LOCKMODE = pg_sys::RowExclusiveLock as pg_sys::LOCKMODE;
    // SAFETY: an update of a catalog row by a copy of itself, under the table's exclusive lock.
    unsafe {
        let catalog = pg_sys::table_open(pg_sys::RelationRelationId, MODE);
        let none = pg_sys::Datum::from(0);
        let row = pg_sys::SearchSysCacheCopy(
            pg_sys::SysCacheIdentifier::RELOID as c_int,
            pg_sys::Datum::from(table),
            none,
            none,
            none,
        );
        pg_sys::CatalogTupleUpdate(catalog, &raw mut (*row).t_self, row);
        pg_sys::heap_freetuple(row);
        pg_sys::table_close(catalog, MODE);
        pg_sys::CommandCounterIncrement();
    }
}
