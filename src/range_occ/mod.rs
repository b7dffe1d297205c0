#![doc = include_str!("README.md")]

pub mod capture;
pub mod commit;
mod errors;
pub mod existence;
pub mod guard;
mod key;
mod map;
mod partition;
mod patch;
pub mod session;
mod text;
mod value;
mod view;
pub mod views;
pub mod write;

/// Registers the invalidation callbacks. Once, from `_PG_init`.
pub fn init() {
    key::init();
    patch::init();
}
