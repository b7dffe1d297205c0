//! Executing a running UPDATE once more, on a row in memory and with other arguments: what
//! execScan.c and nodeModifyTable.c do with a tuple that a scan has found, without the scan.

use super::column_triggers::program::{Op, Program};
use super::raw;
use pgrx::pg_sys::{self, TupleTableSlot};

/// A running `UPDATE ... WHERE key = value` of the executor.
#[derive(Clone, Copy)]
pub struct Update {
    estate: *mut pg_sys::EState,
    result: *mut pg_sys::ResultRelInfo,
    scan: *mut pg_sys::ScanState,
    /// Conditions that an index has checked; null for a sequential scan.
    index_quals: *mut pg_sys::ExprState,
    /// What the table's BEFORE triggers do; null for a table without.
    triggers: *mut Program,
}

/// A row of this size is neither compressed nor moved to a TOAST table, and has room on a page;
/// access/heaptoast.h: TOAST_TUPLE_THRESHOLD for 8 kB pages.
const SMALL: u32 = 2032;

/// What the statement does with the row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    Changed,
    /// Its conditions do not hold.
    Unchanged,
    /// It is not, or perhaps not, the statement's row.
    OtherRow,
}

impl Update {
    /// The query as such an update, if it is one: a ModifyTable over an IndexScan or a SeqScan,
    /// without subplans, functions of users or conditions on the new row.
    ///
    /// # Safety
    /// `query` has started.
    pub unsafe fn of_query(query: *mut pg_sys::QueryDesc) -> Option<Self> {
        // SAFETY: every node is checked by its tag.
        unsafe {
            let top = (*query).planstate;
            if top.is_null()
                || (*top).type_ != pg_sys::NodeTag::T_ModifyTableState
                || (*top).lefttree.is_null()
                || !super::plan::calls_nothing((*query).plannedstmt)
            {
                return None;
            }
            let modify = top.cast::<pg_sys::ModifyTableState>();
            let scan = (*modify).ps.lefttree;
            if !matches!(
                (*scan).type_,
                pg_sys::NodeTag::T_IndexScanState | pg_sys::NodeTag::T_SeqScanState
            ) {
                return None;
            }
            let update = Update {
                estate: (*query).estate,
                result: (*modify).resultRelInfo,
                scan: scan.cast(),
                index_quals: if (*scan).type_ == pg_sys::NodeTag::T_IndexScanState {
                    (*scan.cast::<pg_sys::IndexScanState>()).indexqualorig
                } else {
                    std::ptr::null_mut()
                },
                triggers: std::ptr::null_mut(),
            };
            let usual = (*modify).operation == pg_sys::CmdType::CMD_UPDATE
                && (*modify).mt_nrels == 1
                && !(*update.scan).ps.ps_ProjInfo.is_null()
                && (*update.result).ri_WithCheckOptions.is_null()
                && (*query).instrument_options == 0;
            usual.then_some(update)
        }
    }

    /// The update together with what the table's triggers do; null for a table without.
    ///
    /// # Safety
    /// `triggers` stay until the statement ends.
    pub unsafe fn firing(self, triggers: *mut Program) -> Self {
        Update { triggers, ..self }
    }

    /// Compiles what the triggers do. To be called before `apply`.
    ///
    /// # Safety
    /// The statement runs.
    pub unsafe fn prepare_triggers(self) {
        // SAFETY: the memory of the statement lasts as long as the program. An ERROR leaves the
        // memory context to whoever catches it.
        unsafe {
            if let Some(program) = self.triggers.as_mut() {
                let before = pg_sys::CurrentMemoryContext;
                pg_sys::CurrentMemoryContext = (*self.estate).es_query_cxt;
                program.compile();
                pg_sys::CurrentMemoryContext = before;
            }
        }
    }

    /// The table.
    pub fn relation(self) -> pg_sys::Relation {
        // SAFETY: the statement's result relation is open.
        unsafe { (*self.result).ri_RelationDesc }
    }

    /// Where the row is kept to which the statement is applied: a slot of the table's type.
    pub fn old_row(self) -> *mut TupleTableSlot {
        // SAFETY: the statement's result relation.
        unsafe { (*self.result).ri_oldTupleSlot }
    }

    /// Whether the executor has projected the new row, and keeps it in that slot.
    pub fn has_new_row_in(self, slot: *mut TupleTableSlot) -> bool {
        // SAFETY: the statement's result relation.
        unsafe { (*self.result).ri_projectNewInfoValid && (*self.result).ri_newTupleSlot == slot }
    }

    /// Whether the table's changes are written to WAL.
    pub fn is_logged(self) -> bool {
        // SAFETY: the result relation is open.
        unsafe {
            (*(*self.relation()).rd_rel).relpersistence as u8 == pg_sys::RELPERSISTENCE_PERMANENT
        }
    }

    /// Whether the row needs no TOAST table.
    ///
    /// # Safety
    /// `has_new_row_in(row)`.
    pub unsafe fn is_small(self, row: *mut TupleTableSlot) -> bool {
        // SAFETY: the new row is materialized.
        unsafe { is_small(row) }
    }

