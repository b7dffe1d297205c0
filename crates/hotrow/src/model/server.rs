//! One hot row, and what PostgreSQL would know of the transactions that update it.

use super::latch::Latch;
use super::prepared::{PLACES, Prepared};
use crate::{BackendId, MEMBERS, Member, Members, Row};
use shuttle::sync::{Condvar, Mutex};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Running,
    Committed,
    RolledBack,
}

/// The row, and what PostgreSQL would know: versions with their writers, and the fate of each
/// transaction.
pub struct Server {
    lock: Mutex<()>,
    pub row: Row,
    pub members: Vec<Member>,
    pub latches: Vec<Latch>,
    pub updating: Mutex<Option<BackendId>>,
    /// Version `v` (1, 2, ...) was written by `versions[v - 1]` on top of the version given.
    pub versions: Mutex<Vec<(u32, u64)>>,
    pub fates: Mutex<Vec<Fate>>,
    ended: Condvar,
    pub prepared: Prepared,
}

impl Server {
    pub fn new(backends: usize) -> Self {
        Server {
            lock: Mutex::new(()),
            row: Row::default(),
            members: (0..(backends + PLACES) * MEMBERS)
                .map(|_| Member::default())
                .collect(),
            latches: (0..backends).map(|_| Latch::default()).collect(),
            updating: Mutex::new(None),
            versions: Mutex::new(Vec::new()),
            fates: Mutex::new(Vec::new()),
            ended: Condvar::new(),
            prepared: Prepared::behind(backends),
        }
    }

    pub fn sessions(&self) -> usize {
        self.latches.len()
    }

    pub fn wake(&self, backend: BackendId) {
        self.latches[backend as usize].set();
    }

    pub fn with_row<R>(&self, body: impl FnOnce(&Row, Members) -> R) -> R {
        let _held = self.lock.lock().unwrap();
        body(&self.row, Members { all: &self.members })
    }

    pub fn begin(&self) -> u32 {
        let mut fates = self.fates.lock().unwrap();
        fates.push(Fate::Running);
        fates.len() as u32
    }

    pub fn fate(&self, xid: u32) -> Fate {
        self.fates.lock().unwrap()[xid as usize - 1]
    }

    /// Ends a transaction together with its subtransaction, or the subtransaction alone.
    pub fn end(&self, xids: &[u32], fate: Fate) {
        let mut fates = self.fates.lock().unwrap();
        for &xid in xids {
            assert_eq!(fates[xid as usize - 1], Fate::Running);
            fates[xid as usize - 1] = fate;
        }
        self.ended.notify_all();
    }

    /// XactLockTableWait.
    pub fn wait_for_end(&self, xid: u32) {
        let mut fates = self.fates.lock().unwrap();
        while fates[xid as usize - 1] == Fate::Running {
            fates = self.ended.wait(fates).unwrap();
        }
    }

    pub fn last_committed_version(&self) -> u64 {
        let versions = self.versions.lock().unwrap();
        let fates = self.fates.lock().unwrap();
        let mut at = 0;
        while let Some(next) = (0..versions.len())
            .find(|&v| versions[v].1 == at && fates[versions[v].0 as usize - 1] == Fate::Committed)
        {
            at = next as u64 + 1;
        }
        at
    }
}
