//! The one row that a statement updates, inserts, locks or asks for, if its plan says which.

use super::key_scan::{plain, scanned, value_of};
use super::statement::{calls_nothing, has_one_source_row};
use crate::pg::nodes::{length, nodes, nth, relation_of, tag};
use crate::pg::raw;
use crate::pg::relation::{key_of, key_of_locked};
use crate::pg::triggers::has_before_row_triggers;
use hotrow::Identity;
use pgrx::pg_sys::{self, Bitmapset, Datum, NodeTag, Oid};
use std::cell::OnceCell;
use std::ptr::null;

/// The one row that a statement updates or locks by its key.
pub struct Target {
    pub identity: Identity,
    plan: *const pg_sys::PlannedStmt,
    scan: pg_sys::Index,
    /// An index finds it, by all columns of the key.
    by_key: bool,
    /// And no other condition is asked of it.
    by_nothing_else: bool,
    only: OnceCell<bool>,
}

impl Target {
    /// The statement looks at no other row of the table, not even to check that an index stays
    /// unique. The identity is that of the row and not merely a hint.
    pub fn is_alone(&self) -> bool {
        self.by_key && self.is_only()
    }

    /// As `is_alone`, and the scan finds the row whatever its columns are beside the key.
    pub fn is_unconditional(&self) -> bool {
        self.by_nothing_else && self.is_alone()
    }

    /// Whether the statement, which locks the row, takes the lock FOR UPDATE, and not FOR NO KEY
    /// UPDATE.
    pub fn locks_key(&self) -> bool {
        // SAFETY: made for a query that has not ended, whose plan begins with the node that locks.
        unsafe {
            let node = (*self.plan).planTree;
            tag(node) == NodeTag::T_LockRows
                && nodes((*node.cast::<pg_sys::LockRows>()).rowMarks)
                    .map(|mark| (*mark.cast::<pg_sys::PlanRowMark>()).markType)
                    .any(|kind| kind == pg_sys::RowMarkType::ROW_MARK_EXCLUSIVE)
        }
    }

    /// The statement updates or locks no other row of the table than that of the identity. It may
    /// look at other rows to find this one.
    pub fn is_only(&self) -> bool {
        *self
            .only
            // SAFETY: made for a query that has not ended; its relations are locked.
            .get_or_init(|| unsafe {
                if_one_row(self.plan, self.scan, |rel| {
                    !fires_before_row_triggers(self.plan, rel)
                        && !checks_other_rows(self.plan, rel, self.scan, null())
                })
            })
    }

    /// As `is_only`, of a table with BEFORE triggers that do nothing but set columns. `set` gets
    /// the table and the columns that the statement updates. It says which columns the triggers
    /// set, and nothing if they may do anything else. Sets are offset by
    /// FirstLowInvalidHeapAttributeNumber.
    pub fn is_only_beside_triggers(
        &self,
        set: impl FnOnce(pg_sys::Relation, *const Bitmapset) -> Option<*const Bitmapset>,
    ) -> bool {
        // SAFETY: made for a query that has not ended; its relations are locked.
        unsafe {
            if_one_row(self.plan, self.scan, |rel| {
                fires_before_row_triggers(self.plan, rel)
                    && updated_columns(self.plan, self.scan)
                        .and_then(|updated| set(rel, updated))
                        .is_some_and(|set| !checks_other_rows(self.plan, rel, self.scan, set))
            })
        }
    }
}

/// Whether the statement names only one row of its table, and that condition holds for the table.
unsafe fn if_one_row(
    plan: *const pg_sys::PlannedStmt,
    scan: pg_sys::Index,
    condition: impl FnOnce(pg_sys::Relation) -> bool,
) -> bool {
    // SAFETY: by `target`'s contract.
    unsafe {
        let relation = relation_of(plan, scan);
        if !calls_nothing(plan) || times_in(plan, relation) != 1 {
            return false;
        }
        let rel = raw::RelationIdGetRelation(relation);
        if rel.is_null() {
            return false;
        }
        let alone = key_of(rel).is_some_and(|key| key.is_bytewise() && key.has_simple_indexes())
            && condition(rel);
        raw::RelationClose(rel);
        alone
    }
}