    /// Whether the version that the executor is replacing has nothing in a TOAST table.
    ///
    /// # Safety
    /// `has_new_row_in` some row, and `keep` was not called for it.
    pub unsafe fn replaces_small(self) -> bool {
        // SAFETY: the executor has put it there (ExecModifyTable, and ExecUpdate after
        // EvalPlanQual). Before triggers fire, it has put the version that it has locked into a
        // slot of theirs (trigger.c: ExecBRUpdateTriggers).
        unsafe {
            let locked = (*self.result).ri_TrigOldSlot;
            is_small((*self.result).ri_oldTupleSlot)
                && (self.triggers.is_null() || !locked.is_null() && is_small(locked))
        }
    }

    /// Whether the statement or its triggers change a column of an index that summarizes pages:
    /// then the executor tells that index of the new row.
    pub fn changes_summarized(self) -> bool {
        // SAFETY: the result relation is open.
        unsafe {
            let kind = pg_sys::IndexAttrBitmapKind::INDEX_ATTR_BITMAP_SUMMARIZED;
            let summarized = raw::RelationGetIndexAttrBitmap(self.relation(), kind);
            let updated = raw::ExecGetUpdatedCols(self.result, self.estate);
            let set = self.triggers.as_ref().map(|program| program.columns);
            let overlap = raw::bms_overlap(updated, summarized)
                || set.is_some_and(|set| raw::bms_overlap(set, summarized));
            raw::bms_free(summarized);
            overlap
        }
    }

    /// Where the statement's RETURNING list is computed.
    pub fn returned_slot(self) -> Option<*mut TupleTableSlot> {
        // SAFETY: the statement has started.
        unsafe {
            let projection = (*self.result).ri_projectReturning;
            (!projection.is_null()).then(|| (*projection).pi_state.resultslot)
        }
    }

    /// Computes the RETURNING list for that new row, as ExecProcessReturning.
    ///
    /// # Safety
    /// `has_new_row_in(row)`, and the statement has such a list, of this table's columns alone.
    pub unsafe fn return_row(self, row: *mut TupleTableSlot) -> *mut TupleTableSlot {
        // SAFETY: the caller's statement has a RETURNING list, which reads this row's columns
        // alone.
        unsafe {
            let projection = (*self.result).ri_projectReturning;
            let context = (*projection).pi_exprContext;
            raw::MemoryContextReset((*context).ecxt_per_tuple_memory);
            (*context).ecxt_scantuple = row;
            project(projection)
        }
    }

    /// Puts back the statement's own new row, after one with more in it has been offered to heap:
    /// for the statement's own RETURNING list, or for another attempt.
    ///
    /// # Safety
    /// `has_new_row_in(row)`, and `own` is a copy of it from before.
    pub unsafe fn put_back_own(self, own: pg_sys::HeapTuple, row: *mut TupleTableSlot) {
        // SAFETY: by the contract; storing clears what names the row's place and table.
        unsafe {
            let (place, table) = ((*row).tts_tid, (*row).tts_tableOid);
            raw::ExecForceStoreHeapTuple(own, row, true);
            (*row).tts_tid = place;
            (*row).tts_tableOid = table;
        }
    }

    /// A copy of the row as a tuple.
    ///
    /// # Safety
    /// `has_new_row_in(row)`.
    pub unsafe fn copy_of(self, row: *mut TupleTableSlot) -> Option<pg_sys::HeapTuple> {
        // SAFETY: slots have all their operations.
        unsafe { (*(*row).tts_ops).copy_heap_tuple.map(|copy| copy(row)) }
    }

    /// Keeps a copy of the new row, as that to which `apply` applies the statement.
    ///
    /// # Safety
    /// `has_new_row_in(row)`.
    pub unsafe fn keep(self, row: *mut TupleTableSlot) {
        // SAFETY: both slots are of the table's type; the old row's is filled anew for each row.
        unsafe { copy((*self.result).ri_oldTupleSlot, row) }
    }

    /// Keeps another version of the row, whose page stays pinned, for `apply`.
    ///
    /// # Safety
    /// `found` is a tuple on that page, of this table.
    pub unsafe fn keep_version(self, found: pg_sys::HeapTupleData, page: super::buffer::Page) {
        // SAFETY: a slot of the table's type, which takes over the pin.
        unsafe {
            super::buffer::store(self.relation(), (*self.result).ri_oldTupleSlot, found, page)
        }
    }

    /// Puts the copy back.
    ///
    /// # Safety
    /// After `keep(row)`.
    pub unsafe fn put_back(self, row: *mut TupleTableSlot) {
        // SAFETY: as in `keep`.
        unsafe { copy(row, (*self.result).ri_oldTupleSlot) }
    }

