//! Transactions over several PostgreSQL servers. See README.md.

mod by_hand;
pub mod commit;
mod connect;
mod coordinator;
mod decision;
mod direct;
mod exchange;
mod failure;
pub mod last;
mod modify;
mod node;
mod nodes;
pub mod others;
mod planner;
pub mod resolver;
mod row;
mod scan;
mod server;
mod settle;
mod single;
mod socket;
mod statement;
mod truncate;
mod values;
mod views;
mod wrapper;
