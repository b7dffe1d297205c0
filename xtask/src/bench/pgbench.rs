//! Runs PostgreSQL's own load generator and reads what it reports.

/// How pgbench sends its statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    Prepared,
    Simple,
}
