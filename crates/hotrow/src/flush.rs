//! Group flush: many committers, one flush at a time, one wake-up each.
//!
//! PostgreSQL wakes everybody who waits for a flush when one ends; those whose record was not in it
//! go back to sleep and are woken again. Here the one that flushes knows up to where each waiter
//! needs it: it wakes those that are covered, and one of the others to flush next.
//!
//! Lock-free: waiters push themselves on a stack, the flusher takes the whole stack at once.

use crate::{Backend, BackendId, Word32};

/// The backend that flushes, and those that wait for it.
#[derive(Debug, Default)]
#[repr(C)]
pub struct FlushQueue {
    /// The process that flushes, + 1.
    flusher: Word32,
    /// The newest waiter, + 1.
    newest: Word32,
}

/// What a committer has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Duty {
    /// Flush, then `hand_over`.
    Flush,
    /// Sleep, and ask `duty` again when woken.
    Wait,
    /// Nothing: it is durable.
    Done,
}

const IDLE: u32 = 0;
const WAITING: u32 = 1;
const COVERED: u32 = 2;
const NEXT: u32 = 3;

impl FlushQueue {
    /// Process `me` needs WAL to be durable up to `until`.
    pub fn join(&self, backends: &[Backend], me: BackendId, until: u64) -> Duty {
        let own = &backends[me as usize];
        own.flush_duty.publish(IDLE);
        if self.flusher.claim(me + 1) {
            return Duty::Flush;
        }
        own.flush_until.publish(until);
        own.flush_duty.publish(WAITING);
        self.push(backends, me);
        // The flusher may have looked for waiters just before.
        if self.flusher.claim(me + 1) {
            own.flush_duty.publish(IDLE);
            return Duty::Flush;
        }
        Duty::Wait
    }

    /// What a waiter has to do now.
    pub fn duty(&self, backends: &[Backend], me: BackendId) -> Duty {
        match backends[me as usize].flush_duty.get() {
            WAITING => Duty::Wait,
            NEXT => Duty::Flush,
            _ => Duty::Done,
        }
    }

    /// The flusher `me` has made WAL durable up to `flushed`: wakes those that are covered, and the
    /// next flusher, which comes first.
    pub fn hand_over(
        &self,
        backends: &[Backend],
        me: BackendId,
        flushed: u64,
        mut wake: impl FnMut(BackendId),
    ) {
        loop {
            let mut covered = Vec::new();
            let mut rest = None;
            let mut at = self.newest.take().checked_sub(1);
            while let Some(id) = at {
                let waiter = &backends[id as usize];
                at = waiter.flush_next.get().checked_sub(1);
                if id == me {
                    continue;
                }
                if waiter.flush_until.get() <= flushed {
                    // Told while nobody else can flush: one that is about to look for itself
                    // whether it can (`join`) finds us, or is told already. Later it may be on the
                    // stack again, for a later commit.
                    waiter.flush_duty.publish(COVERED);
                    covered.push(id);
                } else {
                    waiter
                        .flush_next
                        .set(rest.map_or(0, |next: BackendId| next + 1));
                    rest = Some(id);
                }
            }
            let next = rest;
            if let Some(next) = next {
                // `rest` was turned round: the oldest waiter is its head.
                let mut others = backends[next as usize].flush_next.get().checked_sub(1);
                self.flusher.publish(next + 1);
                while let Some(id) = others {
                    others = backends[id as usize].flush_next.get().checked_sub(1);
                    self.push(backends, id);
                }
                backends[next as usize].flush_duty.publish(NEXT);
                wake(next);
            } else {
                self.flusher.publish(0);
            }
            covered.into_iter().for_each(&mut wake);
            // A backend that pushed itself after we took the stack saw us as the flusher, and
            // sleeps.
            if next.is_some() || self.newest.get() == 0 || !self.flusher.claim(me + 1) {
                return;
            }
        }
    }

