//! The functions of triggers that have run in this session, and whether they are still in force.
//!
//! PL/pgSQL compiles a function when a trigger first fires, and plans each expression when it is
//! first evaluated. So a function that has run to its end is the only one of which all is known.
//! PL/pgSQL never frees the structure that a trigger's function is, only what hangs on it, and then
//! it has no `action` (pl_comp.c: delete_function).

use crate::pg::local::Local;
use crate::pg::plpgsql_layout::Function;
use crate::pg::{language, raw};
use pgrx::pg_sys::{self, Datum, Oid};
use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;

/// Triggers whose functions are remembered; two of the same number modulo this push each other out.
const PLACES: usize = 64;

struct Noted {
    functions: [Cell<(Oid, *const Function)>; PLACES],
    changes: Cell<u64>,
}

static NOTED: Local<Noted> = Local::new(Noted {
    functions: [const { Cell::new((Oid::INVALID, ptr::null())) }; PLACES],
    changes: Cell::new(0),
});

unsafe extern "C-unwind" fn note_change(_arg: Datum, _cache: c_int, _hash: u32) {
    NOTED.changes.set(NOTED.changes.get() + 1);
}

/// What makes PostgreSQL plan an expression anew that reads no table (plancache.c: InitPlanCache).
/// Foreign servers are in none.
const PLANNED_WITH: [u32; 5] = [
    pg_sys::SysCacheIdentifier::PROCOID,
    pg_sys::SysCacheIdentifier::TYPEOID,
    pg_sys::SysCacheIdentifier::NAMESPACEOID,
    pg_sys::SysCacheIdentifier::OPEROID,
    pg_sys::SysCacheIdentifier::AMOPOPID,
];

/// Registers the invalidation callbacks. Once, from `_PG_init`.
pub fn init() {
    for cache in PLANNED_WITH {
        // SAFETY: the callback touches only process-local cells.
        unsafe {
            pg_sys::CacheRegisterSyscacheCallback(
                cache as c_int,
                Some(note_change),
                Datum::from(0),
            );
        }
    }
}

/// How often this session has heard of a change of functions, or of what their expressions are
/// planned with.
pub fn changes() -> u64 {
    NOTED.changes.get()
}

fn place(trigger: Oid) -> &'static Cell<(Oid, *const Function)> {
    &NOTED.functions[u32::from(trigger) as usize % PLACES]
}

/// PL/pgSQL has executed that trigger's function to its end.
pub fn note(trigger: Oid, function: *const Function) {
    place(trigger).set((trigger, function));
}

/// The function of that trigger, if it has run and PL/pgSQL would run the same one again
/// (pl_comp.c: plpgsql_compile), as it is: with the rights and settings of the session.
///
/// # Safety
/// A transaction runs; catalogs can be read. The answer is valid until a function is compiled.
pub(super) unsafe fn function_of(trigger: &pg_sys::Trigger) -> Option<&'static Function> {
    let (known, function) = place(trigger.tgoid).get();
    // SAFETY: PL/pgSQL never frees a trigger's function; a catalog look-up.
    unsafe {
        let function = function.as_ref().filter(|_| known == trigger.tgoid)?;
        let is_whole = function.oid == trigger.tgfoid && !function.action.is_null();
        (is_whole && language::is_written_in_it(function.oid) && is_in_force(function))
            .then_some(function)
    }
}

unsafe fn is_in_force(function: &Function) -> bool {
    // SAFETY: as lsyscache.c looks functions up; the row begins behind its header.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::PROCOID as c_int;
        let tuple = raw::SearchSysCache1(cache, Datum::from(function.oid));
        if tuple.is_null() {
            return false;
        }
        let header = (*tuple).t_data;
        let row = header.cast::<u8>().add((*header).t_hoff as usize);
        let mut has_no_settings = false;
        let number = pg_sys::Anum_pg_proc_proconfig as pg_sys::AttrNumber;
        raw::SysCacheGetAttr(cache, tuple, number, &mut has_no_settings);
        let is_in_force = (*header).t_choice.t_heap.t_xmin == function.xmin
            && crate::pg::tuple::pack(&(*tuple).t_self) == crate::pg::tuple::pack(&function.tid)
            && !(*row.cast::<pg_sys::FormData_pg_proc>()).prosecdef
            && has_no_settings;
        raw::ReleaseSysCache(tuple);
        is_in_force
    }
}
