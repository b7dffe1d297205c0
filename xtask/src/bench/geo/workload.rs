//! What clients do: tables over the nodes, transactions, and the books that must agree.

use rand::rngs::SmallRng;

use super::place::At;
use super::tpcc::{self, Tpcc};
use super::transaction::Transaction;
use super::ycsb::{self, Ycsb};

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

    /// Its tables, at the nodes and at the coordinator, and its books.
    pub fn schema(self) -> &'static Schema {
        match self {
            Kind::Ycsb => &ycsb::SCHEMA,
            Kind::Payment | Kind::NewOrder => &tpcc::SCHEMA,
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

/// Draws the transactions of a client.
pub enum Draws {
    Ycsb(Ycsb),
    Tpcc(Tpcc),
}

impl Draws {
    /// Of the client of that number.
    pub fn new(at: &At, sizes: &Sizes, client: usize) -> anyhow::Result<Self> {
        Ok(match at.kind {
            Kind::Ycsb => Self::Ycsb(Ycsb::new(at, sizes)?),
            Kind::Payment | Kind::NewOrder => Self::Tpcc(Tpcc::new(at, sizes, client)),
        })
    }

    pub fn draw(&self, rng: &mut SmallRng) -> Transaction {
        match self {
            Self::Ycsb(ycsb) => ycsb.draw(rng),
            Self::Tpcc(tpcc) => tpcc.draw(rng),
        }
    }
}
