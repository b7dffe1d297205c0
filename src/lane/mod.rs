#![doc = include_str!("README.md")]

pub mod admit;
mod argument;
mod asleep;
pub mod beyond;
pub mod call;
mod declare;
mod errors;
pub mod heat;
mod partition;
mod procedure;
pub mod reschedule;
pub mod respect;
mod run;
pub mod strict;
mod target;
mod used;
mod views;

/// Registers the invalidation callbacks. Once, from `_PG_init`.
pub fn init() {
    procedure::init();
    // SAFETY: the callback touches only process-local cells.
    unsafe {
        pgrx::pg_sys::CacheRegisterRelcacheCallback(
            Some(partition::at_invalidation),
            pgrx::pg_sys::Datum::from(0),
        );
    }
}