/// How often the relation stands in the plan's range table.
unsafe fn times_in(plan: *const pg_sys::PlannedStmt, relation: Oid) -> usize {
    // SAFETY: as in `target`.
    unsafe {
        nodes((*plan).rtable)
            .filter(|&entry| (*entry.cast::<pg_sys::RangeTblEntry>()).relid == relation)
            .count()
    }
}

/// Whether it is an UPDATE of a table with BEFORE triggers for it.
unsafe fn fires_before_row_triggers(
    plan: *const pg_sys::PlannedStmt,
    rel: pg_sys::Relation,
) -> bool {
    // SAFETY: as in `target`; the relcache's description of the triggers.
    unsafe {
        (*plan).commandType == pg_sys::CmdType::CMD_UPDATE
            && has_before_row_triggers((*rel).trigdesc)
    }
}

/// The columns that an UPDATE sets in the table with that number, offset by
/// FirstLowInvalidHeapAttributeNumber. None if the plan does not say.
///
/// # Safety
/// `plan` is a valid plan, and `index` a number of its range table.
#[inline]
pub unsafe fn updated_columns(
    plan: *const pg_sys::PlannedStmt,
    index: u32,
) -> Option<*const Bitmapset> {
    // SAFETY: as in `target`.
    unsafe {
        let entry = nth::<pg_sys::RangeTblEntry>((*plan).rtable, index as usize - 1);
        let permissions = (*entry).perminfoindex as usize;
        if permissions == 0 || permissions > length((*plan).permInfos) {
            return None;
        }
        let info = nth::<pg_sys::RTEPermissionInfo>((*plan).permInfos, permissions - 1);
        Some((*info).updatedCols)
    }
}

/// Whether the statement may insert an index entry with a key that other rows have: it changes an
/// indexed column, or its triggers, which set those columns, do.
unsafe fn checks_other_rows(
    plan: *const pg_sys::PlannedStmt,
    rel: pg_sys::Relation,
    index: u32,
    set: *const Bitmapset,
) -> bool {
    // SAFETY: as in `target`.
    unsafe {
        if (*plan).commandType != pg_sys::CmdType::CMD_UPDATE {
            return false;
        }
        let Some(updated) = updated_columns(plan, index) else {
            return true;
        };
        let kind = pg_sys::IndexAttrBitmapKind::INDEX_ATTR_BITMAP_HOT_BLOCKING;
        let indexed = raw::RelationGetIndexAttrBitmap(rel, kind);
        let overlap = raw::bms_overlap(updated, indexed) || raw::bms_overlap(set, indexed);
        raw::bms_free(indexed);
        let constraint = (*(*rel).rd_att).constr;
        overlap || (!constraint.is_null() && (*constraint).has_generated_stored)
    }
}

/// The row that the statement updates (`UPDATE ... WHERE key = value`) or locks (`SELECT ... FOR
/// UPDATE`), if its plan says so with constants or parameters.
///
/// # Safety
/// `query` is about to be started; its relations are locked.
pub unsafe fn target(query: *const pg_sys::QueryDesc) -> Option<Target> {
    // SAFETY: plan trees are read as the executor reads them; every node is checked by its tag.
    unsafe {
        let plan = (*query).plannedstmt;
        let top = (*plan).planTree;
        let scan = match tag(top) {
            NodeTag::T_ModifyTable => {
                let modify = top.cast::<pg_sys::ModifyTable>();
                match (*modify).operation {
                    _ if length((*modify).resultRelations) != 1 => return None,
                    pg_sys::CmdType::CMD_UPDATE => (*top).lefttree,
                    pg_sys::CmdType::CMD_INSERT => return inserted(query, modify),
                    _ => return None,
                }
            }
            NodeTag::T_LockRows if waits_for_exclusive_lock(top.cast()) => (*top).lefttree,
            _ => return None,
        };
        let found = scanned(query, scan)?;
        Some(Target {
            identity: found.identity,
            plan,
            scan: (*scan.cast::<pg_sys::Scan>()).scanrelid,
            by_key: found.by_index,
            by_nothing_else: found.nothing_else,
            only: OnceCell::new(),
        })
    }
}

