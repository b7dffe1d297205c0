#![doc = include_str!("README.md")]

pub mod access_method;
mod executor;
mod heap;
pub mod hooks;
mod idle;
mod part;
mod previous;
mod stats;
pub mod transaction;
mod txn_heap;
mod utility;
