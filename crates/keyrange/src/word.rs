//! Words of shared memory, read and written by several processes without locks.
//!
//! All but the fields of a slot are sequentially consistent. The model check runs only such
//! schedules, and so it runs all that there are. On x86-64 that costs nothing but for the few plain
//! stores.

#[cfg(not(test))]
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};

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

    /// Raises the value to at least `value` and returns the one before.
    #[inline]
    pub(crate) fn raise(&self, value: u64) -> u64 {
        self.0.fetch_max(value, SeqCst)
    }

    /// Raises the value to at least `value`; most often it is there already.
    #[inline]
    pub(crate) fn lift(&self, value: u64) {
        if self.get() < value {
            self.raise(value);
        }
    }

    /// Replaces `old` by `new`, or tells the present value.
    #[inline]
    pub(crate) fn exchange(&self, old: u64, new: u64) -> Result<(), u64> {
        self.0.compare_exchange(old, new, SeqCst, SeqCst).map(drop)
    }

    /// Some value that the word has had. Nothing is decided by it.
    #[inline]
    pub(crate) fn glance(&self) -> u64 {
        #[cfg(not(test))] // no step of a model
        return self.0.load(Relaxed);
        #[cfg(test)]
        0
    }

    /// Reads a field of a slot: who reads what a writer put here also sees what that writer did
    /// before.
    #[inline]
    pub(crate) fn read_field(&self) -> u64 {
        self.0.load(Acquire)
    }

    /// Writes a field of a slot: whatever the writer did before is seen by who reads the new value.
    #[inline]
    pub(crate) fn write_field(&self, value: u64) {
        self.0.store(value, Release);
    }
}