    /// Applies the statement, with the arguments that the query now has, to the row that was kept;
    /// the result is the new row. Raises what the statement's expressions and the table's
    /// constraints raise.
    ///
    /// # Safety
    /// After `keep`.
    pub unsafe fn apply(self) -> Applied {
        // SAFETY: as execScan.c: the scan's expressions look at its context's scan tuple, which a
        // slot of the same type can be; as nodeModifyTable.c for the rest.
        unsafe {
            let old = (*self.result).ri_oldTupleSlot;
            let context = (*self.scan).ps.ps_ExprContext;
            raw::MemoryContextReset((*context).ecxt_per_tuple_memory);
            (*context).ecxt_scantuple = old;
            if !holds(self.index_quals, context) {
                return Applied::OtherRow;
            }
            if !holds((*self.scan).ps.qual, context) {
                return if self.index_quals.is_null() {
                    Applied::OtherRow
                } else {
                    Applied::Unchanged
                };
            }
            let planned = project((*self.scan).ps.ps_ProjInfo);
            let new = raw::ExecGetUpdateNewTuple(self.result, planned, old);
            if let Some(program) = self.triggers.as_ref() {
                fire(program, context, old, new);
            }
            if let Some(materialize) = (*(*new).tts_ops).materialize {
                materialize(new);
            }
            let relation = self.relation();
            (*new).tts_tableOid = (*relation).rd_id;
            if !(*(*relation).rd_att).constr.is_null() {
                raw::ExecConstraints(self.result, new, self.estate);
            }
            Applied::Changed
        }
    }
}

/// What the triggers do with a new row that has just been projected: its values stand in the slot
/// one by one, and have not been put together yet.
unsafe fn fire(
    program: &Program,
    context: *mut pg_sys::ExprContext,
    old: *mut TupleTableSlot,
    new: *mut TupleTableSlot,
) {
    let ops = program.ops();
    let mut at = 0;
    // SAFETY: a compiled program of this table. What it computes stays in the context's memory
    // until the next row.
    unsafe {
        (*context).ecxt_innertuple = old;
        (*context).ecxt_outertuple = new;
        while let Some(op) = ops.get(at) {
            let mut is_null = false;
            at = match *op {
                Op::Set { column, .. } => {
                    let value = evaluate(program.state(at), context, &mut is_null);
                    *(*new).tts_values.add(column as usize - 1) = value;
                    *(*new).tts_isnull.add(column as usize - 1) = is_null;
                    at + 1
                }
                Op::Unless { to, .. } => {
                    let value = evaluate(program.state(at), context, &mut is_null);
                    if !is_null && value.value() as u8 != 0 {
                        at + 1
                    } else {
                        to
                    }
                }
                Op::Go { to } => to,
            };
        }
        (*context).ecxt_innertuple = std::ptr::null_mut();
        (*context).ecxt_outertuple = std::ptr::null_mut();
    }
}

unsafe fn is_small(slot: *mut TupleTableSlot) -> bool {
    // SAFETY: a heap slot with a row, which gives its own tuple.
    unsafe {
        let mut free = false;
        let tuple = raw::ExecFetchSlotHeapTuple(slot, false, &mut free);
        let small = (*tuple).t_len <= SMALL
            && !super::tuple::has((*(*tuple).t_data).t_infomask, pg_sys::HEAP_HASEXTERNAL);
        if free {
            raw::pfree(tuple.cast());
        }
        small
    }
}

/// ExecCopySlot.
unsafe fn copy(to: *mut TupleTableSlot, from: *mut TupleTableSlot) {
    // SAFETY: slots have all their operations.
    unsafe {
        if let Some(copy) = (*(*to).tts_ops).copyslot {
            copy(to, from);
        }
    }
}

/// ExecQual.
unsafe fn holds(state: *mut pg_sys::ExprState, context: *mut pg_sys::ExprContext) -> bool {
    // SAFETY: a compiled qual of a running plan.
    unsafe {
        state.is_null() || {
            let mut is_null = false;
            evaluate(state, context, &mut is_null).value() != 0
        }
    }
}

/// ExecProject.
unsafe fn project(projection: *mut pg_sys::ProjectionInfo) -> *mut TupleTableSlot {
    // SAFETY: a compiled projection of a running plan.
    unsafe {
        let state = &raw mut (*projection).pi_state;
        let slot = (*state).resultslot;
        if let Some(clear) = (*(*slot).tts_ops).clear {
            clear(slot);
        }
        let mut is_null = false;
        evaluate(state, (*projection).pi_exprContext, &mut is_null);
        raw::ExecStoreVirtualTuple(slot)
    }
}

/// ExecEvalExprSwitchContext.
unsafe fn evaluate(
    state: *mut pg_sys::ExprState,
    context: *mut pg_sys::ExprContext,
    is_null: &mut bool,
) -> pg_sys::Datum {
    // SAFETY: a compiled expression. An ERROR leaves the memory context to whoever catches it.
    unsafe {
        let before = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = (*context).ecxt_per_tuple_memory;
        let value = match (*state).evalfunc {
            Some(evaluate) => evaluate(state, context, is_null),
            None => pg_sys::Datum::from(0),
        };
        pg_sys::CurrentMemoryContext = before;
        value
    }
}
