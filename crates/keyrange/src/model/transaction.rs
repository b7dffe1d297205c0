//! Transactions as sessions run them, with random contents.

use std::ops::ControlFlow;

use shuttle::rand::{Rng, thread_rng};

use super::{
    history::{Record, Scan},
    outcomes::Outcomes,
    plan::Plan,
    server::{Fate, READER, Server, View},
    table::{KEYS, TABLE, image, layout, ranges, ranges_in_pieces},
};
use crate::{
    Conflict, Csn, Interval, Numbered, Operator, Predicates, RangeMap, Refusal, Relation, RingCopy,
    ScanKey, Snapshot, Validation, Value, WriteSet, Written,
    fault::{Fault, planted},
};

pub struct Session<'a> {
    pub server: &'a Server,
    pub process: u32,
    pub plan: Plan,
    pub outcomes: &'a Outcomes,
}

/// Whether a reader of those predicates can stand before that CSN.
fn can_stand(
    validation: &Validation<View>,
    first: Csn,
    read: &Predicates,
    ring_copy: Option<&RingCopy>,
) -> Result<(), Refusal> {
    match ring_copy {
        Some(ring_copy) => ring_copy.can_stand_before(validation, first, read),
        None => validation.can_stand_before(first, read),
    }
}

fn chance(share: f64) -> bool {
    share > 0.0 && thread_rng().gen_bool(share)
}

/// What a transaction has read: rows, and predicates for its validation.
struct Reads {
    rows: Vec<Scan>,
    predicates: Predicates,
}

