#![doc = include_str!("README.md")]

pub mod base;
pub mod callbacks;
mod fetch;
pub mod group;
mod prune;
pub mod swap;
mod tracked;
pub mod wal;
