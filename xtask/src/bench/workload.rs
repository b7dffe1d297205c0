//! What is measured: workloads, the variants they run in, and the named benchmarks made of both.

/// One pgbench script and its share of the transactions.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    pub name: &'static str,
    pub text: &'static str,
    pub weight: u32,
}

/// How the committed effect must compare with what pgbench's clients were told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// One for each acknowledged transaction, no more and no less.
    Exactly,
    /// Statements may find nothing to update: only the effect counts.
    AtMost,
}

/// A load, and how to tell from the data whether it did what it said.
#[derive(Debug)]
pub struct Workload {
    pub name: &'static str,
    /// The transactions of the first script have the effect; those of others must have none.
    pub scripts: &'static [Script],
    /// SQL: the committed effects, as one bigint.
    pub effect: &'static str,
    pub effect_is: Effect,
    /// SQL: a bigint that must be zero when the data is consistent.
    pub imbalance: Option<&'static str>,
}

pub const SCHEMA: &str = include_str!("../../../bench/schema.sql");
pub const RESET: &str = include_str!("../../../bench/reset.sql");
/// Rows of table `hot`, as in schema.sql.
pub const HOT_ROWS: i64 = 120_000;
/// With rows of their own, 100 apart.
pub const MOST_CLIENTS: usize = 1024;

const BLOCK: &str = include_str!("../../../bench/block.sql");
const BLOCK_ROLLBACK: &str = include_str!("../../../bench/block-rollback.sql");
const SUM_OF_HOT: &str = "SELECT sum(val)::bigint FROM hot";
const COUNT_OF_LEDGER: &str = "SELECT count(*) FROM ledger";

/// A workload of one script whose every transaction adds one to table `hot`.
const fn counter(name: &'static str, scripts: &'static [Script]) -> Workload {
    Workload {
        name,
        scripts,
        effect: SUM_OF_HOT,
        effect_is: Effect::Exactly,
        imbalance: None,
    }
}

const fn block(weight: u32) -> Script {
    Script {
        name: "block",
        text: BLOCK,
        weight,
    }
}

const fn block_rollback(weight: u32) -> Script {
    Script {
        name: "block-rollback",
        text: BLOCK_ROLLBACK,
        weight,
    }
}

pub static HOT_ROW: Workload = counter(
    "hot-row",
    &[Script {
        name: "hot-row",
        text: include_str!("../../../bench/hot-row.sql"),
        weight: 1,
    }],
);

pub static HOT_LEDGER: Workload = Workload {
    name: "hot-ledger",
    scripts: &[Script {
        name: "hot-ledger",
        text: include_str!("../../../bench/hot-ledger.sql"),
        weight: 1,
    }],
    effect: COUNT_OF_LEDGER,
    effect_is: Effect::Exactly,
    imbalance: Some(
        "SELECT (SELECT sum(val) FROM hot)::bigint
              - (SELECT coalesce(sum(amount), 0) FROM ledger)::bigint",
    ),
};

pub static FOREIGN_KEY: Workload = Workload {
    name: "foreign-key",
    scripts: &[Script {
        name: "foreign-key",
        text: include_str!("../../../bench/foreign-key.sql"),
        weight: 1,
    }],
    effect: "SELECT count(*) FROM posting",
    effect_is: Effect::Exactly,
    imbalance: Some(
        "SELECT (SELECT sum(balance) FROM account)::bigint
              - (SELECT coalesce(sum(amount), 0) FROM posting)::bigint",
    ),
};

pub static UPSERT: Workload = counter(
    "upsert",
    &[Script {
        name: "upsert",
        text: include_str!("../../../bench/upsert.sql"),
        weight: 1,
    }],
);

pub static THINK_TIME: Workload = counter(
    "think-time",
    &[Script {
        name: "think-time",
        text: include_str!("../../../bench/think-time.sql"),
        weight: 1,
    }],
);

pub static NO_ROLLBACKS: Workload = counter("rollbacks-0", &[block(1)]);
pub static ROLLBACKS_5: Workload = counter("rollbacks-5", &[block(95), block_rollback(5)]);
pub static ROLLBACKS_20: Workload = counter("rollbacks-20", &[block(80), block_rollback(20)]);

pub static ADVISORY_FIRST: Workload = counter(
    "advisory-first",
    &[Script {
        name: "advisory-first",
        text: include_str!("../../../bench/advisory-first.sql"),
        weight: 1,
    }],
);

pub static FOR_UPDATE_FIRST: Workload = counter(
    "for-update-first",
    &[Script {
        name: "for-update-first",
        text: include_str!("../../../bench/for-update-first.sql"),
        weight: 1,
    }],
);

pub static SLOTS: Workload = Workload {
    name: "slots",
    scripts: &[Script {
        name: "slots",
        text: include_str!("../../../bench/slots.sql"),
        weight: 1,
    }],
    effect: "SELECT sum(val)::bigint FROM slot",
    effect_is: Effect::AtMost,
    imbalance: None,
};

pub static JOURNAL: Workload = Workload {
    name: "journal",
    scripts: &[Script {
        name: "journal",
        text: include_str!("../../../bench/journal.sql"),
        weight: 1,
    }],
    effect: COUNT_OF_LEDGER,
    effect_is: Effect::Exactly,
    imbalance: None,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_has_the_rows_that_the_check_counts() {
        assert!(SCHEMA.contains(&format!("generate_series(1, {HOT_ROWS})")));
    }

    #[test]
    fn the_largest_number_of_clients_has_rows_of_its_own() {
        assert!(100 * (MOST_CLIENTS as i64) < HOT_ROWS);
    }
}
