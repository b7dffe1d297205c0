//! One session after another on shared memory: what is a conflict, what is not, and what is told of
//! it.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use keyrange::{
    Bucket, Cause, Clock, Committer, Conflict, Count, Counters, DEFINITION, Grid, Interval, Mark,
    Predicates, RangeMap, Refusal, RingCopy, RingPair, RingSpace, Rings, Slot, Snapshot, Survey,
    Validation, Work, WriteSet, overtaken,
};

const TABLE: u64 = 42;
const MAP: RangeMap = RangeMap::Boundaries(&[100, 200, 300]);

struct Memory {
    clock: Clock,
    committers: Vec<Committer>,
    buckets: Vec<Bucket>,
    slots: Vec<Slot>,
    relation_buckets: Vec<Bucket>,
    relation_slots: Vec<Slot>,
    definition_buckets: Vec<Bucket>,
    definition_slots: Vec<Slot>,
    marks: Vec<Mark>,
}

impl Memory {
    fn new(buckets: usize, depth: usize) -> Self {
        Memory {
            clock: Clock::default(),
            committers: (0..4).map(|_| Committer::default()).collect(),
            buckets: (0..buckets).map(|_| Bucket::default()).collect(),
            slots: (0..buckets * depth).map(|_| Slot::default()).collect(),
            relation_buckets: (0..2).map(|_| Bucket::default()).collect(),
            relation_slots: (0..2 * depth).map(|_| Slot::default()).collect(),
            definition_buckets: vec![Bucket::default()],
            definition_slots: (0..depth).map(|_| Slot::default()).collect(),
            marks: (0..1024).map(|_| Mark::default()).collect(),
        }
    }

    fn board(&self) -> RingSpace<'_> {
        RingSpace {
            clock: &self.clock,
            committers: &self.committers,
            writes: RingPair {
                ranges: Rings::new(&self.buckets, &self.slots, &self.marks),
                relations: Rings::new(&self.relation_buckets, &self.relation_slots, &self.marks),
            },
            reads: None,
            definitions: Rings::new(
                &self.definition_buckets,
                &self.definition_slots,
                &self.marks,
            ),
        }
    }

    /// Registers a transaction that wrote these keys and gives it a CSN.
    fn write(&self, fxid: u64, keys: &[u128]) -> u64 {
        let mut writes = WriteSet::new(3);
        for &key in keys {
            writes.write(0, TABLE, &MAP, Interval::point(key));
        }
        self.register(fxid, &writes)
    }

    fn register(&self, fxid: u64, writes: &WriteSet) -> u64 {
        let process = (fxid % 4) as u32;
        self.board()
            .register(process, fxid, writes, &|_| MAP, &|_| true)
            .take_csn()
            .csn
    }

    fn validate(
        &self,
        view: &View,
        before: u64,
        low: u128,
        high: u128,
    ) -> (Result<(), Refusal>, Work) {
        let mut predicates = Predicates::new(8);
        predicates.read(TABLE, &[Interval::new(low, high).unwrap()]);
        self.run(view, before, &predicates)
    }

    fn run(
        &self,
        view: &View,
        before: u64,
        predicates: &Predicates,
    ) -> (Result<(), Refusal>, Work) {
        self.validation(view, before).run(predicates)
    }

    fn validation<'a>(&'a self, view: &'a View, before: u64) -> Validation<'a, View> {
        Validation {
            board: self.board(),
            snapshot: view,
            before,
            prefix: 0,
            ranges: &|_| MAP,
            wait: &|| true,
        }
    }

    fn copy(&self, view: &View, before: u64) -> Option<RingCopy> {
        let mut entries = Vec::new();
        let validation = self.validation(view, before);
        let (extent, _) = validation.copy(&mut |entry| entries.push(entry));
        extent.map(|extent| RingCopy::new(entries, extent))
    }

    /// The transactions that somebody missed who read these keys.
    fn missed(
        &self,
        ring_copy: &RingCopy,
        view: &View,
        before: u64,
        read: &[Interval],
    ) -> Vec<u64> {
        let mut predicates = Predicates::new(read.len().max(8));
        predicates.read(TABLE, read);
        let mut missed = Vec::new();
        let validation = self.validation(view, before);
        let result = ring_copy.conflicts(&validation, &predicates, &mut |conflict| {
            missed.push(conflict.fxid);
            ControlFlow::Continue(())
        });
        assert_eq!(result, Ok(()));
        missed.sort_unstable();
        missed
    }
}

