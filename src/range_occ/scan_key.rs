//! Keys of index scans, as `keyrange` has them: columns of the range key, operators and values.

use super::key::Table;
use super::value::{self, allocate};
use crate::pg::raw;
use keyrange::{Operator, ScanKey, Value};
use pgrx::pg_sys::{self, Oid, ScanKeyData};
use std::ffi::c_int;

/// A scan key as `keyrange` has it; `None` if it says nothing of the range key.
///
/// # Safety
/// A key of a scan of that index, whose table it is.
pub unsafe fn convert<'a>(
    table: &Table,
    index: pg_sys::Relation,
    key: *const ScanKeyData,
) -> Option<ScanKey<'a>> {
    // SAFETY: by the contract; flags say what stands in the key (access/skey.h).
    unsafe {
        let key = &*key;
        if has(key, pg_sys::SK_ORDER_BY) {
            return None;
        }
        if has(key, pg_sys::SK_ROW_HEADER) {
            return row(table, index, key);
        }
        if key.sk_attno <= 0 {
            return None;
        }
        let position = place(table, index, key.sk_attno)?;
        if has(key, pg_sys::SK_SEARCHNULL) {
            return Some(ScanKey::IsNull(position));
        }
        if has(key, pg_sys::SK_SEARCHNOTNULL) {
            return Some(ScanKey::IsNotNull(position));
        }
        let operator = operator(index, key)?;
        if operator != Operator::Equal && !is_ordered(table, index, key.sk_attno, position) {
            return None;
        }
        if has(key, pg_sys::SK_SEARCHARRAY) && !has(key, pg_sys::SK_ISNULL) {
            return Some(ScanKey::Any(
                position,
                operator,
                elements(table, position, key),
            ));
        }
        Some(ScanKey::Compare(
            position,
            operator,
            constant(table, position, key),
        ))
    }
}

/// An index column's part in the range key: its place there, and the type of its values.
unsafe fn place(table: &Table, index: pg_sys::Relation, number: i16) -> Option<usize> {
    // SAFETY: an open index, and one of its columns.
    unsafe {
        let at = number as usize - 1;
        let attribute = *(*(*index).rd_index)
            .indkey
            .values
            .as_slice(at + 1)
            .get(at)?;
        let position = table.position(attribute)?;
        let column = &table.columns[position];
        let family = *(*index).rd_opfamily.add(at);
        let own = match (*(*index).rd_rel).relam {
            pg_sys::BTREE_AM_OID => column.family,
            pg_sys::HASH_AM_OID => column.hash_family,
            _ => Oid::INVALID,
        };
        let is_of_type = own != Oid::INVALID && family == own;
        // Equality in this collation and in the range key's is equality of bytes, if the index says
        // so, too.
        let collation = *(*index).rd_indcollation.add(at);
        let is_bytewise =
            collation == Oid::INVALID || raw::get_collation_isdeterministic(collation);
        (is_of_type && is_bytewise).then_some(position)
    }
}

/// Whether order in an index column is the images' order.
unsafe fn is_ordered(table: &Table, index: pg_sys::Relation, number: i16, position: usize) -> bool {
    // SAFETY: as in `place`.
    unsafe {
        let collation = *(*index).rd_indcollation.add(number as usize - 1);
        table.columns[position].is_ordered
            && (collation == Oid::INVALID || raw::lc_collate_is_c(collation))
    }
}

fn has(key: &ScanKeyData, flag: u32) -> bool {
    key.sk_flags as u32 & flag != 0
}

/// The operator of a key; nbtree turns those of descending columns round when it has looked at
/// them.
unsafe fn operator(index: pg_sys::Relation, key: &ScanKeyData) -> Option<Operator> {
    const TURNED: u32 = pg_sys::INDOPTION_DESC << 24; // access/nbtree.h: SK_BT_DESC
    // SAFETY: an open index.
    if unsafe { (*(*index).rd_rel).relam } == pg_sys::HASH_AM_OID {
        return (u32::from(key.sk_strategy) == 1).then_some(Operator::Equal);
    }
    let strategy = if has(key, TURNED) {
        6 - u32::from(key.sk_strategy)
    } else {
        u32::from(key.sk_strategy)
    };
    Some(match strategy {
        pg_sys::BTLessStrategyNumber => Operator::Less,
        pg_sys::BTLessEqualStrategyNumber => Operator::LessEqual,
        pg_sys::BTEqualStrategyNumber => Operator::Equal,
        pg_sys::BTGreaterEqualStrategyNumber => Operator::GreaterEqual,
        pg_sys::BTGreaterStrategyNumber => Operator::Greater,
        _ => return None,
    })
}

/// The value that a key compares with.
unsafe fn constant<'a>(table: &Table, position: usize, key: &ScanKeyData) -> Value<'a> {
    let own = table.columns[position].typ;
    if has(key, pg_sys::SK_ISNULL) {
        return Value::Null;
    }
    let given = if key.sk_subtype == Oid::INVALID {
        own
    } else {
        key.sk_subtype
    };
    // SAFETY: sk_argument is a value of the operator's right-hand type, which is the column's own
    // by default.
    unsafe { value::of_datum(own, given, key.sk_argument) }
}

/// The values of an array that a column is compared with.
unsafe fn elements<'a>(table: &Table, position: usize, key: &ScanKeyData) -> &'a [Value<'a>] {
    // SAFETY: sk_argument is an array (access/skey.h).
    unsafe {
        let array =
            raw::pg_detoast_datum(key.sk_argument.cast_mut_ptr()).cast::<pg_sys::ArrayType>();
        let typ = (*array).elemtype;
        let (mut length, mut by_value, mut align) = (0, false, 0);
        raw::get_typlenbyvalalign(typ, &mut length, &mut by_value, &mut align);
        let (mut datums, mut nulls, mut count) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
        raw::deconstruct_array(
            array,
            typ,
            c_int::from(length),
            by_value,
            align,
            &mut datums,
            &mut nulls,
            &mut count,
        );
        let own = table.columns[position].typ;
        let values = allocate(count.max(0) as usize, Value::Null);
        for (n, value) in values.iter_mut().enumerate() {
            if !*nulls.add(n) {
                *value = value::of_datum(own, typ, *datums.add(n));
            }
        }
        values
    }
}

/// A comparison of rows, up to the first member that is not of the range key.
unsafe fn row<'a>(
    table: &Table,
    index: pg_sys::Relation,
    header: &ScanKeyData,
) -> Option<ScanKey<'a>> {
    const MOST: usize = pg_sys::INDEX_MAX_KEYS as usize;
    // SAFETY: sk_argument is an array of keys of which the last has SK_ROW_END (access/skey.h).
    unsafe {
        let operator = operator(index, header)?;
        let first = header.sk_argument.cast_mut_ptr::<ScanKeyData>();
        let members = allocate(MOST, (usize::MAX, Value::Unknown));
        let mut count = 0;
        loop {
            let key = &*first.add(count);
            if let Some(position) = place(table, index, key.sk_attno)
                && (operator == Operator::Equal || is_ordered(table, index, key.sk_attno, position))
            {
                members[count] = (position, constant(table, position, key));
            }
            count += 1;
            if has(key, pg_sys::SK_ROW_END) || count == MOST {
                break;
            }
        }
        Some(ScanKey::Row(operator, &members[..count]))
    }
}
