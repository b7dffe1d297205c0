//! State of a backend, in a static.

use std::ops::Deref;

/// A value of this process: each backend has its own, with what the postmaster had put there.
#[repr(transparent)]
pub struct Local<T>(T);

// SAFETY: a backend has one thread. (Signal handlers do not come to such a value; `cancel.rs`,
// which has one, uses atomics.)
unsafe impl<T> Sync for Local<T> {}

impl<T> Local<T> {
    pub const fn new(value: T) -> Self {
        Local(value)
    }
}

impl<T> Deref for Local<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}