fn interval(low: u128, high: u128) -> Interval {
    Interval::new(low, high).unwrap()
}

/// Sees all transactions below `xmin`, and of the others those named.
#[derive(Default)]
struct View {
    xmin: u64,
    ended: Vec<u64>,
    aborted: Vec<u64>,
    me: u64,
}

impl Snapshot for View {
    fn xmin(&self) -> u64 {
        self.xmin
    }

    fn has_ended(&self, fxid: u64) -> bool {
        fxid < self.xmin || self.ended.contains(&fxid)
    }

    fn did_abort(&self, fxid: u64) -> bool {
        self.aborted.contains(&fxid)
    }

    fn is_mine(&self, fxid: u64) -> bool {
        fxid == self.me
    }
}

fn since(xmin: u64) -> View {
    View {
        xmin,
        ..View::default()
    }
}

#[test]
fn a_write_that_was_missed_is_told_with_all_that_is_known() {
    let memory = Memory::new(64, 8);
    memory.write(11, &[150, 160]);
    let (result, _) = memory.validate(&since(10), 9, 155, 170);
    let conflict = Conflict {
        cause: Cause::Overlap,
        relation: TABLE,
        range: Some(1),
        fxid: 11,
        csn: 2,
        written: Interval::point(160),
        read: Interval::new(155, 170).unwrap(),
    };
    assert_eq!(result, Err(Refusal::Conflict(conflict)));
    assert_eq!(memory.validate(&since(10), 9, 161, 170).0, Ok(()));
    assert_eq!(memory.validate(&since(10), 9, 151, 159).0, Ok(()));
    let cause = |low, high| match memory.validate(&since(10), 9, low, high).0 {
        Err(Refusal::Conflict(conflict)) => conflict.cause,
        other => panic!("{other:?}"),
    };
    assert_eq!(cause(100, 199), Cause::Cover);
    assert_eq!(cause(0, u128::MAX), Cause::Relation);
}

#[test]
fn what_was_seen_is_ones_own_rolled_back_or_later_is_no_conflict() {
    let memory = Memory::new(64, 8);
    let csn = memory.write(11, &[5]);
    let check = |view: View, before| memory.validate(&view, before, 0, 9).0.is_ok();
    let view = |ended, aborted, me| View {
        xmin: 10,
        ended,
        aborted,
        me,
    };
    assert!(!check(view(vec![], vec![], 12), csn + 1));
    assert!(check(view(vec![11], vec![], 12), csn + 1));
    assert!(check(view(vec![], vec![11], 12), csn + 1));
    assert!(check(view(vec![], vec![], 11), csn + 1));
    assert!(check(view(vec![], vec![], 12), csn));
}

#[test]
fn a_csn_is_known_after_its_process_has_gone_on() {
    let memory = Memory::new(64, 8);
    let first = memory.write(11, &[5]);
    memory.write(15, &[500]); // the same process
    assert!(memory.validate(&since(10), first + 1, 5, 5).0.is_err());
    assert!(memory.validate(&since(10), first, 5, 5).0.is_ok());
}

#[test]
fn who_published_and_has_no_csn_comes_later() {
    let memory = Memory::new(64, 8);
    let mut writes = WriteSet::new(3);
    writes.write(0, TABLE, &MAP, Interval::point(5));
    let board = memory.board();
    let registered = board.register(1, 11, &writes, &|_| MAP, &|_| true);
    let mine = memory.write(12, &[500]);
    assert!(memory.validate(&since(10), mine, 5, 5).0.is_ok());
    assert!(registered.take_csn().csn > mine);
}

