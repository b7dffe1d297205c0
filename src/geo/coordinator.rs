//! This database as a coordinator: its name among the nodes, and its resolver, as sessions see
//! them.

use super::decision;
use super::failure::{Failure, NOT_IN_STATE, Outcome, check_for_interrupts};
use crate::pg::process;
use crate::shared::memory::{Shared, shared};
use crate::shared::{guc, wait};
use geo::{Claim, DATABASES, HandOver, Known, Phase, Wants};
use pgrx::bgworkers::BackgroundWorkerBuilder;
use pgrx::pg_sys::{self, Oid};

/// The name of this coordinator in the names of its transactions.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    pub coordinator: u128,
    pub incarnation: u64,
}

/// How long a session waits for the resolver to start, in microseconds, and beyond that as long as
/// connecting to a node may take.
const PATIENCE_US: u64 = 10_000_000;

/// This session's database.
pub fn database() -> u32 {
    // SAFETY: a global of this backend, which has one thread.
    unsafe { pg_sys::MyDatabaseId }.into()
}

pub fn memory() -> &'static Shared {
    shared().expect("the library was preloaded")
}

/// What is known of this database's resolver.
pub fn known() -> Option<Known> {
    memory().with_geo(|board| board.known(database()))
}

/// Gives back what databases had on the board that have been dropped. In a transaction.
pub fn forget_dropped() {
    let known = memory().with_geo(|board| board.databases());
    // Each was there when it came to the board, so what is not found from here on was dropped.
    // SAFETY: inval.c; within a transaction.
    unsafe { pg_sys::AcceptInvalidationMessages() };
    // SAFETY: a look-up in a shared catalog.
    let is_dropped = |&oid: &u32| unsafe { pg_sys::get_database_name(oid.into()).is_null() };
    let now = process::now();
    for database in known.into_iter().filter(is_dropped) {
        memory().with_geo(|board| board.forget(database, now));
    }
}

/// Starts the resolver of a database if there is none. False: there is no room for it. In a
/// transaction.
pub fn start_resolver(database: u32) -> bool {
    let claim = || memory().with_geo(|board| board.claim(database, process::now()));
    let mut claimed = claim();
    if claimed == Claim::NoRoom {
        forget_dropped();
        claimed = claim();
    }
    if claimed != Claim::Granted {
        return claimed == Claim::Taken;
    }
    let started = BackgroundWorkerBuilder::new("txn resolver")
        .set_type("txn resolver")
        .set_library("txn")
        .set_function("txn_resolver_main")
        .enable_spi_access()
        .set_restart_time(None)
        .set_argument(Some(pg_sys::Datum::from(Oid::from(database))))
        .load_dynamic()
        .is_ok();
    if !started {
        memory().with_geo(|board| board.left(database));
    }
    started
}

/// The coordinator's name, once the resolver works. Raises on a cancel.
pub fn ready() -> Outcome<Identity> {
    let until = process::now() + PATIENCE_US + connecting_us();
    loop {
        match known() {
            Some(known) if known.phase == Phase::Ready => {
                return Ok(Identity {
                    coordinator: known.coordinator,
                    incarnation: known.incarnation,
                });
            }
            Some(known) if known.phase == Phase::Paused => return Err(paused(&known)),
            Some(known) if known.phase == Phase::Starting => {}
            _ => {
                // The resolver ends if they are not.
                decision::check_tables()?;
                if !start_resolver(database()) {
                    return Err(
                        Failure::new(*b"53000", "could not start the resolver of txn").hint(
                            format!(
                                "Increase max_worker_processes: each database with nodes needs \
                                 one, up to {DATABASES}."
                            ),
                        ),
                    );
                }
            }
        }
        if process::now() >= until {
            return Err(
                Failure::new(NOT_IN_STATE, "the resolver of txn does not start")
                    .detail("Without it nothing may be prepared at a node.")
                    .hint("See the server log."),
            );
        }
        nap();
    }
}

