//! What the sessions share: hot rows, and what PostgreSQL would know of versions, transactions and
//! WAL.

use crate::model::latch::Latch;
use crate::{Backend, BackendId, Duty, FlushQueue, MEMBERS, Member, Members, ReadGuard, Row};
use shuttle::sync::{Condvar, Mutex};

pub const ROWS: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Running,
    /// And where its record ends in WAL.
    Committed(u64),
    RolledBack,
}

#[derive(Default)]
pub struct Heap {
    /// By transaction id - 1.
    pub fates: Vec<Fate>,
    /// Version `v` (1, 2, ...) of a row was written by `versions[row][v - 1].0` on top of the
    /// version given.
    pub versions: [Vec<(u32, u64)>; ROWS],
    /// The session that is about to write a version of the row.
    pub updating: [Option<BackendId>; ROWS],
}

#[derive(Default)]
struct Wal {
    inserted: u64,
    flushed: u64,
}

pub struct Server {
    pub rows: Vec<Row>,
    locks: Vec<Mutex<()>>,
    pub members: Vec<Member>,
    pub backends: Vec<Backend>,
    pub graph: Mutex<()>,
    pub latches: Vec<Latch>,
    flush: FlushQueue,
    pub guard: Box<ReadGuard>,
    wal: Mutex<Wal>,
    pub heap: Mutex<Heap>,
    ended: Condvar,
}

impl Server {
    pub fn new(backends: usize) -> Self {
        Server {
            rows: (0..ROWS).map(|_| Row::default()).collect(),
            locks: (0..ROWS).map(|_| Mutex::new(())).collect(),
            members: (0..backends * MEMBERS).map(|_| Member::default()).collect(),
            backends: (0..backends).map(|_| Backend::default()).collect(),
            graph: Mutex::new(()),
            latches: (0..backends).map(|_| Latch::default()).collect(),
            flush: FlushQueue::default(),
            guard: Box::new(ReadGuard::default()),
            wal: Mutex::new(Wal::default()),
            heap: Mutex::new(Heap::default()),
            ended: Condvar::new(),
        }
    }

    pub fn with_row<R>(&self, slot: u32, body: impl FnOnce(&Row, Members) -> R) -> R {
        let _held = self.locks[slot as usize].lock().unwrap();
        let members = &self.members;
        body(&self.rows[slot as usize], Members { all: members })
    }

    pub fn begin(&self) -> u32 {
        let mut heap = self.heap.lock().unwrap();
        heap.fates.push(Fate::Running);
        heap.fates.len() as u32
    }

    pub fn fate(&self, xid: u32) -> Fate {
        self.heap.lock().unwrap().fates[xid as usize - 1]
    }

    pub fn end(&self, xid: u32, fate: Fate) {
        let mut heap = self.heap.lock().unwrap();
        assert_eq!(heap.fates[xid as usize - 1], Fate::Running);
        heap.fates[xid as usize - 1] = fate;
        self.ended.notify_all();
    }

    /// XactLockTableWait.
    pub fn wait_for_end(&self, xid: u32) {
        let mut heap = self.heap.lock().unwrap();
        while heap.fates[xid as usize - 1] == Fate::Running {
            heap = self.ended.wait(heap).unwrap();
        }
    }

    /// The version of a row that a new snapshot sees, and its writer; 0 for the first.
    pub fn committed_version(&self, row: usize) -> (u64, u32) {
        let heap = self.heap.lock().unwrap();
        let mut at = (0, 0);
        while let Some(next) = heap.versions[row].iter().position(|&(writer, base)| {
            base == at.0 && matches!(heap.fates[writer as usize - 1], Fate::Committed(_))
        }) {
            at = (next as u64 + 1, heap.versions[row][next].0);
        }
        at
    }

    /// Whether the writer of a version has updated the row once more.
    pub fn has_changed(&self, row: usize, writer: u32, version: u64) -> bool {
        self.heap.lock().unwrap().versions[row].contains(&(writer, version))
    }

    /// A version is written by who alone may: on the page, one after the other.
    pub fn write(&self, row: usize, backend: BackendId, xid: u32, base: u64) -> u64 {
        let before = self.heap.lock().unwrap().updating[row].replace(backend);
        assert_eq!(before, None, "two tickets for one row");
        shuttle::thread::yield_now();
        let mut heap = self.heap.lock().unwrap();
        heap.updating[row] = None;
        heap.versions[row].push((xid, base));
        heap.versions[row].len() as u64
    }

    /// A commit record. Returns where it ends.
    pub fn log(&self) -> u64 {
        let mut wal = self.wal.lock().unwrap();
        wal.inserted += 1;
        wal.inserted
    }

    pub fn end_of_wal(&self) -> u64 {
        self.wal.lock().unwrap().inserted
    }

    pub fn flushed(&self) -> u64 {
        self.wal.lock().unwrap().flushed
    }

    pub fn flush(&self, me: BackendId, until: u64) {
        if self.flushed() >= until {
            return;
        }
        let mut duty = self.flush.join(&self.backends, me, until);
        while duty == Duty::Wait {
            self.latches[me as usize].wait();
            duty = self.flush.duty(&self.backends, me);
        }
        if duty == Duty::Flush {
            let upto = {
                let mut wal = self.wal.lock().unwrap();
                wal.flushed = wal.inserted;
                wal.flushed
            };
            let wake = |backend: BackendId| self.latches[backend as usize].set();
            self.flush.hand_over(&self.backends, me, upto, wake);
        }
    }

    /// Everybody has ended: nothing is left behind, and there is one committed line of versions.
    pub fn check_end(&self) {
        for row in &self.rows {
            assert!(row.is_idle(), "a membership outlives its transaction");
            assert_eq!(
                (row.waiting(), row.running()),
                (0, 0),
                "a count outlives its transaction"
            );
        }
        let heap = self.heap.lock().unwrap();
        let committed = |writer: u32| matches!(heap.fates[writer as usize - 1], Fate::Committed(_));
        for versions in &heap.versions {
            for (n, &(writer, base)) in versions.iter().enumerate() {
                let rival = |&(m, &(other, below)): &(usize, &(u32, u64))| {
                    m != n && below == base && committed(other)
                };
                let rivals = versions.iter().enumerate().filter(rival).count();
                assert!(
                    !committed(writer) || rivals == 0,
                    "two committed versions on top of one"
                );
            }
        }
    }
}
