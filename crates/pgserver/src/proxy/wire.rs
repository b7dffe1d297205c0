//! One direction of a connection: a queue of chunks, each with the time at which it is due.
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::Shared;

/// Bytes that are read at once.
const CHUNK: usize = 16 * 1024;
/// Bytes under way; then the sender has to wait, as with the buffers of a network.
const QUEUE: usize = 64 << 20;

/// Bytes, or none for the end of the stream, and when they arrive.
struct Chunk {
    due: Instant,
    bytes: Vec<u8>,
}

#[derive(Default)]
pub(super) struct Wire {
    queue: VecDeque<Chunk>,
    /// Bytes in the queue.
    length: usize,
    /// Bytes of the first chunk that have been written.
    written: usize,
    /// The receiver's buffer is full.
    pub(super) is_blocked: bool,
    /// The sender sends no more.
    is_at_end: bool,
    /// The receiver has got the end, or takes nothing any more.
    pub(super) is_over: bool,
}

impl Wire {
    pub(super) fn wants_to_read(&self) -> bool {
        !self.is_at_end && self.length < QUEUE
    }

    /// When there is something to write, if not as soon as the receiver takes it.
    pub(super) fn due(&self) -> Option<Instant> {
        let first = self.queue.front().filter(|_| !self.is_blocked)?;
        Some(first.due)
    }

    /// Reads a chunk, or the end, if there is one; true if there were bytes.
    pub(super) fn read(&mut self, mut from: &UnixStream, shared: &Shared) -> bool {
        let mut buffer = [0; CHUNK];
        let length = match from.read(&mut buffer) {
            Ok(length) => length,
            Err(error) if is_temporary(&error) => return false,
            // The end of the connection like any other.
            Err(_) => 0,
        };
        self.is_at_end = length == 0;
        if self.is_over {
            return length > 0;
        }
        let before = self.queue.back().map(|chunk| chunk.due);
        let due = shared.arrival();
        self.queue.push_back(Chunk {
            due: before.map_or(due, |before| before.max(due)),
            bytes: buffer[..length].to_vec(),
        });
        self.length += length;
        length > 0
    }

    /// Writes what is due; true if those were bytes.
    pub(super) fn write(&mut self, mut to: &UnixStream) -> bool {
        let mut any = false;
        self.is_blocked = false;
        let now = Instant::now();
        while let Some(chunk) = self.queue.front().filter(|chunk| chunk.due <= now) {
            if chunk.bytes.is_empty() {
                self.end(to);
                return any;
            }
            match to.write(&chunk.bytes[self.written..]) {
                Ok(length) => {
                    any = true;
                    self.written += length;
                    if self.written == chunk.bytes.len() {
                        self.length -= self.written;
                        self.written = 0;
                        self.queue.pop_front();
                    }
                }
                Err(error) if is_temporary(&error) => {
                    self.is_blocked = true;
                    return any;
                }
                Err(_) => {
                    self.end(to);
                    return any;
                }
            }
        }
        any
    }

    /// What is still under way has no receiver. The other direction goes on: what the receiver has
    /// sent before it went away arrives.
    fn end(&mut self, to: &UnixStream) {
        self.is_over = true;
        self.queue.clear();
        self.length = 0;
        let _ = to.shutdown(Shutdown::Write);
    }
}

fn is_temporary(error: &io::Error) -> bool {
    [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&error.kind())
}
