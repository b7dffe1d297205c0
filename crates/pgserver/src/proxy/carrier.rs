//! The thread that carries all connections of a proxy.
use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::wire::Wire;
use super::{Shared, State, lock};

/// The places of the directions in pairs.
const TO_SERVER: usize = 0;
const BACK: usize = 1;

pub(super) struct Carrier {
    listener: UnixListener,
    woken: UnixStream,
    target: PathBuf,
    shared: Arc<Mutex<Shared>>,
    connections: Vec<Connection>,
    /// The server's ends of connections that have been broken for the client only.
    unnoticed: Vec<UnixStream>,
}

struct Connection {
    near: UnixStream,
    /// Absent until the request has arrived there and the answer is back.
    far: Option<UnixStream>,
    connected: Instant,
    wires: [Wire; 2],
    /// The direction of the last bytes as the client sees it.
    last: Option<usize>,
    /// Nobody listens at the target.
    is_refused: bool,
}

impl Carrier {
    pub(super) fn new(
        listener: UnixListener,
        woken: UnixStream,
        target: PathBuf,
        shared: Arc<Mutex<Shared>>,
    ) -> Self {
        Carrier {
            listener,
            woken,
            target,
            shared,
            connections: Vec::new(),
            unnoticed: Vec::new(),
        }
    }

    /// Carries until the proxy is closed.
    pub(super) fn run(mut self) {
        let mut is_open = true;
        loop {
            let ready = self.wait(is_open);
            let mut shared = lock(&self.shared);
            is_open = match shared.state {
                State::Closed => return,
                State::Open => true,
                State::Cut => false,
            };
            while matches!((&self.woken).read(&mut [0; 64]), Ok(1..)) {}
            if std::mem::take(&mut shared.breaks) {
                self.connections.clear();
            }
            if std::mem::take(&mut shared.breaks_near) {
                let broken = self.connections.drain(..);
                self.unnoticed.extend(broken.filter_map(|one| one.far));
            }
            if std::mem::take(&mut shared.lets_go) {
                self.unnoticed.clear();
            }
            for (connection, ready) in self.connections.iter_mut().zip(ready) {
                connection.read(ready, &mut shared);
                if is_open {
                    connection.deliver(&self.target, &mut shared);
                }
            }
            self.connections.retain(|connection| !connection.is_over());
            while let Ok((near, _)) = self.listener.accept() {
                shared.connections += 1;
                self.connections.extend(Connection::new(near, &shared));
            }
        }
    }

    /// Waits until there is something to do; for each connection, whether its two ends have
    /// something to read.
    fn wait(&self, is_open: bool) -> Vec<[bool; 2]> {
        let mut polled = vec![
            entry(self.woken.as_raw_fd(), libc::POLLIN),
            entry(self.listener.as_raw_fd(), libc::POLLIN),
        ];
        for connection in &self.connections {
            polled.extend(connection.polled(is_open));
        }
        let due = self.connections.iter().filter_map(Connection::due).min();
        let left = due.filter(|_| is_open);
        let left = left.map(|due| due.saturating_duration_since(Instant::now()));
        ppoll(&mut polled, left);
        let ends = polled[2..].chunks_exact(2);
        ends.map(|ends| [ends[0].revents != 0, ends[1].revents != 0])
            .collect()
    }
}

impl Connection {
    fn new(near: UnixStream, shared: &Shared) -> Option<Self> {
        near.set_nonblocking(true).ok()?;
        // The request goes there and its answer comes back before the client may send.
        let back = shared.arrival() - Instant::now();
        Some(Connection {
            near,
            far: None,
            connected: shared.arrival() + back,
            wires: [Wire::default(), Wire::default()],
            last: None,
            is_refused: false,
        })
    }

    fn is_over(&self) -> bool {
        self.is_refused || self.wires.iter().all(|wire| wire.is_over)
    }

    fn due(&self) -> Option<Instant> {
        match self.far {
            None => Some(self.connected),
            Some(_) => self.wires.iter().filter_map(Wire::due).min(),
        }
    }

    /// What to wait for at both ends. A cut line has no room to wait for: it writes nothing.
    fn polled(&self, is_open: bool) -> [libc::pollfd; 2] {
        let Some(far) = &self.far else {
            return [entry(-1, 0); 2];
        };
        let events = |from: usize, to: usize| {
            let input = self.wires[from].wants_to_read();
            let output = is_open && self.wires[to].is_blocked;
            (if input { libc::POLLIN } else { 0 }) | if output { libc::POLLOUT } else { 0 }
        };
        [
            entry(self.near.as_raw_fd(), events(TO_SERVER, BACK)),
            entry(far.as_raw_fd(), events(BACK, TO_SERVER)),
        ]
    }

    fn read(&mut self, ready: [bool; 2], shared: &mut Shared) {
        let Some(far) = &self.far else {
            return;
        };
        for (wire, from) in [(TO_SERVER, &self.near), (BACK, far)] {
            if !ready[wire] || !self.wires[wire].wants_to_read() {
                continue;
            }
            if self.wires[wire].read(from, shared) && wire == TO_SERVER {
                turn(&mut self.last, TO_SERVER, shared);
            }
        }
    }

    /// Connects, or writes, if it is time.
    fn deliver(&mut self, target: &Path, shared: &mut Shared) {
        let Some(far) = &self.far else {
            if self.connected <= Instant::now() {
                let far = UnixStream::connect(target);
                self.far = far
                    .and_then(|far| far.set_nonblocking(true).map(|()| far))
                    .ok();
                self.is_refused = self.far.is_none();
            }
            return;
        };
        self.wires[TO_SERVER].write(far);
        if self.wires[BACK].write(&self.near) {
            turn(&mut self.last, BACK, shared);
        }
    }
}

/// Bytes in `direction`: a burst begins unless the last ones were in that direction too.
fn turn(last: &mut Option<usize>, direction: usize, shared: &mut Shared) {
    if last.replace(direction) != Some(direction) {
        shared.bursts[direction] += 1;
    }
}

/// An entry without events is left out: the end of a connection would show all the same.
fn entry(fd: RawFd, events: libc::c_short) -> libc::pollfd {
    libc::pollfd {
        fd: if events == 0 { -1 } else { fd },
        events,
        revents: 0,
    }
}

/// Waits for one of the events, at most for `time`.
fn ppoll(polled: &mut [libc::pollfd], time: Option<Duration>) {
    let time = time.map(|time| libc::timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the entries are a slice of ours with its length; the time is null or lives on.
    let status = unsafe {
        libc::ppoll(
            polled.as_mut_ptr(),
            polled.len() as _,
            time,
            std::ptr::null(),
        )
    };
    if status < 0 {
        // Interrupted: nothing is known to be ready, and the next pass asks again.
        for entry in polled {
            entry.revents = 0;
        }
    }
}
