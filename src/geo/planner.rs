//! `postgres_fdw` as our planner: its callbacks, and an INSERT that it writes for us.

use super::failure::{Failure, NOT_SUPPORTED, Outcome};
use crate::pg::libpq;
use crate::pg::local::Local;
use crate::pg::nodes::nth;
use pgrx::pg_sys::{self, CmdType, FdwRoutine, List, ModifyTableState, ResultRelInfo};
use std::cell::Cell;
use std::ffi::CStr;
use std::mem::zeroed;
use std::ptr::null_mut;

static ROUTINE: Local<Cell<*mut FdwRoutine>> = Local::new(Cell::new(null_mut()));

/// A function of `postgres_fdw`, which is loaded if it was not, and libpq with it. Raises if it is
/// not installed.
pub fn function(
    name: &CStr,
) -> Outcome<unsafe extern "C-unwind" fn(pg_sys::FunctionCallInfo) -> pg_sys::Datum> {
    libpq::load(name)
        .flatten()
        .ok_or_else(|| Failure::new(NOT_SUPPORTED, "libpq of PostgreSQL 14 or later is needed"))
}

/// Loads libpq. Raises if `postgres_fdw` is not installed.
pub fn require_libpq() -> Outcome<()> {
    if libpq::is_loaded() {
        return Ok(());
    }
    function(c"postgres_fdw_handler").map(|_| ())
}

/// The callbacks of `postgres_fdw`; loads it. Raises if it is not installed.
pub fn routine() -> Outcome<*mut FdwRoutine> {
    if ROUTINE.get().is_null() {
        let handler = function(c"postgres_fdw_handler")?;
        // SAFETY: a handler takes no argument, and gives its callbacks in the current memory
        // context: that of the session, where they stay.
        unsafe {
            let before = pg_sys::CurrentMemoryContext;
            pg_sys::CurrentMemoryContext = pg_sys::TopMemoryContext;
            let mut call: pg_sys::FunctionCallInfoBaseData = zeroed();
            let found = pg_sys::submodules::ffi::pg_guard_ffi_boundary(|| handler(&raw mut call));
            pg_sys::CurrentMemoryContext = before;
            ROUTINE.set(found.cast_mut_ptr());
        }
    }
    Ok(ROUTINE.get())
}

/// The private list of an INSERT into a table to which rows are routed. Its planner looks at the
/// table's entry in the range table and at a few fields of the plan only (postgres_fdw.c:
/// postgresPlanForeignModify), so it is given just these.
///
/// # Safety
/// The executor's state, and a foreign table of ours that is open.
pub unsafe fn plan_insert(state: *mut ModifyTableState, result: *mut ResultRelInfo) -> *mut List {
    // SAFETY: by the contract; nodes of ours, in the current memory context.
    unsafe {
        let plan = (*state).ps.plan.cast::<pg_sys::ModifyTable>();
        let (entry, number) = entry_of(state, result, plan);
        let mut entries = vec![null_mut(); number as usize + 1];
        entries[number as usize] = entry;
        let mut root: pg_sys::PlannerInfo = zeroed();
        root.type_ = pg_sys::NodeTag::T_PlannerInfo;
        root.simple_rte_array = entries.as_mut_ptr();
        root.simple_rel_array_size = entries.len() as i32;
        let mut insert: pg_sys::ModifyTable = zeroed();
        insert.plan.type_ = pg_sys::NodeTag::T_ModifyTable;
        insert.operation = CmdType::CMD_INSERT;
        insert.onConflictAction = match plan.is_null() {
            true => pg_sys::OnConflictAction::ONCONFLICT_NONE,
            false => (*plan).onConflictAction,
        };
        let one = |list: *mut List| match list.is_null() {
            true => null_mut(),
            false => pg_sys::lappend(null_mut(), list.cast()),
        };
        insert.returningLists = one((*result).ri_returningList);
        insert.withCheckOptionLists = one((*result).ri_WithCheckOptions);
        let planner = ROUTINE
            .get()
            .as_ref()
            .and_then(|routine| routine.PlanForeignModify);
        let planner = planner.expect("postgres_fdw is loaded when a table of ours is open");
        pg_sys::submodules::ffi::pg_guard_ffi_boundary(|| {
            planner(&raw mut root, &raw mut insert, number, 0)
        })
    }
}

/// The table's entry in the range table, and its number. A partition that the statement does not
/// name has none: it gets a copy of its parent's (postgres_fdw.c: postgresBeginForeignInsert).
unsafe fn entry_of(
    state: *mut ModifyTableState,
    result: *mut ResultRelInfo,
    plan: *mut pg_sys::ModifyTable,
) -> (*mut pg_sys::RangeTblEntry, pg_sys::Index) {
    // SAFETY: as in `plan_insert`.
    unsafe {
        let estate = (*state).ps.state;
        let own = (*result).ri_RangeTableIndex;
        if own != 0 {
            return (nth((*estate).es_range_table, own as usize - 1), own);
        }
        let root = (*(*result).ri_RootResultRelInfo).ri_RangeTableIndex;
        let parent: *mut pg_sys::RangeTblEntry = nth((*estate).es_range_table, root as usize - 1);
        let entry: *mut pg_sys::RangeTblEntry = pg_sys::copyObjectImpl(parent.cast()).cast();
        (*entry).relid = (*(*result).ri_RelationDesc).rd_id;
        (*entry).relkind = pg_sys::RELKIND_FOREIGN_TABLE as i8;
        // Expressions of an UPDATE's partitions have the number of the first one.
        let updates = !plan.is_null()
            && (*plan).operation == CmdType::CMD_UPDATE
            && root == (*plan).rootRelation;
        let number = match updates {
            true => (*(*state).resultRelInfo).ri_RangeTableIndex,
            false => root,
        };
        (entry, number)
    }
}
