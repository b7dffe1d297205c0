//! A CALL of a procedure with a declaration takes the keys before the procedure runs.

use super::admit;
use super::argument::{self, Found, argument};
use super::declare::DEFINITIONS;
use super::heat;
use super::procedure::{self, Declared, Part, Plan};
use super::reschedule;
use super::strict;
use super::target;
use crate::hotlock::memory;
use crate::pg::{raw, snapshot, xact};
use crate::range_occ::{ordered, session, value};
use ::lane::{Lane, Mode, Value};
use keyrange::COLUMNS;
use pgrx::pg_sys::{self, Datum, Oid};
use std::ffi::c_int;

/// The arguments of a CALL, as far as its declaration asks for them.
type Arguments = [Found; pg_sys::FUNC_MAX_ARGS as usize];

/// Before a CALL of the client's own runs. It takes the keys that the procedure declares, if it is
/// where `txn.declare` could stand; else it runs as if nothing were declared. Returns the CALL that
/// is to run in its place, if arguments have been computed.
///
/// # Safety
/// A CALL and its parameters; nothing with a destructor is alive in the callers.
pub unsafe fn before(
    statement: *const pg_sys::PlannedStmt,
    params: pg_sys::ParamListInfo,
) -> Option<*mut pg_sys::PlannedStmt> {
    let lane = admit::lane()?;
    let mut known = [Found::Unknown; pg_sys::FUNC_MAX_ARGS as usize];
    // SAFETY: the caller's CALL and parameters are valid, and no frame above has a destructor.
    unsafe {
        let call = (*statement).utilityStmt.cast();
        let is_done = (0..DEFINITIONS).any(|_| declare_all(lane, call, params, &mut known));
        if !is_done {
            skip();
        }
        let is_known = |found: &Found| !matches!(found, Found::Unknown);
        let has_any = known.iter().any(is_known);
        has_any.then(|| argument::settled(statement, &known))
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
    known: &mut Arguments,
) -> bool {
    // SAFETY: the caller's CALL and parameters are valid, and no frame above has a destructor.
    unsafe {
        let function = (*call).funcexpr;
        let plan = match procedure::declared((*function).funcid) {
            Declared::Nothing => return true,
            Declared::Unfit => return skip(),
            Declared::Plan(plan) => plan,
        };
        let role = plan.owner.unwrap_or_else(|| raw::GetUserId());
        let may = may_declare() && may_use(plan, role, (*function).funcid);
        // A function among the arguments may have used the snapshot.
        if !may || !evaluate(plan, (*function).args, params, known) || !may_declare() {
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

/// Whether the transaction may enter the lane: it has no id, has declared nothing, and its
/// snapshot, if it keeps one, can be taken again.
fn may_declare() -> bool {
    (!admit::is_in() || reschedule::is_in())
        && xact::nest_level() == 1
        && xact::own_xid() == 0
        && !xact::is_serializable()
        // SAFETY: a plain read of shared state.
        && !unsafe { raw::RecoveryInProgress() }
        && (xact::is_read_committed()
            || !session::has_used_snapshot() && snapshot::is_utility_retakeable())
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

/// Works out the arguments that are asked for, and the keys. False if it does not know these before
/// the CALL.
///
/// # Safety
/// As for `before`.
unsafe fn evaluate(
    plan: &Plan,
    arguments: *const pg_sys::List,
    params: pg_sys::ParamListInfo,
    known: &mut Arguments,
) -> bool {
    admit::begin();
    let numbers = plan.parts.iter().flat_map(|part| &part.form.values);
    for value in numbers {
        if let Value::Argument(number) | Value::Each(number) = value
            && let Some(place) = known.get_mut(usize::from(*number) - 1)
        {
            // SAFETY: the caller's list has the arguments of the CALL, and `params` its parameters.
            *place = unsafe { argument(arguments, *number, params) };
        }
    }
    value::with_scratch(|| {
        let mut parts = plan.parts.iter();
        // SAFETY: this runs within `value::with_scratch`.
        parts.all(|part| unsafe { declare(part, known) })
    })
}

/// Declares what one item stands for with these arguments.
///
/// # Safety
/// As for `before`; within `value::with_scratch`.
unsafe fn declare(part: &Part, arguments: &[Found]) -> bool {
    let mut values = [(Datum::from(0), Oid::INVALID); COLUMNS];
    let mut count = 0;
    let mut each = None;
    // SAFETY: the caller is within `value::with_scratch`, and the values are of their types.
    unsafe {
        // Columns that have no part in the image may have any value.
        let columns = part.target.table.columns.iter();
        for (n, (value, column)) in part.form.values.iter().zip(columns).enumerate() {
            let found = match value {
                Value::Text(text) => match part.target.read(n, text) {
                    Some(datum) => Found::Value(datum, column.typ),
                    None => Found::Unknown,
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
            if !value::is_alike(column.typ, values[n].1) {
                return false;
            }
            count = n + 1;
        }
        let values = &mut values[..count];
        let Some(place) = each else {
            let keys = part.target.image(values);
            return admit::declare(part.target.relation, keys, part.mode);
        };
        let (array, element) = values[place];
        for_each_element(array, element, |datum| {
            values[place] = (datum, element);
            let keys = part.target.image(values);
            admit::declare(part.target.relation, keys, part.mode)
        })
    }
}

/// Calls `each` with the elements of an array that are not NULL. False if there are more than may
/// be declared, or `each` says so.
///
/// # Safety
/// An array of that type; `each` raises nothing.
unsafe fn for_each_element(
    array: Datum,
    element: Oid,
    mut each: impl FnMut(Datum) -> bool,
) -> bool {
    // SAFETY: by the contract; the elements stand in the current memory context, or in the array.
    unsafe {
        let array = raw::pg_detoast_datum(array.cast_mut_ptr()).cast::<pg_sys::ArrayType>();
        let lengths = array.add(1).cast::<c_int>();
        if raw::ArrayGetNItems((*array).ndim, lengths) > admit::MOST_ITEMS as c_int {
            return false;
        }
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
        (0..count as usize).all(|n| *nulls.add(n) || each(*elements.add(n)))
    }
}
