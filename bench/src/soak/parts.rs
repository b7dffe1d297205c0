//! What the load is made of, and what the tables must hold after it.

use serde::Serialize;

use crate::script::{Script, Source};
use crate::workload::HOT_ROWS;

/// Where an acknowledged transaction of a script is to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// One more in row 1, without what is in the ledger.
    HotRow,
    /// A row of the ledger, with its amount in row 1.
    Ledger,
    /// One more in one of the rows that are hot in turn.
    Moving,
    /// One more in one of the rows that are never hot.
    Cold,
    Nothing,
}

/// Each effect, and SQL that counts it.
const EFFECTS: [(Effect, &str, &str); 4] = [
    (
        Effect::HotRow,
        "the hot row",
        "SELECT val - (SELECT coalesce(sum(amount), 0)::bigint FROM ledger) FROM hot WHERE id = 1",
    ),
    (Effect::Ledger, "the ledger", "SELECT count(*) FROM ledger"),
    (
        Effect::Moving,
        "the rows that are hot in turn",
        "SELECT sum(val)::bigint FROM hot WHERE id BETWEEN 1001 AND 11000",
    ),
    (
        Effect::Cold,
        "the cold rows",
        "SELECT sum(val)::bigint FROM hot WHERE id > 20000",
    ),
];

/// A pgbench process of the load.
pub struct Part {
    /// Also the sessions' `application_name`.
    pub name: &'static str,
    pub scripts: &'static [(Script<'static>, Effect)],
    pub settings: &'static str,
    /// A connection for each transaction.
    pub reconnects: bool,
    /// Share of the transactions, where a rate is given.
    pub share: f64,
}

/// The sessions of this part live as long as the load.
pub const STEADY: &str = "soak steady";

const GROUP: &str = "-c txn.group_lock=on";

const fn script(name: &'static str, text: &'static str, weight: u32) -> Script<'static> {
    Script {
        name,
        source: Source::Text(text),
        weight,
    }
}

macro_rules! text {
    ($file:literal) => {
        include_str!(concat!("../../", $file))
    };
}

pub static PARTS: [Part; 3] = [
    Part {
        name: STEADY,
        scripts: &[
            (script("hot-row", text!("hot-row.sql"), 30), Effect::HotRow),
            (
                script("hot-ledger", text!("hot-ledger.sql"), 20),
                Effect::Ledger,
            ),
            (
                script("for-update-first", text!("for-update-first.sql"), 10),
                Effect::HotRow,
            ),
            (script("upsert", text!("upsert.sql"), 10), Effect::HotRow),
            (
                script("rollback", text!("block-rollback.sql"), 3),
                Effect::Nothing,
            ),
            (script("cold", text!("soak-cold.sql"), 20), Effect::Cold),
            (script("read", text!("soak-read.sql"), 7), Effect::Nothing),
        ],
        settings: GROUP,
        reconnects: false,
        share: 0.75,
    },
    Part {
        name: "soak moving",
        scripts: &[(
            script("moving", text!("soak-moving.sql"), 1),
            Effect::Moving,
        )],
        // With few clients, too, each of the rows becomes hot.
        settings: "-c txn.group_lock=on -c txn.hot_threshold=1",
        reconnects: false,
        share: 0.2,
    },
    Part {
        name: "soak reconnecting",
        scripts: &[
            (script("hot-row", text!("hot-row.sql"), 1), Effect::HotRow),
            (
                script("hot-ledger", text!("hot-ledger.sql"), 1),
                Effect::Ledger,
            ),
        ],
        settings: GROUP,
        reconnects: true,
        share: 0.05,
    },
];

/// Connections a second where no rate is given: starting a session costs far more than a
/// transaction.
pub const RECONNECTS_PER_SECOND: f64 = 20.0;

/// Clients below which the parts would be too small to fight over anything.
pub const FEWEST_CLIENTS: usize = 8;

/// What the clients of one script were told.
#[derive(Debug, Serialize)]
pub struct Told {
    pub part: &'static str,
    pub script: &'static str,
    pub acknowledged: u64,
    #[serde(skip)]
    pub effect: Effect,
}

/// What all clients were told.
#[derive(Debug, Serialize)]
pub struct Outcome {
    pub scripts: Vec<Told>,
    /// Tries beyond the first, after a serialization failure or deadlock.
    pub retries: u64,
    /// Given up, but for those that ran out of time.
    pub failed: u64,
}

/// All that is wrong with the data, in words: the tables against what the clients were told.
pub fn wrong_data(
    outcome: &Outcome,
    mut number: impl FnMut(&str) -> anyhow::Result<i64>,
) -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (effect, place, sql) in EFFECTS {
        let told: u64 = outcome
            .scripts
            .iter()
            .filter(|told| told.effect == effect)
            .map(|told| told.acknowledged)
            .sum();
        let found = number(sql)?;
        if found != told as i64 {
            wrong.push(format!(
                "{told} transactions were acknowledged, but {place} holds {found}"
            ));
        }
    }
    let rows = number("SELECT count(*) FROM hot")?;
    if rows != HOT_ROWS {
        wrong.push(format!(
            "table hot has {rows} rows, but should have {HOT_ROWS}"
        ));
    }
    if outcome.failed > 0 {
        wrong.push(format!(
            "{} transactions failed in spite of all retries",
            outcome.failed
        ));
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        let told = |script, acknowledged, effect| Told {
            part: STEADY,
            script,
            acknowledged,
            effect,
        };
        Outcome {
            scripts: vec![
                told("hot-row", 5, Effect::HotRow),
                told("upsert", 2, Effect::HotRow),
                told("hot-ledger", 3, Effect::Ledger),
                told("rollback", 9, Effect::Nothing),
                told("moving", 4, Effect::Moving),
                told("cold", 6, Effect::Cold),
            ],
            retries: 1,
            failed: 0,
        }
    }

    /// Tables with these effects, in the order of `EFFECTS`.
    fn tables(counts: [i64; 4]) -> impl FnMut(&str) -> anyhow::Result<i64> {
        move |sql| {
            let place = EFFECTS.iter().position(|(_, _, count)| *count == sql);
            Ok(place.map_or(HOT_ROWS, |place| counts[place]))
        }
    }

    #[test]
    fn each_place_must_hold_what_its_scripts_were_told() {
        let right = [7, 3, 4, 6];
        assert!(wrong_data(&outcome(), tables(right)).unwrap().is_empty());
        for place in 0..right.len() {
            let mut counts = right;
            counts[place] += 1;
            let wrong = wrong_data(&outcome(), tables(counts)).unwrap();
            assert_eq!(wrong.len(), 1, "{wrong:?}");
            assert!(wrong[0].contains(EFFECTS[place].1), "{wrong:?}");
        }
    }

    #[test]
    fn the_shares_of_the_parts_are_the_whole_rate() {
        let sum: f64 = PARTS.iter().map(|part| part.share).sum();
        assert!((sum - 1.0).abs() < 1e-9);
    }
}
