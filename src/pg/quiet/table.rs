//! Which tables may be written quietly: their constraints, indexes and triggers, remembered per
//! table.

use super::expression::{is_plain, is_quiet};
use super::partition_key::{self, FIRST_UNPINNED};
use crate::pg::nodes::oids;
use crate::pg::per_table::PerTable;
use crate::pg::{language, raw};
use pgrx::pg_sys::{self, Datum, Oid};
use std::ffi::c_int;

/// What is known of a table that is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Loud,
    /// It has triggers in PL/pgSQL, and is quiet otherwise.
    FiresPlpgsql,
    Quiet,
}

static TABLES: PerTable<Table, 256> = PerTable::new();

unsafe extern "C-unwind" fn forget(_arg: Datum, relation: Oid) {
    TABLES.forget(relation);
}

/// A function has changed: a trigger's, perhaps, into one of another language.
unsafe extern "C-unwind" fn forget_all(_arg: Datum, _cache: c_int, _hash: u32) {
    TABLES.forget(Oid::INVALID);
}

/// Registers the invalidation callbacks. Once, from `_PG_init`.
pub fn init() {
    let functions = pg_sys::SysCacheIdentifier::PROCOID as c_int;
    // SAFETY: the callbacks touch only process-local cells.
    unsafe {
        pg_sys::CacheRegisterRelcacheCallback(Some(forget), Datum::from(0));
        pg_sys::CacheRegisterSyscacheCallback(functions, Some(forget_all), Datum::from(0));
    }
}

/// Whether writing a row of the table runs nothing that is not quiet.
///
/// # Safety
/// The table is locked by the statement.
pub(super) unsafe fn is_table_quiet(relation: Oid) -> bool {
    // SAFETY: the caller's statement has locked the table, so it can be opened.
    match TABLES.get(relation, || unsafe { build(relation) }) {
        Table::Loud => false,
        Table::FiresPlpgsql => language::is_watched(),
        Table::Quiet => true,
    }
}

unsafe fn build(relation: Oid) -> Table {
    // SAFETY: relcache entries are valid while open.
    unsafe {
        let rel = raw::RelationIdGetRelation(relation);
        if rel.is_null() {
            return Table::Loud;
        }
        let kind = (*(*rel).rd_rel).relkind as u8;
        let is_table = matches!(
            kind,
            pg_sys::RELKIND_RELATION | pg_sys::RELKIND_PARTITIONED_TABLE
        );
        let is_quiet = || has_quiet_columns(rel) && has_quiet_indexes(rel) && has_quiet_bounds(rel);
        let table = if is_table && is_quiet() {
            triggers((*rel).trigdesc)
        } else {
            Table::Loud
        };
        raw::RelationClose(rel);
        table
    }
}

/// CHECK constraints and generated columns.
unsafe fn has_quiet_columns(rel: pg_sys::Relation) -> bool {
    // SAFETY: the relcache's description of the columns.
    unsafe {
        let descriptor = (*rel).rd_att;
        let constraints = (*descriptor).constr;
        if constraints.is_null() {
            return true;
        }
        let checks = (0..(*constraints).num_check as usize)
            .all(|n| is_text_quiet((*(*constraints).check.add(n)).ccbin));
        let attributes = (*descriptor).attrs.as_ptr();
        let generated = !(*constraints).has_generated_stored
            || (0..(*constraints).num_defval as usize).all(|n| {
                let value = &*(*constraints).defval.add(n);
                (*attributes.add(value.adnum as usize - 1)).attgenerated == 0
                    || is_text_quiet(value.adbin)
            });
        checks && generated
    }
}

/// An expression as the catalogs keep it.
unsafe fn is_text_quiet(text: *const std::ffi::c_char) -> bool {
    // SAFETY: by the caller; null is no expression.
    unsafe { text.is_null() || is_quiet(raw::stringToNode(text).cast()) }
}

/// The bounds of a partition, which an UPDATE compares with (nodeModifyTable.c: ExecUpdateAct): of
/// columns that are plain, by PostgreSQL's own operators, in all partitioned tables above.
unsafe fn has_quiet_bounds(rel: pg_sys::Relation) -> bool {
    // SAFETY: the relcache's row of pg_class; catalog look-ups.
    unsafe {
        if !(*(*rel).rd_rel).relispartition {
            return true;
        }
        let ancestors = raw::get_partition_ancestors((*rel).rd_id);
        let are_quiet = oids(ancestors).all(|table| partition_key::is_quiet(table));
        raw::list_free(ancestors);
        are_quiet
    }
}

/// Expressions and conditions of indexes.
unsafe fn has_quiet_indexes(rel: pg_sys::Relation) -> bool {
    // SAFETY: the relcache's list of indexes; they are locked with their table.
    unsafe {
        let indexes = raw::RelationGetIndexList(rel);
        let quiet = oids(indexes).all(|oid| {
            let index = raw::RelationIdGetRelation(oid);
            if index.is_null() {
                return false;
            }
            let quiet = has_builtin_operators(index)
                && is_quiet(raw::RelationGetIndexExpressions(index).cast())
                && is_quiet(raw::RelationGetIndexPredicate(index).cast());
            raw::RelationClose(index);
            quiet
        });
        raw::list_free(indexes);
        quiet
    }
}

/// Whether all that an index does with its keys is PostgreSQL's own: the operator classes, and the
/// types for which these call others' functions (of a range, its subtype's). Such functions are
/// called with a page locked.
unsafe fn has_builtin_operators(index: pg_sys::Relation) -> bool {
    // SAFETY: the relcache's description of an open index.
    unsafe {
        let columns = (*(*index).rd_index).indnkeyatts as usize;
        let descriptor = (*index).rd_att;
        let attributes = (*descriptor).attrs.as_ptr();
        (0..columns).all(|n| {
            u32::from(*(*index).rd_opfamily.add(n)) < FIRST_UNPINNED
                && is_plain((*attributes.add(n)).atttypid)
        })
    }
}

/// utils/fmgroids.h: the trigger functions of foreign keys, RI_FKey_check_ins to
/// RI_FKey_noaction_upd. Their statements come by a hook.
const FOREIGN_KEY: std::ops::RangeInclusive<u32> = 1644..=1655;

unsafe fn triggers(triggers: *const pg_sys::TriggerDesc) -> Table {
    // SAFETY: null, or the relcache's description of the triggers.
    unsafe {
        if triggers.is_null() {
            return Table::Quiet;
        }
        let all =
            std::slice::from_raw_parts((*triggers).triggers, (*triggers).numtriggers as usize);
        let mut users = all
            .iter()
            .filter(|trigger| !FOREIGN_KEY.contains(&u32::from(trigger.tgfoid)))
            .peekable();
        if users.peek().is_none() {
            return Table::Quiet;
        }
        let quiet = users.all(|trigger| {
            language::is_written_in_it(trigger.tgfoid) && is_text_quiet(trigger.tgqual)
        });
        if quiet {
            Table::FiresPlpgsql
        } else {
            Table::Loud
        }
    }
}
