//! The user mappings with which resolvers are connected to nodes: only there is a commit handed
//! over. In shared memory, under the lock of the board; zeroed memory is empty.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Mappings that there is room for. Commits of others are their sessions' own.
const LINKED: usize = 256;

/// All of them: the database's oid above the mapping's, 0 for none.
#[repr(C)]
pub struct Linked {
    places: [AtomicU64; LINKED],
}

fn word(database: u32, mapping: u32) -> u64 {
    u64::from(database) << 32 | u64::from(mapping)
}

impl Linked {
    /// From now on these are the database's.
    pub fn set(&self, database: u32, mappings: &[u32]) {
        let mut left = mappings.iter().map(|&mapping| word(database, mapping));
        for place in &self.places {
            let held = place.load(Relaxed);
            if held == 0 || held >> 32 == u64::from(database) {
                place.store(left.next().unwrap_or(0), Relaxed);
            }
        }
    }

    /// Whether the mapping is one of them.
    pub fn has(&self, database: u32, mapping: u32) -> bool {
        let wanted = word(database, mapping);
        self.places
            .iter()
            .any(|place| place.load(Relaxed) == wanted)
    }
}

#[cfg(test)]
impl Default for Linked {
    fn default() -> Linked {
        Linked {
            places: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_database_has_its_own() {
        let linked = Linked::default();
        linked.set(5, &[1, 2]);
        linked.set(6, &[2]);
        assert!(linked.has(5, 1) && linked.has(5, 2) && linked.has(6, 2));
        linked.set(5, &[3]);
        assert!(linked.has(5, 3) && linked.has(6, 2));
        assert!(!linked.has(5, 1) && !linked.has(5, 2) && !linked.has(6, 3));
        linked.set(5, &[]);
        assert!(!linked.has(5, 3) && linked.has(6, 2));
    }

    #[test]
    fn more_than_there_is_room_for_are_left_out() {
        let linked = Linked::default();
        let many: Vec<u32> = (1..=LINKED as u32 + 1).collect();
        linked.set(5, &many);
        assert!(linked.has(5, LINKED as u32) && !linked.has(5, LINKED as u32 + 1));
    }
}
