//! Brief turns: which transactions keep the ticket to their commit, and how a waiter stays awake
//! for the ticket of one that runs on another processor. To sleep until then would cost more.

use super::awake;
use super::session::{SESSION, memory, waiters_patience};
use super::whole;
use crate::pg::process;
use crate::shared::guc;
use hotrow::{Row, Slot, backend_of};

/// How often a waiter that stays awake looks at the ticket, and the pauses that it makes in
/// between: 100 to 300 microseconds. How often it gives way where the holder does not seem to run.
const LOOKS: u32 = 300;
const PAUSES: u32 = 20;
const GIVES_WAY: u32 = 4;

/// Whether transactions of functions keep the ticket of that row, as this session's settings have
/// it.
#[inline]
fn is_brief(row: &Row) -> bool {
    row.is_brief(guc::value(&guc::BRIEF_TURN).max(0) as u32)
}

/// Whether the transaction keeps the ticket that it has: it needs nothing more of its client, has
/// to wait for no predecessor, and such transactions end soon.
pub fn keeps_ticket(row: &Row) -> bool {
    SESSION.updated_at().is_some() && is_brief(row) && !SESSION.has_followed()
}

/// The transaction is about to update a hot row. If it does so in a function and needs no more of
/// its client, it counts how long it takes from its first such update.
pub fn note_update() {
    if SESSION.updated_at().is_none() && !whole::is_running() && whole::needs_no_client() {
        SESSION.note_update(process::now());
    }
}

/// Where turns are brief, waits for the holder's end: awake, but not where the holder would run.
/// Whether it has waited; the ticket may be free afterwards, or not.
pub fn await_brief_turn(slot: Slot) -> bool {
    let row = &memory().directory.rows[slot as usize];
    let waits = is_brief(row) && row.holder().is_some() && row.begin_watch(waiters_patience());
    if waits {
        watch(row);
        row.end_watch();
    }
    waits
}

fn watch(row: &Row) {
    let mut times = GIVES_WAY;
    for _ in 0..LOOKS {
        let Some(holder) = row.holder().map(backend_of) else {
            return;
        };
        if row.is_away() || process::is_interrupted() {
            return;
        }
        if awake::runs_elsewhere(holder) {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        } else if times > 0 {
            times -= 1;
            process::give_way();
            awake::note();
        } else {
            return;
        }
    }
}