/// Each of many keys in a range is found, and what is between them is free.
#[test]
fn many_keys_of_a_range_stay_keys() {
    for map in [
        RangeMap::Boundaries(&[1 << 80]),
        RangeMap::BoundariesInPieces(&[1 << 80], 16),
    ] {
        many_keys_stay_keys(map);
    }
}

fn many_keys_stay_keys(map: RangeMap) {
    let keys_of = |count: u128| (0..count).map(move |n| (1 << 40) + n * n * (1 << 20) / count);
    for count in [5, 8, 9, 20, 50] {
        let memory = Memory::new(64, 32);
        let mut writes = WriteSet::new(3);
        keys_of(count).for_each(|key| writes.write(0, TABLE, &map, Interval::point(key)));
        let board = memory.board();
        let registered = board.register(1, 11, &writes, &|_| map, &|_| true);
        let placed = registered.placed();
        assert!(placed <= 8, "{placed} entries for {count} keys");
        let before = registered.take_csn().csn + 1;
        let validate = |low: u128, high: u128| {
            let mut predicates = Predicates::new(8);
            predicates.read(TABLE, &[Interval::new(low, high).unwrap()]);
            let view = since(10);
            let validation = Validation {
                ranges: &|_| map,
                ..memory.validation(&view, before)
            };
            let found = validation.run(&predicates).0;
            // What was copied finds the same.
            let ring_copy = memory.copy(&view, before).unwrap();
            let mut copied = Ok(());
            let is_whole = ring_copy.conflicts(&validation, &predicates, &mut |conflict| {
                copied = Err(Refusal::Conflict(conflict));
                ControlFlow::Break(())
            });
            assert_eq!(is_whole, Ok(()));
            assert_eq!(found.is_ok(), copied.is_ok());
            found
        };
        let keys: Vec<u128> = keys_of(count).collect();
        assert!(keys.iter().all(|&key| validate(key, key).is_err()));
        assert!(
            keys.windows(2)
                .all(|two| validate(two[0], two[1] - 1).is_err())
        );
        let middle = |two: &[u128]| two[0] + (two[1] - two[0]) / 2;
        let between = keys.windows(2);
        let free = between.filter(|two| validate(middle(two), middle(two)).is_ok());
        let free = free.count();
        assert!(free * 2 > keys.len(), "{free} of {count}");
        assert!(count > 8 || free == keys.len() - 1);
        assert!(validate(0, keys[0] - 1).is_ok());
        assert!(validate(keys[keys.len() - 1] + 1, u128::MAX).is_ok());
    }
}

/// However many keys were read in a range, each of its rings is looked at once.
#[test]
fn many_keys_that_were_read_share_the_rings_of_their_range() {
    const KEYS: u128 = 5000;
    let map = RangeMap::BoundariesInPieces(&[1 << 80], 16);
    let memory = Memory::new(4096, 8);
    let written = (1 << 40) + 7 * 2;
    let mut writes = WriteSet::new(3);
    writes.write(0, TABLE, &map, Interval::point(written));
    let board = memory.board();
    let registered = board.register(1, 11, &writes, &|_| map, &|_| true);
    let before = registered.take_csn().csn + 1;
    let view = since(10);
    let validation = Validation {
        ranges: &|_| map,
        ..memory.validation(&view, before)
    };
    let run = |odd: u128| {
        let mut predicates = Predicates::new(KEYS as usize);
        for n in 0..KEYS {
            predicates.read(TABLE, &[Interval::point((1 << 40) + 2 * n + odd)]);
        }
        validation.run(&predicates)
    };
    let (result, work) = run(1);
    assert_eq!(result, Ok(()));
    assert_eq!(work.quiet + work.walked, 1 + 1 + 16);
    assert!(run(0).0.is_err());
    let ring_copy = memory.copy(&view, before).unwrap();
    let copied = |odd: u128| {
        let all: Vec<Interval> = (0..KEYS)
            .map(|n| Interval::point((1 << 40) + 2 * n + odd))
            .collect();
        memory.missed(&ring_copy, &view, before, &all)
    };
    assert_eq!((copied(1), copied(0)), (vec![], vec![11]));
}

