//! Histories to check: told by hand, or from simulated databases; and what is true of them.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(unused_imports, reason = "the same")]
mod brute;
mod expected;
mod simulate;
mod told;

pub use brute::{serializable, snapshot};
pub use expected::*;
pub use simulate::{Database, simulate};
pub use told::*;

use history::Workload;

/// Few objects and short transactions, so that they meet.
pub fn crowded(seed: u64) -> Workload {
    Workload {
        seed,
        lists: 1,
        registers: 1,
        slots: 2,
        length: 2..=4,
        widths: vec![1, 2, 0],
        rollbacks: 10,
        rare_keys: 1,
        rare: 20,
        ..Workload::default()
    }
}
