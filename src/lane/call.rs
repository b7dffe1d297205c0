//! A CALL of a procedure with a declaration takes the keys before the procedure runs.

use super::admit;
use super::argument::{Found, argument};
use super::declare::DEFINITIONS;
use super::heat;
use super::procedure::{self, Declared, Part, Plan};
use super::reschedule;
use super::strict;
use super::target;
use crate::hotlock::memory;
use crate::pg::{builtin, fastpath, raw, snapshot, xact};
use crate::range_occ::{ordered, session, value};
use ::lane::{Lane, Mode, Value};
use keyrange::COLUMNS;
use pgrx::pg_sys::{self, Datum, Oid};
use std::ffi::c_int;

/// Before a CALL of the client's own runs. It takes the keys that the procedure declares, if it is
/// where `txn.declare` could stand; else it runs as if nothing were declared.
///
/// # Safety
/// A CALL and its parameters; nothing with a destructor is alive in the callers.
pub unsafe fn before(call: *const pg_sys::CallStmt, params: pg_sys::ParamListInfo) {
    let Some(lane) = admit::lane() else { return };
    // SAFETY: the caller's CALL and parameters are valid, and no frame above has a destructor.
    unsafe {
        for _ in 0..DEFINITIONS {
            if declare_all(lane, call, params) {
                return;
            }
        }
        skip();
    }
}

/// Takes the keys, if there are any to take. False if a table was redefined meanwhile.
///
/// # Safety
/// As for `before`.
unsafe fn declare_all(
    lane: Lane<'static>,
    call: *const pg_sys::CallStmt,
    params: pg_sys::ParamListInfo,
) -> bool {
    // SAFETY: the caller's CALL and parameters are valid, and no frame above has a destructor.
    unsafe {
        let function = (*call).funcexpr;
        let plan = match procedure::declared((*function).funcid) {
            Declared::Nothing => return true,
            Declared::Unfit => return skip(),
            Declared::Plan(plan) => plan,
        };
        if !xact::is_read_committed() {
            fastpath::watch();
        }
        let role = plan.owner.unwrap_or_else(|| raw::GetUserId());
        let is_first = is_first(params);
        let may = may_declare(is_first) && may_use(plan, role, (*function).funcid);
        // A function among the arguments may have used the snapshot.
        if !may || !evaluate(plan, (*function).args, params) || !may_declare(is_first) {
            return skip();
        }
        match admit::settle(lane) {
            Some(0) => true,
            Some(_) if target::first_too_wide(role).is_none() => {
                !heat::is_worth_it(lane) || take(lane, plan)
            }
            _ => skip(),
        }
    }
}

/// The CALL runs as if nothing were declared.
fn skip() -> bool {
    memory().totals.lane_skipped.add(1);
    true
}

/// Whether nothing of the transaction can have run before the command: it is no block, the checks
/// of domains have not been asked about parameters, and no table of `txn_heap` was touched. Then it
/// does not matter that a session watches for functions outside of statements from its second
/// transaction on only (`fastpath`).
///
/// # Safety
/// Null, or parameters.
unsafe fn is_first(params: pg_sys::ParamListInfo) -> bool {
    if xact::is_in_block() || session::has_work() {
        return false;
    }
    // SAFETY: by the contract; catalog look-ups.
    unsafe {
        if params.is_null() {
            return true;
        }
        let count = (*params).numParams.max(0) as usize;
        let given = std::slice::from_raw_parts((*params).params.as_ptr(), count);
        (*params).paramFetch.is_none()
            && given.iter().all(|param| {
                // PostgreSQL was made without domains.
                if builtin::is_builtin(param.ptype) {
                    return true;
                }
                let is_plain = |typ| raw::get_typtype(typ) as u8 == pg_sys::TYPTYPE_BASE;
                let element = raw::get_element_type(param.ptype);
                is_plain(param.ptype) && (element == Oid::INVALID || is_plain(element))
            })
    }
}

/// Whether the transaction may enter the lane: it has no id, has declared nothing, and its
/// snapshot, if it keeps one, can be taken again.
fn may_declare(is_first: bool) -> bool {
    (!admit::is_in() || reschedule::is_in())
        && xact::nest_level() == 1
        && xact::own_xid() == 0
        && !xact::is_serializable()
        // SAFETY: a plain read of shared state.
        && !unsafe { raw::RecoveryInProgress() }
        && (xact::is_read_committed()
            || !session::has_used_snapshot() && snapshot::is_utility_retakeable(is_first))
}

/// Whether the user may call the procedure, and the role with whose rights it runs declare the
/// keys.
fn may_use(plan: &Plan, role: Oid, procedure: Oid) -> bool {
    // SAFETY: reads the session's state; a catalog look-up.
    let answer = unsafe {
        let execute = pg_sys::ACL_EXECUTE.into();
        let class = pg_sys::ProcedureRelationId;
        raw::object_aclcheck(class, procedure, raw::GetUserId(), execute)
    };
    let mut parts = plan.parts.iter();
    answer == pg_sys::AclResult::ACLCHECK_OK
        && parts.all(|part| part.target.may_be_declared(role, part.mode))
}

