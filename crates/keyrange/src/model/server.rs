//! What PostgreSQL would do: the running list, snapshots, versions, row locks; and the shared
//! memory of range OCC.

use std::collections::{BTreeMap, BTreeSet};

use shuttle::sync::Mutex;

use super::history::{Key, Record, Row};
use super::table::image;
use crate::{
    Bucket, Clock, Committer, Csn, IntervalSet, Mark, Relation, RingPair, RingSpace, Rings, Slot,
    Snapshot, Survey, has_no_csn,
};

/// Under which ids readers register what they have read: this and the number of the process.
pub const READER: u64 = 1 << 62;

/// Few, so that some of the table and of its ranges have one together.
const MARKS: usize = 3;

/// Sizes of shared memory.
#[derive(Clone, Copy)]
pub struct Shape {
    pub processes: usize,
    pub buckets: usize,
    pub depth: usize,
    /// Reads are registered, and transactions may move before those that they missed.
    pub window: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Committed,
    Aborted,
}

#[derive(Default)]
pub struct State {
    last_fxid: u64,
    running: BTreeSet<u64>,
    /// Which of them each process runs.
    run_by: BTreeMap<u32, u64>,
    fates: BTreeMap<u64, Fate>,
    /// Of each key, in the order of writing.
    versions: BTreeMap<Key, Vec<(u64, Option<u64>)>>,
    locks: BTreeMap<Key, u64>,
    /// Transactions prepared and not yet ended.
    pub prepared: Vec<(u64, Record)>,
    pub history: Vec<Record>,
}

pub struct Server {
    clock: Clock,
    committers: Vec<Committer>,
    buckets: Vec<Bucket>,
    slots: Vec<Slot>,
    relation_buckets: Vec<Bucket>,
    relation_slots: Vec<Slot>,
    marks: Vec<Mark>,
    reads: Option<ReadRings>,
    pub state: Mutex<State>,
}

struct ReadRings {
    buckets: Vec<Bucket>,
    slots: Vec<Slot>,
    relation_buckets: Vec<Bucket>,
    relation_slots: Vec<Slot>,
    marks: Vec<Mark>,
}

/// A snapshot of the transaction `me` (0: without an id).
pub struct View<'a> {
    server: &'a Server,
    pub me: u64,
    xmin: u64,
    xmax: u64,
    running: BTreeSet<u64>,
    /// Of a survey soon after the snapshot was taken, or 0.
    pub prefix: Csn,
    /// It can look at the versions of rows.
    pub has_versions: bool,
}

impl Server {
    /// A server that has just started; `recovered`: with a prepared transaction that wrote key 0
    /// before.
    pub fn new(shape: Shape, recovered: bool) -> Self {
        fn many<T: Default>(count: usize) -> Vec<T> {
            (0..count).map(|_| T::default()).collect()
        }
        let server = Server {
            clock: Clock::default(),
            committers: many(shape.processes),
            buckets: many(shape.buckets),
            slots: many(shape.buckets * shape.depth),
            relation_buckets: many(1),
            relation_slots: many(shape.depth),
            marks: many(MARKS),
            reads: shape.window.then(|| ReadRings {
                buckets: many(shape.buckets),
                slots: many(shape.buckets * shape.depth),
                relation_buckets: many(1),
                relation_slots: many(shape.depth),
                marks: many(MARKS),
            }),
            state: Mutex::new(State::default()),
        };
        if recovered {
            let fxid = server.begin(None);
            server.write(fxid, None, 0, Some(fxid));
            let record = Record {
                before: 0,
                csn: 0,
                reads: Vec::new(),
                writes: vec![(0, Some(fxid))],
            };
            server.state.lock().unwrap().prepared.push((fxid, record));
        }
        server.clock.start(1 + u64::from(recovered));
        server
    }

