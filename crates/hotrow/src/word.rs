//! Words of shared memory: plain integers that several processes read and write.
//!
//! Most are only touched under the lock of the row they belong to; the atomic access is what makes
//! them safe to share without `unsafe`, the lock is what makes them consistent. Loads and stores
//! are sequentially consistent, because a few words (marked where they stand) are also read without
//! the lock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

/// Under test, while a model runs: each access is a step of shuttle's, so that accesses without a
/// lock are interleaved, too.
#[inline]
fn step() {
    #[cfg(test)]
    crate::model::step();
}

/// A shared `u32`.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Word32(AtomicU32);

/// A shared `u64`.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Word64(AtomicU64);

macro_rules! word {
    ($name:ident, $int:ty, $atomic:ty) => {
        impl $name {
            pub const fn new() -> Self {
                Self(<$atomic>::new(0))
            }

            /// The present value.
            #[inline]
            pub fn get(&self) -> $int {
                step();
                self.0.load(SeqCst)
            }

            /// Replaces the value. A release store: every reader that must not miss it takes the
            /// row's lock or exchanges a word of its own.
            #[inline]
            pub fn set(&self, value: $int) {
                step();
                self.0.store(value, std::sync::atomic::Ordering::Release)
            }

            /// Replaces the value with a full barrier, for words whose readers take no lock.
            #[inline]
            pub fn publish(&self, value: $int) {
                step();
                self.0.store(value, SeqCst)
            }

            /// Adds and returns the value before.
            #[inline]
            pub fn add(&self, value: $int) -> $int {
                step();
                self.0.fetch_add(value, SeqCst)
            }

            /// Subtracts and returns the value before.
            #[inline]
            pub fn sub(&self, value: $int) -> $int {
                step();
                self.0.fetch_sub(value, SeqCst)
            }

            /// Raises the value to at least `value`.
            #[inline]
            pub fn raise(&self, value: $int) {
                step();
                self.0.fetch_max(value, SeqCst);
            }
        }
    };
}

impl Word32 {
    /// Replaces 0 by `value`. False when it is not 0.
    #[inline]
    pub fn claim(&self, value: u32) -> bool {
        self.exchange(0, value).is_ok()
    }

    /// Replaces `old` by `new`, or tells the present value.
    #[inline]
    pub fn exchange(&self, old: u32, new: u32) -> Result<(), u32> {
        step();
        self.0.compare_exchange(old, new, SeqCst, SeqCst).map(drop)
    }

    /// Takes the value and leaves 0.
    #[inline]
    pub fn take(&self) -> u32 {
        step();
        self.0.swap(0, SeqCst)
    }
}

word!(Word32, u32, AtomicU32);
word!(Word64, u64, AtomicU64);
