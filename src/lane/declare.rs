//! `txn.declare`: a transaction says which keys it is going to use; `txn.declare_procedure`: which
//! ones a CALL uses.

use super::admit;
use super::errors;
use super::heat;
use super::reschedule;
use super::strict;
use super::target::{self, Names, Target};
use crate::hotlock::memory;
use crate::hotlock::settings::PROVIDER;
use crate::pg::{error, nodes, rights, snapshot, xact};
use crate::range_occ::{key, ordered, session, value};
use ::lane::{Form, Lane, Mode, Value, parse_item};
use keyrange::COLUMNS;
use pgrx::pg_sys::{self, Datum, NodeTag, Oid};
use pgrx::prelude::*;

/// How often a table may be redefined while a transaction waits for its keys.
pub const DEFINITIONS: u32 = 8;

/// The items of a list, with their modes.
fn items(
    writes: Option<Vec<Option<String>>>,
    reads: Option<Vec<Option<String>>>,
) -> Vec<(String, Mode)> {
    let lists = [(writes, Mode::Write), (reads, Mode::Read)];
    let of_list = |(list, mode): (Option<Vec<Option<String>>>, Mode)| {
        let texts = list.unwrap_or_default();
        let texts: Vec<_> = texts
            .into_iter()
            .map(|text| {
                (
                    text.unwrap_or_else(|| errors::refuse(&errors::NULL_ITEM)),
                    mode,
                )
            })
            .collect();
        texts
    };
    lists.into_iter().flat_map(of_list).collect()
}

/// Declares the keys that the transaction is going to write to and to read. Returns once nobody
/// else uses them, with true; with false if `txn.lane` is off, or auto and the keys are cold.
///
/// # Errors
/// 55000 if the server has no lane; 25P01, 25001 and 0A000 where a transaction cannot declare
/// anything; 22023, 22P02, 42P01, 42501 and 54000 for items; 40001 if a table is redefined again
/// and again; what a wait for a lock may raise.
#[pg_extern(sql = false)]
fn declare(
    writes: Option<Vec<Option<String>>>,
    reads: Option<Vec<Option<String>>>,
    fcinfo: pg_sys::FunctionCallInfo,
) -> bool {
    if memory().lane.is_none() {
        errors::refuse(&errors::NO_LANE);
    }
    let count = |list: &Option<Vec<_>>| list.as_ref().map_or(0, Vec::len);
    if count(&writes) + count(&reads) > admit::MOST_ITEMS {
        errors::refuse(&errors::TOO_MANY_ITEMS);
    }
    // SAFETY: fmgr's argument.
    let function = unsafe { (*(*fcinfo).flinfo).fn_oid };
    check_place(function);
    let items = items(writes, reads);
    let Some(lane) = admit::lane() else {
        return false;
    };
    if items.is_empty() {
        return false;
    }
    take(lane, &items)
}

/// Takes the keys, and then the snapshot; as often as somebody redefines one of the tables
/// meanwhile. False if `txn.lane` finds that not worth while.
fn take(lane: Lane<'static>, items: &[(String, Mode)]) -> bool {
    // SAFETY: reads the session's state.
    let role = unsafe { pg_sys::GetUserId() };
    for _ in 0..DEFINITIONS {
        let mut targets = Vec::new();
        let mut declared = Vec::new();
        for (text, mode) in items {
            let (form, target) = resolve(text, false);
            if !rights::unwinding(|| target.may_be_declared(role, *mode)) {
                errors::refuse_use(key::oid_of(target.relation));
            }
            declared.push((target.relation, image(&form, &target), *mode));
            targets.push((target, *mode));
        }
        admit::begin();
        for (relation, keys, mode) in declared {
            admit::declare(relation, keys, mode);
        }
        if admit::settle(lane).is_none() {
            errors::refuse(&errors::TOO_MANY_TABLES);
        }
        if let Some(table) = rights::unwinding(|| target::first_too_wide(role)) {
            errors::refuse_use(table);
        }
        if !heat::is_worth_it(lane) {
            return false;
        }
        reschedule::give_back();
        rights::unwinding(|| admit::enter(lane));
        let lock = || {
            targets.iter().for_each(|(target, mode)| target.lock(*mode));
            targets.iter().all(|(target, _)| target.is_as_found())
        };
        let unlock = || {
            targets
                .iter()
                .for_each(|(target, mode)| target.unlock(*mode))
        };
        let is_held = rights::unwinding(|| {
            let is_held = admit::wait_until_held_and_locked(lane, lock, unlock);
            if is_held && !xact::is_read_committed() {
                // SAFETY: `check_place`; nothing else has been read with the snapshot.
                unsafe { ordered::retake_transactions() };
            }
            if is_held {
                unlock();
            }
            is_held
        });
        if is_held {
            strict::begin(targets.iter().any(|(_, mode)| *mode == Mode::Read));
            return true;
        }
    }
    errors::refuse(&errors::REDEFINED)
}

