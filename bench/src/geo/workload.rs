//! Kinds of transactions, their tables over the nodes, and the books that must agree.

/// A kind of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Ycsb,
    Payment,
    NewOrder,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Ycsb => "YCSB",
            Kind::Payment => "Payment",
            Kind::NewOrder => "New-Order",
        }
    }
}

/// Tables, partitioned over the nodes by ranges of their first column.
pub struct Schema {
    pub name: &'static str,
    pub tables: &'static [Table],
    /// SQL that fills the tables of a node; psql's variables are those of `Sizes::variables`.
    pub fill: &'static str,
    /// A query with a row of numbers at each node, and what these are.
    pub books: &'static str,
    pub columns: &'static [&'static str],
    /// The table whose locks are measured, and its key. It has a column `locked`.
    pub held: (&'static str, &'static str),
}

pub struct Table {
    pub name: &'static str,
    pub columns: &'static str,
    /// Option `key` of the foreign table; the first is what partitions go by.
    pub key: &'static str,
    /// Values of the first column at each node; node `n` begins with `n` times as many.
    pub width: fn(&Sizes) -> i64,
}

/// How much there is at each node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Sizes {
    pub nodes: usize,
    /// YCSB's rows.
    pub rows: i64,
    /// TPC-C's warehouses.
    pub warehouses: i64,
}

impl Sizes {
    /// What psql needs to know to fill the tables of a node.
    pub fn variables(&self, node: usize) -> String {
        format!(
            "\\set node {node}\n\\set rows {}\n\\set warehouses {}\n",
            self.rows, self.warehouses
        )
    }
}
