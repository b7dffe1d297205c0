//! Giving a hot row's ticket back, and leaving the row.

use super::session::{SESSION, member_id, memory, patience};
use crate::pg::process;
use crate::shared::wait;
use hotrow::{Membership, Slot, Trouble};

/// Lets the row learn from trouble.
pub fn note_trouble(slot: Slot, trouble: Trouble) {
    let now = process::now();
    if memory().with_row(slot, |row, _| row.trouble(trouble, now)) {
        memory().totals.backoffs.add(1);
    }
}

/// The client's statement has ended: the tickets that are kept are so until the client sends more.
pub fn go_away() {
    for (n, membership) in SESSION.all().filter(|(_, m)| m.has_ticket()) {
        let me = member_id(n);
        memory().with_row(membership.slot(), |row, _| row.go_away(me));
        SESSION.away.set(true);
    }
}

/// The tickets that were kept between statements are released soon: wakes who waits for them.
#[inline]
pub fn come_back() {
    if SESSION.away.take() {
        is_back();
    }
}

fn is_back() {
    let (patience, now) = (patience(), process::now());
    for (n, membership) in SESSION.all().filter(|(_, m)| m.has_ticket()) {
        let me = member_id(n);
        let woken = memory().with_row(membership.slot(), |row, members| {
            row.come_back(members, me, patience, now)
        });
        woken.into_iter().for_each(wait::wake);
    }
}

/// The transaction has ended, with its tickets.
pub fn forget() {
    SESSION.away.clear();
}

/// Gives the ticket back, or leaves the queue. The membership goes on to a state without them, or
/// ends.
pub fn give_back(n: usize) {
    let Some(membership) = SESSION.get(n).filter(Membership::is_in_queue) else {
        return;
    };
    let (me, patience, now) = (member_id(n), patience(), process::now());
    let woken = memory().with_row(membership.slot(), |row, members| {
        row.leave(members, me, patience, now)
    });
    if let Some(backend) = woken {
        wait::wake(backend);
    }
}

/// Ends a membership that has neither version nor dependency.
pub fn leave(n: usize) {
    give_back(n);
    if let Some(membership) = SESSION.get(n) {
        memory().with_row(membership.slot(), |row, members| {
            members.forgive(member_id(n));
            row.part();
        });
        memory().backends[process::me() as usize].forget(n);
        SESSION.end(n);
    }
}
