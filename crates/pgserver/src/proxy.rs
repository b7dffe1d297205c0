//! A slow line to a server: what goes through it arrives a fixed time later, in both directions,
//! and it can be cut.
//!
//! For each direction one thread reads into a queue of chunks, each with the time at which it is
//! due, and another one writes what is due. A chunk waits for nothing but its own delay, so the
//! rate is not limited. Threads and not tokio, whose timers go by the millisecond: a thread wakes
//! up some 50 µs late.
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Bytes that are read at once.
const CHUNK: usize = 16 * 1024;
/// Chunks under way in one direction; then the sender has to wait, as with the buffers of a
/// network.
const QUEUE: usize = 4096;
const FOREVER: Duration = Duration::MAX;

/// A unix socket whose connections go on to another one, each byte `delay` later. Dropping it
/// breaks its connections, with what is under way, and removes the socket.
pub struct Proxy {
    path: PathBuf,
    line: Arc<Line>,
    /// The listening socket, as something that can be shut down.
    listening: UnixStream,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Cut,
    Closed,
}

struct Line {
    target: PathBuf,
    delay: Duration,
    state: Mutex<State>,
    /// The state has changed, or a connection has ended.
    changed: Condvar,
}

/// Bytes, or none for the end of the stream, and when they arrive.
struct Chunk {
    due: Instant,
    bytes: Vec<u8>,
}

