//! What a plan is about to touch, as far as it can be known before it runs.

use super::builtin::Known;
use super::nodes::{length, nodes, nth, relation_of, tag};
use super::raw;
use super::relation::key_of;
use hotrow::Identity;
use pgrx::pg_sys::{self, Datum, NodeTag, Oid};
use std::cell::OnceCell;

/// What an INSERT does with rows that are there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    Fail,
    Update,
}

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
    /// unique, and the identity is that of the row and not merely a hint.
    pub fn is_alone(&self) -> bool {
        self.by_key && self.is_only()
    }

    /// The same, and whatever the row's columns are beside the key, the scan finds it.
    pub fn is_unconditional(&self) -> bool {
        self.by_nothing_else && self.is_alone()
    }

    /// The same for what it updates or locks: it may look at other rows to find this one.
    pub fn is_only(&self) -> bool {
        *self
            .only
            // SAFETY: made for a query that has not ended; its relations are locked.
            .get_or_init(|| unsafe { concerns_one_row(self.plan, self.scan) })
    }
}

unsafe fn concerns_one_row(plan: *const pg_sys::PlannedStmt, scan: pg_sys::Index) -> bool {
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
            && !checks_other_rows(plan, rel, scan);
        raw::RelationClose(rel);
        alone
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
        let rel = raw::RelationIdGetRelation(relation_of(plan, scan));
        if rel.is_null() {
            return None;
        }
        let key = key_of(rel);
        raw::RelationClose(rel);
        let key = key?;
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

/// Whether an INSERT has one row of VALUES.
///
/// # Safety
/// `plan` is a valid plan of an INSERT.
pub unsafe fn has_one_source_row(plan: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: as in `target`.
    unsafe {
        let source = (*(*plan).planTree).lefttree;
        tag(source) == NodeTag::T_Result && (*source).lefttree.is_null()
    }
}

/// Whether the statement may lock rows.
///
/// # Safety
/// `query` is about to be started.
#[inline]
pub unsafe fn may_lock(query: *const pg_sys::QueryDesc) -> bool {
    // SAFETY: as in `target`.
    unsafe {
        let plan = (*query).plannedstmt;
        (*query).operation != pg_sys::CmdType::CMD_SELECT
            || (*plan).hasModifyingCTE
            || !(*plan).rowMarks.is_null()
    }
}

/// Whether a table that the statement writes has any trigger.
///
/// # Safety
/// The executor's state of a started statement.
#[inline]
pub unsafe fn writes_with_triggers(estate: *const pg_sys::EState) -> bool {
    // SAFETY: by the contract; its lists of open tables.
    unsafe {
        let written = [
            (*estate).es_opened_result_relations,
            (*estate).es_tuple_routing_result_relations,
        ];
        written.iter().any(|list| {
            nodes(*list).any(|result| {
                let rel = (*result.cast::<pg_sys::ResultRelInfo>()).ri_RelationDesc;
                !(*rel).trigdesc.is_null()
            })
        })
    }
}

/// Whether the session's role may do what the statement does with its tables (execMain.c: InitPlan
/// asks first, too).
///
/// # Safety
/// `query` is about to be started.
pub unsafe fn is_allowed(query: *const pg_sys::QueryDesc) -> bool {
    // SAFETY: by the contract; the plan's lists.
    unsafe {
        let plan = (*query).plannedstmt;
        raw::ExecCheckPermissions((*plan).rtable, (*plan).permInfos, false)
    }
}

/// What the statement does with rows that are there already.
///
/// # Safety
/// `plan` is a valid plan.
pub unsafe fn on_conflict(plan: *const pg_sys::PlannedStmt) -> OnConflict {
    // SAFETY: as in `target`.
    unsafe {
        let top = (*plan).planTree;
        if tag(top) != NodeTag::T_ModifyTable || (*plan).hasModifyingCTE {
            return OnConflict::Fail;
        }
        match (*top.cast::<pg_sys::ModifyTable>()).onConflictAction {
            pg_sys::OnConflictAction::ONCONFLICT_UPDATE => OnConflict::Update,
            _ => OnConflict::Fail,
        }
    }
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

/// The row whose existence a statement asks for.
pub struct Existence {
    pub identity: Identity,
    /// An index finds it: the statement looks at no other row of the table.
    pub by_index: bool,
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

/// A scan of one table by its key.
struct Scanned {
    identity: Identity,
    /// An index finds the row, by all columns of the key.
    by_index: bool,
    /// It asks for nothing but the key.
    nothing_else: bool,
    is_bytewise: bool,
}

unsafe fn scanned(query: *const pg_sys::QueryDesc, scan: *mut pg_sys::Plan) -> Option<Scanned> {
    // SAFETY: as in `target`.
    unsafe {
        let (index_quals, by_index) = match tag(scan) {
            NodeTag::T_IndexScan => ((*scan.cast::<pg_sys::IndexScan>()).indexqualorig, true),
            NodeTag::T_BitmapHeapScan => (
                (*scan.cast::<pg_sys::BitmapHeapScan>()).bitmapqualorig,
                false,
            ),
            NodeTag::T_SeqScan => (std::ptr::null_mut(), false),
            _ => return None,
        };
        let scan_relation = (*scan.cast::<pg_sys::Scan>()).scanrelid;
        let relation = relation_of((*query).plannedstmt, scan_relation);
        if u32::from(relation) < pg_sys::FirstNormalObjectId {
            return None;
        }
        let rel = raw::RelationIdGetRelation(relation);
        if rel.is_null() {
            return None;
        }
        let key = key_of(rel);
        raw::RelationClose(rel);
        let key = key?;
        let mut values = [(Datum::from(0), Oid::INVALID); 8];
        let mut known = 0;
        let mut found_by_index = by_index && key.is_of((*scan.cast::<pg_sys::IndexScan>()).indexid);
        let mut nothing_else = true;
        for (by_index, qual) in nodes(index_quals)
            .map(|q| (true, q))
            .chain(nodes((*scan).qual).map(|q| (false, q)))
        {
            let place = equality(query, qual).and_then(|(number, value, typ)| {
                let position = key.position(number)?;
                let fits = values[position].1 == Oid::INVALID && key.takes(position, typ);
                fits.then_some((position, value, typ))
            });
            match place {
                Some((position, value, typ)) => {
                    values[position] = (value, typ);
                    known += 1;
                    found_by_index &= by_index;
                }
                None => nothing_else = false,
            }
        }
        (known == key.len()).then(|| Scanned {
            identity: key.of_values(&values[..known]),
            by_index: found_by_index,
            nothing_else,
            is_bytewise: key.is_bytewise(),
        })
    }
}

/// Whether the statement has no subplans and calls no function that is not PostgreSQL's own: such a
/// function could look at anything.
///
/// # Safety
/// `plan` is a valid plan.
pub unsafe fn calls_nothing(plan: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: as in `target`.
    unsafe { (*plan).subplans.is_null() && (*plan).invalItems.is_null() }
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

/// Whether the statement may insert an index entry with a key that other rows have: it changes an
/// indexed column, or a trigger may.
unsafe fn checks_other_rows(
    plan: *const pg_sys::PlannedStmt,
    rel: pg_sys::Relation,
    index: u32,
) -> bool {
    // SAFETY: as in `target`.
    unsafe {
        if (*plan).commandType != pg_sys::CmdType::CMD_UPDATE {
            return false;
        }
        let triggers = (*rel).trigdesc;
        if !triggers.is_null() && (*triggers).trig_update_before_row {
            return true;
        }
        let entry = nth::<pg_sys::RangeTblEntry>((*plan).rtable, index as usize - 1);
        let permissions = (*entry).perminfoindex as usize;
        if permissions == 0 || permissions > length((*plan).permInfos) {
            return true;
        }
        let updated =
            (*nth::<pg_sys::RTEPermissionInfo>((*plan).permInfos, permissions - 1)).updatedCols;
        let kind = pg_sys::IndexAttrBitmapKind::INDEX_ATTR_BITMAP_HOT_BLOCKING;
        let indexed = raw::RelationGetIndexAttrBitmap(rel, kind);
        let overlap = raw::bms_overlap(updated, indexed);
        raw::bms_free(indexed);
        let constraint = (*(*rel).rd_att).constr;
        overlap || (!constraint.is_null() && (*constraint).has_generated_stored)
    }
}

/// Whether the statement's tables include a partitioned one, whose partitions the plan may not
/// name.
///
/// # Safety
/// `plan` is a valid plan.
pub unsafe fn is_partitioned(plan: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: as in `target`.
    unsafe {
        nodes((*plan).rtable).any(|entry| {
            (*entry.cast::<pg_sys::RangeTblEntry>()).relkind as u8
                == pg_sys::RELKIND_PARTITIONED_TABLE
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

/// `column = constant or parameter`: the column's number, the value and its type.
unsafe fn equality(
    query: *const pg_sys::QueryDesc,
    qual: *mut pg_sys::Node,
) -> Option<(i16, Datum, Oid)> {
    // SAFETY: as in `target`.
    unsafe {
        if tag(qual) != NodeTag::T_OpExpr {
            return None;
        }
        let op = qual.cast::<pg_sys::OpExpr>();
        if length((*op).args) != 2 {
            return None;
        }
        let (left, right) = (plain(nth((*op).args, 0)), plain(nth((*op).args, 1)));
        let (var, other) = if tag(left) == NodeTag::T_Var {
            (left, right)
        } else {
            (right, left)
        };
        if tag(var) != NodeTag::T_Var {
            return None;
        }
        let var = var.cast::<pg_sys::Var>();
        let (value, typ) = value_of(query, other)?;
        is_equality((*op).opno, (*var).vartype).then_some(((*var).varattno, value, typ))
    }
}

/// The node without RelabelTypes, which change no bytes.
unsafe fn plain(mut node: *mut pg_sys::Node) -> *mut pg_sys::Node {
    // SAFETY: as in `target`.
    unsafe {
        while tag(node) == NodeTag::T_RelabelType {
            node = (*node.cast::<pg_sys::RelabelType>()).arg.cast();
        }
        node
    }
}

unsafe fn value_of(
    query: *const pg_sys::QueryDesc,
    node: *mut pg_sys::Node,
) -> Option<(Datum, Oid)> {
    // SAFETY: as in `target`; parameters are fetched as ExecEvalParamExtern does.
    unsafe {
        match tag(node) {
            NodeTag::T_Const => {
                let constant = node.cast::<pg_sys::Const>();
                (!(*constant).constisnull)
                    .then_some(((*constant).constvalue, (*constant).consttype))
            }
            NodeTag::T_Param => {
                let param = node.cast::<pg_sys::Param>();
                let list = (*query).params;
                if (*param).paramkind != pg_sys::ParamKind::PARAM_EXTERN
                    || list.is_null()
                    || (*param).paramid <= 0
                    || (*param).paramid > (*list).numParams
                {
                    return None;
                }
                let mut room = pg_sys::ParamExternData::default();
                let value = match (*list).paramFetch {
                    Some(fetch) => fetch(list, (*param).paramid, false, &mut room),
                    None => (*list)
                        .params
                        .as_mut_ptr()
                        .add((*param).paramid as usize - 1),
                };
                (!(*value).isnull && (*value).ptype == (*param).paramtype)
                    .then_some(((*value).value, (*value).ptype))
            }
            _ => None,
        }
    }
}

/// Whether an operator is a btree equality; the answers are remembered.
fn is_equality(operator: Oid, left: Oid) -> bool {
    /// catalog/pg_operator_d.h: of these the types of elements or columns decide.
    const OF_PARTS: [u32; 2] = [pg_sys::ARRAY_EQ_OP, pg_sys::RECORD_EQ_OP];
    static KNOWN: Known<64> = Known::new();
    if OF_PARTS.contains(&u32::from(operator)) {
        // SAFETY: a catalog look-up.
        return unsafe { raw::op_mergejoinable(operator, left) };
    }
    // SAFETY: a catalog look-up.
    KNOWN.get(operator, || unsafe {
        raw::op_mergejoinable(operator, left)
    })
}

/// Whether the statement reads no table: a plain `INSERT ... VALUES`.
///
/// # Safety
/// `plan` is a valid plan.
pub unsafe fn reads_nothing(plan: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: as in `target`.
    unsafe {
        let top = (*plan).planTree;
        if !calls_nothing(plan) {
            return false;
        }
        match tag(top) {
            NodeTag::T_Result | NodeTag::T_ValuesScan => (*top).lefttree.is_null(),
            NodeTag::T_ModifyTable => {
                let modify = top.cast::<pg_sys::ModifyTable>();
                (*modify).operation == pg_sys::CmdType::CMD_INSERT
                    && (*modify).onConflictAction == pg_sys::OnConflictAction::ONCONFLICT_NONE
                    && matches!(
                        tag((*top).lefttree),
                        NodeTag::T_Result | NodeTag::T_ValuesScan
                    )
                    && (*(*top).lefttree).lefttree.is_null()
            }
            _ => false,
        }
    }
}

/// Whether the statement is a SELECT that locks no rows, and reads nothing but tables of users, and
/// what it computes.
///
/// # Safety
/// `plan` is a valid plan.
pub unsafe fn only_reads_tables(plan: *const pg_sys::PlannedStmt) -> bool {
    use pg_sys::RTEKind::*;
    // SAFETY: as in `target`.
    unsafe {
        (*plan).commandType == pg_sys::CmdType::CMD_SELECT
            && (*plan).rowMarks.is_null()
            && !(*plan).hasModifyingCTE
            && nodes((*plan).rtable)
                .map(|entry| &*entry.cast::<pg_sys::RangeTblEntry>())
                .all(|entry| match entry.rtekind {
                    RTE_RELATION => {
                        entry.relkind as u8 == pg_sys::RELKIND_RELATION
                            && u32::from(entry.relid) >= pg_sys::FirstNormalObjectId
                    }
                    RTE_SUBQUERY | RTE_JOIN | RTE_FUNCTION | RTE_VALUES | RTE_CTE | RTE_RESULT => {
                        true
                    }
                    _ => false,
                })
    }
}

/// The tables that the statement names.
///
/// # Safety
/// As for `only_reads_tables`, which holds.
pub unsafe fn tables(plan: *const pg_sys::PlannedStmt) -> impl Iterator<Item = Oid> {
    // SAFETY: by the contract.
    unsafe {
        nodes((*plan).rtable)
            .map(|entry| &*entry.cast::<pg_sys::RangeTblEntry>())
            .filter(|entry| entry.rtekind == pg_sys::RTEKind::RTE_RELATION)
            .map(|entry| entry.relid)
    }
}
