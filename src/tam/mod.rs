#![doc = include_str!("README.md")]

pub mod callbacks;
mod fetch;
pub mod group;
pub mod multi;
pub mod swap;
mod tracked;
pub mod wal;
