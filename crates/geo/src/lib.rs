#![doc = include_str!("../README.md")]

mod admission;
mod board;
mod deadlock;
mod ending;
mod fault;
mod fence;
mod forecast;
mod gate;
mod gid;
mod handed;
mod interval;
mod latency;
mod line;
mod linked;
#[cfg(test)]
mod model;
mod name;
mod patience;
mod record_id;
mod records;
mod recovery;
mod reply;
mod running;
mod slots;
mod status;
mod sync;
mod turn;
mod vote;
mod waits;
mod window;

pub use admission::{Admission, Contention, admit, risk};
pub use board::{Board, Claim, DATABASES, Known, Phase, Wants};
pub use deadlock::{Deadlock, Edge, HERE, Look, Party, deadlocks};
pub use ending::{Ending, Local, Wrote, ending};
pub use fence::Fence;
pub use forecast::{Cost, Lesson, Taken, lesson, schedule};
pub use gate::{Gate, Seat, Servers, Side};
pub use gid::{Gid, InvalidGid};
pub use handed::{HandOver, Handed};
pub use interval::Interval;
pub use latency::{Latencies, Trust};
pub use line::{InLine, Place, with_ahead};
pub use name::{Id, Name};
pub use patience::Patience;
pub use record_id::RecordId;
pub use records::{Known as KnownRecord, Records, Report};
pub use recovery::{Action, Decision, Pass, ReadActive, ReadAgain, ReadDecided, Scope};
pub use reply::{Outcome, Server, outcome};
pub use running::{LOST, Running, Session, TEXT};
pub use slots::{Active, Slot, active};
pub use status::{Asked, History, Judged, NodeStatus, Prepared, judge};
pub use turn::{Turn, Turns};
pub use vote::{Answer, Vote, applied, is_synchronous, vote};
pub use waits::{
    MOST as MOST_WAITS, Own, Prepared as PreparedWait, Wait, Waits, waits_at_node, waits_here,
};
