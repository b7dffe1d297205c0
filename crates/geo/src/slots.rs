//! Slots in shared memory: the distributed transactions of this incarnation that are voting or
//! applying.
//!
//! Each backend has one slot. A transaction stands in one slot only. It comes before its first
//! PREPARE is sent, and leaves when it cannot commit any more or its decision rows are visible. A
//! backend that exits closes its slot only after its transaction has been aborted.

use crate::sync::{AtomicU64, Ordering, fence};

const FREE: u64 = 0;

/// A backend's slot; zeroed memory is a free one.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Slot(AtomicU64);

impl Slot {
    /// Shows that this transaction is active. To be called before the first PREPARE is sent.
    ///
    /// # Panics
    ///
    /// If the sequence is 0, which stands for a free slot.
    pub fn open(&self, sequence: u64) {
        assert_ne!(sequence, FREE, "sequences begin at 1");
        self.0.store(sequence, Ordering::SeqCst);
        // The resolver learns of the PREPARE from the node, by no access to our memory. The fence
        // keeps the store before all that the PREPARE's sending writes. Its partner is in `active`.
        fence(Ordering::SeqCst);
    }

    /// Shows that the transaction is not active any more.
    pub fn close(&self) {
        // A release store. A resolver reads the free slot and then takes a snapshot: it finds the
        // transaction gone from the list of running ones, and so sees its decision rows.
        self.0.store(FREE, Ordering::SeqCst);
    }

    /// The transaction that is active here.
    pub fn sequence(&self) -> Option<u64> {
        let sequence = self.0.load(Ordering::SeqCst);
        (sequence != FREE).then_some(sequence)
    }
}

/// The transactions that were active when the slots were read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Active(Vec<u64>);

impl Active {
    /// Whether the transaction was active.
    pub fn contains(&self, sequence: u64) -> bool {
        self.0.binary_search(&sequence).is_ok()
    }

    /// These, and those of more that have been read after them.
    #[must_use]
    pub fn and(mut self, more: impl IntoIterator<Item = u64>) -> Active {
        self.0.extend(more);
        self.0.sort_unstable();
        self
    }

    /// The transactions, in ascending order.
    pub fn sequences(&self) -> &[u64] {
        &self.0
    }
}

/// Reads all slots, one after the other.
///
/// No transaction is missed that was active before the call and still is after it, because none
/// moves between slots.
pub fn active(slots: &[Slot]) -> Active {
    // The partner of the fence in `open`: what a node has answered before comes before the loads.
    fence(Ordering::SeqCst);
    let mut sequences: Vec<u64> = slots.iter().filter_map(Slot::sequence).collect();
    sequences.sort_unstable();
    Active(sequences)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shuttle::sync::Arc;
    use shuttle::thread;

    #[test]
    fn open_slots_are_active() {
        let body = || {
            let slots: [Slot; 4] = Default::default();
            slots[2].open(7);
            slots[0].open(9);
            slots[3].open(8);
            slots[3].close();
            let active = active(&slots);
            assert_eq!(active.sequences(), [7, 9]);
            assert!(active.contains(7) && active.contains(9));
            assert!(!active.contains(8) && !active.contains(0));
        };
        shuttle::check_random(body, 1);
    }

    #[test]
    fn a_prepare_that_is_seen_is_active_or_has_ended() {
        let body = || {
            let slots: Arc<[Slot; 2]> = Arc::default();
            let states: Arc<[AtomicU64; 2]> = Arc::default();
            let threads = [0, 1].map(|me| {
                let (slots, states) = (slots.clone(), states.clone());
                thread::spawn(move || {
                    slots[me].open(me as u64 + 1);
                    states[me].store(1, Ordering::SeqCst);
                    states[me].store(2, Ordering::SeqCst);
                    slots[me].close();
                })
            });
            let prepared = [0, 1].map(|me: usize| states[me].load(Ordering::SeqCst) > 0);
            let active = active(&*slots);
            for me in 0..2 {
                let has_ended = states[me].load(Ordering::SeqCst) == 2;
                assert!(!prepared[me] || active.contains(me as u64 + 1) || has_ended);
            }
            threads
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
        };
        shuttle::check_random(body, 2000);
    }
}
