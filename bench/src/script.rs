//! The scripts of load generators.

/// Where the transactions of a script come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    Text(&'a str),
    /// pgbench's own script of the script's name.
    Builtin,
    /// sysbench's own script of the script's name, with these options.
    Sysbench(&'a [&'a str]),
}

/// One pgbench script and its share of the transactions.
#[derive(Clone, Copy, Debug)]
pub struct Script<'a> {
    pub name: &'a str,
    pub source: Source<'a>,
    pub weight: u32,
}
