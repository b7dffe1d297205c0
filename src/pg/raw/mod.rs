//! PostgreSQL's functions, called as they are.
//!
//! pgrx wraps every function so that an ERROR becomes a Rust panic. On its way through that wrapper
//! an ERROR loses its CONTEXT and the names of constraint, table and column. Also, each call pays
//! for a `sigsetjmp`. Code that PostgreSQL calls for every statement and tuple therefore uses these
//! declarations: an ERROR jumps over our frames, straight to PostgreSQL's handler. The rule that
//! makes this sound: **no value with a destructor is alive, and no `with_row` closure is running,
//! across a call from this module.** What must be undone is undone by the transaction callbacks.

mod catalog;
mod executor;
mod process;
mod storage;
mod transaction;

pub use catalog::*;
pub use executor::*;
pub use process::*;
pub use storage::*;
pub use transaction::*;
