//! What the commands of `cargo xtask` and the benchmarks need: PostgreSQL and other programs,
//! builds of the library, progress, and where it all happens. See the README.

pub mod files;
pub mod install;
pub mod interrupt;
pub mod machine;
pub mod progress;
pub mod setup;
pub mod steps;
pub mod tools;
