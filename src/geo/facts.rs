//! What a node tells of itself when a connection is made.

use std::hash::{DefaultHasher, Hash, Hasher};

/// What the node has told when the connection was made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    pub system: String,
    pub timeline: u32,
    /// When it was started, and behind a slash when it lost its statistics, as in a crash of one of
    /// its processes.
    pub started: String,
    /// It has `txn`, and tells of its hot rows if asked.
    pub reports: bool,
}

impl Facts {
    /// What tells the running server from others, whatever its addresses, databases and users.
    pub fn cluster(&self) -> u64 {
        let start = self.started.split('/').next();
        cluster(&self.system, start.unwrap_or_default())
    }
}

/// A running server by its system and when it was started: a copy of its data has another start.
pub fn cluster(system: &str, start: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (system, start).hash(&mut hasher);
    hasher.finish()
}
