//! Writes that are put off (`txn.geo_defer`): the client is told what they do, and they travel with
//! the next statement at their node, or with COMMIT.

use super::exchange::{Command, Role};
use super::node::Node;
use super::nodes::{self, NodeId};
use crate::pg::{nesting, raw, xact};
use crate::shared::guc::{self, is_on};
use std::ffi::CString;

/// Whether writes may be put off now: the transaction has more than this statement.
pub fn is_wanted() -> bool {
    // SAFETY: a plain look at the backend's state.
    is_on(&guc::GEO_DEFER) && (unsafe { raw::IsTransactionBlock() } || !nesting::is_outermost())
}

/// Whether the transaction has put something off that is not sent yet.
pub fn is_begun() -> bool {
    nodes::are_used() && !nodes::all(Node::has_deferred).is_empty()
}

/// Puts a write off that has to change so many rows. False: too many wait already.
pub fn put(id: NodeId, text: &str, parameters: &[Option<CString>], rows: u64) -> bool {
    let mut command = Command::new(Role::Deferred(rows), text);
    command.parameters = parameters.to_vec();
    let nest_level = xact::nest_level();
    nodes::with(id, |node| node.defer(command, nest_level))
}
