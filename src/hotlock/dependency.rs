//! Memberships that come to nothing, and dependencies on versions that were only looked at.

use super::gate;
use super::handover;
use super::session::{SESSION, member_id, memory};
use crate::pg::xact;
use crate::shared::fault::{Fault, planted};
use crate::shared::stop;
use hotrow::{Membership, Tail};

/// Ends the memberships that this statement began and did not use.
#[inline]
pub fn drop_unused(query: usize) {
    end_unused(query, Membership::reads);
}

/// As `drop_unused`, for a statement that has failed.
pub fn drop_failed(query: usize) {
    end_unused(query, Membership::fails);
}

/// What a membership becomes that depends on a version that it has only looked at. It is told
/// whether it stands in the list.
type Reads = fn(Membership, bool) -> Membership;

#[inline]
fn end_unused(query: usize, reads: Reads) {
    for (n, membership) in SESSION.all() {
        if membership.is_unused_by(query) {
            end(n, reads);
            gate::leave_if_alone();
        }
    }
}

/// Ends a membership that has come to nothing: the row is not locked, and we have no version of it.
pub fn drop_ticket(n: usize) {
    end(n, Membership::reads);
}

fn end(n: usize, reads: Reads) {
    let Some(membership) = SESSION.get(n) else {
        return;
    };
    if membership.has_version() || membership.has_locked() {
        return;
    }
    if membership.depends() && !planted(Fault::ReaderNotDependent) {
        become_reader(n, reads);
    } else {
        handover::leave(n);
    }
}

/// The statement looked at an uncommitted version and changed nothing (rule "only read"): we commit
/// only after its writer.
fn become_reader(n: usize, reads: Reads) {
    let listed = link(n, |_| true);
    handover::give_back(n);
    SESSION.step(n, |m| reads(m, listed));
    stop::at(stop::Point::Updated);
}

/// Puts us into the list behind the writer whose version we have looked at, if that is still open
/// for others. Whether it was.
pub fn depend_on_open(n: usize) -> bool {
    link(n, |tail| tail.open)
}

/// A rollback has ended the membership: it leaves the list, and nothing depends on it.
pub fn leave(n: usize) {
    if let Some(membership) = SESSION.get(n).filter(Membership::is_listed) {
        memory().with_row(membership.slot(), |row, members| {
            row.withdraw(members, member_id(n));
        });
    }
    handover::leave(n);
}

/// Takes that back. A version that was lent before is still locked, and so our place is kept: its
/// writer must not come to wait for us.
pub fn depend_no_more(n: usize) {
    if let Some(membership) = SESSION.get(n).filter(|m| !m.is_listed()) {
        memory().with_row(membership.slot(), |row, members| {
            row.withdraw(members, member_id(n));
        });
    }
}

fn link(n: usize, wanted: impl FnOnce(&Tail) -> bool) -> bool {
    let Some(membership) = SESSION.get(n) else {
        return false;
    };
    let (me, xid) = (member_id(n), xact::own_xid());
    memory().with_row(membership.slot(), |row, members| {
        let still = row
            .tail(members)
            .is_some_and(|tail| membership.predecessor() == Some(tail.xid) && wanted(&tail));
        if still {
            row.link_reader(members, me, xid);
        }
        still
    })
}