impl Session<'_> {
    /// The ranges of all relations.
    fn map<'v>(&self) -> &'v dyn Fn(Relation) -> RangeMap<'v> {
        if self.plan.in_pieces {
            &ranges_in_pieces
        } else {
            &ranges
        }
    }

    /// One transaction of a random sort.
    pub fn run(&self) {
        if chance(0.5) {
            self.end_prepared();
        }
        if chance(self.plan.readers) {
            self.reader();
        } else if chance(self.plan.blind) {
            self.blind_writer();
        } else {
            self.validated_writer();
        }
    }

    fn scan(&self, view: &View, reads: &mut Reads) {
        let low = thread_rng().gen_range(0..KEYS);
        let high = thread_rng().gen_range(low..KEYS);
        if chance(self.plan.whole) {
            reads.predicates.read_all(TABLE);
            reads.rows.push((0, KEYS, view.read(0, KEYS)));
            return;
        }
        let keys = [
            ScanKey::Compare(0, Operator::GreaterEqual, Value::Int(low)),
            ScanKey::Compare(0, Operator::LessEqual, Value::Int(high)),
        ];
        reads.predicates.read(TABLE, &layout().project(&keys));
        reads.rows.push((low, high, view.read(low, high)));
    }

    fn reads(&self) -> Reads {
        Reads {
            rows: Vec::new(),
            predicates: Predicates::new(2),
        }
    }

    /// Writes one to three keys, at READ COMMITTED without a snapshot. `None`: a row was not to be
    /// had.
    fn write(&self, fxid: u64, view: Option<&View>) -> Option<(WriteSet, Record)> {
        let mut set = WriteSet::new(64);
        let mut record = Record {
            before: 0,
            csn: 0,
            reads: Vec::new(),
            writes: Vec::new(),
        };
        for _ in 0..thread_rng().gen_range(1..=self.plan.writes) {
            let key = thread_rng().gen_range(0..KEYS);
            let value = (!chance(0.3)).then_some(fxid * 10 + record.writes.len() as u64);
            let was_absent = self.server.write(fxid, view, key, value)?;
            let is_first = record.writes.iter().all(|&(written, _)| written != key);
            if was_absent && is_first && value.is_some() {
                // The index has told, whatever the snapshot shows.
                record.reads.push((key, key, Vec::new()));
            }
            let image = image(key);
            if chance(self.plan.whole) {
                set.write_all(0, TABLE);
            } else {
                set.write(0, TABLE, &self.map()(TABLE), image);
            }
            record.writes.push((key, value));
        }
        Some((set, record))
    }

    fn register(&self, fxid: u64, writes: &WriteSet, reads: Option<&Reads>) -> Numbered<'_> {
        if chance(self.plan.deaths) {
            self.die();
        }
        let is_running = |fxid| self.server.is_running(fxid);
        let space = self.server.space();
        let mut registered = space.register(self.process, fxid, writes, self.map(), &is_running);
        if let Some(reads) = reads {
            registered.add_reads(fxid, &reads.predicates, self.map(), &is_running);
        }
        registered.take_csn()
    }

    /// A transaction ends in the midst of its registration.
    fn die(&self) {
        let fxid = self.server.begin(None);
        let rings = self.server.space().writes.ranges;
        let bucket = thread_rng().gen_range(0..rings.len());
        rings.abandon(bucket, fxid, thread_rng().gen_range(0..3));
        self.server.end(fxid, Fate::Aborted);
    }

    fn blind_writer(&self) {
        let fxid = self.server.begin(Some(self.process));
        let Some((writes, mut record)) = self.write(fxid, None) else {
            return self.server.end(fxid, Fate::Aborted);
        };
        if planted(Fault::VisibleBeforeCsn) {
            self.server.end(fxid, Fate::Committed);
            record.before = self.register(fxid, &writes, None).csn;
            self.server.state.lock().unwrap().history.push(record);
            return;
        }
        record.before = self.register(fxid, &writes, None).csn;
        self.finish(fxid, record, Fate::Committed);
    }

    fn validated_writer(&self) {
        let early = chance(0.5).then(|| self.server.begin(Some(self.process)));
        let mut view = self.server.snapshot(early.unwrap_or(0), chance(0.5));
        let mut reads = self.reads();
        for _ in 0..thread_rng().gen_range(1..=2) {
            self.scan(&view, &mut reads);
        }
        let fxid = early.unwrap_or_else(|| self.server.begin(Some(self.process)));
        view.me = fxid;
        view.has_versions = chance(self.plan.versions);
        let Some((writes, mut record)) = self.write(fxid, Some(&view)) else {
            return self.server.end(fxid, Fate::Aborted);
        };
        let numbered = self.register(fxid, &writes, Some(&reads));
        let validation = self.validation(&view, numbered.csn);
        let written = || Written {
            definitions: Predicates::new(1),
            keys: writes.keys(8),
            learned: writes.keys(8),
        };
        let (result, _) = validation.place(&numbered, &reads.predicates, Some(&written));
        self.outcomes.count(&result.map(drop));
        record.before = numbered.csn;
        record.csn = numbered.csn;
        record.reads.extend(reads.rows);
        let fate = match result {
            Ok(placed) => {
                self.outcomes.moved(placed.moved);
                record.before = placed.position;
                Fate::Committed
            }
            Err(_) => Fate::Aborted,
        };
        self.finish(fxid, record, fate);
    }

    fn validation<'v>(&'v self, view: &'v View<'v>, before: Csn) -> Validation<'v, View<'v>> {
        Validation {
            space: self.server.space(),
            snapshot: view,
            before,
            prefix: view.prefix,
            ranges: self.map(),
            wait: &|| {
                shuttle::thread::yield_now();
                chance(0.9)
            },
        }
    }

    /// COMMIT, ROLLBACK or PREPARE of a transaction with a CSN.
    fn finish(&self, fxid: u64, record: Record, fate: Fate) {
        if fate == Fate::Committed && chance(self.plan.prepares) {
            let mut state = self.server.state.lock().unwrap();
            state.leave(fxid);
            return state.prepared.push((fxid, record));
        }
        self.conclude(fxid, record, fate);
    }

    fn conclude(&self, fxid: u64, record: Record, fate: Fate) {
        if fate == Fate::Committed {
            self.server.state.lock().unwrap().history.push(record);
        }
        self.server.end(fxid, fate);
    }

    /// COMMIT PREPARED or ROLLBACK PREPARED of somebody's transaction.
    pub fn end_prepared(&self) {
        let prepared = self.server.state.lock().unwrap().prepared.pop();
        if let Some((fxid, record)) = prepared {
            let fate = if chance(0.3) {
                Fate::Aborted
            } else {
                Fate::Committed
            };
            self.conclude(fxid, record, fate);
        }
    }

    /// A transaction without writes, validated at once after each scan or at its end.
    fn reader(&self) {
        let clock = self.server.space().clock;
        let too_early = planted(Fault::ReadingPointBeforeSnapshot).then(|| clock.reading_point());
        let mut view = self.server.snapshot(0, chance(0.5));
        view.has_versions = chance(self.plan.versions);
        let before = too_early.unwrap_or_else(|| clock.reading_point());
        let at_once = chance(0.5);
        let window = self.server.space().reads.is_some();
        let mut reads = self.reads();
        let mut all = self.reads().predicates;
        let mut conflicts = Vec::new();
        let mut ring_copy: Option<RingCopy> = None;
        let mut result = Ok(());
        for _ in 0..thread_rng().gen_range(1..=2) {
            if at_once && ring_copy.is_none() && chance(self.plan.copies) {
                ring_copy = self.copy(&view, before);
            }
            self.scan(&view, &mut reads);
            for (relation, set) in reads.predicates.iter() {
                set.iter().for_each(|part| all.read(relation, &[part]));
            }
            if at_once || window {
                let found = self.collect(
                    &view,
                    before,
                    &reads.predicates,
                    ring_copy.as_ref(),
                    &mut conflicts,
                );
                result = result.and(found);
                reads.predicates = self.reads().predicates;
            }
        }
        let mut stands_before = before;
        if at_once || window {
            let missed = conflicts.iter().filter(|(fxid, _)| !view.did_abort(*fxid));
            if let Some(first) = missed.map(|&(_, csn)| csn).min() {
                stands_before = first;
                let validation = self.validation(&view, before);
                result = result.and(can_stand(&validation, first, &all, ring_copy.as_ref()));
                if planted(Fault::NewerIgnored) {
                    result = Ok(());
                }
            }
            let space = self.server.space();
            let id = READER + u64::from(self.process);
            space.register_reader(self.process, id, stands_before, &all, self.map(), &|_| true);
            let validation = self.validation(&view, before);
            if !validation.nobody_moved(stands_before, &all) && !planted(Fault::MovedIgnored) {
                result = Err(Refusal::Restarted);
            }
            self.outcomes
                .at_once(result.is_ok(), stands_before < before, ring_copy.is_some());
        } else {
            result = self.validation(&view, before).run(&reads.predicates).0;
            self.outcomes.count(&result);
        }
        if result.is_ok() {
            let record = Record {
                before: stands_before,
                csn: 0,
                reads: reads.rows,
                writes: Vec::new(),
            };
            self.server.state.lock().unwrap().history.push(record);
        }
    }

    fn copy(&self, view: &View, before: Csn) -> Option<RingCopy> {
        let mut entries = Vec::new();
        let validation = self.validation(view, before);
        let (extent, _) = validation.copy(&mut |entry| entries.push(entry));
        extent.map(|extent| RingCopy::new(entries, extent))
    }

    fn collect(
        &self,
        view: &View,
        before: Csn,
        predicates: &Predicates,
        ring_copy: Option<&RingCopy>,
        conflicts: &mut Vec<(u64, Csn)>,
    ) -> Result<(), Refusal> {
        let validation = self.validation(view, before);
        let mut found = |conflict: Conflict| {
            assert!(conflict.written.overlaps(&conflict.read) || conflict.read == Interval::ALL);
            conflicts.push((conflict.fxid, conflict.csn));
            ControlFlow::Continue(())
        };
        if let Some(ring_copy) = ring_copy {
            return ring_copy.conflicts(&validation, predicates, &mut found);
        }
        if validation.quiet(predicates).is_some() {
            return Ok(());
        }
        validation.conflicts(predicates, &mut found).0
    }
}
