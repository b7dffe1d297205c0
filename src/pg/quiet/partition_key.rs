//! Whether a row is compared with the bounds of partitions without any code of users.

use super::expression::is_plain;
use crate::pg::raw;
use pgrx::pg_sys::{self, Datum, Oid};

/// access/transam.h: FirstUnpinnedObjectId.
pub(super) const FIRST_UNPINNED: u32 = 12000;

/// catalog/pg_partitioned_table.h: the columns' numbers.
const ATTRIBUTES: pg_sys::AttrNumber = 5;
const CLASSES: pg_sys::AttrNumber = 6;

/// Whether the table's partition key has only columns, of plain types, with PostgreSQL's own
/// operator classes.
///
/// # Safety
/// A transaction runs.
pub unsafe fn is_quiet(table: Oid) -> bool {
    // SAFETY: as lsyscache.c looks things up; both columns are never NULL.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::PARTRELID as i32;
        let row = raw::SearchSysCache1(cache, Datum::from(table));
        if row.is_null() {
            return false;
        }
        let column = |number| {
            let mut is_null = false;
            let value = raw::SysCacheGetAttr(cache, row, number, &mut is_null);
            (!is_null).then_some(value)
        };
        let is_quiet =
            column(ATTRIBUTES)
                .zip(column(CLASSES))
                .is_some_and(|(attributes, classes)| {
                    let attributes = attributes.cast_mut_ptr::<pg_sys::int2vector>();
                    let classes = classes.cast_mut_ptr::<pg_sys::oidvector>();
                    let count = (*attributes).dim1 as usize;
                    let attributes = (*attributes).values.as_slice(count);
                    let classes = (*classes).values.as_slice(count);
                    // 0 is an expression.
                    attributes
                        .iter()
                        .all(|&number| number > 0 && is_plain(raw::get_atttype(table, number)))
                        && classes
                            .iter()
                            .all(|&class| u32::from(class) < FIRST_UNPINNED)
                });
        raw::ReleaseSysCache(row);
        is_quiet
    }
}
