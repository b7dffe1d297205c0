//! Commands that want a database for themselves: its resolver goes away meanwhile, and the launcher
//! brings it back.

use crate::geo::coordinator::memory;
use crate::geo::failure::{check_for_interrupts, guarded};
use crate::geo::server::{option_of, options};
use crate::pg::process;
use pgrx::pg_sys::{self, Node, NodeTag, ObjectType};
use std::ffi::CStr;
use std::time::Duration;

/// How long the resolver may take to go, in microseconds. PostgreSQL itself waits as long for
/// sessions.
const PATIENCE_US: u64 = 5_000_000;

/// Before a utility command.
///
/// # Safety
/// `node` is the node of a utility statement, and valid.
pub unsafe fn before_utility(node: *mut Node) {
    // SAFETY: by the contract; names are C strings.
    guarded(|| unsafe {
        let name = match (*node).type_ {
            NodeTag::T_DropdbStmt => (*node.cast::<pg_sys::DropdbStmt>()).dbname,
            NodeTag::T_AlterDatabaseStmt => {
                let alter = node.cast::<pg_sys::AlterDatabaseStmt>();
                if option_of(&options((*alter).options), "tablespace").is_none() {
                    return;
                }
                (*alter).dbname
            }
            NodeTag::T_RenameStmt => {
                let rename = node.cast::<pg_sys::RenameStmt>();
                if (*rename).renameType != ObjectType::OBJECT_DATABASE {
                    return;
                }
                (*rename).subname
            }
            NodeTag::T_CreatedbStmt => {
                let options = options((*node.cast::<pg_sys::CreatedbStmt>()).options);
                let template = option_of(&options, "template").unwrap_or("template1");
                return step_aside(&crate::geo::exchange::in_c(template));
            }
            _ => return,
        };
        step_aside(CStr::from_ptr(name));
    });
}

/// The resolver of that database ends. Returns once it has gone, or after a while.
fn step_aside(name: &CStr) {
    // SAFETY: catalog look-ups.
    let (database, may) = unsafe {
        let database = pg_sys::get_database_oid(name.as_ptr(), true);
        let class = pg_sys::DatabaseRelationId;
        let may = database != pg_sys::Oid::INVALID
            && pg_sys::object_ownercheck(class, database, pg_sys::GetUserId());
        (u32::from(database), may)
    };
    // A user who may not do that gets PostgreSQL's error.
    if !may {
        return;
    }
    let until = process::now() + PATIENCE_US;
    while memory().with_geo(|board| board.ask_to_leave(database)) && process::now() < until {
        let known = memory().with_geo(|board| board.known(database));
        if let Some(process) = known.and_then(|known| known.process) {
            crate::shared::wait::wake(process as hotrow::BackendId);
        }
        std::thread::sleep(Duration::from_millis(5));
        check_for_interrupts();
    }
}
