#![doc = include_str!("README.md")]

pub mod fault;
pub mod guc;
pub mod guc_table;
mod guc_values;
pub mod memory;
mod sizes;
pub mod stop;
pub mod totals;
pub mod wait;