/// Whether a LockRows node takes one lock, FOR UPDATE or FOR NO KEY UPDATE, and waits for it.
unsafe fn waits_for_exclusive_lock(node: *const pg_sys::LockRows) -> bool {
    // SAFETY: as in `target`.
    unsafe {
        let mut marks = nodes((*node).rowMarks).map(|mark| &*mark.cast::<pg_sys::PlanRowMark>());
        let Some(mark) = marks.next() else {
            return false;
        };
        marks.next().is_none()
            && mark.markType <= pg_sys::RowMarkType::ROW_MARK_NOKEYEXCLUSIVE
            && mark.waitPolicy == pg_sys::LockWaitPolicy::LockWaitBlock
    }
}

/// The row that an `INSERT ... VALUES ... ON CONFLICT (key) DO UPDATE` is about to insert or
/// update.
unsafe fn inserted(
    query: *const pg_sys::QueryDesc,
    modify: *mut pg_sys::ModifyTable,
) -> Option<Target> {
    // SAFETY: as in `target`.
    unsafe {
        let plan = (*query).plannedstmt;
        let source = (*modify).plan.lefttree;
        if (*modify).onConflictAction != pg_sys::OnConflictAction::ONCONFLICT_UPDATE
            || !has_one_source_row(plan)
        {
            return None;
        }
        let scan = (*(*(*modify).resultRelations).elements).int_value as pg_sys::Index;
        let key = key_of_locked(relation_of(plan, scan))?;
        let mut values = [(Datum::from(0), Oid::INVALID); 8];
        for (place, number) in values.iter_mut().zip(key.numbers()) {
            let number = number as usize;
            if number > length((*source).targetlist) {
                return None;
            }
            let entry = nth::<pg_sys::TargetEntry>((*source).targetlist, number - 1);
            *place = value_of(query, plain((*entry).expr.cast()))?;
        }
        let fits = (0..key.len()).all(|n| key.takes(n, values[n].1));
        fits.then(|| Target {
            identity: key.of_values(&values[..key.len()]),
            plan,
            scan,
            by_key: false,
            by_nothing_else: false,
            only: OnceCell::from(false),
        })
    }
}

/// The row whose existence a statement asks for.
pub struct Existence {
    pub identity: Identity,
    /// An index finds it: the statement looks at no other row of the table.
    pub by_index: bool,
}

/// The row of which the statement only asks whether it exists, locking its key, as a foreign key's
/// check does. The identity is that of the row and not merely a hint.
///
/// # Safety
/// As for `target`.
pub unsafe fn existence(query: *const pg_sys::QueryDesc) -> Option<Existence> {
    // SAFETY: as in `target`.
    unsafe {
        let plan = (*query).plannedstmt;
        let top = (*plan).planTree;
        if tag(top) != NodeTag::T_LockRows
            || !locks_key_share(top.cast())
            || !calls_nothing(plan)
            || (*(*query).dest).mydest != pg_sys::CommandDest::DestSPI
            || !nodes((*top).targetlist).all(|entry| {
                let entry = &*entry.cast::<pg_sys::TargetEntry>();
                entry.resjunk || tag(entry.expr) == NodeTag::T_Const
            })
        {
            return None;
        }
        let found = scanned(query, (*top).lefttree)?;
        (found.nothing_else && found.is_bytewise).then_some(Existence {
            identity: found.identity,
            by_index: found.by_index,
        })
    }
}

/// Whether a LockRows node takes one lock, FOR KEY SHARE.
unsafe fn locks_key_share(node: *const pg_sys::LockRows) -> bool {
    // SAFETY: as in `target`.
    unsafe {
        let mut marks = nodes((*node).rowMarks).map(|mark| &*mark.cast::<pg_sys::PlanRowMark>());
        marks
            .next()
            .is_some_and(|mark| mark.markType == pg_sys::RowMarkType::ROW_MARK_KEYSHARE)
            && marks.next().is_none()
    }
}

/// The constants that such a statement returns.
///
/// # Safety
/// `existence` has said that the plan is one.
pub unsafe fn constants(
    plan: *const pg_sys::PlannedStmt,
) -> impl Iterator<Item = *const pg_sys::Const> {
    // SAFETY: by the contract, and `existence` has checked the expressions.
    unsafe {
        nodes((*(*plan).planTree).targetlist)
            .map(|entry| entry.cast::<pg_sys::TargetEntry>())
            .filter(|&entry| !(*entry).resjunk)
            .map(|entry| (*entry).expr.cast_const().cast())
    }
}
