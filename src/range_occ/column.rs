//! A column of a range key.

use keyrange::Kind;
use pgrx::pg_sys::Oid;

/// A column of a range key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// Its number in the table.
    pub number: i16,
    pub kind: Kind,
    /// Its type, of a domain the one below.
    pub typ: Oid,
    /// The operator families by which equality and order are the type's own: B-tree's and hash's.
    pub family: Oid,
    pub hash_family: Oid,
    /// Images are in the order of the values, not merely the same for equal ones.
    pub is_ordered: bool,
}