    fn push(&self, backends: &[Backend], id: BackendId) {
        let mut newest = self.newest.get();
        loop {
            backends[id as usize].flush_next.publish(newest);
            match self.newest.exchange(newest, id + 1) {
                Ok(()) => return,
                Err(now) => newest = now,
            }
        }
    }
}

/// Where the last record ends if the next one begins at `at`: a page boundary, if that is just
/// behind a page's header (xlog_internal.h: SizeOfXLogShortPHD, and SizeOfXLogLongPHD at the
/// beginning of a segment). In bytes.
pub fn end_of_record(at: u64, page: u64, segment: u64) -> u64 {
    let (in_page, in_segment) = (at % page, at % segment);
    let header = if in_segment < page { 40 } else { 24 };
    at - if in_page == header { header } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use std::thread;

    fn backends(n: usize) -> Vec<Backend> {
        (0..n).map(|_| Backend::default()).collect()
    }

    #[test]
    fn the_covered_are_woken_once_and_the_oldest_other_flushes_next() {
        let (queue, backends) = (FlushQueue::default(), backends(5));
        assert_eq!(queue.join(&backends, 0, 10), Duty::Flush);
        for (backend, until) in [(1, 20), (2, 12), (3, 30), (4, 15)] {
            assert_eq!(queue.join(&backends, backend, until), Duty::Wait);
        }
        let mut woken = Vec::new();
        queue.hand_over(&backends, 0, 15, |backend| woken.push(backend));
        assert_eq!(woken[0], 1, "the next flusher first");
        woken[1..].sort_unstable();
        assert_eq!(woken[1..], [2, 4]);
        assert_eq!(queue.duty(&backends, 1), Duty::Flush);
        assert_eq!(queue.duty(&backends, 2), Duty::Done);
        assert_eq!(queue.duty(&backends, 3), Duty::Wait);
        woken.clear();
        queue.hand_over(&backends, 1, 30, |backend| woken.push(backend));
        assert_eq!(woken, [3]);
        assert_eq!(queue.join(&backends, 2, 40), Duty::Flush);
    }

    #[test]
    fn under_real_threads_everybody_becomes_durable() {
        const THREADS: u32 = 8;
        const ROUNDS: u64 = 20_000;
        let (queue, backends) = (FlushQueue::default(), backends(THREADS as usize));
        let (inserted, flushed) = (AtomicU64::new(0), AtomicU64::new(0));
        let flush = |me: u32| {
            flushed.fetch_max(inserted.load(SeqCst), SeqCst);
            queue.hand_over(&backends, me, flushed.load(SeqCst), |_| ());
        };
        thread::scope(|scope| {
            for me in 0..THREADS {
                let (queue, backends, inserted, flushed, flush) =
                    (&queue, &backends, &inserted, &flushed, &flush);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let until = inserted.fetch_add(1, SeqCst) + 1;
                        let mut duty = queue.join(backends, me, until);
                        while duty == Duty::Wait {
                            thread::yield_now();
                            duty = queue.duty(backends, me);
                        }
                        if duty == Duty::Flush {
                            flush(me);
                        }
                        assert!(flushed.load(SeqCst) >= until, "told durable before it was");
                    }
                });
            }
        });
        assert_eq!((queue.flusher.get(), queue.newest.get()), (0, 0));
    }

    #[test]
    fn a_record_ends_before_a_header_or_where_it_ends() {
        let end = |at| end_of_record(at, 8192, 1 << 20);
        // At the boundary of a page, of a segment.
        assert_eq!([end(8192 + 24), end((1 << 20) + 40)], [8192, 1 << 20]);
        // Sixteen bytes of it stand on that page, or more.
        assert_eq!(end(8192 + 40), 8192 + 40);
        assert_eq!(end((1 << 20) + 56), (1 << 20) + 56);
        assert_eq!(end(9192), 9192);
    }
}
