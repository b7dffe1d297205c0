//! What a plan is about to touch, as far as it can be known before it runs.

mod key_scan;
mod statement;
mod target;

pub use statement::{
    OnConflict, calls_nothing, has_one_source_row, is_allowed, is_partitioned, may_lock,
    may_route_upserts, on_conflict, only_reads_tables, reads_nothing, tables, writes_with_triggers,
};
pub use target::{Existence, Target, constants, existence, target, updated_columns};
