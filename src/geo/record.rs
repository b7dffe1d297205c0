//! Which records a part of a statement is about: rows of a foreign table that equality on all
//! columns of its option `key` names.

use super::coordinator;
use super::key::{column_of, is_equality, key_columns};
use super::schedule;
use super::server::{option_of, options};
use super::values::{Output, Plain};
use crate::pg::nodes::{length, nodes, nth, oids, tag};
use crate::pg::{quiet, raw, slot};
use geo::RecordId;
use pgrx::pg_sys::{self, Datum, ForeignScan, ForeignScanState, Node, NodeTag, Oid, ResultRelInfo};
use std::ffi::{CStr, CString, c_char};
use std::ptr::null_mut;

/// A part with more records counts as one whose records are not known.
const MOST: usize = 64;

/// The key of a foreign table.
struct Key {
    server: Oid,
    relation: Oid,
    /// The table's name at its node, with its schema.
    table: String,
    /// The numbers of its columns.
    columns: Vec<i16>,
}

/// A value that a column of the key has.
#[derive(Clone)]
struct Value {
    datum: Datum,
    of_type: Oid,
    text: String,
}

/// The records of a direct modification, or of a scan that locks its rows; none: they are not
/// known, or do not matter.
///
/// # Safety
/// The state of such a part, whose statement runs.
pub unsafe fn of(node: *mut ForeignScanState) -> Vec<RecordId> {
    // SAFETY: the caller's state is that of a part of a running statement.
    unsafe {
        let plan = (*node).ss.ps.plan.cast::<ForeignScan>();
        // Of a join the restrictions are those of several tables.
        if !schedule::forecasts() || (*plan).scan.scanrelid == 0 {
            return Vec::new();
        }
        let relation = (*node).ss.ss_currentRelation;
        let Some(key) = Key::of(relation) else {
            return Vec::new();
        };
        let _plain = Plain::begin();
        let mut rows: Vec<Vec<Value>> = vec![Vec::new()];
        for &column in &key.columns {
            let quals = nodes((*plan).fdw_recheck_quals);
            let Some(values) = quals.filter_map(|qual| values(node, qual, column)).next() else {
                return Vec::new();
            };
            if values.len() * rows.len() > MOST {
                return Vec::new();
            }
            let with = |row: &Vec<Value>, value: &Value| {
                let more = std::iter::once(value.clone());
                row.iter().cloned().chain(more).collect()
            };
            rows = rows
                .iter()
                .flat_map(|row| values.iter().map(move |value| with(row, value)))
                .collect();
        }
        let is_partition = (*(*relation).rd_rel).relispartition;
        if rows.len() > 1 && is_partition && are_bounds_of(&key, relation) {
            rows = in_partition(rows, &key, relation, (*node).ss.ps.state);
        }
        let texts = |row: Vec<Value>| row.into_iter().map(|value| value.text).collect::<Vec<_>>();
        rows.into_iter()
            .map(|row| key.record(&texts(row)))
            .collect()
    }
}

/// The records of rows that are inserted, as far as somebody has waited for them before: values of
/// these columns, row by row. None: they are not known, or do not matter.
///
/// # Safety
/// `relation` is a foreign table, and open.
pub unsafe fn of_rows(
    relation: pg_sys::Relation,
    columns: &[i32],
    values: &[Option<CString>],
) -> Vec<RecordId> {
    // SAFETY: the caller's foreign table is open.
    let key = unsafe {
        if !schedule::forecasts() || columns.is_empty() {
            return Vec::new();
        }
        Key::of(relation)
    };
    let Some(key) = key else { return Vec::new() };
    let place = |&column: &i16| columns.iter().position(|&one| one == i32::from(column));
    let Some(places) = key
        .columns
        .iter()
        .map(place)
        .collect::<Option<Vec<usize>>>()
    else {
        return Vec::new();
    };
    let text = |value: &Option<CString>| Some(value.as_ref()?.to_string_lossy().into_owned());
    let texts = |row: &[Option<CString>]| places.iter().map(|&at| text(&row[at])).collect();
    let rows = values.chunks_exact(columns.len());
    let found: Option<Vec<Vec<String>>> = rows.take(MOST + 1).map(texts).collect();
    let Some(rows) = found.filter(|rows| rows.len() <= MOST) else {
        return Vec::new();
    };
    let mut records: Vec<RecordId> = rows.iter().map(|row| key.record(row)).collect();
    coordinator::memory().with_records(|all| records.retain(|one| all.is_known(one)));
    records
}

