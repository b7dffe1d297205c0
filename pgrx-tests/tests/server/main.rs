//! The server tests: each starts a server of its own. See ../../README.md.

mod bank;
mod combine;
mod counters;
mod crash;
mod cycles;
mod databases;
mod ddl;
mod detection;
mod disturbance;
mod errors;
mod faults;
mod functions;
mod health;
mod heap;
mod history;
mod ledger;
mod limits;
mod order;
mod pgbench;
mod prepared;
mod shapes;
mod stage;
mod stock;
mod stops;
mod visibility;
mod waits;
