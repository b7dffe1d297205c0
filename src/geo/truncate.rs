//! TRUNCATE of foreign tables.

use super::failure::{Failure, NOT_IN_STATE, Outcome, raised};
use super::node::Use;
use super::nodes;
use super::server::{is_yes, option_of, options};
use crate::pg::nodes::nodes as elements;
use pgrx::pg_guard;
use pgrx::pg_sys::{self, DropBehavior, List, Oid, Relation};
use std::ffi::CStr;

/// The name of a table at its node, or else why it must not be truncated.
unsafe fn target(relation: Relation) -> Outcome<(Oid, String)> {
    // SAFETY: an open foreign table; catalog look-ups.
    unsafe {
        let table = pg_sys::GetForeignTable((*relation).rd_id);
        let server = pg_sys::GetForeignServer((*table).serverid);
        let own = options((*table).options);
        let of_server = options((*server).options);
        let own_name = CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr());
        let truncates = option_of(&own, "truncatable")
            .or_else(|| option_of(&of_server, "truncatable"))
            .is_none_or(is_yes);
        if !truncates {
            let name = own_name.to_string_lossy();
            return Err(Failure::new(
                NOT_IN_STATE,
                format!("foreign table \"{name}\" does not allow truncates"),
            ));
        }
        let schema = pg_sys::get_namespace_name((*(*relation).rd_rel).relnamespace);
        let quoted = |text: &CStr| {
            CStr::from_ptr(pg_sys::quote_identifier(text.as_ptr()))
                .to_string_lossy()
                .into_owned()
        };
        let named = |option: &str, local: &CStr| match option_of(&own, option) {
            Some(name) => quoted(&super::exchange::in_c(name)),
            None => quoted(local),
        };
        let schema = named("schema_name", CStr::from_ptr(schema));
        let table_name = named("table_name", own_name);
        Ok(((*table).serverid, format!("{schema}.{table_name}")))
    }
}

unsafe fn truncate_all(
    relations: *mut List,
    behavior: DropBehavior::Type,
    restarts: bool,
) -> Outcome<()> {
    // SAFETY: open foreign tables of one server.
    let targets = unsafe {
        elements(relations)
            .map(|relation| target(relation.cast()))
            .collect::<Outcome<Vec<_>>>()?
    };
    let Some(&(server, _)) = targets.first() else {
        return Ok(());
    };
    let names: Vec<&str> = targets.iter().map(|target| target.1.as_str()).collect();
    let sequences = if restarts { "RESTART" } else { "CONTINUE" };
    let others = match behavior {
        DropBehavior::DROP_CASCADE => "CASCADE",
        _ => "RESTRICT",
    };
    let sql = format!(
        "TRUNCATE {} {sequences} IDENTITY {others}",
        names.join(", ")
    );
    // SAFETY: reads the current user, who is known in a transaction.
    let user = unsafe { pg_sys::GetUserId() };
    let id = nodes::find(server, user, Use::Work)?;
    let exchange = nodes::send(id, &sql, Vec::new(), None);
    nodes::finish(id, &exchange)
}

#[pg_guard]
pub unsafe extern "C-unwind" fn truncate(
    relations: *mut List,
    behavior: DropBehavior::Type,
    restarts: bool,
) {
    // SAFETY: the executor's call for tables of one server of ours.
    raised(unsafe { truncate_all(relations, behavior, restarts) });
}