impl Key {
    /// None: the table has no option `key`.
    ///
    /// # Safety
    /// `relation` is a foreign table, and open.
    unsafe fn of(relation: pg_sys::Relation) -> Option<Key> {
        // SAFETY: by the contract; catalog look-ups.
        unsafe {
            let columns = key_columns(relation);
            if columns.is_empty() || columns.iter().any(|&number| number <= 0) {
                return None;
            }
            let (id, form) = ((*relation).rd_id, (*relation).rd_rel);
            let table = pg_sys::GetForeignTable(id);
            let own = options((*table).options);
            let text = |name: *const c_char| CStr::from_ptr(name).to_string_lossy().into_owned();
            let schema = option_of(&own, "schema_name").map_or_else(
                || text(pg_sys::get_namespace_name((*form).relnamespace)),
                str::to_owned,
            );
            let name = option_of(&own, "table_name")
                .map_or_else(|| text((*form).relname.data.as_ptr()), str::to_owned);
            Some(Key {
                server: (*table).serverid,
                relation: id,
                table: format!("{schema}.{name}"),
                columns,
            })
        }
    }

    fn record(&self, values: &[String]) -> RecordId {
        RecordId::new(
            coordinator::database(),
            self.server.into(),
            self.relation.into(),
            &self.table,
            &values.join(", "),
        )
    }
}

/// The values that a restriction lets a column have: one, or those of a list. None: it is another
/// restriction.
unsafe fn values(node: *mut ForeignScanState, qual: *mut Node, column: i16) -> Option<Vec<Value>> {
    // SAFETY: a restriction of the plan, of the scan's table; its constants and parameters are
    // there while the statement runs.
    unsafe {
        let (operator, arguments, is_list) = match tag(qual) {
            NodeTag::T_OpExpr => {
                let one = qual.cast::<pg_sys::OpExpr>();
                ((*one).opno, (*one).args, false)
            }
            NodeTag::T_ScalarArrayOpExpr => {
                let one = qual.cast::<pg_sys::ScalarArrayOpExpr>();
                if !(*one).useOr {
                    return None;
                }
                ((*one).opno, (*one).args, true)
            }
            _ => return None,
        };
        if length(arguments) != 2 {
            return None;
        }
        let (left, right): (*mut Node, *mut Node) = (nth(arguments, 0), nth(arguments, 1));
        let table = (*(*node).ss.ps.plan.cast::<ForeignScan>()).scan.scanrelid;
        let is_it = |side| column_of(side, table) == Some(column);
        let value = match (is_it(left), is_it(right)) {
            (true, false) => right,
            (false, true) if !is_list => left,
            _ => return None,
        };
        if !is_value(value) || !is_equality(operator) {
            return None;
        }
        let state = pg_sys::ExecInitExpr(value.cast(), node.cast());
        let datum = slot::evaluate(state, (*node).ss.ps.ps_ExprContext)?;
        if is_list {
            return elements(datum);
        }
        let of_type = pg_sys::exprType(value);
        Some(vec![Value::new(datum, of_type)])
    }
}

impl Value {
    fn new(datum: Datum, of_type: Oid) -> Value {
        let text = Output::of(of_type).text(datum);
        Value {
            datum,
            of_type,
            text: text.to_string_lossy().into_owned(),
        }
    }
}

/// The elements of an array, without NULLs, each once. None: they are too many.
unsafe fn elements(array: Datum) -> Option<Vec<Value>> {
    // SAFETY: a value of an array's type.
    unsafe {
        let array: *mut pg_sys::ArrayType = pg_sys::pg_detoast_datum(array.cast_mut_ptr()).cast();
        let of_type = (*array).elemtype;
        let (mut length, mut by_value, mut align) = (0, false, 0);
        pg_sys::get_typlenbyvalalign(of_type, &mut length, &mut by_value, &mut align);
        let (mut values, mut nulls, mut count) = (null_mut(), null_mut(), 0);
        pg_sys::deconstruct_array(
            array,
            of_type,
            length.into(),
            by_value,
            align,
            &mut values,
            &mut nulls,
            &mut count,
        );
        if count as usize > MOST {
            return None;
        }
        let mut found: Vec<Value> = Vec::new();
        for n in (0..count as usize).filter(|&n| !*nulls.add(n)) {
            let value = Value::new(*values.add(n), of_type);
            if found.iter().all(|one| one.text != value.text) {
                found.push(value);
            }
        }
        Some(found)
    }
}

