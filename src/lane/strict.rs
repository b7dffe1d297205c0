//! `txn.lane_beyond = error`: a declared transaction fails if it uses more than it has declared.

use super::errors;
use crate::pg::local::Local;
use crate::pg::of_transaction::OfTransaction;
use crate::shared::guc::{self, LaneBeyond};
use ::lane::Item;
use std::cell::Cell;

/// The transaction has itself said what it uses, and fails if it uses more.
static IS_STRICT: Local<OfTransaction<bool>> = Local::new(OfTransaction::new(false));
/// So are its reads, as it has said what it reads.
static OF_READS: Local<Cell<bool>> = Local::new(Cell::new(false));

/// The transaction has taken what it has declared. `names_reads` says that it has declared reads.
pub fn begin(names_reads: bool) {
    IS_STRICT.set(guc::LANE_BEYOND.get() == LaneBeyond::Error);
    OF_READS.set(names_reads);
}

/// The transaction has ended.
#[inline]
pub fn end() {
    IS_STRICT.clear();
}

/// Whether the transaction fails if it uses more than it has declared.
#[inline]
pub fn is_on() -> bool {
    IS_STRICT.get()
}

/// Whether the transaction fails if it has read more than it has declared.
#[inline]
pub fn is_of_reads() -> bool {
    IS_STRICT.get() && OF_READS.get()
}

/// A declared transaction is about to write to these keys, or to lock them, and has not declared
/// that. 55000 if it is to fail then. Nothing with a destructor is alive in the callers.
pub fn check_write(wanted: &Item) {
    if IS_STRICT.get() {
        errors::beyond(wanted);
    }
}