/// Whether the transaction may declare anything here and now.
fn check_place(function: Oid) {
    // SAFETY: plain reads of backend state.
    let (is_in_block, is_in_recovery) =
        unsafe { (pg_sys::IsTransactionBlock(), pg_sys::RecoveryInProgress()) };
    if !is_in_block {
        errors::refuse(&errors::NO_BLOCK);
    }
    if is_in_recovery {
        errors::refuse(&errors::RECOVERY);
    }
    if xact::is_serializable() {
        errors::refuse(&errors::SERIALIZABLE);
    }
    if admit::is_in() && !reschedule::is_in() {
        errors::refuse(&errors::TWICE);
    }
    if xact::nest_level() > 1 {
        errors::refuse(&errors::SAVEPOINT);
    }
    if xact::own_xid() != 0 {
        errors::refuse(&errors::HAS_WRITTEN);
    }
    if !is_alone(function) {
        errors::refuse(&errors::NOT_ALONE);
    }
    if snapshot::is_pinned() {
        errors::refuse(&errors::GLOBAL_SNAPSHOT);
    }
    if !xact::is_read_committed() {
        let is_first = session::has_used_snapshot_once()
            && rights::unwinding(snapshot::is_transactions_retakeable);
        if !is_first {
            errors::refuse(&errors::NOT_FIRST);
        }
    }
}

/// Whether the statement of the client is a SELECT that does nothing but call the function.
fn is_alone(function: Oid) -> bool {
    // SAFETY: the active portal and its plan, whose nodes are read as what their tags say.
    unsafe {
        let Some(portal) = pg_sys::ActivePortal.as_ref() else {
            return false;
        };
        let is_select = portal.strategy == pg_sys::PortalStrategy::PORTAL_ONE_SELECT;
        if !is_select || portal.queryDesc.is_null() {
            return false;
        }
        let planned = &*(*portal.queryDesc).plannedstmt;
        let plan = planned.planTree;
        let is_lone = nodes::tag(plan) == NodeTag::T_Result
            && (*plan).lefttree.is_null()
            && planned.subplans.is_null()
            && !planned.hasModifyingCTE
            && nodes::length((*plan).targetlist) == 1;
        is_lone && {
            let entry = nodes::nth::<pg_sys::TargetEntry>((*plan).targetlist, 0);
            let expression = (*entry).expr;
            nodes::tag(expression) == NodeTag::T_FuncExpr
                && (*expression.cast::<pg_sys::FuncExpr>()).funcid == function
        }
    }
}

/// Reads an item and finds its table. `is_procedures` says that it may name arguments.
fn resolve(text: &str, is_procedures: bool) -> (Form, Target) {
    let form = parse_item(text).unwrap_or_else(|malformed| errors::malformed(text, malformed));
    let names_arguments = form
        .values
        .iter()
        .any(|value| !matches!(value, Value::Text(_)));
    if names_arguments && !is_procedures {
        errors::refuse_item(text, "Arguments are for txn.declare_procedure().");
    }
    let found = rights::unwinding(|| {
        let name = error::in_c(&form.table);
        // SAFETY: what unwinds drops what is alive here.
        unsafe { target::find(name, Names::Any) }
    });
    let target = found.unwrap_or_else(|unfit| errors::unfit(&form.table, unfit));
    if let Err(unfit) = target.check(&form) {
        errors::refuse_item(text, unfit.detail());
    }
    (form, target)
}

/// The images of an item without arguments.
fn image(form: &Form, target: &Target) -> keyrange::Interval {
    rights::unwinding(|| {
        value::with_scratch(|| {
            let mut values = [(Datum::from(0), Oid::INVALID); COLUMNS];
            for (n, (place, value)) in values.iter_mut().zip(&form.values).enumerate() {
                if let Value::Text(text) = value
                    && let Some(column) = target.table.columns.get(n)
                {
                    // SAFETY: what unwinds drops what is alive here.
                    *place = (unsafe { target.convert(n, text) }, column.typ);
                }
            }
            // SAFETY: values of their columns' types.
            unsafe { target.image(&values[..form.values.len()]) }
        })
    })
}

