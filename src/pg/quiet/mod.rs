//! What runs without the notice of anybody: a *quiet* expression reads no table, calls no code of
//! users, and does nothing that a rollback would not undo.
//!
//! A transaction that depends on a running predecessor may run only what is quiet, or what a hook
//! can observe (`hotlock/dependent.rs`). Everything here is an allowlist: kinds of nodes,
//! functions, types. What is not on it is not quiet, and the statement waits.
//!
//! - Functions: PostgreSQL's own, written in C, immutable, of plain types; and those of
//!   `SESSION_ONLY`. The latter are not immutable, but look at nothing other than the session's
//!   clock, settings, transaction id and sequences.
//! - Types: PostgreSQL's own base types, arrays of them, and enums. Of others it is not known which
//!   functions a comparison or a cast calls. A value that is only copied may be of any type.
//! - Plans: scans, joins, sorts, groups and aggregates by PostgreSQL's operators and functions;
//!   subqueries in FROM; rows of VALUES; INSERT, UPDATE, DELETE and MERGE; row locks; LIMIT. No
//!   subplans.
//! - Tables that are written: their CHECK constraints, generated columns, index expressions, the
//!   bounds of partitions and WHEN conditions are quiet. Their triggers are foreign keys' or
//!   PL/pgSQL functions, whose statements come by a hook (`plpgsql.rs`).

mod expression;
mod partition_key;
mod statement;
mod table;

pub use expression::{is_plain, is_query_quiet, is_quiet};
pub use partition_key::is_quiet as is_partition_key_quiet;
pub use statement::{is_block_watched, is_call_quiet, is_routed_quiet, is_statement_quiet};
pub use table::init;
