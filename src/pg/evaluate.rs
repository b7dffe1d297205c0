//! Executing a running UPDATE once more, on a row in memory and with other arguments: what execScan.c and nodeModifyTable.c
//! do with a tuple that a scan has found, without the scan.

use super::raw;
use pgrx::pg_sys::{self, TupleTableSlot};

/// A running `UPDATE ... WHERE key = value` of the executor.
#[derive(Clone, Copy)]
pub struct Update {
    estate: *mut pg_sys::EState,
    result: *mut pg_sys::ResultRelInfo,
    scan: *mut pg_sys::IndexScanState,
}

/// What the statement does with the row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    Changed,
    /// Its conditions do not hold.
    Unchanged,
    /// It is not the statement's row.
    OtherRow,
}

impl Update {
    /// The query as such an update. None if its state is not as expected.
    ///
    /// # Safety
    /// `query` has a form (`super::form`) and has started.
    pub unsafe fn of_query(query: *mut pg_sys::QueryDesc) -> Option<Self> {
        // SAFETY: a plan with a form is a ModifyTable over an IndexScan.
        unsafe {
            let modify = (*query).planstate.cast::<pg_sys::ModifyTableState>();
            let update = Update {
                estate: (*query).estate,
                result: (*modify).resultRelInfo,
                scan: (*modify).ps.lefttree.cast(),
            };
            let usual = (*modify).mt_nrels == 1
                && !(*update.scan).ss.ps.ps_ProjInfo.is_null()
                && (*update.result).ri_WithCheckOptions.is_null()
                && (*update.result).ri_projectReturning.is_null()
                && (*query).instrument_options == 0;
            usual.then_some(update)
        }
    }

    /// The table.
    pub fn relation(self) -> pg_sys::Relation {
        // SAFETY: the statement's result relation is open.
        unsafe { (*self.result).ri_RelationDesc }
    }

    /// Whether the executor has projected the new row, and keeps it in that slot.
    pub fn has_new_row_in(self, slot: *mut TupleTableSlot) -> bool {
        // SAFETY: the statement's result relation.
        unsafe { (*self.result).ri_projectNewInfoValid && (*self.result).ri_newTupleSlot == slot }
    }

    /// Keeps a copy of the new row, as that to which `apply` applies the statement.
    ///
    /// # Safety
    /// `has_new_row_in(row)`.
    pub unsafe fn keep(self, row: *mut TupleTableSlot) {
        // SAFETY: both slots are of the table's type; the old row's is filled anew for each row.
        unsafe { copy((*self.result).ri_oldTupleSlot, row) }
    }

    /// Puts the copy back.
    ///
    /// # Safety
    /// After `keep(row)`.
    pub unsafe fn put_back(self, row: *mut TupleTableSlot) {
        // SAFETY: as in `keep`.
        unsafe { copy(row, (*self.result).ri_oldTupleSlot) }
    }

    /// Applies the statement, with the arguments that the query now has, to the row that was kept; the result is the new
    /// row. Raises what the statement's expressions and the table's constraints raise.
    ///
    /// # Safety
    /// After `keep`.
    pub unsafe fn apply(self) -> Applied {
        // SAFETY: as execScan.c: the scan's expressions look at its context's scan tuple, which a slot of the same type can
        // be; as nodeModifyTable.c for the rest.
        unsafe {
            let old = (*self.result).ri_oldTupleSlot;
            let context = (*self.scan).ss.ps.ps_ExprContext;
            raw::MemoryContextReset((*context).ecxt_per_tuple_memory);
            (*context).ecxt_scantuple = old;
            if !holds((*self.scan).indexqualorig, context) {
                return Applied::OtherRow;
            }
            if !holds((*self.scan).ss.ps.qual, context) {
                return Applied::Unchanged;
            }
            let planned = project((*self.scan).ss.ps.ps_ProjInfo);
            let new = raw::ExecGetUpdateNewTuple(self.result, planned, old);
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
