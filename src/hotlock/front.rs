//! Getting in front of the heap for the tables whose rows a statement changes or locks.

use super::check;
use super::session::{SESSION, relation_of};
use super::settings;
use super::step::close_all_in;
use crate::pg::plan::{self, OnConflict};
use crate::pg::relation::{Key, key_of};
use crate::pg::{nodes, raw, routing};
use crate::tam::swap::{self, Use};
use pgrx::pg_sys::{self, CmdType, Oid, QueryDesc, Relation, ResultRelInfo};

/// Gets in front of all tables that the statement has open to change or lock their rows. Also of
/// the partitions that it is going to open: those to which it routes rows that may be there
/// already.
///
/// # Safety
/// `query` is a statement that has started.
pub unsafe fn put(query: *mut QueryDesc) {
    // SAFETY: the executor state's lists of open relations.
    unsafe {
        let estate = (*query).estate;
        for node in nodes::nodes((*estate).es_opened_result_relations) {
            changed(query, node.cast());
        }
        if !(*estate).es_rowmarks.is_null() {
            for n in 0..(*estate).es_range_table_size as usize {
                let mark = *(*estate).es_rowmarks.add(n);
                if !mark.is_null()
                    && !(*mark).relation.is_null()
                    && (*mark).markType <= pg_sys::RowMarkType::ROW_MARK_KEYSHARE
                    && !is_stocks((*mark).relid)
                    && key_of((*mark).relation).is_some()
                {
                    let usage = Use {
                        query: query as usize,
                        may_follow: false,
                        on_conflict: OnConflict::Fail,
                        only_locks: true,
                    };
                    in_front_of((*mark).relation, usage);
                }
            }
        }
        let plan = (*query).plannedstmt;
        if (*plan).commandType == CmdType::CMD_INSERT || (*plan).hasModifyingCTE {
            routing::watch(query, changed);
        }
    }
}

/// Gets in front of a table whose rows the statement changes, or of a partition that takes one.
unsafe fn changed(query: *mut QueryDesc, result: *mut ResultRelInfo) {
    // SAFETY: by the callers, a running statement and one of its open relations.
    unsafe {
        let rel = (*result).ri_RelationDesc;
        if !is_stocks((*rel).rd_id)
            && let Some(key) = key_of(rel)
        {
            let on_conflict = plan::on_conflict((*query).plannedstmt);
            let sets_no_key =
                || updated_columns(query, result).is_some_and(|set| !key.touched_by(set));
            let usage = Use {
                query: query as usize,
                may_follow: names_its_rows(key, (*query).operation, on_conflict) && sets_no_key(),
                on_conflict,
                only_locks: false,
            };
            if !in_front_of(rel, usage) {
                check::take_for(query);
            }
        }
    }
}

/// The columns that the statement sets in that table, offset by FirstLowInvalidHeapAttributeNumber;
/// None if its plan does not say.
///
/// # Safety
/// A running statement and one of its open relations.
unsafe fn updated_columns(
    query: *mut QueryDesc,
    result: *mut ResultRelInfo,
) -> Option<*const pg_sys::Bitmapset> {
    // SAFETY: by the contract.
    unsafe {
        if (*result).ri_RootResultRelInfo.is_null() && (*result).ri_RangeTableIndex > 0 {
            let index = (*result).ri_RangeTableIndex;
            return plan::updated_columns((*query).plannedstmt, index);
        }
        Some(raw::ExecGetUpdatedCols(result, (*query).estate))
    }
}

/// Whether the rows that such a statement writes tell which rows they are new versions of, if it
/// leaves the keys alone.
fn names_its_rows(key: &Key, operation: CmdType::Type, on_conflict: OnConflict) -> bool {
    operation == CmdType::CMD_UPDATE && !key.has_deferrable_triggers()
        || (operation == CmdType::CMD_MERGE || on_conflict == OnConflict::Update)
            && !key.has_row_triggers()
}

/// False when there is no room: nobody follows us in that table then, because what we do next with
/// our own rows is not noticed.
unsafe fn in_front_of(rel: Relation, usage: Use) -> bool {
    // SAFETY: open until the statement ends.
    unsafe {
        let table = (*rel).rd_id;
        let has_rows = SESSION.all().any(|(_, m)| relation_of(&m) == table);
        let is_put = swap::put(rel, usage, has_rows);
        if !is_put && has_rows {
            close_all_in(table);
        }
        is_put
    }
}

/// Whether the statement changes or locks rows of that table in stock PostgreSQL's own way,
/// unnoticed by us.
fn is_stocks(relation: Oid) -> bool {
    if settings::uses(relation) {
        return false;
    }
    SESSION.note_locked_in(relation);
    !SESSION.is_member() && !check::has_deferred()
}
