#![doc = include_str!("../README.md")]

mod counters;
mod csn;
mod describe;
mod entry;
mod fault;
mod image;
mod kind;
mod layout;
mod look;
mod mark;
#[cfg(test)]
mod model;
mod parts;
mod predicate;
mod ranges;
mod register;
mod ring;
mod ring_copy;
mod scan;
mod slot;
mod snapshot;
mod survey;
mod validate;
mod window;
mod word;
mod write;

pub use counters::{Count, Counters};
pub use csn::{Clock, Committer, Csn};
pub use describe::Bound;
pub use entry::Entry;
#[cfg(feature = "planted_faults")]
pub use fault::{Fault, plant};
pub use image::{FIRST_NULL, Image, Interval};
pub use kind::{Decoded, Kind, Numeric, Value};
pub use layout::{COLUMNS, Layout};
pub use mark::{Gap, Mark};
pub use parts::{KEYS, Parts};
pub use predicate::{IntervalSet, Predicates};
pub use ranges::{Grid, NARROWEST, NULL_RANGE, Pieces, Range, RangeMap, Ranges, boundaries};
pub use register::{Numbered, Registered, RingPair, RingSpace};
pub use ring::{Bucket, Nowhere, Place, Published, Rings, Walk};
pub use ring_copy::{Extent, RingCopy};
pub use scan::{Intervals, Operator, ScanKey};
pub use slot::Slot;
pub use snapshot::{Snapshot, overtaken};
pub use survey::{Survey, has_no_csn};
pub use validate::{Cause, Conflict, Refusal, Validation, Work};
pub use window::{Placed, Written};
pub use write::{Write, WriteSet};

/// A relation: database oid in the upper half, relation oid in the lower.
pub type Relation = u64;

/// With this bit, a relation stands for its definition, which is read and written like rows, and
/// has rings of its own.
pub const DEFINITION: Relation = 1 << 63;

pub(crate) fn is_definition(relation: Relation) -> bool {
    relation & DEFINITION != 0
}
