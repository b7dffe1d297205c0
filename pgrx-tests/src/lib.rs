//! What the server tests are made of: servers, a load of many clients that keeps account of what it
//! was told, a watchdog for hangs, and a physical check of the tables afterwards. See the README.

mod check;
mod health;
mod load;
mod tally;
mod watchdog;
mod worker;

pub use check::{int, read, start, start_stock, text};
pub use health::{physical_health, quiet};
pub use load::{Load, Running};
pub use tally::Tally;
pub use watchdog::Watchdog;
pub use worker::{Done, Worker};
