//! A transaction that others follow.

use super::late_snapshot;
use super::order;
use super::running;
use super::session::{SESSION, member_id, membership_slot, memory, patience};
use super::step::{announce_writer, is_above, settings_of};
use super::whole;
use crate::pg::relation::key_of;
use crate::pg::{process, xact};
use crate::shared::stop;
use crate::shared::wait;
use hotrow::{Membership, Mode, Obstacle};
use pgrx::pg_sys;

/// After an ordinary update the transaction becomes a leader that others follow, and passes the
/// ticket on. It keeps the ticket if:
/// - it is a single statement: its commit is next, and an earlier hand-over gains nothing;
/// - it is a function, and these end soon after;
/// - a rollback to a savepoint could leave it a lock of the row (rule "savepoints");
/// - it works on what its snapshot shows (REPEATABLE READ);
/// - a column of any unique index has changed;
/// - its settings ask only for queueing;
/// - the row backs off.
pub fn pass_ticket(rel: pg_sys::Relation, n: usize, version: u64, keeps_keys: bool) {
    let (me, slot) = (member_id(n), membership_slot(n));
    let xid = announce_writer(n);
    let (patience, now) = (patience(), process::now());
    let settings = settings_of(n);
    let groups = settings.groups();
    let obstacle = if !late_snapshot::builds_on_last() {
        Some(Obstacle::Isolation)
    } else if is_above(n) {
        Some(Obstacle::Subtransaction)
    } else if !keeps_keys || !key_of(rel).is_some_and(|key| key.has_simple_indexes()) {
        Some(Obstacle::Key)
    } else if running::keeps_ticket(&memory().directory.rows[slot as usize]) {
        Some(Obstacle::BriefTurn)
    } else {
        None
    };
    let may_lead = groups && !whole::is_running();
    SESSION.publish();
    stop::at(stop::Point::PassingTicket);
    let (led, woken) = memory().with_row(slot, |row, members| {
        row.last_xid.set(xid);
        row.grouped.set(u32::from(groups));
        row.counters.updates.add(1);
        if !may_lead {
            return (false, None);
        }
        let backs_off = (row.mode(now) != Mode::Group).then_some(Obstacle::Backoff);
        if let Some(obstacle) = obstacle.or(backs_off) {
            row.note_obstacle(obstacle);
            return (false, None);
        }
        row.counters.groups.add(1);
        row.link_writer(members, me, xid, version);
        (true, row.release(members, me, patience, now))
    });
    memory().totals.ordinary.add(1);
    if led {
        memory().totals.groups.add(1);
        SESSION.step(n, Membership::leads);
    }
    if let Some(backend) = woken {
        wait::wake(backend);
    }
    order::has_come_to(slot);
    stop::at(stop::Point::Updated);
}

/// The transaction has committed, and is about to leave its rows: they learn how long it took. One
/// that has followed was held up by others, so that it says nothing.
pub fn learn(now: u64) {
    let Some(since) = SESSION.updated_at().filter(|_| !SESSION.has_followed()) else {
        return;
    };
    let own = memory().backends[process::me() as usize].xid.get();
    for (_, membership) in SESSION.all().filter(|(_, m)| m.has_version()) {
        let row = &memory().directory.rows[membership.slot() as usize];
        if membership.has_ticket() && own != 0 && xact::waiters(own) > 0 {
            row.let_follow();
        } else {
            row.note_rest(now.saturating_sub(since));
        }
    }
}
