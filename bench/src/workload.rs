//! The loads that are measured, and how the data shows whether they did what they said.

use anyhow::ensure;

use super::books::Books;
use super::pgbench::Protocol;
use super::script::{Script, Source};

/// How the committed effect must compare with what pgbench's clients were told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// One for each acknowledged transaction, no more and no less.
    Exactly,
    /// Statements may find nothing to update: only the effect counts.
    AtMost,
    /// The tables do not tell how many there were.
    NotInTheTables,
}

/// Which tables a workload needs beside those of all workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    Ours,
    /// pgbench's own, at this scale.
    Pgbench {
        scale: u32,
    },
    /// sysbench's own.
    Sysbench,
    /// Those of declared transactions.
    Lane,
    /// TPC-C's, in a database of their own that is copied anew for each run.
    Tpcc {
        warehouses: usize,
        of_txn_heap: bool,
    },
}

/// What must be true of a mixed load beside its effect.
#[derive(Debug)]
pub struct Audit {
    /// What has changed since the load of the tables.
    pub books: Books,
    /// What a transaction of each script adds to the columns of the books.
    pub effects: &'static [&'static [i64]],
    /// SQL: how often each of the consistency conditions is violated, as one row of bigints.
    pub conditions: &'static str,
}

/// A load, and how to tell from the data whether it did what it said.
#[derive(Debug)]
pub struct Workload {
    pub name: &'static str,
    /// The transactions of the first script have the effect; those of the second, if any, roll back
    /// as they mean to. More scripts than these have what effects the audit says.
    pub scripts: &'static [Script<'static>],
    /// SQL: the committed effects, as one bigint.
    pub effect: &'static str,
    pub effect_is: Effect,
    /// SQL: a bigint that must be zero when the data is consistent.
    pub imbalance: Option<&'static str>,
    /// SQL that counts the rows of what is updated, by index or by scan, and how many there must
    /// be.
    pub count_rows: &'static str,
    pub rows: i64,
    pub tables: Tables,
    pub audit: Option<&'static Audit>,
    /// How its statements are sent, whatever is asked for.
    pub protocol: Option<Protocol>,
    /// SQL before each run, after `RESET`.
    pub reset: &'static str,
    /// Another session holds a snapshot open from before the run to its end.
    pub old_snapshot: bool,
}

pub const SCHEMA: &str = include_str!("../schema.sql");
pub const RESET: &str = include_str!("../reset.sql");
/// Rows of table `hot`, as in schema.sql.
pub const HOT_ROWS: i64 = 120_000;
/// With rows of their own, 100 apart.
pub const MOST_CLIENTS: usize = 1024;

/// Fails unless all tables have enough rows for each of these numbers of clients.
pub fn check_clients(numbers: &[usize]) -> anyhow::Result<()> {
    let possible = 1..=MOST_CLIENTS;
    ensure!(
        numbers.iter().all(|n| possible.contains(n)),
        "the numbers of clients must be from 1 to {MOST_CLIENTS}"
    );
    Ok(())
}

pub mod lane;
pub mod shapes;
pub mod sysbench;
pub mod tpcc;

const SUM_OF_HOT: &str = "SELECT sum(val)::bigint FROM hot";
const COUNT_OF_LEDGER: &str = "SELECT count(*) FROM ledger";
const COUNT_OF_POSTINGS: &str = "SELECT count(*) FROM posting";
const LEDGER_IMBALANCE: &str = "SELECT (SELECT sum(val) FROM hot)::bigint
              - (SELECT coalesce(sum(amount), 0) FROM ledger)::bigint";
const FOREIGN_KEY_IMBALANCE: &str = "SELECT (SELECT sum(balance) FROM account)::bigint
              - (SELECT coalesce(sum(amount), 0) FROM posting)::bigint";

