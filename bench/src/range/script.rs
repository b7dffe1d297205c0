//! Scripts of the clients, their tables, and how to account for them.

use crate::books::Books;

/// The two kinds of transactions that are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    Point,
    Bulk,
}

/// One pgbench script.
#[derive(Clone, Debug, serde::Serialize)]
pub struct MixScript {
    pub name: &'static str,
    pub class: Class,
    pub weight: u32,
    /// What a committed transaction adds to each of the columns of the books.
    pub effects: &'static [i64],
    pub text: String,
}

/// Tables, and how to account for them.
#[derive(Clone, Debug)]
pub struct Data {
    /// For psql, which sets `access_method`: makes and fills the tables.
    pub schema: String,
    pub tables: &'static [&'static str],
    pub books: Books,
}