#[test]
fn a_row_of_keys_is_one_entry() {
    let memory = Memory::new(64, 32);
    let mut writes = WriteSet::new(3);
    (0..1000).for_each(|n| {
        writes.write(
            0,
            TABLE,
            &RangeMap::WHOLE,
            Interval::point((1 << 40) + (n << 20)),
        );
    });
    let board = memory.board();
    let registered = board.register(1, 11, &writes, &|_| RangeMap::WHOLE, &|_| true);
    assert_eq!(registered.placed(), 1);
}

#[test]
fn a_write_anywhere_in_the_relation_conflicts_with_every_predicate_on_it() {
    let memory = Memory::new(64, 8);
    let mut writes = WriteSet::new(3);
    writes.write_all(0, TABLE);
    memory.register(11, &writes);
    let (result, _) = memory.validate(&since(10), 9, 7, 7);
    assert!(matches!(
        result,
        Err(Refusal::Conflict(Conflict {
            cause: Cause::Relation,
            range: None,
            fxid: 11,
            ..
        }))
    ));
    let mut other = Predicates::new(8);
    other.read_all(TABLE + 1);
    assert_eq!(memory.run(&since(10), 9, &other).0, Ok(()));
}

#[test]
fn a_quiet_bucket_is_passed_without_a_look_at_its_slots() {
    let memory = Memory::new(64, 8);
    memory.write(11, &[5]);
    let (result, work) = memory.validate(&since(12), 9, 0, 9);
    assert_eq!(
        (result, work.slots, work.walked, work.quiet),
        (Ok(()), 0, 0, 1) // the relation
    );
    memory.write(13, &[150]);
    let (result, work) = memory.validate(&since(12), 9, 0, 9);
    assert_eq!(
        (result, work.slots, work.walked, work.quiet),
        (Ok(()), 0, 0, 1) // writes anywhere in it; of the range nothing need be looked at
    );
}

#[test]
fn an_old_history_is_not_walked_through() {
    let memory = Memory::new(1, 8);
    for fxid in 3..9 {
        memory.write(fxid, &[u128::from(fxid)]);
    }
    memory.write(11, &[50]);
    let (result, work) = memory.validate(&since(10), 99, 0, 9);
    assert_eq!((result, work.slots), (Ok(()), 1));
}

#[test]
fn what_was_overwritten_is_lost_to_those_who_would_need_it_and_to_nobody_else() {
    let memory = Memory::new(1, 2);
    for fxid in 11..14 {
        memory.write(fxid, &[u128::from(fxid)]);
    }
    let lost = Refusal::HistoryLost {
        relation: TABLE,
        range: Some(0),
        fxid: 11,
    };
    assert_eq!(memory.validate(&since(10), 99, 50, 60).0, Err(lost));
    assert_eq!(memory.validate(&since(12), 99, 50, 60).0, Ok(()));
    assert!(matches!(
        memory.validate(&since(12), 99, 12, 12).0,
        Err(Refusal::Conflict(_))
    ));
    assert_eq!(memory.board().writes.ranges.evictions(), 1);
}

#[test]
fn after_a_start_nobody_passes_who_misses_somebody_from_before() {
    let memory = Memory::new(4, 4);
    memory.clock.start(100);
    assert_eq!(
        memory.validate(&since(99), 9, 0, 9).0,
        Err(Refusal::Restarted)
    );
    assert_eq!(memory.validate(&since(100), 9, 0, 9).0, Ok(()));
    assert_eq!(memory.run(&since(99), 9, &Predicates::new(1)).0, Ok(()));
}

