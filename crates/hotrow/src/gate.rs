//! The gate of rows that transactions take in opposite orders.
//!
//! Where transactions update two of a few rows in any order, they close cycles, and each cycle
//! costs a transaction. Rows that have been met in a cycle get a gate in common. It is a ticket
//! like a row's own, of a slot that stands for no row. A transaction that has nothing yet takes it
//! before its first row of the gate, and gives it back when it has its second one. So transactions
//! get both of their rows in one order, and no cycle closes. The gate goes away when nobody has
//! needed it for a while.

use crate::{Identity, Row, Slot};

/// How long a gate stays after the last sign that transactions take its rows in different orders,
/// in microseconds.
const LASTS: u64 = 5_000_000;

/// The relation of a gate's slot: none.
const NO_RELATION: u32 = 0;

impl Identity {
    /// The gate of that number.
    pub fn gate(database: u32, number: u64) -> Self {
        Identity::new(database, NO_RELATION, &number.to_le_bytes())
    }
}

impl Row {
    /// lock-free: whether the slot is a gate, and stands for no row.
    pub fn is_gate(&self) -> bool {
        self.relation() == NO_RELATION
    }

    /// lock-free: the number of the row's gate, or 0.
    pub fn gate(&self) -> u64 {
        self.gate.get()
    }

    /// lock-free: from now on that is the row's gate; 0 for none.
    pub fn put_behind(&self, gate: u64) {
        self.gate.publish(gate);
    }

    /// lock-free, of a gate: whether it is needed at `now`.
    pub fn is_needed(&self, now: u64) -> bool {
        now < self.needed_until.get()
    }

    /// lock-free, of a gate: a cycle has been closed.
    pub fn need(&self, now: u64) {
        self.needed_until.publish(now + LASTS);
    }

    /// lock-free, of a gate: a transaction has taken these two rows one after the other. If the one
    /// before took its rows in the other direction, the gate is needed.
    pub fn pass(&self, first: Slot, second: Slot, now: u64) {
        let direction = 1 + u32::from(first < second);
        if self.direction.get() != direction {
            self.direction.publish(direction);
            self.need(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_needed_while_directions_change() {
        let gate = Row::default();
        assert!(!gate.is_needed(1));
        gate.need(1);
        assert!(gate.is_needed(LASTS) && !gate.is_needed(1 + LASTS));
        gate.pass(3, 7, 10);
        assert!(gate.is_needed(9 + LASTS) && !gate.is_needed(10 + LASTS));
        gate.pass(2, 9, 20);
        assert!(!gate.is_needed(10 + LASTS));
        gate.pass(9, 2, 30);
        assert!(gate.is_needed(29 + LASTS));
    }

    #[test]
    fn a_gate_is_no_row() {
        let gate = Identity::gate(1, 77);
        assert_ne!(gate, Identity::gate(1, 78));
        assert_ne!(gate, Identity::gate(2, 77));
        assert_ne!(gate, Identity::new(1, 2, &77u64.to_le_bytes()));
    }
}
