#![doc = include_str!("README.md")]

pub mod answer;
pub mod by_key;
pub mod check;
mod circles;
mod cold;
mod combine;
pub mod commit;
pub mod conflict;
pub mod definitions;
pub mod dependent;
mod detect;
mod errors;
mod existence;
mod explain;
mod gate;
mod hotlog;
pub mod lock;
mod order;
pub mod provider;
pub mod readguard;
pub mod reads;
pub mod repeatable;
pub mod session;
pub mod settings;
pub mod statement;
pub mod stats;
pub mod stop;
mod streaming;
mod tail;
mod text;
mod ticket;
pub mod update;
mod views;
mod waiting;

pub use session::{is_in_hot_transaction, memory};
pub use waiting::check_doomed;
