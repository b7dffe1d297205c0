//! Tables in which transactions have waited for each other lately.
//!
//! A follower of a hot row may update another row before its predecessor comes to it. In a table where nobody ever waits
//! for anybody that does not matter. Elsewhere the two would wait for each other. Tables that share a word by hash push
//! each other out of it.

use crate::Word64;

const WORDS: usize = 1024;
/// How long a table stays in mind after the last wait, in seconds.
const MEMORY_S: u64 = 60;

/// What transactions have waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Contention {
    /// A row, to update or lock it.
    Row,
    /// The same, in a way that a foreign key's check is in the way of: to delete it, to change its key, FOR UPDATE.
    Key,
    /// The end of another transaction that inserts or deletes the same value of a unique index.
    Value,
}

/// Tables, and when somebody last had to wait in each.
#[derive(Debug)]
#[repr(C)]
pub struct ContendedTables {
    /// lock-free: (table << 32) | seconds.
    words: [Word64; WORDS],
}

impl Default for ContendedTables {
    fn default() -> Self {
        ContendedTables {
            words: std::array::from_fn(|_| Word64::default()),
        }
    }
}

fn seconds(now: u64) -> u64 {
    (now / 1_000_000) & 0xffff_ffff
}

impl ContendedTables {
    /// The table as it stands in a word, and that word.
    fn place(&self, what: Contention, database: u32, relation: u32) -> (u64, &Word64) {
        let table = database.rotate_left(16) ^ relation ^ ((what as u32) << 30);
        let mixed = table.wrapping_mul(0x9e37_79b1) >> 22;
        (u64::from(table) << 32, &self.words[mixed as usize % WORDS])
    }

    /// At `now` (microseconds), somebody waits in that table.
    pub fn note(&self, what: Contention, database: u32, relation: u32, now: u64) {
        let (table, word) = self.place(what, database, relation);
        let value = table | seconds(now);
        if word.get() != value {
            word.set(value);
        }
    }

    /// Whether that has happened lately.
    pub fn has(&self, what: Contention, database: u32, relation: u32, now: u64) -> bool {
        let (table, word) = self.place(what, database, relation);
        let value = word.get();
        value >> 32 == table >> 32
            && value != 0
            && seconds(now).saturating_sub(value & 0xffff_ffff) < MEMORY_S
    }
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
}
