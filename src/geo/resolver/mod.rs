//! The resolver: a background worker for each database that uses nodes. It ends what sessions have
//! left at the nodes: rolls back what was never decided, commits what was.

mod applying;
pub mod aside;
mod deadlocks;
mod identity;
pub mod launcher;
mod link;
mod meanwhile;
mod pass;
mod place;
pub mod rows;

use self::link::Link;
use super::coordinator::{connecting_us, database, memory};
use super::failure::log;
use super::planner;
use super::socket::wait_for_any;
use crate::pg::{process, raw};
use crate::shared::guc;
use geo::{Fence, Phase};
use pgrx::pg_guard;
use pgrx::pg_sys::{self, Datum, Oid};
use std::collections::BTreeSet;

/// When it looks again if it has not reached all nodes, in microseconds.
const AGAIN_US: u64 = 1_000_000;
/// When it looks again while its own former session may be there at a node, in microseconds.
const SOON_US: u64 = 100_000;

/// Runs in a transaction of its own. An ERROR ends the worker; the launcher starts it again.
fn in_transaction<R>(body: impl FnOnce() -> R) -> R {
    // SAFETY: a background worker's protocol: no transaction is open.
    unsafe {
        pg_sys::SetCurrentStatementStartTimestamp();
        pg_sys::StartTransactionCommand();
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        let result = body();
        pg_sys::PopActiveSnapshot();
        pg_sys::CommitTransactionCommand();
        result
    }
}

/// Sleeps until woken, until one of the sockets is ready, or until then. Handles interrupts, and
/// changes of settings, of which it tells.
fn sleep(sockets: &[(i32, bool)], until: u64) -> bool {
    let left = until.saturating_sub(process::now());
    wait_for_any(sockets, left.div_ceil(1000));
    reload()
}

fn reload() -> bool {
    // SAFETY: what every background worker does.
    unsafe {
        let has_changed = pg_sys::ConfigReloadPending != 0;
        if has_changed {
            pg_sys::ConfigReloadPending = 0;
            pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP);
        }
        has_changed
    }
}

/// Signals as for a session: SIGTERM is heard where interrupts are.
fn attach_signals() {
    // SAFETY: handlers of PostgreSQL's, before signals are let through.
    unsafe {
        pg_sys::pqsignal(libc::SIGTERM, Some(raw::die));
        pg_sys::pqsignal(libc::SIGHUP, Some(raw::SignalHandlerForConfigReload));
        pg_sys::BackgroundWorkerUnblockSignals();
    }
}

/// This process ends: others may start a resolver.
unsafe extern "C-unwind" fn on_exit(_code: i32, database: Datum) {
    let database: u32 = Oid::from(database.value() as u32).into();
    memory().with_geo(|board| {
        let own = board.known(database).and_then(|known| known.process);
        if own.is_none_or(|process| process == process::me() as u32) {
            board.left(database);
        }
    });
}

/// Whether another process is the resolver of that database.
fn has_another(database: u32) -> bool {
    let known = memory().with_geo(|board| board.known(database));
    let other = known.and_then(|known| known.process);
    other.is_some_and(|other| {
        other != process::me() as u32 && process::pid_of(other as hotrow::BackendId).is_some()
    })
}

/// The worker's start.
#[unsafe(no_mangle)]
#[pg_guard]
pub unsafe extern "C-unwind" fn txn_resolver_main(argument: Datum) {
    let database: u32 = argument.value() as u32;
    attach_signals();
    if has_another(database) {
        return;
    }
    memory().with_geo(|board| {
        board.claim(database, process::now());
        board.started(database, process::me() as u32);
    });
    // SAFETY: ipc.c; then a connection to the database, as superuser.
    unsafe {
        pg_sys::on_shmem_exit(Some(on_exit), Datum::from(Oid::from(database)));
        pg_sys::BackgroundWorkerInitializeConnectionByOid(Oid::from(database), Oid::INVALID, 0);
        // The database's owner may have set others, and we are a superuser.
        set(c"search_path", c"pg_catalog, pg_temp");
        set(c"default_transaction_read_only", c"off");
        set(c"default_transaction_isolation", c"read committed");
        set(c"statement_timeout", c"0");
        set(c"lock_timeout", c"0");
        // Rows that are erased may come back with a failover: then the nodes are asked.
        set(c"synchronous_commit", c"local");
        // Connections to nodes are not the session's.
        set(c"application_name", c"txn resolver");
    }
    if let Err(failure) = planner::require_libpq() {
        log(&format!(
            "txn: the resolver cannot work: {}",
            failure.message
        ));
        return;
    }
    run(database);
}

