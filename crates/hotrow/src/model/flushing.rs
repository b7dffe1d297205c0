//! Committers that need WAL to be durable, without any lock: each is told so once it is, and none
//! sleeps for ever.

use super::latch::Latch;
use super::{at_step, check_pct, check_random};
use crate::{Backend, Duty, FlushQueue};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU64, Ordering::SeqCst};
use shuttle::thread;
use std::sync::mpsc::channel;

fn play(backends: usize, rounds: usize) {
    let queue = Arc::new(FlushQueue::default());
    let shared: Arc<Vec<Backend>> = Arc::new((0..backends).map(|_| Backend::default()).collect());
    let latches: Arc<Vec<Latch>> = Arc::new((0..backends).map(|_| Latch::default()).collect());
    let wal = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let threads: Vec<_> = (0..backends as u32)
        .map(|me| {
            let (queue, shared) = (queue.clone(), shared.clone());
            let (latches, wal) = (latches.clone(), wal.clone());
            thread::spawn(move || {
                let (inserted, flushed) = &*wal;
                for _ in 0..rounds {
                    let until = inserted.fetch_add(1, SeqCst) + 1;
                    let mut duty = queue.join(&shared, me, until);
                    while duty == Duty::Wait {
                        latches[me as usize].wait();
                        duty = queue.duty(&shared, me);
                    }
                    if duty == Duty::Flush {
                        flushed.fetch_max(inserted.load(SeqCst), SeqCst);
                        let upto = flushed.load(SeqCst);
                        queue.hand_over(&shared, me, upto, |backend| {
                            latches[backend as usize].set()
                        });
                    }
                    assert!(flushed.load(SeqCst) >= until, "told durable before it was");
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

#[test]
fn everybody_becomes_durable_and_none_sleeps_for_ever() {
    check_random(|| play(4, 3), 10_000);
    check_pct(|| play(3, 4), 10_000, 4);
}

/// A committer stops anywhere in `join`, and the flusher anywhere in `hand_over`. Then the
/// committer goes on to its next commit while a third one flushes, and the first flusher comes back
/// last of all. (Schedules drawn at random do not stop one process for that long.)
#[test]
fn a_flusher_that_stands_still_for_long_does_no_harm() {
    let mut reached = 0;
    for committer_stops in 1..14 {
        for flusher_stops in 1..20 {
            reached += u32::from(stand_still(committer_stops, flusher_stops));
        }
    }
    assert!(reached > 0, "nobody came to a second commit meanwhile");
}

/// Whether the committer came to its second commit before the flusher went on.
fn stand_still(committer_stops: u32, flusher_stops: u32) -> bool {
    const FLUSHER: u32 = 0;
    const COMMITTER: u32 = 1;
    const THIRD: u32 = 2;
    let (queue, backends) = (FlushQueue::default(), [(); 3].map(|()| Backend::default()));
    let (queue, backends) = (&queue, &backends);
    // A thread says None when it stops, and what it has got when it has finished.
    let (from_committer, committer) = channel();
    let (from_flusher, flusher) = channel();
    let (go_on, committer_goes) = channel();
    let (come_back, flusher_goes) = channel();
    assert_eq!(queue.join(backends, FLUSHER, 1), Duty::Flush);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let stopped = from_committer.clone();
            let stop = move || {
                stopped.send(None).unwrap();
                committer_goes.recv().unwrap();
            };
            let duty = at_step(committer_stops, stop, || queue.join(backends, COMMITTER, 1));
            from_committer.send(Some(duty)).unwrap();
        });
        let mut joined = committer.recv().unwrap();
        scope.spawn(move || {
            let stopped = from_flusher.clone();
            let stop = move || {
                stopped.send(None).unwrap();
                flusher_goes.recv().unwrap();
            };
            at_step(flusher_stops, stop, || {
                queue.hand_over(backends, FLUSHER, 1, |_| ());
            });
            from_flusher.send(Some(())).unwrap();
        });
        let mut is_back = flusher.recv().unwrap().is_some();
        let mut flusher_comes_back = || {
            if !is_back {
                come_back.send(()).unwrap();
                assert_eq!(flusher.recv().unwrap(), Some(()));
                is_back = true;
            }
        };
        if joined.is_none() {
            go_on.send(()).unwrap();
            joined = committer.recv().unwrap();
        }
        if joined == Some(Duty::Flush) {
            queue.hand_over(backends, COMMITTER, 1, |_| ());
        } else if queue.duty(backends, COMMITTER) == Duty::Wait {
            flusher_comes_back();
            assert_eq!(queue.duty(backends, COMMITTER), Duty::Done);
            return false;
        }
        if queue.join(backends, THIRD, 2) != Duty::Flush {
            flusher_comes_back();
            assert_eq!(queue.duty(backends, THIRD), Duty::Flush);
            return false;
        }
        assert_eq!(queue.join(backends, COMMITTER, 2), Duty::Wait);
        flusher_comes_back();
        let at = (committer_stops, flusher_stops);
        let duty = queue.duty(backends, COMMITTER);
        assert_eq!(duty, Duty::Wait, "told durable before it was: {at:?}");
        queue.hand_over(backends, THIRD, 2, |_| ());
        let duty = queue.duty(backends, COMMITTER);
        assert_eq!(duty, Duty::Done, "forgotten: {at:?}");
        true
    })
}