impl Proxy {
    /// Listens at `path` for connections to the socket `target`; `delay` is one way. An error when
    /// `path` exists.
    pub fn start(path: &Path, target: &Path, delay: Duration) -> Result<Self> {
        let listener = UnixListener::bind(path)
            .with_context(|| format!("could not listen at {}", path.display()))?;
        let listening = UnixStream::from(OwnedFd::from(listener.try_clone()?));
        let line = Arc::new(Line {
            target: target.to_owned(),
            delay,
            state: Mutex::new(State::Open),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&line);
        let acceptor = thread::spawn(move || accepting.accept(&listener));
        Ok(Proxy {
            path: path.to_owned(),
            line,
            listening,
            acceptor: Some(acceptor),
        })
    }

    /// Nothing arrives any more on either side, neither bytes nor the end of a connection, until
    /// `heal`.
    pub fn cut(&self) {
        self.line.set(State::Cut);
    }

    /// Goes on with what was held up, as the network does after a short failure.
    pub fn heal(&self) {
        self.line.set(State::Open);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.line.set(State::Closed);
        // It has no peer, which some systems call an error; on Linux this ends `accept`.
        let _ = self.listening.shutdown(Shutdown::Both);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn set(&self, state: State) {
        *self.state() = state;
        self.changed.notify_all();
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        match self.changed.wait_timeout(state, time) {
            Ok((state, _)) => state,
            Err(poisoned) => poisoned.into_inner().0,
        }
    }

    /// Waits until something that is due then arrives: not while the line is cut. False when it is
    /// closed.
    fn arrives(&self, due: Instant) -> bool {
        let mut state = self.state();
        loop {
            let left = due.saturating_duration_since(Instant::now());
            state = match *state {
                State::Closed => return false,
                State::Open if left.is_zero() => return true,
                State::Open => self.wait(state, left),
                State::Cut => self.wait(state, FOREVER),
            }
        }
    }

    fn accept(&self, listener: &UnixListener) {
        thread::scope(|connections| {
            for near in listener.incoming() {
                if *self.state() == State::Closed {
                    return;
                }
                if let Ok(near) = near {
                    connections.spawn(move || self.connection(&near));
                }
            }
        });
    }

    /// Carries a connection until either side ends it; `near` is closed at once if nobody listens
    /// at the target.
    fn connection(&self, near: &UnixStream) {
        if !self.arrives(Instant::now() + self.delay) {
            return;
        }
        let Ok(far) = UnixStream::connect(&self.target) else {
            return;
        };
        let over = &AtomicBool::new(false);
        thread::scope(|threads| {
            for (from, to) in [(near, &far), (&far, near)] {
                let (sender, receiver) = sync_channel(QUEUE);
                threads.spawn(move || self.read(from, &sender));
                threads.spawn(move || {
                    // An error is the end of the connection like any other.
                    let _ = self.write(to, &receiver);
                    let _state = self.state();
                    over.store(true, Ordering::Relaxed);
                    self.changed.notify_all();
                });
            }
            let mut state = self.state();
            while *state != State::Closed && !over.load(Ordering::Relaxed) {
                state = self.wait(state, FOREVER);
            }
            drop(state);
            // Ends whichever of the four still waits for its socket.
            let _ = near.shutdown(Shutdown::Both);
            let _ = far.shutdown(Shutdown::Both);
        });
    }

    /// Reads until the end of the stream, which goes into the queue too, or until nobody takes from
    /// the queue.
    fn read(&self, mut from: &UnixStream, queue: &SyncSender<Chunk>) {
        let mut buffer = [0; CHUNK];
        loop {
            let length = match from.read(&mut buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => 0,
            };
            let chunk = Chunk {
                due: Instant::now() + self.delay,
                bytes: buffer[..length].to_vec(),
            };
            if queue.send(chunk).is_err() || length == 0 {
                return;
            }
        }
    }

    fn write(&self, mut to: &UnixStream, queue: &Receiver<Chunk>) -> io::Result<()> {
        for chunk in queue {
            if !self.arrives(chunk.due) || chunk.bytes.is_empty() {
                break;
            }
            to.write_all(&chunk.bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(200);

    /// A proxy to a socket at which everything that is sent comes back.
    struct Echo {
        proxy: Proxy,
        folder: tempfile::TempDir,
    }

    impl Echo {
        fn start() -> Self {
            let folder = tempfile::tempdir_in("/tmp").unwrap();
            let target = folder.path().join("target");
            let listener = UnixListener::bind(&target).unwrap();
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let mut stream = stream.unwrap();
                    thread::spawn(move || io::copy(&mut stream.try_clone().unwrap(), &mut stream));
                }
            });
            let proxy = Proxy::start(&folder.path().join("proxy"), &target, DELAY).unwrap();
            Echo { proxy, folder }
        }

        fn connect(&self) -> UnixStream {
            UnixStream::connect(self.folder.path().join("proxy")).unwrap()
        }
    }

    fn answer(stream: &mut UnixStream) -> io::Result<u8> {
        let mut byte = [0];
        stream.read_exact(&mut byte).map(|()| byte[0])
    }

    /// How long it takes until 1 comes back.
    fn round_trip(stream: &mut UnixStream) -> Duration {
        let began = Instant::now();
        stream.write_all(&[1]).unwrap();
        assert_eq!(answer(stream).unwrap(), 1);
        began.elapsed()
    }

    #[test]
    fn every_byte_is_delayed_each_way_and_none_waits_for_another() {
        const BYTES: u8 = 100;
        let echo = Echo::start();
        let mut stream = echo.connect();
        for _ in 0..2 {
            assert!(round_trip(&mut stream) >= 2 * DELAY);
        }
        let began = Instant::now();
        let mut sender = stream.try_clone().unwrap();
        let sent = thread::spawn(move || {
            (0..BYTES)
                .map(|byte| {
                    let now = Instant::now();
                    sender.write_all(&[byte]).unwrap();
                    thread::sleep(Duration::from_millis(1));
                    now
                })
                .collect::<Vec<_>>()
        });
        let came: Vec<Instant> = (0..BYTES)
            .map(|byte| {
                assert_eq!(answer(&mut stream).unwrap(), byte);
                Instant::now()
            })
            .collect();
        let sent = sent.join().unwrap();
        assert!(
            sent.iter()
                .zip(&came)
                .all(|(sent, came)| *came - *sent >= 2 * DELAY)
        );
        // One after the other they would take a hundred round trips: 40 s.
        assert!(began.elapsed() < DELAY * u32::from(BYTES));
    }

    #[test]
    fn a_queue_that_is_longer_than_the_delay_arrives_whole() {
        const LENGTH: usize = 32 << 20;
        let echo = Echo::start();
        let mut stream = echo.connect();
        let mut sender = stream.try_clone().unwrap();
        let bytes: Vec<u8> = (0..LENGTH).map(|n| (n % 251) as u8).collect();
        let expected = bytes.clone();
        thread::spawn(move || sender.write_all(&bytes).unwrap());
        let mut found = vec![0; LENGTH];
        stream.read_exact(&mut found).unwrap();
        assert!(found == expected);
    }

    #[test]
    fn nothing_passes_a_cut_line_and_all_of_it_afterwards() {
        let echo = Echo::start();
        let mut stream = echo.connect();
        round_trip(&mut stream);
        echo.proxy.cut();
        stream.write_all(&[7]).unwrap();
        stream.set_read_timeout(Some(3 * DELAY)).unwrap();
        assert!(answer(&mut stream).is_err());
        // A new connection gets no further.
        let mut second = echo.connect();
        second.write_all(&[8]).unwrap();
        second.set_read_timeout(Some(3 * DELAY)).unwrap();
        assert!(answer(&mut second).is_err());
        echo.proxy.heal();
        for (stream, byte) in [(&mut stream, 7), (&mut second, 8)] {
            stream.set_read_timeout(None).unwrap();
            assert_eq!(answer(stream).unwrap(), byte);
        }
    }

    #[test]
    fn the_end_of_a_connection_is_delayed_too() {
        let echo = Echo::start();
        let mut stream = echo.connect();
        round_trip(&mut stream);
        let began = Instant::now();
        stream.shutdown(Shutdown::Write).unwrap();
        assert!(answer(&mut stream).is_err());
        assert!(began.elapsed() >= DELAY);
    }

    #[test]
    fn dropped_it_breaks_its_connections_and_leaves_nothing() {
        for cut in [false, true] {
            let echo = Echo::start();
            let mut stream = echo.connect();
            round_trip(&mut stream);
            if cut {
                echo.proxy.cut();
            }
            stream.write_all(&[1]).unwrap();
            let path = echo.folder.path().join("proxy");
            drop(echo.proxy);
            assert!(answer(&mut stream).is_err());
            assert!(!path.exists());
        }
    }

    #[test]
    fn without_a_target_a_connection_is_closed() {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let path = folder.path().join("proxy");
        let proxy = Proxy::start(&path, &folder.path().join("nobody"), DELAY).unwrap();
        let mut stream = UnixStream::connect(&path).unwrap();
        assert!(answer(&mut stream).is_err());
        drop(proxy);
    }
}
