//! Shared memory of a validator in ordinary memory, and snapshots of it by hand.

use std::ops::ControlFlow;

use keyrange::{
    Bucket, Clock, Committer, Interval, Mark, Predicates, RangeMap, Refusal, RingCopy, RingPair,
    RingSpace, Rings, Slot, Snapshot, Validation, Work, WriteSet,
};

pub const TABLE: u64 = 42;
pub const MAP: RangeMap = RangeMap::Boundaries(&[100, 200, 300]);

pub struct Memory {
    pub clock: Clock,
    pub committers: Vec<Committer>,
    buckets: Vec<Bucket>,
    slots: Vec<Slot>,
    relation_buckets: Vec<Bucket>,
    relation_slots: Vec<Slot>,
    definition_buckets: Vec<Bucket>,
    definition_slots: Vec<Slot>,
    marks: Vec<Mark>,
}

impl Memory {
    pub fn new(buckets: usize, depth: usize) -> Self {
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

    pub fn space(&self) -> RingSpace<'_> {
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
    pub fn write(&self, fxid: u64, keys: &[u128]) -> u64 {
        let mut writes = WriteSet::new(3);
        for &key in keys {
            writes.write(0, TABLE, &MAP, Interval::point(key));
        }
        self.register(fxid, &writes)
    }

    pub fn register(&self, fxid: u64, writes: &WriteSet) -> u64 {
        let process = (fxid % 4) as u32;
        self.space()
            .register(process, fxid, writes, &|_| MAP, &|_| true)
            .take_csn()
            .csn
    }

    pub fn validate(
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

    pub fn run(
        &self,
        view: &View,
        before: u64,
        predicates: &Predicates,
    ) -> (Result<(), Refusal>, Work) {
        self.validation(view, before).run(predicates)
    }

    pub fn validation<'a>(&'a self, view: &'a View, before: u64) -> Validation<'a, View> {
        Validation {
            space: self.space(),
            snapshot: view,
            before,
            prefix: 0,
            ranges: &|_| MAP,
            wait: &|| true,
        }
    }

    pub fn copy(&self, view: &View, before: u64) -> Option<RingCopy> {
        let mut entries = Vec::new();
        let validation = self.validation(view, before);
        let (extent, _) = validation.copy(&mut |entry| entries.push(entry));
        extent.map(|extent| RingCopy::new(entries, extent))
    }

    /// The transactions that somebody missed who read these keys.
    pub fn missed(
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

pub fn interval(low: u128, high: u128) -> Interval {
    Interval::new(low, high).unwrap()
}

/// Sees all transactions below `xmin`, and of the others those named.
#[derive(Default)]
pub struct View {
    pub xmin: u64,
    pub ended: Vec<u64>,
    pub aborted: Vec<u64>,
    pub me: u64,
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

pub fn since(xmin: u64) -> View {
    View {
        xmin,
        ..View::default()
    }
}
