//! The gate between commits at nodes and snapshots of all nodes: waiting at it. What it is for, and
//! why it suffices, is in `crates/geo` (`gate.rs`).

use super::coordinator::{self, memory};
use crate::pg::process;
use crate::shared::guc;
use crate::shared::memory::shared;
use crate::shared::wait::Wakes;
use geo::{Patience, Servers, Side};
use hotrow::BackendId;
use pgrx::pg_sys::{self, Oid};

fn me() -> usize {
    process::me() as usize
}

fn come(side: Side, servers: Servers) -> bool {
    memory().with_gate(|gate, seats| gate.come(seats, me(), side, servers))
}

fn all(servers: impl Iterator<Item = Oid>) -> Servers {
    let none = Servers::of(coordinator::database());
    servers.fold(none, |all, server| all.with(server.into()))
}

fn enter() -> bool {
    memory().with_gate(|gate, seats| gate.enter(seats, me()))
}

/// Before anything of a commit at these servers can be seen: waits until no reader is inside that
/// came before. Raises on a cancel; the transaction's abort leaves.
pub fn enter_to_commit(servers: impl Iterator<Item = Oid>) {
    let servers = all(servers);
    if servers.is_empty() || come(Side::Commit, servers) {
        return;
    }
    while !enter() {
        coordinator::nap();
    }
}

/// The commit can be seen in full, is known as unapplied, or has failed. Raises nothing.
pub fn leave() {
    let Some(memory) = shared().filter(|_| process::is_backend()) else {
        return;
    };
    if memory.geo_seats[me()].is_outside() {
        return;
    }
    let mut wakes = Wakes::new();
    memory.with_gate(|gate, seats| gate.leave(seats, me(), |one| wakes.push(one as BackendId)));
    wakes.deliver();
}

/// A session that ends leaves.
pub fn leave_at_exit() {
    unsafe extern "C-unwind" fn on_exit(_code: i32, _argument: pg_sys::Datum) {
        leave();
    }
    // SAFETY: ipc.c; the callback raises nothing, and runs before the process gives up its place.
    unsafe { pg_sys::on_shmem_exit(Some(on_exit), pg_sys::Datum::null()) };
}

/// A reader that is at the gate, and leaves it when this is dropped.
pub struct Reader(());

impl Drop for Reader {
    fn drop(&mut self) {
        leave();
    }
}

/// For how long commits are held up at a time, at most, in microseconds.
pub fn longest_hold() -> u64 {
    guc::GEO_SNAPSHOT_TIMEOUT.get().max(1) as u64 * 1000
}

/// Waits until no commit at these servers is inside, in turns. None: that has lasted too long.
/// Raises on a cancel.
pub fn enter_to_read(servers: impl Iterator<Item = Oid> + Clone, until: u64) -> Option<Reader> {
    let trips = servers.clone().filter_map(coordinator::round_trip);
    let mut patience = Patience::new(trips.max().unwrap_or(0), longest_hold());
    let servers = all(servers);
    loop {
        let began = process::now();
        let turn_ends = patience.turn_ends(began, until);
        let reader = Reader(());
        let mut is_inside = come(Side::Read, servers);
        while !is_inside && process::now() < turn_ends {
            coordinator::nap();
            is_inside = enter();
        }
        if is_inside {
            return Some(reader);
        }
        drop(reader);
        // The commits that have waited behind us go first, and others for as long.
        let again = patience.next_begins(began, process::now(), until);
        while process::now() < again {
            coordinator::nap();
        }
        if process::now() >= until {
            return None;
        }
    }
}
