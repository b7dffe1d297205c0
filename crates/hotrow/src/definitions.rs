//! Commits that change definitions: tables, functions, rights.
//!
//! A follower's statement is analyzed and planned while its predecessors still run. Stock
//! PostgreSQL analyzes it after their commit, and so with all that they have defined. Whether
//! anybody has changed a definition in between is asked here. A reader notes the number of changes
//! that had *ended*. When its predecessors have ended, it compares that with the number of changes
//! that have *begun*. So a change that was under way when the reader began counts as one.

use crate::Word64;

/// Databases share counters: a change in another one may be taken for one in ours.
const COUNTERS: usize = 16;

/// The server's changes of definitions.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Definitions {
    counters: [Counter; COUNTERS],
}

#[derive(Debug, Default)]
#[repr(C)]
struct Counter {
    begun: Word64,
    ended: Word64,
}

/// Where a change can be seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    Database(u32),
    /// Roles are in all databases.
    Server,
}

impl Definitions {
    /// A transaction that changes definitions is about to commit. Nobody sees the changes yet.
    pub fn begin(&self, scope: Scope) {
        for counter in self.concerned(scope) {
            counter.begun.add(1);
        }
    }

    /// It has ended, and whoever looks now knows of the changes.
    pub fn end(&self, scope: Scope) {
        for counter in self.concerned(scope) {
            counter.ended.add(1);
        }
    }

    /// How many changes in that database had ended by now.
    pub fn ended(&self, database: u32) -> u64 {
        self.of(database).ended.get()
    }

    /// Whether there may have been a change since `ended` said that.
    pub fn have_changed(&self, database: u32, since: u64) -> bool {
        self.of(database).begun.get() != since
    }

    fn of(&self, database: u32) -> &Counter {
        &self.counters[database as usize % COUNTERS]
    }

    fn concerned(&self, scope: Scope) -> &[Counter] {
        match scope {
            Scope::Server => &self.counters,
            Scope::Database(database) => std::slice::from_ref(self.of(database)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_from_its_begin_to_its_end() {
        let definitions = Definitions::default();
        let before = definitions.ended(7);
        assert!(!definitions.have_changed(7, before));
        definitions.begin(Scope::Database(7));
        assert!(definitions.have_changed(7, before));
        // A follower that begins now may analyze its statements before or after the change.
        let during = definitions.ended(7);
        assert!(definitions.have_changed(7, during));
        definitions.end(Scope::Database(7));
        assert!(definitions.have_changed(7, before) && definitions.have_changed(7, during));
        assert!(!definitions.have_changed(7, definitions.ended(7)));
    }

    #[test]
    fn a_change_is_one_of_its_database_or_of_all() {
        let definitions = Definitions::default();
        let changed = |database| definitions.have_changed(database, 0);
        definitions.begin(Scope::Database(7));
        assert!(changed(7) && !changed(8));
        definitions.begin(Scope::Server);
        assert!(changed(8));
    }
}
