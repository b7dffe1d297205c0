#![doc = include_str!("README.md")]

pub mod base;
pub mod call;
pub mod fetch;
pub mod group;
pub mod hot_chain;
pub mod prune;
pub mod row_call;
pub mod swap;
pub mod wal;
