#![doc = include_str!("README.md")]

pub mod callbacks;
mod fetch;
pub mod group;
pub mod multi;
mod prune;
pub mod swap;
mod tracked;
pub mod wal;
