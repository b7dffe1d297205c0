//! A slow line to a server: what goes through it arrives some time later, in both directions, and
//! it can be cut.
//!
//! One thread carries all connections of a proxy. It reads chunks into a queue for each direction,
//! each with the time at which it is due, and writes what is due. A chunk waits for its own delay
//! and for the chunks before it, so the rate is not limited. Threads and not tokio, whose timers go
//! by the millisecond: ppoll wakes up some 50 µs late.
mod carrier;
#[cfg(test)]
mod tests;
mod wire;

use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rand::Rng;

use carrier::Carrier;

/// A unix socket whose connections go on to another one, each byte some time later. Dropping it
/// breaks its connections, with what is under way, and removes the socket.
pub struct Proxy {
    path: PathBuf,
    shared: Arc<Mutex<Shared>>,
    /// A byte written here wakes the carrier.
    waker: UnixStream,
    carrier: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Cut,
    Closed,
}

/// What the carrier and the owner of the proxy share. The carrier holds the lock whenever it reads
/// or writes, so a change is in force when its caller goes on.
struct Shared {
    state: State,
    delay: Duration,
    jitter: Duration,
    /// Of both directions: to the server, and back.
    bursts: [u64; 2],
    connections: u64,
    /// The connections there are have to be broken.
    breaks: bool,
    /// They have to be broken for the client only.
    breaks_near: bool,
    /// The server has to notice what was broken for the client only.
    lets_go: bool,
}

impl Shared {
    /// When something that starts its way now arrives.
    fn arrival(&self) -> Instant {
        let most = u64::try_from(self.jitter.as_nanos()).unwrap_or(u64::MAX);
        let more = match most {
            0 => 0,
            most => rand::rng().random_range(0..=most),
        };
        Instant::now() + self.delay + Duration::from_nanos(more)
    }
}

impl Proxy {
    /// Listens at `path` for connections to the socket `target`; `delay` is one way. An error when
    /// `path` exists.
    pub fn start(path: &Path, target: &Path, delay: Duration) -> Result<Self> {
        let listener = UnixListener::bind(path)
            .with_context(|| format!("could not listen at {}", path.display()))?;
        listener.set_nonblocking(true)?;
        let (waker, woken) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let shared = Arc::new(Mutex::new(Shared {
            state: State::Open,
            delay,
            jitter: Duration::ZERO,
            bursts: [0; 2],
            connections: 0,
            breaks: false,
            breaks_near: false,
            lets_go: false,
        }));
        let carrier = Carrier::new(listener, woken, target.to_owned(), Arc::clone(&shared));
        Ok(Proxy {
            path: path.to_owned(),
            shared,
            waker,
            carrier: Some(thread::spawn(move || carrier.run())),
        })
    }

    /// Nothing arrives any more on either side, neither bytes nor the end of a connection, until
    /// `heal`.
    pub fn cut(&self) {
        self.shared().state = State::Cut;
    }

    /// Goes on with what was held up, as the network does after a short failure.
    pub fn heal(&self) {
        self.shared().state = State::Open;
        self.wake();
    }

    /// Breaks all connections, with what is under way; new ones are carried as before.
    pub fn break_connections(&self) {
        self.shared().breaks = true;
        self.wake();
    }

    /// Breaks all connections for the client only: the server gets nothing more, and does not
    /// notice until `let_go`.
    pub fn break_near(&self) {
        self.shared().breaks_near = true;
        self.wake();
    }

    /// The server notices what `break_near` has broken.
    pub fn let_go(&self) {
        self.shared().lets_go = true;
        self.wake();
    }

    /// From now on each way takes `delay`. What is under way arrives when it was due, and nothing
    /// overtakes it.
    pub fn set_delay(&self, delay: Duration) {
        self.shared().delay = delay;
    }

    /// From now on each chunk takes up to `jitter` longer, drawn at random; the order within a
    /// direction stays.
    pub fn set_jitter(&self, jitter: Duration) {
        self.shared().jitter = jitter;
    }

    /// Bursts to the server and back, over all connections, as the client sees them: a burst is
    /// all that goes in one direction of a connection until something goes in the other. The
    /// bytes to the server count when the client sends them, those back when they reach the
    /// client; so the bursts to the server are the round trips of the client. The start and the
    /// end of a session are bursts too.
    pub fn bursts(&self) -> (u64, u64) {
        let [to_server, back] = self.shared().bursts;
        (to_server, back)
    }

    /// Connections that have been asked for.
    pub fn connections(&self) -> u64 {
        self.shared().connections
    }

    /// Starts the counts of bursts and connections anew.
    pub fn reset_counts(&self) {
        let mut shared = self.shared();
        shared.bursts = [0; 2];
        shared.connections = 0;
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }

    fn wake(&self) {
        // When the buffer is full the carrier has enough to wake it.
        let _ = (&self.waker).write(&[0]);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared().state = State::Closed;
        self.wake();
        if let Some(carrier) = self.carrier.take() {
            let _ = carrier.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}