#[test]
fn a_wide_predicate_looks_at_every_bucket_once() {
    let memory = Memory::new(3, 4);
    memory.write(11, &[350]);
    let (result, work) = memory.validate(&since(10), 9, 0, 320);
    assert_eq!((result, work.quiet + work.walked), (Ok(()), 4));
    assert!(memory.validate(&since(10), 9, 0, 350).0.is_err());
}

#[test]
fn buckets_are_quiet_if_nobody_came_there_whom_the_snapshot_may_not_see() {
    let memory = Memory::new(64, 4);
    memory.write(11, &[350]);
    let quiet = |xmin, low, high| {
        let mut predicates = Predicates::new(8);
        predicates.read(TABLE, &[Interval::new(low, high).unwrap()]);
        let view = since(xmin);
        let work = memory.validation(&view, 0).quiet(&predicates);
        work.map(|work| work.quiet)
    };
    assert_eq!(quiet(12, 350, 350), Some(1)); // the relation
    assert_eq!(quiet(11, 350, 350), None);
    assert_eq!(quiet(11, 150, 250), Some(1)); // writes anywhere in the relation; nobody wrote in the ranges
    assert_eq!(quiet(11, 250, 350), None);
    assert_eq!(quiet(12, 0, u128::MAX), Some(1));
    assert_eq!(quiet(11, 0, u128::MAX), None); // all there is would be looked at
    let mut everything = WriteSet::new(1);
    everything.write_all(0, TABLE);
    memory.register(13, &everything);
    assert_eq!(quiet(12, 150, 150), None);
    memory.board().clock.start(20);
    assert_eq!(quiet(15, 150, 150), None);
    assert_eq!(quiet(20, 150, 150), Some(1));
}

/// A write of key 5 in another relation.
fn write_elsewhere(memory: &Memory, fxid: u64) {
    let mut writes = WriteSet::new(3);
    writes.write(0, TABLE + 1, &MAP, Interval::point(5));
    memory.register(fxid, &writes);
}

#[test]
fn a_relation_that_nobody_wrote_needs_no_history() {
    let memory = Memory::new(1, 2);
    memory.write(9, &[5, 250]);
    (11..30).for_each(|fxid| write_elsewhere(&memory, fxid));
    for (low, high) in [(0, u128::MAX), (0, 9), (0, 320), (250, 250)] {
        let (result, work) = memory.validate(&since(10), 99, low, high);
        assert_eq!((result, work.walked, work.quiet), (Ok(()), 0, 1));
    }
}

#[test]
fn what_is_missing_of_other_relations_and_ranges_is_no_concern() {
    let memory = Memory::new(1, 2);
    memory.write(10, &[350]);
    (11..30).for_each(|fxid| write_elsewhere(&memory, fxid));
    // Of the relation, one entry is missing, of transaction 10.
    memory.write(30, &[350]);
    for (low, high) in [(0, 9), (150, 250), (320, 340)] {
        assert_eq!(memory.validate(&since(11), 99, low, high).0, Ok(()));
    }
    assert_eq!(memory.validate(&since(10), 99, 0, 9).0, Ok(()));
    assert!(matches!(
        memory.validate(&since(10), 99, 320, 340).0,
        Err(Refusal::HistoryLost { fxid: 10, .. })
    ));
    let mut whole = Predicates::new(8);
    whole.read_all(TABLE);
    let lost = memory.run(&since(10), 42, &whole).0;
    assert!(matches!(lost, Err(Refusal::HistoryLost { .. })), "{lost:?}");
}

#[test]
fn totals_are_those_of_a_range_and_not_of_its_bucket() {
    let memory = Memory::new(1, 4);
    memory.write(11, &[5]);
    memory.write(12, &[150]);
    memory.write(13, &[160]);
    write_elsewhere(&memory, 14);
    assert!(memory.validate(&since(10), 99, 100, 199).0.is_err());
    let rings = memory.board().writes.ranges;
    assert_eq!(rings.totals(TABLE, Some(0)), [1, 0, 0]);
    assert_eq!(rings.totals(TABLE, Some(1)), [2, 1, 1]);
    assert_eq!(rings.totals(TABLE + 1, Some(0)), [1, 0, 0]);
    assert_eq!(rings.totals(TABLE, None), [0, 0, 0]);
}

