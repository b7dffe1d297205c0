#![doc = include_str!("README.md")]

pub mod buffer;
pub mod builtin;
pub mod cancel;
pub mod catch;
pub mod context;
pub mod error;
pub mod evaluate;
pub mod forerun;
pub mod form;
pub mod frontend;
pub mod label;
pub mod nesting;
pub mod per_table;
pub mod plan;
pub mod plpgsql;
mod plpgsql_layout;
pub mod quiet;
pub mod raw;
pub mod relation;
pub mod release;
pub mod rights;
pub mod shmem;
pub mod snapshot;
pub mod tuple;
pub mod wait;
pub mod xact;