/// Says which keys a CALL of the procedure uses; nothing if both lists are empty.
///
/// # Errors
/// 42809 for a function, 22023 and others as `declare` for items, 42501 for others' procedures.
#[pg_extern(sql = false)]
fn declare_procedure(
    procedure: Oid,
    writes: Option<Vec<Option<String>>>,
    reads: Option<Vec<Option<String>>>,
) {
    // SAFETY: catalog look-ups.
    let (kind, arguments) = unsafe {
        (
            pg_sys::get_func_prokind(procedure) as u8,
            input_types(procedure),
        )
    };
    if kind != pg_sys::PROKIND_PROCEDURE {
        errors::refuse(&errors::FUNCTION);
    }
    let mut lists = [Vec::new(), Vec::new()];
    for (text, mode) in items(writes, reads) {
        let (form, target) = resolve(&text, true);
        check_values(&text, &form, &target, &arguments);
        let list = &mut lists[usize::from(mode == Mode::Read)];
        list.push(written(&form, &target));
    }
    let sections = ["writes", "reads"].iter().zip(&lists);
    let sections: Vec<String> = sections
        .filter(|(_, items)| !items.is_empty())
        .map(|(name, items)| format!("{name}: {}", items.join(", ")))
        .collect();
    // SAFETY: catalog look-ups; palloc'ed texts.
    let (name, label) = unsafe {
        let name = text_of(pg_sys::format_procedure_qualified(procedure));
        let label = sections.join("; ");
        (name, label)
    };
    let label = if label.is_empty() {
        "NULL".to_owned()
    } else {
        spi::quote_literal(&label)
    };
    let provider = PROVIDER.to_string_lossy();
    let command = format!("SECURITY LABEL FOR {provider} ON PROCEDURE {name} IS {label}");
    if let Err(error) = Spi::run(&command) {
        pgrx::error!("{error}");
    }
}

/// # Safety
/// A C string of PostgreSQL's.
unsafe fn text_of(text: *const std::ffi::c_char) -> String {
    // SAFETY: the caller's text is a C string.
    unsafe { std::ffi::CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// The types of a procedure's input arguments.
///
/// # Safety
/// In a transaction.
unsafe fn input_types(procedure: Oid) -> Vec<Oid> {
    let (mut types, mut count) = (std::ptr::null_mut(), 0);
    // SAFETY: a catalog look-up; an array of so many OIDs.
    unsafe {
        pg_sys::get_func_signature(procedure, &mut types, &mut count);
        match count {
            0 => Vec::new(),
            count => std::slice::from_raw_parts(types, count as usize).to_vec(),
        }
    }
}

/// Whether the item's values are some of its columns.
fn check_values(text: &str, form: &Form, target: &Target, arguments: &[Oid]) {
    for (n, value) in form.values.iter().enumerate() {
        let column = target.table.columns.get(n);
        let (number, is_each) = match value {
            Value::Text(text) => {
                if column.is_some() {
                    // SAFETY: what unwinds drops what is alive here.
                    rights::unwinding(|| unsafe { target.convert(n, text) });
                }
                continue;
            }
            Value::Argument(number) => (*number, false),
            Value::Each(number) => (*number, true),
        };
        let Some(&given) = arguments.get(usize::from(number) - 1) else {
            errors::refuse_item(text, &format!("The procedure has no argument ${number}."));
        };
        // SAFETY: catalog look-ups.
        let given = unsafe {
            let given = pg_sys::getBaseType(given);
            if is_each {
                pg_sys::get_element_type(given)
            } else {
                given
            }
        };
        let is_alike = column.is_none_or(|column| value::is_alike(column.typ, given));
        if given == Oid::INVALID || !is_alike {
            errors::refuse_item(
                text,
                &format!("The type of argument ${number} is not that of the key's column."),
            );
        }
    }
}

/// The item with the table's name in full.
fn written(form: &Form, target: &Target) -> String {
    // SAFETY: catalog look-ups; palloc'ed texts.
    let table = unsafe {
        let schema = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(target.oid));
        let name = pg_sys::get_rel_name(target.oid);
        text_of(pg_sys::quote_qualified_identifier(schema, name))
    };
    let value = |value: &Value| match value {
        Value::Text(text) => {
            let text = text.replace('\\', "\\\\").replace('"', "\"\"");
            format!("\"{text}\"")
        }
        Value::Argument(number) => format!("${number}"),
        Value::Each(number) => format!("${number}[*]"),
    };
    let mut values: Vec<String> = form.values.iter().map(value).collect();
    if form.is_open {
        values.push("*".to_owned());
    }
    format!("{table}({})", values.join(","))
}