#[test]
fn the_keys_of_a_range_are_spread_over_its_pieces() {
    let map = RangeMap::Grid(Grid::new(1 << 100).with_pieces(16));
    let memory = Memory::new(256, 2);
    let images: Vec<u128> = (0..2000).map(|n| n << 70).collect();
    let mut used = [0; 16];
    for &image in &images {
        used[map.piece_of(&Interval::point(image)).unwrap() as usize] += 1;
    }
    assert!(used.iter().all(|&count| count > 60), "{used:?}");
    assert_eq!(map.piece_of(&interval(1, 2)), None);
    let rings = memory.board().writes.ranges;
    let bucket = |keys: Interval| rings.bucket_for(TABLE, 0, &keys, &map);
    assert_eq!(bucket(interval(1, 2)), rings.bucket_of(TABLE, 0));
    let different: BTreeSet<usize> = images.iter().map(|&n| bucket(Interval::point(n))).collect();
    assert!(different.len() > 10);
}

/// A committer of each of four processes; 1 runs transaction 11, and so on.
fn survey(memory: &Memory, running: &[u64], run_by: [u64; 4], aborted: &[u64]) -> Survey {
    Survey::of(
        &memory.clock,
        &memory.committers,
        running.iter().copied(),
        50,
        |process| run_by[process],
        |fxid| aborted.contains(&fxid),
    )
}

#[test]
fn who_idles_has_left_nothing_that_could_be_missing() {
    let memory = Memory::new(4, 4);
    let csn = memory.write(12, &[5]); // by process 0
    let idle = [0, 0, 10, 0];
    let all = |running, aborted| survey(&memory, running, idle, aborted);
    let nobody = all(&[10], &[]);
    assert_eq!((nobody.first, nobody.end), (50, 50));
    assert_eq!(nobody.lasting_prefix, csn);
    // 12 had its CSN, and had not ended.
    let one = all(&[10, 12], &[]);
    assert_eq!(
        (one.first, one.prefix, one.lasting_prefix),
        (12, csn - 1, csn - 1)
    );
    assert_eq!(all(&[10, 12], &[12]).first, 50);
    // Nobody runs 8: it has ended, or is prepared.
    let unknown = all(&[8, 10], &[]);
    assert_eq!(
        (unknown.first, unknown.prefix, unknown.lasting_prefix),
        (8, 0, 0)
    );
}

#[test]
fn ranges_spread_over_the_buckets() {
    let memory = Memory::new(64, 1);
    let rings = memory.board().writes.ranges;
    let mut used = [0; 64];
    for relation in 0..10 {
        (0..640).for_each(|range| used[rings.bucket_of(16384 + relation, range)] += 1);
    }
    assert!(used.iter().all(|&n| (50..150).contains(&n)), "{used:?}");
}

#[test]
fn outcomes_are_counted() {
    let memory = Memory::new(64, 8);
    let counters = Counters::default();
    memory.write(11, &[5]);
    for low in [5, 6] {
        let (result, work) = memory.validate(&since(10), 9, low, 9);
        counters.validated(&result, &work);
    }
    let counts = [
        Count::Validated,
        Count::Passed,
        Count::Overlap,
        Count::HistoryLost,
    ];
    assert_eq!(counts.map(|count| counters.get(count)), [2, 1, 1, 0]);
    counters.reset();
    assert_eq!(counters.get(Count::Validated), 0);
}