/// A script of `bench/`.
macro_rules! script {
    ($name:literal) => {
        script!($name, 1)
    };
    ($name:literal, $weight:literal) => {
        Script {
            name: $name,
            source: Source::Text(include_str!(concat!("../", $name, ".sql"))),
            weight: $weight,
        }
    };
}

/// A workload whose every transaction adds one to table `hot`.
const fn counter(name: &'static str, scripts: &'static [Script<'static>]) -> Workload {
    Workload {
        name,
        scripts,
        effect: SUM_OF_HOT,
        effect_is: Effect::Exactly,
        imbalance: None,
        count_rows: "SELECT count(*) FROM hot WHERE id > 0",
        rows: HOT_ROWS,
        tables: Tables::Ours,
        audit: None,
        protocol: None,
        reset: "",
        old_snapshot: false,
    }
}

pub static HOT_ROW: Workload = counter("hot-row", &[script!("hot-row")]);

pub static HOT_LEDGER: Workload = Workload {
    effect: COUNT_OF_LEDGER,
    imbalance: Some(LEDGER_IMBALANCE),
    ..counter("hot-ledger", &[script!("hot-ledger")])
};

pub static FOREIGN_KEY: Workload = Workload {
    effect: COUNT_OF_POSTINGS,
    imbalance: Some(FOREIGN_KEY_IMBALANCE),
    ..counter("foreign-key", &[script!("foreign-key")])
};

pub static UPSERT: Workload = counter("upsert", &[script!("upsert")]);
pub static THINK_TIME: Workload = counter("think-time", &[script!("think-time")]);
pub static ROWS_8: Workload = counter("rows-8", &[script!("rows-8")]);
pub static ROWS_64: Workload = counter("rows-64", &[script!("rows-64")]);
pub static ZIPF: Workload = counter("zipf", &[script!("zipf")]);

pub static NO_ROLLBACKS: Workload = counter("rollbacks-0", &[script!("block")]);
/// Transaction blocks, so many of a hundred of which roll back.
macro_rules! rollbacks {
    ($name:literal, $commit:literal, $roll_back:literal) => {
        counter(
            $name,
            &[
                script!("block", $commit),
                script!("block-rollback", $roll_back),
            ],
        )
    };
}
pub static ROLLBACKS_1: Workload = rollbacks!("rollbacks-1", 99, 1);
pub static ROLLBACKS_5: Workload = rollbacks!("rollbacks-5", 95, 5);
pub static ROLLBACKS_10: Workload = rollbacks!("rollbacks-10", 90, 10);
pub static ROLLBACKS_20: Workload = rollbacks!("rollbacks-20", 80, 20);

pub static OLD_SNAPSHOT: Workload = Workload {
    reset: include_str!("../old-snapshot-reset.sql"),
    old_snapshot: true,
    ..counter("old-snapshot", &[script!("hot-row")])
};

pub static NON_HOT: Workload = Workload {
    effect: "SELECT sum(val)::bigint FROM indexed",
    count_rows: "SELECT count(*) FROM indexed WHERE id > 0",
    rows: INDEXED_ROWS,
    reset: include_str!("../non-hot-reset.sql"),
    ..counter("non-hot", &[script!("non-hot")])
};
/// Rows of its table, as in non-hot-reset.sql.
const INDEXED_ROWS: i64 = 210_000;

/// pgbench's TPC-B at a scale.
const fn tpcb(name: &'static str, scale: u32) -> Workload {
    const TPCB: &[Script<'static>] = &[Script {
        name: "tpcb-like",
        source: Source::Builtin,
        weight: 1,
    }];
    Workload {
        effect: "SELECT count(*) FROM pgbench_history",
        imbalance: Some(
            "SELECT (abs(accounts - history) + abs(tellers - history) + abs(branches - history))::bigint
             FROM (SELECT coalesce(sum(delta), 0) AS history FROM pgbench_history),
                  (SELECT sum(abalance) AS accounts FROM pgbench_accounts),
                  (SELECT sum(tbalance) AS tellers FROM pgbench_tellers),
                  (SELECT sum(bbalance) AS branches FROM pgbench_branches)",
        ),
        count_rows: "SELECT (SELECT count(*) FROM pgbench_accounts WHERE aid > 0)
                          + (SELECT count(*) FROM pgbench_tellers WHERE tid > 0)
                          + (SELECT count(*) FROM pgbench_branches WHERE bid > 0)",
        rows: scale as i64 * (100_000 + 10 + 1),
        tables: Tables::Pgbench { scale },
        reset: include_str!("../tpcb-reset.sql"),
        ..counter(name, TPCB)
    }
}
pub static TPCB_1: Workload = tpcb("tpcb-1", 1);
pub static TPCB_10: Workload = tpcb("tpcb-10", 10);

