#![doc = include_str!("README.md")]

pub mod capture;
mod column;
pub mod commit;
mod definition;
mod errors;
pub mod existence;
pub mod guard;
pub mod key;
mod map;
pub mod ordered;
mod parents;
mod partition;
mod patch;
mod reads;
pub mod redefined;
mod ring_copy;
mod scan_key;
pub mod session;
mod tables;
pub mod text;
pub mod transaction;
mod used;
pub mod uses;
mod validation;
pub mod value;
mod versions;
pub mod view;
pub mod views;
pub mod work;
pub mod write;

use pgrx::pg_sys::{self, Datum, Oid};

/// A table's relcache entry, or with an invalid OID any, is not valid any more.
unsafe extern "C-unwind" fn forget(_arg: Datum, relation: Oid) {
    key::forget(relation);
    patch::forget(relation);
    uses::forget(relation);
    parents::forget(relation);
    redefined::note(relation);
}

/// Registers the invalidation callback. Once, from `_PG_init`.
pub fn init() {
    view::init(versions::show_no_writer);
    patch::init(capture::index_scan);
    // SAFETY: the callback touches only process-local cells.
    unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(forget), Datum::from(0)) };
}
