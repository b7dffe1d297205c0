//! What the clients do: point and bulk transactions, and how the data shows that they did.

use anyhow::{Context, ensure};

use super::script::{Class, Data, MixScript};
use super::tpcc;
use super::zipf::Zipf;
use crate::books::Books;

/// Which transactions, on which keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Point and bulk transactions, which both read and update.
    Hybrid,
    /// Point transactions, which read and update, and bulk transactions, which only read.
    BulkReads,
    /// The hybrid mix, each client on keys of its own.
    Disjoint,
    /// Point transactions only.
    Points,
    /// TPC-C, not table `ycsb`.
    Tpcc,
}

/// The sizes of a load.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Sizes {
    pub rows: u64,
    /// Of a row, without its header.
    pub row_bytes: u64,
    /// Of TPC-C, which has its own numbers and sizes of rows.
    pub warehouses: u64,
    /// Keys of a scan.
    pub scan: u64,
    pub clients: usize,
    /// Exponent of Zipf's law, by which keys are drawn; 0 is uniform.
    pub skew: f64,
    /// Percent of the transactions.
    pub bulk: u32,
}

const YCSB: Books = Books {
    sql: "SELECT sum(val)::bigint, count(*) FROM ycsb WHERE id > 0",
    columns: &["values", "rows"],
};
const UPDATES_TWO: &[i64] = &[2, 0];
const NOTHING: &[i64] = &[0, 0];

/// Bytes of `id`, padding and `val`, and of the header of a text.
const FIXED_BYTES: u64 = 20;

impl Sizes {
    /// Fails when there is no such load.
    pub fn check(&self, kind: Kind) -> anyhow::Result<()> {
        ensure!(
            self.row_bytes > FIXED_BYTES && self.row_bytes <= 1500,
            "rows can have {} to 1500 bytes",
            FIXED_BYTES + 1
        );
        ensure!(
            self.scan >= 1 && self.scan <= self.keys(kind),
            "a scan of {} keys does not fit {} of them",
            self.scan,
            self.keys(kind)
        );
        ensure!(
            self.clients >= 1 && self.bulk <= 100,
            "there must be a client, and at most 100 % bulk transactions"
        );
        ensure!(self.rows <= i32::MAX as u64, "keys are integers of 4 bytes");
        ensure!(
            kind != Kind::Tpcc || (self.warehouses >= 2 && self.skew == 0.0),
            "TPC-C has at least 2 warehouses, and a distribution of its own"
        );
        Ok(())
    }

    /// How many keys a client draws from.
    fn keys(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Disjoint => self.rows / self.clients.max(1) as u64,
            Kind::Tpcc => tpcc::CUSTOMERS,
            _ => self.rows,
        }
    }

    pub fn data(&self, kind: Kind) -> Data {
        if kind == Kind::Tpcc {
            return tpcc::data(self.warehouses);
        }
        let (rows, bytes) = (self.rows, self.row_bytes);
        let schema = include_str!("../../range-schema.sql");
        Data {
            schema: format!("\\set rows {rows}\n\\set bytes {bytes}\n{schema}"),
            tables: &["ycsb"],
            books: YCSB,
        }
    }

    /// The scripts that have a share of the transactions.
    pub fn scripts(&self, kind: Kind) -> anyhow::Result<Vec<MixScript>> {
        if kind == Kind::Tpcc {
            return Ok(tpcc::scripts(self.warehouses, self.scan, self.bulk));
        }
        let point = include_str!("../../range-point.sql");
        let (name, bulk, effects) = match kind {
            Kind::BulkReads => (
                "range-bulk-read",
                include_str!("../../range-bulk-read.sql"),
                NOTHING,
            ),
            _ => (
                "range-bulk",
                include_str!("../../range-bulk.sql"),
                UPDATES_TWO,
            ),
        };
        let bulk_weight = if kind == Kind::Points { 0 } else { self.bulk };
        let mut scripts = vec![
            MixScript {
                name: "range-point",
                class: Class::Point,
                weight: 100 - bulk_weight,
                effects: UPDATES_TWO,
                text: self.text(kind, point)?,
            },
            MixScript {
                name,
                class: Class::Bulk,
                weight: bulk_weight,
                effects,
                text: self.text(kind, bulk)?,
            },
        ];
        scripts.retain(|script| script.weight > 0);
        Ok(scripts)
    }

    /// A script with its sizes, and with keys drawn as they are to be.
    fn text(&self, kind: Kind, script: &str) -> anyhow::Result<String> {
        let keys = self.keys(kind);
        let first = match kind {
            Kind::Disjoint => format!("1 + :client_id * {keys}"),
            _ => "1".to_owned(),
        };
        let mut text = format!(
            "\\set first {first}\n\\set last :first + {keys} - 1\n\\set scan {}\n",
            self.scan
        );
        if self.skew == 0.0 {
            return Ok(text + script);
        }
        let zipf = Zipf::new(keys, self.skew)
            .with_context(|| format!("no Zipf's law with exponent {} here", self.skew))?;
        for line in script.lines() {
            match drawn_variable(line) {
                Some(variable) => text += &zipf.draw(variable, ":first"),
                None => text += &format!("{line}\n"),
            }
        }
        Ok(text)
    }
}