pub static ADVISORY_FIRST: Workload = counter("advisory-first", &[script!("advisory-first")]);
pub static FOR_UPDATE_FIRST: Workload = counter("for-update-first", &[script!("for-update-first")]);

pub static SLOTS: Workload = Workload {
    effect: "SELECT sum(val)::bigint FROM slot",
    effect_is: Effect::AtMost,
    ..counter("slots", &[script!("slots")])
};

pub static JOURNAL: Workload = Workload {
    effect: COUNT_OF_LEDGER,
    ..counter("journal", &[script!("journal")])
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_has_the_rows_that_the_check_counts() {
        assert!(SCHEMA.contains(&format!("generate_series(1, {HOT_ROWS})")));
        assert!(
            NON_HOT
                .reset
                .contains(&format!("generate_series(1, {INDEXED_ROWS})"))
        );
    }

    #[test]
    fn the_largest_number_of_clients_has_rows_of_its_own() {
        assert!(100 * (MOST_CLIENTS as i64) < HOT_ROWS);
        assert!(200 * (MOST_CLIENTS as i64) < INDEXED_ROWS);
    }

    /// Ranks that have their exact share in zipf.sql, rows, and the exponent.
    const EXACT: u32 = 8;
    const RANKS: u32 = 10_000;
    const THETA: f64 = 0.99;

    /// The sum of i^-0.99 up to each rank from 0, as a share of the whole.
    fn shares_up_to() -> Vec<f64> {
        let mut sums = vec![0.0];
        for rank in 1..=RANKS {
            sums.push(sums[rank as usize - 1] + f64::from(rank).powf(-THETA));
        }
        let whole = sums[RANKS as usize];
        sums.iter().map(|sum| sum / whole).collect()
    }

    #[test]
    fn the_first_ranks_of_zipf_have_their_exact_shares() {
        let Source::Text(script) = ZIPF.scripts[0].source else {
            panic!("zipf is a script of ours");
        };
        let shares = shares_up_to();
        for rank in 1..=EXACT {
            let case = format!("WHEN :u < {:.6} THEN {rank} ", shares[rank as usize]);
            assert!(script.contains(&case), "{case}");
        }
        let last = format!("{:.6}", shares[EXACT as usize]);
        assert!(script.contains(&format!("(:u - {last}) / (1 - {last})")));
    }

    #[test]
    fn the_other_ranks_of_zipf_have_theirs_to_a_thousandth() {
        let shares = shares_up_to();
        let power = |x: f64| x.powf(1.0 - THETA);
        let (low, high) = (f64::from(EXACT) + 0.5, f64::from(RANKS) + 0.5);
        let rest = 1.0 - shares[EXACT as usize];
        for rank in EXACT + 1..=RANKS {
            let middle = f64::from(rank);
            // The part of the random numbers v for which zipf.sql rounds to this rank.
            let drawn = (power(middle + 0.5) - power(middle - 0.5)) / (power(high) - power(low));
            let share = shares[rank as usize] - shares[rank as usize - 1];
            let ratio = drawn * rest / share;
            assert!((ratio - 1.0).abs() < 1e-3, "rank {rank}: {ratio}");
        }
    }
}
