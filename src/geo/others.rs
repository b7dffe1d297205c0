//! Foreign tables of other wrappers: what is written there commits before we decide.

use super::failure::{Failure, NOT_SUPPORTED, Outcome, guarded, raised};
use super::nodes;
use super::scan;
use crate::pg::local::Local;
use crate::pg::nodes::{nodes as nodes_of, nth, numbers, oids};
use crate::pg::of_transaction::OfTransaction;
use crate::pg::raw;
use pgrx::pg_sys::{self, NodeTag, PlannedStmt, RangeTblEntry};

/// Whether this transaction has written to such a table.
static WRITTEN: Local<OfTransaction<bool>> = Local::new(OfTransaction::new(false));

pub fn are_written() -> bool {
    WRITTEN.get()
}

/// The transaction has ended.
#[inline]
pub fn forget() {
    WRITTEN.clear();
}

/// A statement starts: what it writes to must not be of both kinds, with what was written before.
/// Partitions to which it routes rows are not known yet: see `note_routed`.
///
/// # Safety
/// `plan` is the statement's plan.
#[inline]
pub unsafe fn note(plan: *const PlannedStmt) {
    // SAFETY: the caller's plan is valid: its result relations are numbers of its range table.
    unsafe {
        let foreign = |number: u32| {
            let entry: *mut RangeTblEntry = nth((*plan).rtable, number as usize - 1);
            ((*entry).relkind as u8 == pg_sys::RELKIND_FOREIGN_TABLE).then_some((*entry).relid)
        };
        let written = || numbers((*plan).resultRelations).filter_map(foreign);
        if written().next().is_some() {
            guarded(|| raised(note_foreign(written())));
        }
    }
}

/// A statement ends: it has routed rows to these partitions. What another wrapper has been given
/// commits with the transaction, not before.
///
/// # Safety
/// A statement that has been started.
#[inline]
pub unsafe fn note_routed(query: *const pg_sys::QueryDesc) {
    // SAFETY: by the contract: the executor's list of tables to which rows were routed, which are
    // open.
    unsafe {
        let estate = (*query).estate;
        if estate.is_null() || (*estate).es_tuple_routing_result_relations.is_null() {
            return;
        }
        guarded(|| {
            let foreign = |result: *mut pg_sys::Node| {
                let result = result.cast::<pg_sys::ResultRelInfo>();
                (!(*result).ri_FdwRoutine.is_null()).then(|| (*(*result).ri_RelationDesc).rd_id)
            };
            let routed = nodes_of((*estate).es_tuple_routing_result_relations);
            raised(note_foreign(routed.filter_map(foreign)));
        });
    }
}

/// One statement writes to these foreign tables, or has.
fn note_foreign(tables: impl Iterator<Item = pg_sys::Oid>) -> Outcome<()> {
    let (mut writes_ours, mut writes_others) = (false, false);
    for table in tables {
        // SAFETY: a foreign table; its wrapper's callbacks.
        let is_ours = unsafe {
            let routine = pg_sys::GetFdwRoutineByRelId(table);
            let ours: unsafe extern "C-unwind" fn(_, _) = scan::begin;
            (*routine)
                .BeginForeignScan
                .is_some_and(|one| one as usize == ours as usize)
        };
        writes_ours |= is_ours;
        writes_others |= !is_ours;
    }
    let is_written = WRITTEN.get() || writes_others;
    if is_written && (writes_ours || nodes::are_written()) {
        // What it has written elsewhere rolls back with it.
        return Err(mixed());
    }
    WRITTEN.set(is_written);
    Ok(())
}

/// COPY and TRUNCATE write, too.
///
/// # Safety
/// `node` is the node of a utility statement, and valid.
pub unsafe fn note_utility(node: *mut pg_sys::Node) {
    // SAFETY: the caller's node is that of a utility statement, read as its tag says.
    guarded(|| unsafe {
        let mut tables = Vec::new();
        match (*node).type_ {
            NodeTag::T_CopyStmt => {
                let copy = node.cast::<pg_sys::CopyStmt>();
                // It routes rows, and does not tell where: to any of the partitions.
                if (*copy).is_from
                    && let Some(table) = table_of((*copy).relation)
                {
                    let kind = pg_sys::get_rel_relkind(table) as u8;
                    add_tables(
                        table,
                        kind == pg_sys::RELKIND_PARTITIONED_TABLE,
                        &mut tables,
                    );
                }
            }
            NodeTag::T_TruncateStmt => {
                for name in nodes_of((*node.cast::<pg_sys::TruncateStmt>()).relations) {
                    let name = name.cast::<pg_sys::RangeVar>();
                    if let Some(table) = table_of(name) {
                        add_tables(table, (*name).inh, &mut tables);
                    }
                }
            }
            _ => {}
        }
        raised(note_foreign(tables.into_iter()));
    });
}

/// # Safety
/// The name of a table, or null.
unsafe fn table_of(name: *const pg_sys::RangeVar) -> Option<pg_sys::Oid> {
    // SAFETY: by the contract; a catalog look-up.
    let table = unsafe {
        if name.is_null() {
            return None;
        }
        let none = pg_sys::NoLock as i32;
        let missing_ok = pg_sys::RVROption::RVR_MISSING_OK;
        pg_sys::RangeVarGetRelidExtended(name, none, missing_ok, None, std::ptr::null_mut())
    };
    (table != pg_sys::Oid::INVALID).then_some(table)
}

/// Whether rows can be written to the foreign table at all.
///
/// # Safety
/// `table` is the oid of a foreign table.
unsafe fn is_writable(table: pg_sys::Oid) -> bool {
    // SAFETY: by the contract; catalog look-ups.
    unsafe {
        let server = pg_sys::GetForeignServer((*pg_sys::GetForeignTable(table)).serverid);
        let wrapper = pg_sys::GetForeignDataWrapper((*server).fdwid);
        if (*wrapper).fdwhandler == pg_sys::Oid::INVALID {
            return false;
        }
        let routine = pg_sys::GetFdwRoutineByRelId(table);
        (*routine).ExecForeignInsert.is_some() || (*routine).ExecForeignTruncate.is_some()
    }
}

/// Adds the table, and perhaps those below it, if they are foreign ones. Of those below only what
/// can be written.
fn add_tables(table: pg_sys::Oid, with_those_below: bool, tables: &mut Vec<pg_sys::Oid>) {
    // SAFETY: catalog look-ups.
    unsafe {
        let found = match with_those_below {
            true => pg_sys::submodules::ffi::pg_guard_ffi_boundary(|| {
                // They must not go while they are looked at.
                let lock = pg_sys::AccessShareLock as i32;
                raw::find_all_inheritors(table, lock, std::ptr::null_mut())
            }),
            false => pg_sys::lappend_oid(std::ptr::null_mut(), table),
        };
        let is_foreign = |one: &pg_sys::Oid| {
            pg_sys::get_rel_relkind(*one) as u8 == pg_sys::RELKIND_FOREIGN_TABLE
                && (*one == table || is_writable(*one))
        };
        tables.extend(oids(found).filter(is_foreign));
    }
}

/// Why a transaction must not go on that has written to both.
pub fn mixed() -> Failure {
    Failure::new(
        NOT_SUPPORTED,
        "cannot write to servers of txn_fdw and of another foreign data wrapper in one transaction",
    )
    .detail("The other ones commit before it is decided.")
    .hint("Give the other wrapper the handler txn.fdw_handler, or use two transactions.")
}