/// Enters the lane, waits, and takes the command's snapshot again. False if a table was redefined
/// meanwhile.
///
/// # Safety
/// `may_declare()`.
unsafe fn take(lane: Lane<'static>, plan: &Plan) -> bool {
    reschedule::give_back();
    let has_all = admit::enter(lane);
    let lock = || {
        plan.parts
            .iter()
            .for_each(|part| part.target.lock(part.mode));
        plan.parts.iter().all(|part| part.target.is_as_found())
    };
    let unlock = || {
        plan.parts
            .iter()
            .for_each(|part| part.target.unlock(part.mode))
    };
    let wait = || admit::wait_until_held_and_locked(lane, lock, unlock);
    // SAFETY: the caller's `may_declare` holds: a snapshot that is let go or retaken has read
    // nothing.
    let is_held = unsafe {
        if !xact::is_read_committed() {
            let is_held = wait();
            if is_held {
                ordered::retake_for_utility();
            }
            is_held
        } else if !has_all && snapshot::is_utility_replaceable() {
            let of_portal = snapshot::let_utility_go();
            let is_held = wait();
            snapshot::take_for_utility(of_portal);
            is_held
        } else {
            wait()
        }
    };
    if is_held {
        unlock();
        strict::begin(plan.parts.iter().any(|part| part.mode == Mode::Read));
        // SAFETY: reads the state of this backend's transaction.
        if !unsafe { raw::IsTransactionBlock() } {
            admit::runs_to_its_end();
        }
    }
    is_held
}

/// Works out the keys. False if it does not know them before the CALL.
///
/// # Safety
/// As for `before`.
unsafe fn evaluate(
    plan: &Plan,
    arguments: *const pg_sys::List,
    params: pg_sys::ParamListInfo,
) -> bool {
    admit::begin();
    let mut found = [Found::Unknown; pg_sys::FUNC_MAX_ARGS as usize];
    let numbers = plan.parts.iter().flat_map(|part| &part.form.values);
    for value in numbers {
        if let Value::Argument(number) | Value::Each(number) = value
            && let Some(place) = found.get_mut(usize::from(*number) - 1)
        {
            // SAFETY: the caller's list has the arguments of the CALL, and `params` its parameters.
            *place = unsafe { argument(arguments, *number, params) };
        }
    }
    value::with_scratch(|| {
        let mut parts = plan.parts.iter();
        // SAFETY: this runs within `value::with_scratch`.
        parts.all(|part| unsafe { declare(part, &found) })
    })
}

/// Declares what one item stands for with these arguments.
///
/// # Safety
/// As for `before`; within `value::with_scratch`.
unsafe fn declare(part: &Part, arguments: &[Found]) -> bool {
    let mut values = [(Datum::from(0), Oid::INVALID); COLUMNS];
    let mut each = None;
    // SAFETY: the caller is within `value::with_scratch`, and the values are of their types.
    unsafe {
        for (n, value) in part.form.values.iter().enumerate() {
            let column = part.target.table.columns.get(n);
            let found = match value {
                Value::Text(text) => match (column, part.target.read(n, text)) {
                    (Some(column), Some(datum)) => Found::Value(datum, column.typ),
                    _ => Found::Unknown,
                },
                Value::Argument(number) | Value::Each(number) => {
                    let found = arguments.get(usize::from(*number) - 1);
                    found.copied().unwrap_or(Found::Unknown)
                }
            };
            match found {
                Found::Unknown => return false,
                // No row has such a key.
                Found::Null => return true,
                Found::Value(datum, typ) => values[n] = (datum, typ),
            }
            if matches!(value, Value::Each(_)) {
                each = Some(n);
                values[n].1 = raw::get_element_type(values[n].1);
            }
            let given = values[n].1;
            if column.is_some_and(|column| !value::is_alike(column.typ, given)) {
                return false;
            }
        }
        let values = &mut values[..part.form.values.len()];
        let Some(place) = each else {
            let keys = part.target.image(values);
            admit::declare(part.target.relation, keys, part.mode);
            return true;
        };
        let (array, element) = values[place];
        for_each_element(array, element, |datum| {
            values[place] = (datum, element);
            let keys = part.target.image(values);
            admit::declare(part.target.relation, keys, part.mode);
        });
    }
    true
}

/// Calls `each` with the elements of an array that are not NULL.
///
/// # Safety
/// An array of that type; `each` raises nothing.
unsafe fn for_each_element(array: Datum, element: Oid, mut each: impl FnMut(Datum)) {
    // SAFETY: by the contract; the elements stand in the current memory context, or in the array.
    unsafe {
        let array = raw::pg_detoast_datum(array.cast_mut_ptr()).cast::<pg_sys::ArrayType>();
        let (mut length, mut by_value, mut align) = (0, false, 0);
        raw::get_typlenbyvalalign(element, &mut length, &mut by_value, &mut align);
        let (mut elements, mut nulls, mut count) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
        raw::deconstruct_array(
            array,
            element,
            c_int::from(length),
            by_value,
            align,
            &mut elements,
            &mut nulls,
            &mut count,
        );
        for n in 0..count as usize {
            if !*nulls.add(n) {
                each(*elements.add(n));
            }
        }
    }
}
