//! Throwaway PostgreSQL 16 servers for tests, demo and benchmarks. See the README of this crate.

mod cache;
mod guard;
mod install;
mod line;
mod mirror;
mod options;
mod pool;
mod postmaster;
mod process;
mod proxy;
mod server;
mod standby;
mod template;
mod user;

pub use cache::{cache_dir, lock_file, make_readable_dir};
pub use install::{PINNED_VERSION, PgInstall};
pub use line::Line;
pub use options::ServerOptions;
pub use postmaster::PostmasterFile;
pub use process::{Process, children, signal};
pub use proxy::Proxy;
pub use server::{Server, StopMode};
pub use standby::Standby;
pub use template::{copy_data, initdb};
pub use user::ServerUser;
