//! The transaction of this session as the nodes and the resolver know it, and its waits.
//!
//! A wait at a node may be part of a deadlock over several nodes, which none of them sees. So the
//! resolver is told of it, and asked to look if it takes long, again and again. It answers by a
//! refusal.

use super::coordinator::{self, memory};
use super::failure::{Failure, Outcome};
use super::socket::{For, wait_for_socket};
use crate::pg::local::Local;
use crate::pg::of_transaction::OfTransaction;
use crate::pg::process;
use crate::shared::guc;
use geo::{Id, Interval, Name, Running, Wants};
use pgrx::pg_sys;

/// The number of the transaction; 0: it has none yet.
static NUMBER: Local<OfTransaction<u64>> = Local::new(OfTransaction::new(0));
/// Its name, once nodes know it.
static NAME: Local<OfTransaction<Option<Name>>> = Local::new(OfTransaction::new(None));

/// How the nodes call a transaction of a coordinator that has no name.
const NAMELESS: &str = "txn";

/// The number of the present transaction among those that use nodes.
pub fn number() -> u64 {
    if NUMBER.get() == 0 {
        NUMBER.set(memory().next_geo_sequence());
    }
    NUMBER.get()
}

/// The name of the present transaction at the nodes. The resolver knows it from now on.
pub fn name() -> String {
    let name = match NAME.get() {
        Some(name) => name,
        None => match coordinator::known().filter(|known| known.coordinator != 0) {
            None => return NAMELESS.to_owned(),
            Some(known) => begin(known.coordinator, known.incarnation),
        },
    };
    name.to_string()
}

fn begin(coordinator: u128, incarnation: u64) -> Name {
    // SAFETY: plain reads.
    let (began, pid) = unsafe {
        let began = pg_sys::GetCurrentTransactionStartTimestamp();
        (began.max(0) as u64, pg_sys::MyProcPid)
    };
    let name = Name {
        id: Id {
            coordinator,
            incarnation,
            sequence: number(),
        },
        begun: began / 1000,
    };
    own(|own| own.begin(&name, pid));
    NAME.set(Some(name));
    name
}

/// Works on what the resolver knows of this process.
fn own<R>(body: impl FnOnce(&Running) -> R) -> R {
    memory().with_running(|all| body(&all[process::me() as usize]))
}

/// The transaction has ended. Raises nothing.
#[inline]
pub fn ended() {
    NUMBER.clear();
    if NAME.take().is_some() {
        end();
    }
}

fn end() {
    own(Running::end);
}

/// The connection with that process of a running server was lost, and what it was sent is sent
/// once more: the process may hold locks for a while, and acts for nobody.
pub fn lose(cluster: u64, process: i32) {
    if NAME.get().is_some() {
        own(|own| own.lose(cluster, process));
    }
}

/// The transaction must not be made to fail any more: a wait that follows cannot be ended.
pub fn protect() {
    if NAME.get().is_some() {
        own(Running::protect);
    }
}

/// A part of it has been rolled back, at the nodes, too: it goes on.
pub fn goes_on() {
    if NAME.get().is_some() {
        own(Running::goes_on);
    }
}

/// A wait of which the resolver knows; over when dropped.
struct KnownWait(());

impl KnownWait {
    fn begin() -> KnownWait {
        own(Running::begin_wait);
        KnownWait(())
    }
}

impl Drop for KnownWait {
    fn drop(&mut self) {
        own(Running::wait_is_over);
    }
}

/// `deadlock_timeout`, in microseconds.
fn deadlock_timeout() -> u64 {
    // SAFETY: a plain read of a setting.
    unsafe { pg_sys::DeadlockTimeout }.max(1) as u64 * 1000
}

/// How long a wait may take until it asks for a look.
pub fn interval() -> Interval {
    let lock_timeout = guc::GEO_LOCK_TIMEOUT.get().max(0) as u64 * 1000;
    Interval::new(deadlock_timeout(), lock_timeout)
}

/// How long it has to take at present, in microseconds.
pub fn patience() -> u64 {
    let learned = coordinator::known().map_or(0, |known| known.learned);
    interval().now(learned)
}

/// After how long the resolver is told of a wait, in microseconds. The victim of a deadlock is the
/// youngest transaction, which has mostly not waited for as long as the one that asks for a look. A
/// transaction that is not known to wait cannot be told, and costs a look.
fn known_after() -> u64 {
    interval().least().min(deadlock_timeout() / 10)
}

/// A wait for nodes, from when on nothing has come from them.
pub struct Waiting {
    began: u64,
    /// When there is something to do: to have the resolver know of it, to ask for a look.
    acts_at: u64,
    known: Option<KnownWait>,
}

impl Waiting {
    pub fn begin() -> Waiting {
        let began = process::now();
        Waiting {
            began,
            acts_at: began + known_after(),
            known: None,
        }
    }

    /// How long it may sleep until `go_on`, in milliseconds.
    pub fn nap_ms(&self) -> u64 {
        self.acts_at.saturating_sub(process::now()).div_ceil(1000)
    }

    /// Nothing has come. Fails if the transaction has to give way to others in a deadlock.
    pub fn go_on(&mut self) -> Outcome<()> {
        if self.known.is_some()
            && let Some(why) = own(Running::take_refusal)
        {
            memory().totals.geo_deadlocks.add(1);
            return Err(Failure::new(*b"40P01", "deadlock detected")
                .detail(why)
                .hint("The transaction might succeed if retried."));
        }
        let now = process::now();
        if now < self.acts_at {
            return Ok(());
        }
        let patience = patience();
        self.acts_at = self.began + patience;
        // A transaction without a name is in no deadlock that can be seen.
        if self.known.is_none() && NAME.get().is_some() {
            self.known = Some(KnownWait::begin());
        }
        if now >= self.acts_at {
            if self.known.is_some() {
                coordinator::want(Wants {
                    look: true,
                    pass: false,
                });
            }
            self.acts_at = now + patience;
        }
        Ok(())
    }
}

/// Waits until a node has an answer on that socket. Raises on a cancel; fails if the transaction
/// has to give way to others in a deadlock.
pub fn wait_for_answer(socket: i32, what: For) -> Outcome<()> {
    let mut waiting = Waiting::begin();
    while !wait_for_socket(socket, what, Some(waiting.nap_ms())) {
        waiting.go_on()?;
    }
    Ok(())
}