/// Transactions 1 to 4, each of a process of its own, have CSNs in this order.
#[test]
fn a_snapshot_that_sees_a_later_one_only_has_been_overtaken() {
    let memory = Memory::new(4, 8);
    let view = |running: &[u64]| View {
        ended: (1..20).filter(|fxid| !running.contains(fxid)).collect(),
        ..since(1)
    };
    let of = |running: &[u64]| {
        overtaken(
            memory.board().committers,
            &view(running),
            |_| true,
            |_, _| true,
        )
    };
    assert_eq!(of(&[]), None, "nobody has written");
    for fxid in 1..=4 {
        memory.write(fxid, &[10]);
    }
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[4]), None);
    assert_eq!(of(&[3, 4]), None);
    assert_eq!(of(&[1, 2, 3, 4]), None);
    assert_eq!(of(&[3]), Some(3));
    assert_eq!(of(&[1, 4]), Some(1));
    let committers = memory.board().committers;
    let elsewhere = overtaken(
        committers,
        &view(&[1, 4]),
        |process| process != 1,
        |_, _| true,
    );
    assert_eq!(elsewhere, None);
    let not_first = overtaken(committers, &view(&[1, 3]), |_| true, |_, fxid| fxid != 1);
    assert_eq!(not_first, Some(3));
    // What a process ran before is known until it has ended two more.
    memory.write(8, &[10]);
    assert_eq!(of(&[3, 8]), Some(3));
    memory.write(7, &[10]);
    assert_eq!(of(&[3]), Some(3));
    assert_eq!(of(&[8]), Some(8));
    memory.write(11, &[10]);
    assert_eq!(of(&[3]), None);
}

#[test]
fn an_excerpt_has_what_is_overwritten_later_and_nothing_from_after_the_reading_point() {
    let memory = Memory::new(2, 2);
    let view = since(10);
    let before = memory.write(11, &[150]) + 2;
    memory.write(12, &[160]);
    let ring_copy = memory.copy(&view, before).unwrap();
    for fxid in 20..40 {
        memory.write(fxid, &[150, 160, 350]);
    }
    let lost = memory.validate(&view, before, 0, 999).0;
    assert!(matches!(lost, Err(Refusal::HistoryLost { .. })));
    let missed = |low, high| memory.missed(&ring_copy, &view, before, &[interval(low, high)]);
    assert_eq!(missed(0, u128::MAX), [11]);
    assert_eq!(missed(150, 150), [11]);
    assert!(missed(151, 999).is_empty() && missed(0, 149).is_empty());
}

#[test]
fn a_conflict_in_an_excerpt_is_told_as_one_in_the_rings() {
    let memory = Memory::new(64, 8);
    memory.write(11, &[150, 160]);
    let view = since(10);
    let mut predicates = Predicates::new(8);
    predicates.read(TABLE, &[interval(155, 170)]);
    let mut told = Vec::new();
    let ring_copy = memory.copy(&view, 9).unwrap();
    let validation = memory.validation(&view, 9);
    let _ = ring_copy.conflicts(&validation, &predicates, &mut |conflict| {
        told.push(Refusal::Conflict(conflict));
        ControlFlow::Break(())
    });
    let (by_rings, _) = memory.run(&view, 9, &predicates);
    assert_eq!(told, [by_rings.unwrap_err()]);
}