unsafe fn set(name: &std::ffi::CStr, value: &std::ffi::CStr) {
    // SAFETY: outside of a transaction, for the life of the process.
    unsafe {
        pg_sys::SetConfigOption(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_SUSET,
            pg_sys::GucSource::PGC_S_OVERRIDE,
        );
    }
}

fn run(database: u32) {
    let mut links: Vec<Link> = Vec::new();
    let mut acknowledged = BTreeSet::new();
    let mut fence = Fence::default();
    let mut is_told = false;
    let leaves = || memory().with_geo(|board| board.known(database).is_none_or(|one| one.leaves));
    while !leaves() {
        let mut again = None;
        match identity::identify(database) {
            identity::Found::Us(identity) => {
                is_told = false;
                if pass::run(database, &identity, &mut links, &mut acknowledged) {
                    memory().with_geo(|board| board.passed(database));
                } else {
                    again = Some(AGAIN_US);
                }
                // Sessions may prepare once no node has said that another server is the
                // coordinator.
                let is_taken = links.iter().any(|link| link.is_fenced);
                if let Some(phase) = fence.phase(is_taken, process::now(), connecting_us()) {
                    let (uuid, incarnation) = (identity.coordinator, identity.incarnation);
                    memory().with_geo(|b| b.identified(database, uuid, incarnation, phase));
                    if phase == Phase::Starting {
                        again = Some(SOON_US);
                    }
                } else if !links
                    .iter()
                    .any(|link| link.is_coming() && !link.has_failed())
                {
                    pass::announce(database, &identity);
                }
            }
            identity::Found::Perhaps => {
                links.clear();
                memory().with_geo(|board| board.identified(database, 0, 0, Phase::Paused));
                if !std::mem::replace(&mut is_told, true) {
                    log("txn: this server may be a copy; see txn.geo_take_over()");
                }
            }
            identity::Found::Nobody => return,
        }
        let mut interval = guc::GEO_RESOLVER_INTERVAL.get().max(10) as u64 * 1000;
        if let Some(again) = again {
            interval = interval.min(again);
        }
        wait(&mut links, process::now() + interval);
    }
}

/// Sleeps until a pass is wanted, or until then. Meanwhile what was handed over is committed, first
/// of all; connections that are on their way go on, round trips are measured, and deadlocks are
/// looked for. Returns when a connection is made.
fn wait(links: &mut [Link], until: u64) {
    /// The longest sleep while something is on its way, in milliseconds.
    const NAP_MS: u64 = 100;
    loop {
        meanwhile::go_on(links);
        // Before it looks who wants something, or who wakes us all the time would keep connections
        // from being made.
        for link in links.iter_mut() {
            if link.is_coming() {
                link.go_on();
                if link.node().is_some() {
                    return;
                }
            } else {
                link.measure();
            }
        }
        let now = process::now();
        if memory().with_geo(|board| board.take_pass(database())) || now >= until {
            return;
        }
        let sockets: Vec<_> = links.iter().filter_map(Link::socket).collect();
        let nap = (!sockets.is_empty()).then_some(now + NAP_MS * 1000);
        let pings = links.iter().map(Link::next_measure);
        let next = pings
            .filter(|at| *at > now)
            .chain(nap)
            .chain(meanwhile::next());
        let next = next.min();
        if sleep(&sockets, next.unwrap_or(until).min(until)) {
            return;
        }
    }
}

/// Starts the launcher. Once, from `_PG_init`.
pub fn init() {
    launcher::register();
}

/// This server is the coordinator from now on. In a transaction.
pub fn take_over() {
    identity::take_over();
}
