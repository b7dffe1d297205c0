//! Transactions over a coordinator and data nodes, each node behind a line that can be slow, cut
//! and broken.

mod adopted;
mod cancel;
mod connections;
mod control;
mod crash;
mod deadlocks;
mod defer;
mod down;
mod early;
mod faults;
mod fence;
mod followed;
mod forecast;
mod handed;
mod isolation;
mod line;
mod load;
mod lost_reply;
mod no;
mod page;
mod pass;
mod places;
mod resolver;
mod rights;
mod schedule;
mod snapshot;
mod snapshot_faults;
mod snapshot_first;
mod sql;
mod standby;
mod transactions;
mod trips;
mod twin;
mod unfit;

pub use txn_server_tests::geo::{Cluster, NODE_SUM, Notices, Settings, listening, transfer};
