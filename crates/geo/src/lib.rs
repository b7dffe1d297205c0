#![doc = include_str!("../README.md")]

mod board;
mod ending;
mod fault;
mod gid;
mod latency;
#[cfg(test)]
mod model;
mod recovery;
mod reply;
mod slots;
mod status;
mod sync;
mod vote;

pub use board::{Board, DATABASES, Known, Phase};
pub use ending::{Ending, Local, Wrote, ending};
pub use gid::{Gid, InvalidGid};
pub use latency::{Latencies, delays};
pub use recovery::{Action, Decision, Pass, ReadActive, ReadAgain, ReadDecided, Scope};
pub use reply::{Outcome, Server, outcome};
pub use slots::{Active, Slot, active};
pub use status::{Asked, History, Judged, NodeStatus, Prepared, judge};
pub use vote::{Answer, Vote, applied, is_synchronous, vote};
