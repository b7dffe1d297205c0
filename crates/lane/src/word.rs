//! Words of shared memory. All accesses are sequentially consistent, so that the model check, which
//! runs sequentially consistent schedules only, runs all that there are.

use std::sync::atomic::Ordering::SeqCst;

#[cfg(test)]
use shuttle::sync::atomic::AtomicU64;
#[cfg(not(test))]
use std::sync::atomic::AtomicU64;

/// A shared `u64`; zeroed memory is a valid one.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Word(AtomicU64);

impl Word {
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(SeqCst)
    }

    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, SeqCst);
    }

    /// Adds and returns the value before.
    #[inline]
    pub(crate) fn add(&self, value: u64) -> u64 {
        self.0.fetch_add(value, SeqCst)
    }

    /// Subtracts and returns the value before.
    #[inline]
    pub(crate) fn sub(&self, value: u64) -> u64 {
        self.0.fetch_sub(value, SeqCst)
    }

    /// Replaces `old` by `new`. Whether it was `old`.
    #[inline]
    pub(crate) fn exchange(&self, old: u64, new: u64) -> bool {
        self.0.compare_exchange(old, new, SeqCst, SeqCst).is_ok()
    }
}
