//! How tables are divided into ranges.

/// How the keys of a table are divided into ranges, as `txn.partition_by_range` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Division {
    Ranges(u64),
    /// Keys of each range.
    Width(u64),
}
