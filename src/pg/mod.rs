#![doc = include_str!("README.md")]

pub mod buffer;
pub mod catch;
pub mod context;
pub mod error;
pub mod evaluate;
pub mod form;
pub mod frontend;
pub mod plan;
pub mod raw;
pub mod relation;
pub mod shmem;
pub mod snapshot;
pub mod tuple;
pub mod wait;
pub mod xact;