    pub fn space(&self) -> RingSpace<'_> {
        RingSpace {
            clock: &self.clock,
            committers: &self.committers,
            writes: RingPair {
                ranges: Rings::new(&self.buckets, &self.slots, &self.marks),
                relations: Rings::new(&self.relation_buckets, &self.relation_slots, &self.marks),
            },
            reads: self.reads.as_ref().map(|reads| RingPair {
                ranges: Rings::new(&reads.buckets, &reads.slots, &reads.marks),
                relations: Rings::new(&reads.relation_buckets, &reads.relation_slots, &reads.marks),
            }),
            // Not modelled: rings like the others, never both read and written by one transaction.
            definitions: Rings::new(&self.relation_buckets, &self.relation_slots, &self.marks),
        }
    }

    /// Of a process, or left behind by one.
    pub fn begin(&self, process: Option<u32>) -> u64 {
        let mut state = self.state.lock().unwrap();
        state.last_fxid += 1;
        let fxid = state.last_fxid;
        state.running.insert(fxid);
        if let Some(process) = process {
            state.run_by.insert(process, fxid);
        }
        fxid
    }

    /// A snapshot, perhaps with a survey made after it.
    pub fn snapshot(&self, me: u64, is_surveyed: bool) -> View<'_> {
        let state = self.state.lock().unwrap();
        let xmax = state.last_fxid + 1;
        let mut view = View {
            server: self,
            me,
            xmin: state.running.first().copied().unwrap_or(xmax),
            xmax,
            running: state.running.clone(),
            prefix: 0,
            has_versions: false,
        };
        drop(state);
        if is_surveyed {
            view.prefix = view.survey().lasting_prefix;
        }
        view
    }

    pub fn is_running(&self, fxid: u64) -> bool {
        fxid >= READER || self.state.lock().unwrap().running.contains(&fxid)
    }

    /// Writes a row, if no running transaction has it. For a writer with a snapshot: also only if
    /// no transaction that the snapshot does not see has left a row there. What was deleted unseen
    /// can be inserted. Tells whether there was no row.
    pub fn write(
        &self,
        me: u64,
        view: Option<&View>,
        key: Key,
        value: Option<u64>,
    ) -> Option<bool> {
        let mut state = self.state.lock().unwrap();
        let holder = state.locks.get(&key).copied();
        if holder.is_some_and(|holder| holder != me && state.running.contains(&holder)) {
            return None;
        }
        let versions = state.versions.get(&key);
        let last = versions.and_then(|versions| {
            let mut newest = versions.iter().rev();
            newest.find(|(fxid, _)| *fxid == me || state.fates.get(fxid) == Some(&Fate::Committed))
        });
        let is_absent = last.is_none_or(|(_, row)| row.is_none());
        if let (Some(view), Some((writer, _))) = (view, last)
            && *writer != me
            && !view.has_ended(*writer)
            && !(is_absent && value.is_some())
        {
            return None;
        }
        state.locks.insert(key, me);
        state.versions.entry(key).or_default().push((me, value));
        Some(is_absent)
    }

    /// Off the running list, with its locks.
    pub fn end(&self, fxid: u64, fate: Fate) {
        let mut state = self.state.lock().unwrap();
        state.fates.insert(fxid, fate);
        state.running.remove(&fxid);
        state.leave(fxid);
    }
}

impl State {
    /// No process runs it any more.
    pub fn leave(&mut self, fxid: u64) {
        self.run_by.retain(|_, run| *run != fxid);
    }
}

impl View<'_> {
    /// The rows with keys from `low` to `high` that the snapshot sees.
    pub fn read(&self, low: Key, high: Key) -> Vec<Row> {
        let state = self.server.state.lock().unwrap();
        let seen =
            |fxid: u64| self.has_ended(fxid) && state.fates.get(&fxid) == Some(&Fate::Committed);
        let rows = state.versions.range(low..=high);
        rows.filter_map(|(&key, versions)| {
            let newest = versions.iter().rev().find(|(fxid, _)| seen(*fxid))?;
            Some((key, newest.1?))
        })
        .collect()
    }
}

impl Snapshot for View<'_> {
    fn xmin(&self) -> u64 {
        self.xmin
    }

    fn has_ended(&self, fxid: u64) -> bool {
        fxid < self.xmax && !self.running.contains(&fxid)
    }

    fn did_abort(&self, fxid: u64) -> bool {
        self.server.state.lock().unwrap().fates.get(&fxid) == Some(&Fate::Aborted)
    }

    fn survey(&self) -> Survey {
        let run_by = |process: usize| {
            let state = self.server.state.lock().unwrap();
            state.run_by.get(&(process as u32)).copied().unwrap_or(0)
        };
        Survey::of(
            &self.server.clock,
            &self.server.committers,
            self.running.iter().copied(),
            self.xmax,
            run_by,
            |fxid| self.did_abort(fxid),
        )
    }

    fn shows_no_writer(&self, _: Relation, read: &IntervalSet) -> bool {
        if !self.has_versions {
            return false;
        }
        let writers = || {
            let state = self.server.state.lock().unwrap();
            let is_read = |key: Key| read.overlapping(&image(key)).is_some();
            let versions = state.versions.iter().filter(|(key, _)| is_read(**key));
            let all = versions.flat_map(|(_, versions)| versions.iter().map(|(fxid, _)| *fxid));
            all.collect::<Vec<u64>>()
        };
        let run_by = |process: usize| {
            let state = self.server.state.lock().unwrap();
            state.run_by.get(&(process as u32)).copied().unwrap_or(0)
        };
        writers().into_iter().all(|fxid| {
            self.is_mine(fxid)
                || self.has_ended(fxid)
                || self.did_abort(fxid)
                || has_no_csn(&self.server.committers, fxid, run_by)
        })
    }

    fn is_mine(&self, fxid: u64) -> bool {
        fxid == self.me
    }
}
