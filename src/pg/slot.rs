//! Tuple table slots: the inline functions of tuptable.h and executor.h that bindings do not have.

use pgrx::pg_sys::{self, Datum, TupleTableSlot};

/// ExecClearTuple.
///
/// # Safety
/// `slot` is a valid slot.
pub unsafe fn clear(slot: *mut TupleTableSlot) -> *mut TupleTableSlot {
    // SAFETY: by the contract; every kind of slot has it.
    unsafe {
        if let Some(clear) = (*(*slot).tts_ops).clear {
            clear(slot);
        }
    }
    slot
}

/// TTS_EMPTY.
///
/// # Safety
/// `slot` is a valid slot.
pub unsafe fn is_empty(slot: *const TupleTableSlot) -> bool {
    // SAFETY: the caller's slot is valid.
    u32::from(unsafe { (*slot).tts_flags }) & pg_sys::TTS_FLAG_EMPTY != 0
}

/// slot_getallattrs.
///
/// # Safety
/// `slot` is a slot that has a row.
pub unsafe fn get_all(slot: *mut TupleTableSlot) {
    // SAFETY: the caller's slot has a row, so it has a descriptor and attributes to form.
    unsafe {
        let count = (*(*slot).tts_tupleDescriptor).natts;
        if i32::from((*slot).tts_nvalid) < count {
            pg_sys::slot_getsomeattrs_int(slot, count);
        }
    }
}

/// slot_getattr: a user column, counted from 1; None for NULL.
///
/// # Safety
/// A slot that has a row with that column.
pub unsafe fn get(slot: *mut TupleTableSlot, number: i32) -> Option<Datum> {
    // SAFETY: the caller's slot has a row with that column; its arrays hold all formed columns.
    unsafe {
        if i32::from((*slot).tts_nvalid) < number {
            pg_sys::slot_getsomeattrs_int(slot, number);
        }
        let at = number as usize - 1;
        (!*(*slot).tts_isnull.add(at)).then(|| *(*slot).tts_values.add(at))
    }
}

/// ExecEvalExpr; None for NULL. An ERROR unwinds.
///
/// # Safety
/// An initialised expression, and its context.
pub unsafe fn evaluate(
    state: *mut pg_sys::ExprState,
    context: *mut pg_sys::ExprContext,
) -> Option<Datum> {
    let mut is_null = false;
    // SAFETY: by the contract; what the expression raises becomes a panic.
    let value = unsafe {
        let run = (*state).evalfunc.expect("an initialised expression");
        pg_sys::submodules::ffi::pg_guard_ffi_boundary(|| run(state, context, &raw mut is_null))
    };
    (!is_null).then_some(value)
}
