//! The model check: random schedules of transactions against a simulated server. Whatever commits
//! must have read what a replay in CSN order gives, and every planted fault must be found out.

mod found_out;
mod history;
mod outcomes;
mod plan;
mod play;
mod rings;
mod serializable;
mod server;
mod table;
mod transaction;