/// Sleeps for a moment, or until woken. Raises on a cancel; ends with the postmaster.
pub fn nap() {
    let events = pg_sys::WL_LATCH_SET | pg_sys::WL_EXIT_ON_PM_DEATH | pg_sys::WL_TIMEOUT;
    // SAFETY: the standard latch wait.
    unsafe {
        pg_sys::WaitLatch(pg_sys::MyLatch, events as i32, 5, pg_sys::PG_WAIT_EXTENSION);
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
    check_for_interrupts();
}

/// How long connecting to a node may take, in microseconds.
pub fn connecting_us() -> u64 {
    guc::GEO_CONNECT_TIMEOUT.get().max(1) as u64 * 1000
}

fn paused(known: &Known) -> Failure {
    let failure = Failure::new(NOT_IN_STATE, "this server may be a copy of the coordinator");
    // It has its name if only a node says that there is another one.
    if known.coordinator != 0 {
        return failure
            .detail("At a node, another session holds the lock by which the node knows it.")
            .hint("If the other server is gone, end that session at the node.");
    }
    failure
        .detail(
            "Its system identifier, timeline, data directory or database is not that which the \
             nodes know.",
        )
        .hint("If the other one is gone, call txn.geo_take_over().")
}

/// The transaction of this session with that number is going to vote: from now on the resolver
/// leaves it alone.
pub fn open(sequence: u64) {
    memory().geo_slots[process::me() as usize].open(sequence);
}

/// It cannot commit any more, or its decision is visible.
pub fn close() {
    memory().geo_slots[process::me() as usize].close();
}

/// A session that ends in the middle of it leaves it to the resolver: after its transaction has
/// rolled back, which a callback of `before_shmem_exit` does.
pub fn close_at_exit() {
    unsafe extern "C-unwind" fn on_exit(_code: i32, _argument: pg_sys::Datum) {
        close();
        memory().with_running(|all| all[process::me() as usize].end());
    }
    // SAFETY: ipc.c; the callback raises nothing.
    unsafe { pg_sys::on_shmem_exit(Some(on_exit), pg_sys::Datum::null()) };
}

/// The round trip to a server, in microseconds, if it is known.
pub fn round_trip(server: Oid) -> Option<u64> {
    memory().with_latencies(|all| all.round_trip(database(), server.into()))
}

/// A transaction of this session uses the server.
pub fn note_used(server: Oid) {
    let now = process::now();
    memory().with_latencies(|all| all.note_used(database(), server.into(), now));
}

/// Tells the resolver to look at the nodes now.
pub fn wake() {
    want(Wants {
        pass: true,
        look: false,
    });
}

/// Tells the resolver what is wanted of it.
pub fn want(wants: Wants) {
    memory().with_geo(|board| board.want(database(), wants));
    rouse();
}

/// Has the resolver look at what sessions have told.
pub fn rouse() {
    if let Some(process) = known().and_then(|known| known.process) {
        wait::wake(process as hotrow::BackendId);
    }
}

/// All nodes have acknowledged the transaction: its rows may go.
pub fn acknowledge(sequence: u64) {
    memory().with_geo(|board| board.acknowledge(database(), sequence));
}

/// The transaction is decided, and the resolver's to apply at that server.
pub fn leave_unapplied(server: Oid) {
    memory().with_geo(|board| board.leave_unapplied(database(), server.into()));
}

/// The transaction is decided and durable: the resolver commits it at these servers, each with the
/// user mapping, if it can take it on.
pub fn hand_over(incarnation: u64, sequence: u64, nodes: &[(Oid, Oid)]) -> HandOver {
    let nodes: Vec<(u32, u32)> = nodes
        .iter()
        .map(|&(server, mapping)| (server.into(), mapping.into()))
        .collect();
    let is_ready =
        |known: Known| known.phase == Phase::Ready && known.process.is_some() && !known.leaves;
    memory().with_geo(|board| match board.known(database()) {
        Some(known) if is_ready(known) => {
            board.hand_over(database(), incarnation, sequence, &nodes)
        }
        _ => HandOver::NotLinked,
    })
}

/// Whether transactions that are decided wait at that server to be applied by a pass.
pub fn is_left(server: Oid) -> bool {
    memory().with_geo(|board| board.has_unapplied(database(), server.into()))
}

/// Whether commits at that server are handed over, and not acknowledged.
pub fn is_handed(server: Oid) -> bool {
    memory().with_geo(|board| board.is_handed(database(), server.into(), u64::MAX))
}

/// Whether a session works on the transaction, of the present incarnation, or has handed it over.
/// Slots are read first: they are closed afterwards.
pub fn is_active(sequence: u64) -> bool {
    let active = geo::active(memory().geo_slots);
    let handed = memory().with_geo(|board| board.handed(database()));
    let handed = handed.into_iter().map(|one| one.sequence);
    active.and(handed).contains(sequence)
}

/// Until when one who begins to wait now waits for what is decided to be applied.
pub fn apply_limit() -> u64 {
    process::now() + guc::GEO_APPLY_TIMEOUT.get().max(1000) as u64 * 1000
}

/// Before a transaction uses a server: what is decided has to be applied there first. Raises on a
/// cancel.
pub fn wait_until_applied(server: Oid, name: &str, until: u64) -> Outcome<()> {
    // SAFETY: reads a flag of shared memory, which is valid in every backend.
    if unsafe { pg_sys::RecoveryInProgress() } {
        return Ok(());
    }
    if known().is_none_or(|known| known.phase != Phase::Paused) {
        ready()?;
    }
    // What others hand over from now on is not waited for.
    let now = memory().with_geo(|board| board.changes());
    loop {
        let (is_left, is_handed) = memory().with_geo(|board| {
            let server = server.into();
            let is_left = board.has_unapplied(database(), server);
            (is_left, board.is_handed(database(), server, now))
        });
        if !is_left && !is_handed {
            return Ok(());
        }
        if process::now() >= until {
            return Err(Failure::new(
                super::failure::CONNECTION_FAILURE,
                format!("transactions that are committed wait to be applied at server \"{name}\""),
            )
            .detail("Until then its rows do not show those transactions.")
            .hint("See txn.geo_transactions."));
        }
        start_resolver(database());
        // What was handed over needs no pass.
        if is_left {
            wake();
        }
        nap();
    }
}
