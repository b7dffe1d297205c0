//! Prepared transactions in the lists of hot rows.
//!
//! Others follow the version of a prepared transaction as they follow that of a running one: they
//! commit after COMMIT PREPARED, and fall with ROLLBACK PREPARED. So what a transaction over
//! several servers holds up, while its coordinator collects votes, is the commits behind it, and
//! not the statements.
//!
//! PostgreSQL has a PGPROC without a process for each prepared transaction. Its number is a backend
//! like that of a session, and has the places in the lists that the session had. The session of
//! COMMIT PREPARED takes them off. That may come late, or never: a worker of logical replication
//! ends prepared transactions without a command. So whoever comes upon the place of a transaction
//! that has ended takes it off first.
//!
//! What a predecessor has noted when it was prepared is right for those that follow later, too:
//! reads beside it want a snapshot from after its end (crates/hotrow, watch.rs), and nobody follows
//! one that changes definitions.

use super::definitions;
use super::session::memory;
use crate::pg::{process, xact};
use crate::shared::wait::Wakes;
use hotrow::{BackendId, MEMBERS, MemberId, Membership, Slot, Trouble, backend_of};

/// XACT_EVENT_PREPARE: what stands for the transaction from now on. None if it leaves the lists as
/// one that has ended, and others wait for it in the lock manager.
pub fn heir() -> Option<BackendId> {
    if definitions::are_changed() {
        return None;
    }
    let xid = xact::own_xid();
    let heir = xact::process_of_prepared(xid);
    // COMMIT PREPARED gives the PGPROC away before it takes the places off the lists. To take them
    // off may fail, and so is left to others: this transaction is prepared.
    if places(heir).next().is_some() {
        return None;
    }
    memory().backends[heir as usize].xid.publish(xid);
    Some(heir)
}

/// The membership of `heir` that a session's membership number `n` goes to, if others may follow
/// its version.
pub fn heir_of(heir: Option<BackendId>, n: usize, membership: &Membership) -> Option<MemberId> {
    let is_writer = membership.is_listed() && !membership.has_ticket();
    let has_place = is_writer && membership.has_version() && !membership.is_gone();
    heir.filter(|_| has_place)
        .map(|heir| heir * MEMBERS as MemberId + n as MemberId)
}

/// COMMIT PREPARED or ROLLBACK PREPARED has run: takes the places of prepared transactions that
/// have ended off the lists.
pub fn settle_ended() {
    for backend in process::of_prepared() {
        let standing = &memory().backends[backend as usize];
        let xid = standing.xid.get();
        if xid != 0 && !xact::is_running(xid) {
            places(backend).for_each(|(member, slot, xid)| {
                settle(slot, member, xid);
            });
            standing.prepared_ended(xid);
        }
    }
}

/// The places that it has in lists: membership, row, transaction id.
fn places(backend: BackendId) -> impl Iterator<Item = (MemberId, Slot, u32)> {
    let first = backend * MEMBERS as MemberId;
    (first..first + MEMBERS as MemberId).filter_map(|member| {
        let (slot, xid) = memory().members().place(member)?;
        Some((member, slot, xid))
    })
}

/// Takes prepared transactions that have ended off the ends of the row's list. To be called before
/// a transaction builds on the last one, or waits for one to leave the list.
#[inline]
pub fn settle_in(slot: Slot) {
    let row = &memory().directory.rows[slot as usize];
    if row.has_prepared() {
        while settle_ends_of(slot) {}
    }
}

/// Whether one was taken off: then others are at the ends.
fn settle_ends_of(slot: Slot) -> bool {
    let ends = memory().with_row(slot, |row, members| {
        let head = row.head(members).map(|(member, xid, _)| (member, xid));
        let tail = row.tail(members).map(|tail| (tail.member, tail.xid));
        [head, tail]
    });
    let mut prepared = ends
        .into_iter()
        .flatten()
        .filter(|&(member, _)| process::is_prepared(backend_of(member)));
    prepared.any(|(member, xid)| settle(slot, member, xid))
}

/// Takes a place of a prepared transaction off the row's list if the transaction has ended. Whether
/// it was taken off just now.
fn settle(slot: Slot, member: MemberId, xid: u32) -> bool {
    if xact::is_running(xid) {
        return false;
    }
    // Of one so old nothing is known any more, and nobody is behind it.
    let has_committed = xact::is_forgotten(xid) || xact::has_committed(xid);
    let (mut wakes, now) = (Wakes::new(), process::now());
    let doomed = memory().with_row(slot, |row, members| {
        let wake = |backend| wakes.push(backend);
        let doomed = row.settle(members, slot, member, xid, has_committed, wake)?;
        row.counters.cascades.add(u64::from(doomed > 0));
        if has_committed {
            row.success();
        } else if row.trouble(Trouble::Cascade(doomed), now) {
            memory().totals.backoffs.add(1);
        }
        Some(doomed)
    });
    wakes.deliver();
    if let Some(doomed) = doomed.filter(|&doomed| doomed > 0) {
        memory().totals.cascades.add(1);
        memory().totals.doomed.add(u64::from(doomed));
    }
    doomed.is_some()
}
