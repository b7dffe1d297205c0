//! PostgreSQL's own functions and operators, and what pg_proc says of any function.

use super::local::Local;
use super::raw;
use pgrx::pg_sys::{self, Datum, FormData_pg_proc, Oid};
use std::cell::Cell;

/// Answers that are remembered by OID, of objects that cannot change: PostgreSQL's own.
pub struct Known<const PLACES: usize>(Local<[Cell<(Oid, bool)>; PLACES]>);

impl<const PLACES: usize> Known<PLACES> {
    pub const fn new() -> Self {
        Known(Local::new(
            [const { Cell::new((Oid::INVALID, false)) }; PLACES],
        ))
    }

    pub fn get(&self, oid: Oid, find_out: impl FnOnce() -> bool) -> bool {
        let cell = &self.0[u32::from(oid) as usize % PLACES];
        let (known, answer) = cell.get();
        if known == oid {
            return answer;
        }
        let answer = find_out();
        cell.set((oid, answer));
        answer
    }
}

/// Whether it is an object that PostgreSQL was made with (access/transam.h: FirstGenbkiObjectId).
pub fn is_builtin(oid: Oid) -> bool {
    (1..10000).contains(&u32::from(oid))
}

/// What `ask` says of a function's row of pg_proc; none if there is no such function any more.
///
/// # Safety
/// A transaction runs; catalogs can be read. `ask` raises nothing.
pub unsafe fn ask_function<T>(
    function: Oid,
    ask: impl FnOnce(&FormData_pg_proc) -> T,
) -> Option<T> {
    // SAFETY: as lsyscache.c looks functions up.
    unsafe {
        let id = pg_sys::SysCacheIdentifier::PROCOID as i32;
        let tuple = raw::SearchSysCache1(id, Datum::from(function));
        if tuple.is_null() {
            return None;
        }
        let header = (*tuple).t_data;
        let row = header.cast::<u8>().add((*header).t_hoff as usize);
        let answer = ask(&*row.cast::<FormData_pg_proc>());
        raw::ReleaseSysCache(tuple);
        Some(answer)
    }
}

/// Whether a function returns one value, is written in C within the server, and is immutable.
pub fn is_immutable_internal(function: &FormData_pg_proc) -> bool {
    is_internal(function) && function.provolatile as u8 == pg_sys::PROVOLATILE_IMMUTABLE
}

/// What is known of such a function, whatever its volatility.
pub fn is_internal(function: &FormData_pg_proc) -> bool {
    /// catalog/pg_language.dat: internal.
    const INTERNAL: u32 = 12;
    u32::from(function.prolang) == INTERNAL && !function.proretset
}
