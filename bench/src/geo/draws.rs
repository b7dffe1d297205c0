//! What clients do: the tables and the transactions of each kind.

use rand::rngs::SmallRng;

use super::place::At;
use super::tpcc::{self, Tpcc};
use super::transaction::Transaction;
use super::workload::{Kind, Schema, Sizes};
use super::ycsb::{self, Ycsb};

impl Kind {
    /// Its tables, at the nodes and at the coordinator, and its books.
    pub fn schema(self) -> &'static Schema {
        match self {
            Kind::Ycsb => &ycsb::SCHEMA,
            Kind::Payment | Kind::NewOrder => &tpcc::SCHEMA,
        }
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
