//! Prints how long histories of a hundred thousand transactions take: `cargo run --release -p
//! history --example hundred_thousand`.
#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use Level::{ReadCommitted, RepeatableRead, Serializable};
use common::{Database, simulate};
use history::{Level, Promise, Workload, check};

fn main() -> Result<(), history::Invalid> {
    let workload = Workload::default();
    for database in [Database::Serial, Database::Snapshot] {
        let history = simulate(&workload, database, 16, 100_000, 0);
        for level in [ReadCommitted, RepeatableRead, Serializable] {
            for real_time in [false, true] {
                let promise = Promise { level, real_time };
                let began = Instant::now();
                let verdict = check(&history, promise)?;
                let took = began.elapsed();
                println!("{database:?}, {promise:?}: {took:?}; {verdict}");
            }
        }
    }
    Ok(())
}
