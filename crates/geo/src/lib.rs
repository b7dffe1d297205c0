#![doc = include_str!("../README.md")]

mod board;
mod deadlock;
mod ending;
mod fault;
mod gate;
mod gid;
mod latency;
#[cfg(test)]
mod model;
mod name;
mod recovery;
mod reply;
mod running;
mod slots;
mod status;
mod sync;
mod vote;
mod waits;

pub use board::{Board, DATABASES, Known, Phase, Wants};
pub use deadlock::{Deadlock, Edge, HERE, Look, Party, deadlocks};
pub use ending::{Ending, Local, Wrote, ending};
pub use gate::{Gate, Seat, Servers, Side};
pub use gid::{Gid, InvalidGid};
pub use latency::{Latencies, delays};
pub use name::{Id, Name};
pub use recovery::{Action, Decision, Pass, ReadActive, ReadAgain, ReadDecided, Scope};
pub use reply::{Outcome, Server, outcome};
pub use running::{Running, Session, TEXT};
pub use slots::{Active, Slot, active};
pub use status::{Asked, History, Judged, NodeStatus, Prepared, judge};
pub use vote::{Answer, Vote, applied, is_synchronous, vote};
pub use waits::Wait;
