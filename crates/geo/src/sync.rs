//! Atomics of shared memory. Under test they are shuttle's, so that the model check interleaves
//! every access.

#[cfg(test)]
pub(crate) use shuttle::sync::atomic::{AtomicU64, fence};
#[cfg(not(test))]
pub(crate) use std::sync::atomic::{AtomicU64, fence};

pub(crate) use std::sync::atomic::Ordering;
