//! Writes that are put off (`txn.geo_defer`): the client is told what they do, and they travel with
//! the next statement at their node, or with COMMIT.

use super::exchange::{Command, Role};
use super::node::Node;
use super::nodes::{self, NodeId};
use crate::pg::local::Local;
use crate::pg::{nesting, raw, xact};
use crate::shared::guc::{self, is_on};
use geo::RecordId;
use pgrx::pg_sys;
use std::cell::Cell;
use std::ffi::CString;

/// The transaction that has voted: what was put off after that would never be sent.
static VOTED: Local<Cell<u32>> = Local::new(Cell::new(0));

/// The transaction, as this server's processes count them.
fn own() -> u32 {
    // SAFETY: a process in a transaction has its entry.
    unsafe { (*pg_sys::MyProc).lxid }
}

/// The transaction votes: nothing may be put off any more.
#[inline]
pub fn close() {
    VOTED.set(own());
}

/// Whether writes may be put off now: the transaction has more than this statement.
pub fn is_wanted() -> bool {
    // SAFETY: a plain look at the backend's state.
    is_on(&guc::GEO_DEFER)
        && (unsafe { raw::IsTransactionBlock() } || !nesting::is_outermost())
        && VOTED.get() != own()
}

/// Whether the transaction has put something off that is not sent yet.
pub fn is_begun() -> bool {
    nodes::are_used() && !nodes::all(Node::has_deferred).is_empty()
}

/// Puts a write off that has to change so many rows, and is about these records. False: too many
/// wait already.
pub fn put(
    id: NodeId,
    text: &str,
    parameters: &[Option<CString>],
    rows: u64,
    records: &[RecordId],
) -> bool {
    let mut command = Command::new(Role::Deferred(rows), text);
    command.parameters = parameters.to_vec();
    let nest_level = xact::nest_level();
    nodes::with(id, |node| node.defer(command, nest_level, records.to_vec()))
}