#[test]
fn an_entry_in_an_excerpt_is_found_by_any_of_its_keys_and_once() {
    let memory = Memory::new(64, 8);
    memory.write(11, &[100, 110, 120, 190]); // more than the three that are kept apart
    memory.write(12, &[130]);
    let mut whole = WriteSet::new(3);
    whole.write_all(0, TABLE + 1);
    memory.register(13, &whole);
    let view = since(10);
    let ring_copy = memory.copy(&view, 99).unwrap();
    let missed = |read: &[Interval]| memory.missed(&ring_copy, &view, 99, read);
    assert_eq!(missed(&[interval(130, 130)]).last(), Some(&12));
    assert_eq!(missed(&[interval(131, 200)]), [11]);
    let twice = [interval(100, 105), interval(109, 125), interval(129, 200)];
    let all = missed(&twice);
    assert_eq!(all.iter().filter(|&&fxid| fxid == 12).count(), 1);
    let mut other = Predicates::new(8);
    other.read(TABLE + 1, &[interval(7, 7)]);
    let mut found = 0;
    let _ = ring_copy.conflicts(&memory.validation(&view, 99), &other, &mut |conflict| {
        assert_eq!((conflict.fxid, conflict.range), (13, None));
        found += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(found, 1);
}

#[test]
fn an_excerpt_is_not_enough_for_what_is_lost() {
    let memory = Memory::new(1, 2);
    for fxid in 11..14 {
        memory.write(fxid, &[u128::from(fxid)]);
    }
    let read = |xmin, relation| {
        let view = since(xmin);
        let ring_copy = memory.copy(&view, 99).unwrap();
        let mut predicates = Predicates::new(8);
        predicates.read(relation, &[interval(50, 60)]);
        let go_on = &mut |_| ControlFlow::Continue(());
        ring_copy.conflicts(&memory.validation(&view, 99), &predicates, go_on)
    };
    assert!(matches!(read(10, TABLE), Err(Refusal::HistoryLost { .. })));
    assert_eq!(read(10, TABLE + 1), Ok(()));
    assert_eq!(read(12, TABLE), Ok(()));
    memory.clock.start(100);
    assert!(memory.copy(&since(99), 99).is_none());
}

#[test]
fn who_stands_by_an_excerpt_has_seen_nothing_of_later_ones() {
    let memory = Memory::new(2, 4);
    let missed = memory.write(11, &[150]);
    let seen = memory.write(12, &[350]);
    let view = View {
        xmin: 10,
        ended: vec![12],
        ..View::default()
    };
    let before = seen + 2;
    let ring_copy = memory.copy(&view, before).unwrap();
    for fxid in 20..40 {
        memory.write(fxid, &[150, 350]);
    }
    let stands = |from, low, high| {
        let mut predicates = Predicates::new(8);
        predicates.read(TABLE, &[interval(low, high)]);
        ring_copy.can_stand_before(&memory.validation(&view, before), from, &predicates)
    };
    assert_eq!(stands(missed, 0, 349), Ok(()));
    assert!(matches!(
        stands(missed, 0, 350),
        Err(Refusal::Conflict(Conflict { fxid: 12, .. }))
    ));
    assert_eq!(stands(seen + 1, 0, 350), Ok(()));
    // Of those before the first that was missed it knows nothing, and asks the rings.
    let lost = stands(missed - 1, 0, 350);
    assert!(matches!(lost, Err(Refusal::HistoryLost { .. })));
}

#[test]
fn a_changed_definition_outlasts_what_happens_to_rows() {
    let memory = Memory::new(1, 1);
    let mut writes = WriteSet::new(3);
    writes.write_all(0, DEFINITION | TABLE);
    let csn = memory.register(11, &writes);
    for fxid in 12..20 {
        memory.write(fxid, &[1]);
    }
    let mut definition = Predicates::new(1);
    definition.read_all(DEFINITION | TABLE);
    let check = |view: &View| {
        let validation = Validation {
            board: memory.board(),
            snapshot: view,
            before: u64::MAX,
            prefix: 0,
            ranges: &|_| MAP,
            wait: &|| true,
        };
        let mut unseen = Vec::new();
        let is_known = validation.definition_is_seen(TABLE, &mut |entry| unseen.push(entry.fxid));
        assert!(is_known);
        let other = validation.definition_is_seen(TABLE + 1, &mut |_| panic!());
        assert!(other);
        assert_eq!(validation.definitions_are_seen(), unseen.is_empty());
        let stands = |from| validation.can_stand_before(from, &definition).is_ok();
        (unseen, stands(csn), stands(csn + 1))
    };
    assert_eq!(check(&since(10)), (vec![11], true, true));
    assert_eq!(check(&since(12)), (vec![], false, true));
    let rolled_back = View {
        aborted: vec![11],
        ..since(10)
    };
    assert_eq!(check(&rolled_back).0, []);
    assert!(matches!(
        memory.run(&since(10), u64::MAX, &definition).0,
        Err(Refusal::Conflict(conflict)) if conflict.fxid == 11
    ));
}
