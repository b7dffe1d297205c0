#![doc = include_str!("../README.md")]

mod check;
mod generate;
mod lines;
mod model;
mod serial;

pub use check::{Anomaly, Class, Invalid, Level, Promise, Verdict, check};
pub use generate::{Client, Plan, Step, Weights, Workload};
pub use model::{Event, History, Object, Op, Outcome, Range, Row, Time, Transaction, Value};
pub use serial::{KeyTaken, State};
