//! Index scans of the transaction that has a hot row's ticket: they go on in the row's HOT chain
//! from where the last one has found the row (`tam/hot_chain.rs`).

use super::session::{SESSION, memory, relation_of};
use crate::pg::{raw, tuple};
use crate::shared::fault::{Fault, planted};
use crate::tam::call::Fetch;
use crate::tam::hot_chain;
use hotrow::{Found, Membership};
use pgrx::pg_sys;

/// `index_fetch_tuple` of a heap table.
///
/// # Safety
/// `call` has the executor's arguments, which are valid until this returns.
#[inline]
pub unsafe fn fetch(call: Fetch) -> bool {
    // SAFETY: by the contract.
    unsafe {
        match with_ticket(&call) {
            Some(membership) if hot_chain::may_go_on(&call) => fetch_row(call, &membership),
            _ => call.heap(),
        }
    }
}

/// The membership of a hot row of the fetch's table whose ticket the transaction has.
#[inline]
unsafe fn with_ticket(call: &Fetch) -> Option<Membership> {
    if !SESSION.is_member() {
        return None;
    }
    // SAFETY: the executor's scan has an open table.
    let table = unsafe { (*(*call.scan).rel).rd_id };
    SESSION
        .all()
        .map(|(_, membership)| membership)
        .find(|membership| membership.has_ticket() && relation_of(membership) == table)
}

/// Fetches from the place that is known for the chain, and notes where the row is. What is noted is
/// that of a statement that has not used its ticket yet: later ones may read the whole table.
///
/// # Safety
/// As for `fetch`; `hot_chain::may_go_on(call)`.
unsafe fn fetch_row(call: Fetch, membership: &Membership) -> bool {
    // SAFETY: by the contract.
    unsafe {
        let slot = membership.slot();
        let root = tuple::pack(&*call.tid);
        let file = u32::from((*(*call.scan).rel).rd_locator.relNumber);
        let may_be_known = memory().directory.rows[slot as usize].found.may_have(root);
        let known = may_be_known
            .then(|| memory().with_row(slot, |row, _| row.found.last(root, file)))
            .flatten();
        let found = known
            .filter(|known| shows_end(call.snapshot, known.xid))
            .and_then(|known| hot_chain::go_on(call, known.version, known.xid.into()))
            .unwrap_or_else(|| call.heap());
        if found
            && membership.is_unused()
            && let Some((version, xid)) = hot_chain::seen(&call)
        {
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

/// Whether the snapshot shows that a transaction has ended.
///
/// # Safety
/// An MVCC snapshot.
unsafe fn shows_end(snapshot: pg_sys::Snapshot, xid: u32) -> bool {
    // SAFETY: by the contract.
    let runs = unsafe { raw::XidInMVCCSnapshot(xid.into(), snapshot) };
    !runs || planted(Fault::VersionsPassedOver)
}
