//! The rings under real threads: no entry is ever read half of one and half of another, and none is lost unmarked. Under
//! Miri it also tries what weakly ordered processors do.

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
};

use keyrange::{Bucket, Entry, Interval, Rings, Slot};

const WRITERS: u64 = 3;
const ENTRIES: u64 = if cfg!(miri) { 12 } else { 100_000 };
const DEPTH: usize = 2;

fn entry(fxid: u64) -> Entry {
    let spread = |n: u64| u128::from(fxid * n) << 64 | u128::from(fxid);
    Entry {
        fxid,
        process: fxid as u32,
        csn: None,
        relation: fxid * 3,
        range: fxid * 5,
        keys: Interval::new(spread(7), spread(11)).unwrap(),
    }
}

fn assert_whole(read: &Entry) {
    let csn = read.csn.inspect(|&csn| assert_eq!(csn, read.fxid * 13));
    let whole = Entry {
        csn,
        ..entry(read.fxid)
    };
    assert_eq!(*read, whole);
}

#[test]
fn entries_are_whole_or_marked_as_evicted() {
    let buckets = [Bucket::default()];
    let slots: [Slot; DEPTH] = Default::default();
    let rings = Rings::new(&buckets, &slots);
    let ids = AtomicU64::new(1);
    thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                for _ in 0..ENTRIES {
                    let fxid = ids.fetch_add(1, SeqCst);
                    let place = rings.publish(0, &entry(fxid), &|_| true);
                    // What a validator that begins now would find.
                    let mut found = false;
                    let walk = rings.walk(0, 0, |read, _| {
                        assert_whole(read);
                        found |= read.fxid == fxid;
                        true
                    });
                    assert!(found || walk.evicted_fxid >= fxid, "lost without a trace");
                    if let Some(place) = place {
                        rings.stamp(place, fxid * 13);
                    }
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..WRITERS * ENTRIES {
                rings.walk(0, 0, |read, place| {
                    assert_whole(read);
                    if let Some(again) = rings.again(place) {
                        assert_eq!(again.fxid, read.fxid);
                    }
                    true
                });
            }
        });
    });
    assert!(!rings.is_quiet(0, WRITERS * ENTRIES));
}
