//! What the server tests are made of: servers; a load of many clients that notes its answers; a
//! watchdog for hangs; a physical check of the tables afterwards. See the README.

mod check;
pub mod faults;
pub mod fuzz;
pub mod geo;
pub mod geo_faults;
mod health;
pub mod history;
mod load;
mod session;
mod tally;
mod transcript;
mod watchdog;
mod worker;

pub use check::{int, read, start, start_hot, start_stock, text};
pub use health::{physical_health, quiet};
pub use load::{Load, Running};
pub use session::{
    Background, expect_followed, grouped, join, local, pid, sqlstate, until, wait_until,
};
pub use tally::Tally;
pub use transcript::{Block, Transcript, blocks};
pub use watchdog::Watchdog;
pub use worker::{Done, Worker};
