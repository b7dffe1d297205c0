//! Transactions over several PostgreSQL servers. See README.md.

mod by_hand;
pub mod commit;
mod connect;
mod coordinator;
pub mod cut;
mod decision;
pub mod defer;
mod direct;
mod exchange;
mod facts;
mod failure;
mod fetched;
mod first;
mod gate;
mod key;
pub mod last;
mod line;
mod modify;
mod named;
mod node;
mod nodes;
pub mod others;
mod planner;
mod record;
pub mod resolver;
mod row;
mod running;
mod scan;
mod schedule;
mod server;
mod settle;
mod single;
mod socket;
mod statement;
mod truncate;
mod values;
mod views;
mod vote;
mod wrapper;

/// Whether the present transaction has written at nodes.
pub fn has_written() -> bool {
    nodes::are_written()
}

/// Whether the present transaction has to do with nodes.
pub fn is_used() -> bool {
    nodes::are_used() || schedule::is_at_work() || commit::is_voting()
}
