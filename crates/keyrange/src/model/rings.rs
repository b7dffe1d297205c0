//! The rings by themselves: entries are whole, and slots of the dead are used again.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use shuttle::scheduler::{PctScheduler, RandomScheduler};

use super::{play::run, server::Server, server::Shape};
use crate::{
    Entry, Interval, Parts, Rings,
    fault::{Fault, plant},
};

const ONE_SLOT: Shape = Shape {
    processes: 1,
    buckets: 1,
    depth: 1,
    window: false,
};

fn entry(fxid: u64) -> Entry {
    let spread = |n: u64| u128::from(fxid * n) << 64 | u128::from(fxid);
    Entry {
        fxid,
        process: fxid as u32,
        csn: None,
        relation: fxid * 3,
        range: fxid * 5,
        keys: Interval::new(spread(7), spread(11)).unwrap(),
        parts: Parts::from_bits(fxid as u32 * 13),
    }
}

/// Whether some entry that is read is not one that was written; two writers and a reader on one
/// slot.
fn mixes_entries(fault: Option<Fault>) -> bool {
    plant(fault);
    let mixed = Arc::new(AtomicBool::new(false));
    let seen = mixed.clone();
    run(RandomScheduler::new_from_seed(1, 3000), move || {
        let server = shuttle::sync::Arc::new(Server::new(ONE_SLOT, false));
        let writers = [1, 11].map(|first| {
            let server = server.clone();
            shuttle::thread::spawn(move || {
                for fxid in first..first + 3 {
                    let rings = server.space().writes.ranges;
                    if let Ok(place) = rings.publish(0, &entry(fxid), &|_| true) {
                        rings.stamp(place, fxid * 13);
                    }
                }
            })
        });
        for _ in 0..6 {
            server.space().writes.ranges.walk(0, 0, |read, _| {
                let csn_is_its_own = read.csn.is_none_or(|csn| csn == read.fxid * 13);
                let whole = Entry {
                    csn: read.csn,
                    ..entry(read.fxid)
                };
                if *read != whole || !csn_is_its_own {
                    seen.store(true, Relaxed);
                }
                true
            });
        }
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
    });
    plant(None);
    mixed.load(Relaxed)
}

#[test]
fn an_entry_is_read_whole_or_not_at_all() {
    assert!(!mixes_entries(None));
}

#[test]
fn a_torn_read_is_found_out() {
    assert!(mixes_entries(Some(Fault::TornRead)));
}

fn published(rings: Rings, fxid: u64, is_running: bool) -> bool {
    let placed = rings.publish(0, &entry(fxid), &|_| is_running);
    let mut found = false;
    let walk = rings.walk(0, 0, |read, _| {
        found = *read == entry(fxid);
        true
    });
    assert_eq!(found, placed.is_ok());
    assert!(found || walk.gap.fxid >= fxid);
    found
}

#[test]
fn a_dead_writers_slot_is_used_again_when_its_transaction_has_ended() {
    run(PctScheduler::new_from_seed(1, 1, 1), || {
        for step in [1, 2] {
            let server = Server::new(ONE_SLOT, false);
            let rings = server.space().writes.ranges;
            assert!(published(rings, 1, true));
            rings.abandon(0, 2, step);
            assert!(!published(rings, 3, true), "its owner may still write");
            assert!(published(rings, 4, false));
            assert!(published(rings, 5, true));
        }
    });
}

/// An entry with a CSN, and what a reader must find while it is overwritten, if the marks do not
/// tell that it is gone.
struct Overwritten {
    /// It has moved to this position.
    position: Option<u64>,
    is_found: fn(Rings) -> bool,
}

/// Its reads are in the way of a transaction that moves to position 9.
const READ: Overwritten = Overwritten {
    position: None,
    is_found: |rings| {
        let mut is_read = false;
        let lost = rings.walk_since(0, 9, |read| {
            is_read |= read.csn.is_some_and(|csn| csn >= 9);
            true
        });
        is_read || lost.csn >= 9
    },
};

/// It has moved before a transaction that looks for that.
const MOVED: Overwritten = Overwritten {
    position: Some(9),
    is_found: |rings| {
        let mut has_moved = false;
        let walk = rings.walk(0, 5, |read, _| {
            has_moved |= read.csn == Some(9);
            true
        });
        has_moved || walk.gap.pending_fxid >= 5
    },
};

/// Whether it is missed in one of the schedules.
fn is_missed(overwritten: Overwritten, fault: Option<Fault>) -> bool {
    plant(fault);
    let missed = Arc::new(AtomicBool::new(false));
    let seen = missed.clone();
    run(PctScheduler::new_from_seed(1, 3, 3000), move || {
        let server = shuttle::sync::Arc::new(Server::new(ONE_SLOT, false));
        let rings = server.space().writes.ranges;
        let place = rings.publish(0, &entry(5), &|_| true).unwrap();
        rings.stamp(place, 20);
        if let Some(position) = overwritten.position {
            rings.move_to(place, 5, 20, position);
        }
        let other = server.clone();
        let writer = shuttle::thread::spawn(move || {
            let rings = other.space().writes.ranges;
            let _ = rings.publish(0, &entry(6), &|_| true);
        });
        if !(overwritten.is_found)(rings) {
            seen.store(true, Relaxed);
        }
        writer.join().unwrap();
    });
    plant(None);
    missed.load(Relaxed)
}

#[test]
fn an_entry_that_is_overwritten_is_found_or_marked() {
    assert!(!is_missed(READ, None));
    assert!(!is_missed(MOVED, None));
}

#[test]
fn a_csn_that_is_taken_first_is_found_out() {
    assert!(is_missed(READ, Some(Fault::CsnTakenFirst)));
    assert!(is_missed(MOVED, Some(Fault::CsnTakenFirst)));
}
