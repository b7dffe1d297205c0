//! A key, from the table's relcache entry.

use super::{Column, Key, MAX_COLUMNS, NO_KEY, is_used_as_catalog};
use crate::pg::image::{Form, Shape};
use crate::pg::triggers::{
    FOREIGN_KEY, REFERENCED, has_after_row_triggers, has_before_statement_triggers,
    has_deferrable_triggers, has_row_triggers, has_statement_triggers,
};
use crate::pg::{form, nodes, raw};
use pgrx::pg_sys::{self, Oid};

/// The key of a table, from its relcache entry.
///
/// # Safety
/// `rel` is an open relation.
pub(in crate::pg) unsafe fn build(rel: pg_sys::Relation) -> Key {
    // SAFETY: relcache entries are valid while open; nothing here keeps a destructor across calls.
    unsafe {
        let mut key = NO_KEY;
        key.relation = (*rel).rd_id;
        let form = (*rel).rd_rel;
        let persistence = (*form).relpersistence as u8;
        if u32::from((*rel).rd_id) < pg_sys::FirstNormalObjectId
            || (*form).relkind as u8 != pg_sys::RELKIND_RELATION
            || is_used_as_catalog(rel)
            || (persistence != pg_sys::RELPERSISTENCE_PERMANENT
                && persistence != pg_sys::RELPERSISTENCE_UNLOGGED)
        {
            return key;
        }
        key.note_indexes(rel);
        key.row_triggers = has_row_triggers((*rel).trigdesc, &FOREIGN_KEY);
        key.before_statement_triggers = has_before_statement_triggers((*rel).trigdesc);
        key.deferrable_triggers = has_deferrable_triggers((*rel).trigdesc);
        let constraints = (*(*rel).rd_att).constr;
        key.plain = !has_row_triggers((*rel).trigdesc, &REFERENCED)
            && !(*form).relispartition
            && (constraints.is_null() || !(*constraints).has_generated_stored);
        key.referencing = referencing(rel);
        key.has_generated = !constraints.is_null() && (*constraints).has_generated_stored;
        key.combines = !has_after_row_triggers((*rel).trigdesc, &FOREIGN_KEY)
            && !has_statement_triggers((*rel).trigdesc)
            && !(*form).relispartition
            && has_portable_constraints((*(*rel).rd_att).constr);
        let index = if (*rel).rd_pkindex != Oid::INVALID {
            (*rel).rd_pkindex
        } else {
            (*rel).rd_replidindex
        };
        if index == Oid::INVALID {
            return key;
        }
        key.index = index;
        let index = raw::RelationIdGetRelation(index);
        if index.is_null() {
            return key;
        }
        key.note_columns(rel, index);
        raw::RelationClose(index);
        key
    }
}

impl Key {
    /// What the table's indexes have in common.
    ///
    /// # Safety
    /// As for `build`.
    unsafe fn note_indexes(&mut self, rel: pg_sys::Relation) {
        // SAFETY: as in `build`.
        unsafe {
            let indexes = raw::RelationGetIndexList(rel);
            self.simple_indexes = true;
            self.plain_unique = true;
            for oid in nodes::oids(indexes) {
                let index = raw::RelationIdGetRelation(oid);
                if index.is_null() {
                    continue;
                }
                let form = (*index).rd_index;
                self.simple_indexes &= (*form).indimmediate && !(*form).indisexclusion;
                let attributes = (*form).indkey.values.as_slice((*form).indnkeyatts as usize);
                self.plain_unique &= !(*form).indisunique
                    || attributes.iter().all(|&number| number > 0)
                        && raw::RelationGetIndexPredicate(index).is_null();
                raw::RelationClose(index);
            }
            raw::list_free(indexes);
        }
    }

    /// The columns of the key's index, if they are few, and plain ones.
    ///
    /// # Safety
    /// As for `build`; an open index of `rel`.
    unsafe fn note_columns(&mut self, rel: pg_sys::Relation, index: pg_sys::Relation) {
        // SAFETY: as in `build`.
        unsafe {
            let form = (*index).rd_index;
            let count = (*form).indnkeyatts as usize;
            if count > MAX_COLUMNS {
                return;
            }
            let attrs = (*(*rel).rd_att).attrs.as_ptr();
            let numbers = (*form).indkey.values.as_slice(count);
            for (column, &number) in self.columns.iter_mut().zip(numbers) {
                if number <= 0 || (*attrs.add(number as usize - 1)).attgenerated != 0 {
                    return;
                }
                let attr = &*attrs.add(number as usize - 1);
                *column = Column {
                    number,
                    shape: shape_of(attr),
                    typ: attr.atttypid,
                    collation: attr.attcollation,
                };
            }
            self.count = count;
            self.bytewise = self.columns().iter().all(Column::is_bytewise);
        }
    }
}

/// How values of the column are stored.
fn shape_of(attr: &pg_sys::FormData_pg_attribute) -> Shape {
    let length = attr.attlen;
    let form = match (attr.attbyval, length) {
        (true, _) => Form::ByValue,
        (false, -1) => Form::Varlena,
        (false, -2) => Form::CString,
        (false, _) => Form::Fixed,
    };
    Shape { form, length }
}

/// The columns that refer to other tables.
unsafe fn referencing(rel: pg_sys::Relation) -> u64 {
    let mut columns = 0;
    // SAFETY: the relcache's list of foreign keys.
    unsafe {
        for node in nodes::nodes(raw::RelationGetFKeyList(rel)) {
            let foreign_key = &*node.cast::<pg_sys::ForeignKeyCacheInfo>();
            for &number in &foreign_key.conkey[..foreign_key.nkeys as usize] {
                columns |= 1u64 << if (1..64).contains(&number) { number } else { 0 };
            }
        }
    }
    columns
}

/// Whether the constraints of a table can be checked for an update of another session.
unsafe fn has_portable_constraints(constraints: *const pg_sys::TupleConstr) -> bool {
    // SAFETY: null, or the tuple descriptor's constraints.
    unsafe {
        constraints.is_null()
            || (!(*constraints).has_generated_stored
                && (0..(*constraints).num_check as usize)
                    .all(|n| form::is_portable((*(*constraints).check.add(n)).ccbin)))
    }
}
