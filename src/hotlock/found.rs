//! Index scans of the transaction that has a hot row's ticket: they go on in the row's HOT chain
//! from where the last one has found the row (`tam/hot_chain.rs`).

use super::session::{SESSION, memory, relation_of};
use crate::pg::tuple;
use crate::tam::call::Fetch;
use crate::tam::hot_chain;
use hotrow::{Found, Slot};

/// `index_fetch_tuple` of a heap table.
///
/// # Safety
/// `call` has the executor's arguments, which are valid until this returns.
#[inline]
pub unsafe fn fetch(call: Fetch) -> bool {
    // SAFETY: by the contract.
    unsafe {
        match ticket_of(&call) {
            Some(slot) if hot_chain::may_go_on(&call) => fetch_row(call, slot),
            _ => call.heap(),
        }
    }
}

/// The hot row of the fetch's table of which this transaction has the ticket.
#[inline]
unsafe fn ticket_of(call: &Fetch) -> Option<Slot> {
    if !SESSION.is_member() {
        return None;
    }
    // SAFETY: the executor's scan has an open table.
    let table = unsafe { (*(*call.scan).rel).rd_id };
    SESSION
        .all()
        .find(|(_, m)| m.has_ticket() && relation_of(m) == table)
        .map(|(_, m)| m.slot())
}

/// # Safety
/// As for `fetch`; `hot_chain::may_go_on(call)`.
unsafe fn fetch_row(call: Fetch, slot: Slot) -> bool {
    // SAFETY: by the contract.
    unsafe {
        let root = tuple::pack(&*call.tid);
        let file = u32::from((*(*call.scan).rel).rd_locator.relNumber);
        let known = memory().with_row(slot, |row, _| row.found.last(root, file));
        let found = known
            .and_then(|known| hot_chain::go_on(call, known.version, known.xid.into()))
            .unwrap_or_else(|| call.heap());
        if found && let Some((version, xid)) = hot_chain::seen(&call) {
            let seen = Found {
                root,
                file,
                version,
                xid: xid.into(),
            };
            if known != Some(seen) {
                memory().with_row(slot, |row, _| row.found.note(&seen));
            }
        }
        found
    }
}
