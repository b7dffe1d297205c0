//! The gate between commits at nodes and snapshots of all nodes: waiting at it. What it is for, and
//! why it suffices, is in `crates/geo` (`gate.rs`).

use super::coordinator::{self, memory};
use crate::pg::process;
use crate::shared::guc;
use crate::shared::memory::shared;
use crate::shared::wait::Wakes;
use geo::{Servers, Side};
use hotrow::ActorId;
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
    memory.with_gate(|gate, seats| gate.leave(seats, me(), |one| wakes.push(one as ActorId)));
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

/// For how long a reader waits inside the gate's line at first: so many round trips to the farthest
/// server, and at least so many microseconds.
const FEW_TRIPS: u64 = 4;
const LEAST_PATIENCE: u64 = 20_000;

/// A reader that is at the gate, and leaves it when this is dropped.
pub struct Reader(());

impl Drop for Reader {
    fn drop(&mut self) {
        leave();
    }
}

/// Waits until no commit at these servers is inside. None: that has lasted too long. Raises on a
/// cancel.
///
/// A commit inside may wait, on a hot row of its node, for one that came behind the reader. So the
/// first time is short, and those that follow are longer, up to `txn.geo_snapshot_timeout`.
pub fn enter_to_read(servers: impl Iterator<Item = Oid> + Clone, until: u64) -> Option<Reader> {
    let longest_trip = servers
        .clone()
        .filter_map(coordinator::round_trip)
        .max()
        .unwrap_or(0);
    let servers = all(servers);
    let most = guc::GEO_SNAPSHOT_TIMEOUT.get().max(1) as u64 * 1000;
    let mut patience = (FEW_TRIPS * longest_trip).clamp(LEAST_PATIENCE, most.max(LEAST_PATIENCE));
    loop {
        let began = process::now();
        let give_up = until.min(began + patience.min(most));
        let reader = Reader(());
        let mut is_inside = come(Side::Read, servers);
        while !is_inside && process::now() < give_up {
            coordinator::nap();
            is_inside = enter();
        }
        if is_inside {
            return Some(reader);
        }
        drop(reader);
        // The commits that have waited behind us go first, and others for as long.
        let again = process::now() + (process::now() - began);
        while process::now() < again.min(until) {
            coordinator::nap();
        }
        if process::now() >= until {
            return None;
        }
        patience = patience.saturating_mul(2);
    }
}
