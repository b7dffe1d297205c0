//! Counts of what became of the transactions in all schedules.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::Refusal;

/// What became of the transactions in all schedules.
#[derive(Default)]
pub struct Outcomes {
    pub passed: AtomicU64,
    pub conflict: AtomicU64,
    pub history_lost: AtomicU64,
    pub restarted: AtomicU64,
    pub at_once: AtomicU64,
    /// Of these, those by a ring copy.
    pub copied: AtomicU64,
    /// Transactions that stand before some that had their CSNs.
    pub moved: AtomicU64,
    pub violation: Mutex<Option<String>>,
}

impl Outcomes {
    pub fn count(&self, result: &Result<(), Refusal>) {
        let counter = match result {
            Ok(()) => &self.passed,
            Err(Refusal::Conflict(_)) => &self.conflict,
            Err(Refusal::HistoryLost { .. }) => &self.history_lost,
            Err(Refusal::Restarted) => &self.restarted,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub fn at_once(&self, passed: bool, moved: bool, copied: bool) {
        self.at_once.fetch_add(u64::from(passed), Relaxed);
        self.copied.fetch_add(u64::from(passed && copied), Relaxed);
        self.moved.fetch_add(u64::from(passed && moved), Relaxed);
    }

    pub fn moved(&self, moved: bool) {
        self.moved.fetch_add(u64::from(moved), Relaxed);
    }

    pub fn found(&self) -> Option<String> {
        self.violation.lock().unwrap().clone()
    }
}
