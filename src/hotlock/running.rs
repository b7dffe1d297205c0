//! Who runs, as far as can be told, and which turns are brief: waiting for a transaction that runs
//! on another processor and ends soon costs less awake than asleep.

use super::session::{SESSION, memory};
use super::whole;
use crate::pg::process;
use crate::shared::guc;
use hotrow::{BackendId, Row, Slot, backend_of};

/// For how long a waiter stays awake, in microseconds; how many pauses it makes before it looks
/// again; how often it gives way where the holder does not seem to run.
const AWAKE_US: u64 = 200;
const PAUSES: u32 = 20;
const GIVES_WAY: u32 = 4;

/// This process is seen on its processor.
#[inline]
pub fn note() {
    if let Some(processor) = process::processor() {
        memory().processors().note(process::me(), processor);
    }
}

/// Whether transactions of functions keep the ticket of that row, as this session's settings have
/// it.
#[inline]
pub fn is_brief(row: &Row) -> bool {
    row.is_brief(guc::value(&guc::BRIEF_TURN).max(0) as u32)
}

/// Whether the transaction keeps the ticket that it has: it needs nothing more of its client, and
/// such transactions end soon.
pub fn keeps_ticket(row: &Row) -> bool {
    whole::needs_no_client() && is_brief(row)
}

/// A transaction that needs no more of its client has come to its end, or waits for others: the
/// rows that it has updated learn how long that took.
pub fn note_rest() {
    note();
    if !whole::needs_no_client() || whole::is_running() {
        return;
    }
    if let Some(since) = SESSION.take_update() {
        let rest = process::now().saturating_sub(since);
        for (_, membership) in SESSION.all().filter(|(_, m)| m.has_version()) {
            memory().directory.rows[membership.slot() as usize].note_rest(rest);
        }
    }
}

/// Where turns are brief, waits for the holder's end: awake, but not where the holder would run.
/// The ticket may be free afterwards, or not.
pub fn await_brief_turn(slot: Slot) {
    let row = &memory().directory.rows[slot as usize];
    if !is_brief(row) || row.holder().is_none() {
        return;
    }
    let until = process::now() + AWAKE_US;
    let mut times = GIVES_WAY;
    while let Some(holder) = row.holder().map(backend_of)
        && !row.is_away()
        && !process::is_interrupted()
        && process::now() < until
    {
        if runs_elsewhere(holder) {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        } else if times > 0 {
            times -= 1;
            process::give_way();
            note();
        } else {
            return;
        }
    }
}

fn runs_elsewhere(other: BackendId) -> bool {
    let runs = |processor| memory().processors().runs_elsewhere(other, processor);
    process::processor().is_some_and(runs)
}
