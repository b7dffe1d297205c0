//! Tables in which transactions have waited for each other lately.
//!
//! A follower of a hot row may update another row before its predecessor comes to it. In a table
//! where nobody ever waits for anybody that does not matter. Elsewhere the two would wait for each
//! other. Of tables with the same hash, the last few are remembered.

use crate::Word64;

const SETS: usize = 1024;
/// Tables of one hash.
const WAYS: usize = 4;
/// How long a table stays in mind after the last wait, in seconds.
const MEMORY_S: u64 = 60;

/// What transactions have waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Contention {
    /// A row, to update or lock it.
    Row,
    /// A row, to delete it, to change its key, or to lock it FOR UPDATE: the check of a foreign key
    /// is in the way of that.
    Key,
    /// The end of another transaction that inserts or deletes the same value of a unique index.
    Value,
}

/// Tables, and when somebody last had to wait in each.
#[derive(Debug)]
#[repr(C)]
pub struct ContendedTables {
    /// lock-free: (table << 32) | seconds.
    sets: [[Word64; WAYS]; SETS],
}

impl Default for ContendedTables {
    fn default() -> Self {
        ContendedTables {
            sets: std::array::from_fn(|_| Default::default()),
        }
    }
}

fn seconds(now: u64) -> u64 {
    (now / 1_000_000) & 0xffff_ffff
}

impl ContendedTables {
    /// The table as it stands in a word, and the words where it may.
    fn place(&self, what: Contention, database: u32, relation: u32) -> (u64, &[Word64; WAYS]) {
        let table = database.rotate_left(16) ^ relation ^ ((what as u32) << 30);
        let mixed = table.wrapping_mul(0x9e37_79b1) >> 22;
        (u64::from(table) << 32, &self.sets[mixed as usize % SETS])
    }

    /// At `now` (microseconds), somebody waits in that table.
    pub fn note(&self, what: Contention, database: u32, relation: u32, now: u64) {
        let (table, words) = self.place(what, database, relation);
        let oldest = || words.iter().min_by_key(|word| time_of(word.get()));
        let own = words.iter().find(|word| is_of(word.get(), table));
        let value = table | seconds(now);
        if let Some(word) = own.or_else(oldest)
            && word.get() != value
        {
            word.set(value);
        }
    }

    /// Whether that has happened lately.
    pub fn has(&self, what: Contention, database: u32, relation: u32, now: u64) -> bool {
        let (table, words) = self.place(what, database, relation);
        words.iter().map(Word64::get).any(|value| {
            is_of(value, table) && seconds(now).saturating_sub(time_of(value)) < MEMORY_S
        })
    }
}

fn time_of(value: u64) -> u64 {
    value & 0xffff_ffff
}

fn is_of(value: u64, table: u64) -> bool {
    value != 0 && value >> 32 == table >> 32
}

#[cfg(test)]
mod tests {
    use super::Contention::*;
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_wait_is_remembered_for_a_while() {
        let tables = ContendedTables::default();
        let start = 1000 * SECOND;
        let end = start + MEMORY_S * SECOND;
        assert!(!tables.has(Row, 1, 2, start));
        tables.note(Row, 1, 2, start);
        assert!(tables.has(Row, 1, 2, end - 1));
        assert!(!tables.has(Row, 1, 2, end));
        tables.note(Row, 1, 2, end);
        assert!(tables.has(Row, 1, 2, end + SECOND));
    }

    #[test]
    fn tables_are_not_taken_for_each_other() {
        let tables = ContendedTables::default();
        tables.note(Row, 5, 16_400, SECOND);
        for relation in 0..20_000 {
            assert_eq!(tables.has(Row, 5, relation, SECOND), relation == 16_400);
        }
        assert!(!tables.has(Row, 6, 16_400, SECOND));
        assert!(!tables.has(Key, 5, 16_400, SECOND));
    }

    #[test]
    fn four_tables_of_one_hash_are_remembered() {
        let tables = ContendedTables::default();
        let place = |relation| tables.place(Row, 5, relation).1.as_ptr();
        let same: Vec<u32> = (0..200_000).filter(|&n| place(n) == place(0)).collect();
        assert!(same.len() > WAYS);
        for (n, &relation) in same[..=WAYS].iter().enumerate() {
            tables.note(Row, 5, relation, (n as u64 + 1) * SECOND);
        }
        let kept = |relation| tables.has(Row, 5, relation, 10 * SECOND);
        assert!(!kept(same[0]), "the oldest makes room");
        assert!(same[1..=WAYS].iter().all(|&relation| kept(relation)));
    }
}
