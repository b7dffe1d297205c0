//! Index scans of the transaction that has a hot row's ticket: they go on in the row's HOT chain
//! from where the last one has found the row (`tam/hot_chain.rs`).

use super::session::{SESSION, memory, relation_of};
use crate::pg::{raw, tuple};
use crate::shared::fault::{Fault, planted};
use crate::tam::call::Fetch;
use crate::tam::hot_chain;
use hotrow::{Found, Membership, Places};
use pgrx::pg_sys;

/// `index_fetch_tuple` of a heap table.
///
/// # Safety
/// `call` has the executor's arguments, which are valid until this returns.
#[inline]
pub unsafe fn fetch(call: Fetch) -> bool {
    // SAFETY: by the contract.
    unsafe {
        if SESSION.is_member() && hot_chain::may_go_on(&call) {
            fetch_as_member(call)
        } else {
            call.heap()
        }
    }
}

/// Fetches from the place that is known for the chain, and notes where the row is. What is noted is
/// that of a statement that has not used its ticket yet: later ones may read the whole table.
///
/// # Safety
/// As for `fetch`; `hot_chain::may_go_on(call)`.
unsafe fn fetch_as_member(call: Fetch) -> bool {
    // SAFETY: by the contract.
    unsafe {
        let rel = (*call.scan).rel;
        let root = tuple::pack(&*call.tid);
        let file = u32::from((*rel).rd_locator.relNumber);
        let known = with_tickets((*rel).rd_id)
            .find_map(|membership| places_of(&membership).last(root, file));
        let is_shown = known.is_none_or(|known| shows_end(call.snapshot, known.xid));
        let found = known
            .filter(|_| is_shown)
            .and_then(|known| hot_chain::go_on(call, known.version, known.xid.into()))
            .unwrap_or_else(|| call.heap());
        // An older snapshot would take the place back.
        if found
            && is_shown
            && let Some(membership) = with_tickets((*rel).rd_id).find(Membership::is_unused)
            && let Some((version, xid)) = hot_chain::seen(&call)
        {
            let seen = Found {
                root,
                file,
                version,
                xid: xid.into(),
            };
            if known.is_none_or(|known| seen.is_far_from(&known)) {
                memory().with_row(membership.slot(), |row, _| row.found.note(&seen));
            }
        }
        found
    }
}

fn places_of(membership: &Membership) -> &'static Places {
    &memory().directory.rows[membership.slot() as usize].found
}

/// The memberships of that table's hot rows whose tickets the transaction has.
fn with_tickets(table: pg_sys::Oid) -> impl Iterator<Item = Membership> {
    SESSION
        .all()
        .map(|(_, membership)| membership)
        .filter(move |membership| membership.has_ticket() && relation_of(membership) == table)
}

/// Whether the snapshot shows that a transaction has ended.
///
/// # Safety
/// An MVCC snapshot.
unsafe fn shows_end(snapshot: pg_sys::Snapshot, xid: u32) -> bool {
    // SAFETY: by the contract.
    let runs = unsafe { raw::XidInMVCCSnapshot(xid.into(), snapshot) };
    !runs || planted(Fault::VersionsPassedOver)
}