/// The variable of a line that draws a key.
fn drawn_variable(line: &str) -> Option<&str> {
    line.strip_prefix("\\set ")?
        .strip_suffix(" random(:first, :last)")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes {
        rows: 1000,
        row_bytes: 100,
        warehouses: 2,
        scan: 100,
        clients: 4,
        skew: 0.0,
        bulk: 10,
    };

    #[test]
    fn a_script_is_what_its_file_says_behind_its_sizes() {
        let scripts = SIZES.scripts(Kind::Hybrid).unwrap();
        let weights: Vec<_> = scripts.iter().map(|s| (s.class, s.weight)).collect();
        assert_eq!(weights, [(Class::Point, 90), (Class::Bulk, 10)]);
        assert!(scripts[1].text.starts_with(
            "\\set first 1\n\\set last :first + 1000 - 1\n\\set scan 100\n-- A bulk transaction"
        ));
        assert_eq!(SIZES.scripts(Kind::Points).unwrap().len(), 1);
    }

    #[test]
    fn effects_are_the_updates_of_the_script_and_have_their_column() {
        for kind in [Kind::Hybrid, Kind::BulkReads] {
            for script in SIZES.scripts(kind).unwrap() {
                let updates = script.text.matches("UPDATE ycsb SET val = val + 1").count();
                assert_eq!(script.effects, [updates as i64, 0], "{}", script.name);
                assert_eq!(script.effects.len(), SIZES.data(kind).books.columns.len());
            }
        }
    }

    #[test]
    fn every_key_is_drawn_by_the_law_when_there_is_one() {
        let skewed = Sizes { skew: 0.7, ..SIZES };
        let uniform = SIZES.scripts(Kind::Hybrid).unwrap();
        for (skewed, uniform) in skewed.scripts(Kind::Hybrid).unwrap().iter().zip(&uniform) {
            let draws = uniform.text.matches("random(:first, :last)").count();
            assert!(draws >= 4);
            assert_eq!(
                skewed.text.matches("permute(:rank, 1000, 1)").count(),
                draws
            );
            assert!(!skewed.text.contains("random(:first"));
        }
        assert!(Sizes { skew: 1.0, ..SIZES }.scripts(Kind::Hybrid).is_err());
    }

    #[test]
    fn clients_with_keys_of_their_own_share_them_out() {
        assert_eq!(SIZES.keys(Kind::Disjoint), 250);
        let text = &SIZES.scripts(Kind::Disjoint).unwrap()[1].text;
        assert!(
            text.starts_with("\\set first 1 + :client_id * 250\n\\set last :first + 250 - 1\n")
        );
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(SIZES.check(Kind::Disjoint).is_ok());
        let long = Sizes { scan: 251, ..SIZES };
        assert!(long.check(Kind::Hybrid).is_ok() && long.check(Kind::Disjoint).is_err());
        for wrong in [
            Sizes { scan: 0, ..SIZES },
            Sizes {
                row_bytes: 20,
                ..SIZES
            },
            Sizes { bulk: 101, ..SIZES },
            Sizes {
                clients: 0,
                ..SIZES
            },
        ] {
            assert!(wrong.check(Kind::Hybrid).is_err(), "{wrong:?}");
        }
    }
}
