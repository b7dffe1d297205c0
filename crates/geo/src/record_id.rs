//! What names a record.

/// A record: a hash of what names it at its node, and where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordId {
    hash: u64,
    database: u32,
    server: u32,
    relation: u32,
}

impl RecordId {
    /// The record with that key, as text, of a table that the node knows by `table`. `relation` is
    /// the foreign table.
    pub fn new(database: u32, server: u32, relation: u32, table: &str, key: &str) -> RecordId {
        // FNV-1a, which is the same in all processes.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let numbers = [database, server].into_iter().flat_map(u32::to_le_bytes);
        let texts = table.bytes().chain([0]).chain(key.bytes());
        for byte in numbers.chain(texts) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        // The last bytes reach the bits by which a set is chosen; 0 is no record.
        hash = (hash ^ (hash >> 32)).max(1);
        RecordId {
            hash,
            database,
            server,
            relation,
        }
    }

    #[cfg(test)]
    pub(crate) fn of_hash(hash: u64, relation: u32) -> RecordId {
        RecordId {
            hash,
            database: 1,
            server: 2,
            relation,
        }
    }

    /// The hash of what names it.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The coordinator's database.
    pub fn database(&self) -> u32 {
        self.database
    }

    /// The foreign server.
    pub fn server(&self) -> u32 {
        self.server
    }

    /// The foreign table.
    pub fn relation(&self) -> u32 {
        self.relation
    }
}