/// Whether it is a constant or a parameter of the statement.
unsafe fn is_value(mut node: *mut Node) -> bool {
    // SAFETY: a node of a plan.
    unsafe {
        // What changes no bytes.
        while tag(node) == NodeTag::T_RelabelType {
            node = (*node.cast::<pg_sys::RelabelType>()).arg.cast();
        }
        match tag(node) {
            NodeTag::T_Const => true,
            NodeTag::T_Param => {
                (*node.cast::<pg_sys::Param>()).paramkind == pg_sys::ParamKind::PARAM_EXTERN
            }
            _ => false,
        }
    }
}

/// Whether the table's bounds as a partition are about columns of the key only, and looking at them
/// runs no code of users: the others are not known here.
unsafe fn are_bounds_of(key: &Key, relation: pg_sys::Relation) -> bool {
    // SAFETY: an open table; as partcache.c reads its bounds, which are about relation number 1.
    unsafe {
        let mut columns = null_mut();
        let is_quiet = pg_sys::ffi::pg_guard_ffi_boundary(|| {
            let bounds = raw::RelationGetPartitionQual(relation);
            raw::pull_varattnos(bounds.cast(), 1, &mut columns);
            let ancestors = raw::get_partition_ancestors((*relation).rd_id);
            oids(ancestors).all(|ancestor| quiet::is_partition_key_quiet(ancestor))
        });
        if !is_quiet {
            return false;
        }
        let mut last = -1;
        loop {
            last = pg_sys::bms_next_member(columns, last);
            if last < 0 {
                return true;
            }
            let column = last + pg_sys::FirstLowInvalidHeapAttributeNumber;
            if !key.columns.iter().any(|&one| i32::from(one) == column) {
                return false;
            }
        }
    }
}

/// The rows that the table's bounds as a partition allow: a list of keys is not split up among the
/// partitions. All of them if that cannot be said.
unsafe fn in_partition(
    rows: Vec<Vec<Value>>,
    key: &Key,
    relation: pg_sys::Relation,
    estate: *mut pg_sys::EState,
) -> Vec<Vec<Value>> {
    // SAFETY: the executor's state of the table. The slot is for its columns, and gets values of
    // their types only.
    unsafe {
        let result: *mut ResultRelInfo = pg_sys::palloc0(size_of::<ResultRelInfo>()).cast();
        pg_sys::InitResultRelInfo(result, relation, 0, null_mut(), 0);
        let descriptor = (*relation).rd_att;
        let attributes = (*descriptor).attrs.as_ptr();
        let of_type = |column: i16| (*attributes.add(column as usize - 1)).atttypid;
        let fits = |row: &Vec<Value>| {
            let mut columns = key.columns.iter().zip(row);
            columns.all(|(&column, value)| of_type(column) == value.of_type)
        };
        if !rows.iter().all(fits) {
            return rows;
        }
        let slot = pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsVirtual);
        let is_here = |row: &Vec<Value>| {
            slot::clear(slot);
            for n in 0..(*descriptor).natts as usize {
                *(*slot).tts_isnull.add(n) = true;
            }
            for (&column, value) in key.columns.iter().zip(row) {
                *(*slot).tts_values.add(column as usize - 1) = value.datum;
                *(*slot).tts_isnull.add(column as usize - 1) = false;
            }
            pg_sys::ExecStoreVirtualTuple(slot);
            pg_sys::ExecPartitionCheck(result, slot, estate, false)
        };
        let here: Vec<Vec<Value>> = rows.iter().filter(|row| is_here(row)).cloned().collect();
        pg_sys::ExecDropSingleTupleTableSlot(slot);
        match here.is_empty() {
            true => rows,
            false => here,
        }
    }
}
