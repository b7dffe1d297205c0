//! Two samples make a frame: the later one, and what happened per second in between.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;

use super::sample::{COUNTS, Counters, HotRow, Sample};

/// Which hot rows come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    Updates,
    Waiting,
    Followed,
    Cascades,
}

impl Sort {
    pub fn name(self) -> &'static str {
        match self {
            Self::Updates => "updates",
            Self::Waiting => "waiting",
            Self::Followed => "followed",
            Self::Cascades => "cascades",
        }
    }

    pub fn next(self) -> Self {
        match self {
            Self::Updates => Self::Waiting,
            Self::Waiting => Self::Followed,
            Self::Followed => Self::Cascades,
            Self::Cascades => Self::Updates,
        }
    }

    /// The one with more first: now, then since it became hot.
    fn compare(self, one: &Rated, other: &Rated) -> Ordering {
        let measure = |rated: &Rated| match self.count() {
            Some(at) => (rated.rate(at).unwrap_or(0.0), rated.row.counts.values[at]),
            None => (rated.row.waiting.into(), rated.row.counts.values[0]),
        };
        let (one, other) = (measure(one), measure(other));
        other.0.total_cmp(&one.0).then(other.1.cmp(&one.1))
    }

    /// The place among `COUNTS`.
    fn count(self) -> Option<usize> {
        COUNTS.iter().position(|name| *name == self.name())
    }
}

#[derive(Debug)]
pub struct Frame {
    /// Without its rows: those are in `rows`.
    pub sample: Sample,
    /// Commits and rollbacks.
    pub transactions: Option<Vec<f64>>,
    pub totals: Option<Vec<f64>>,
    pub rows: Vec<Rated>,
}

#[derive(Debug)]
pub struct Rated {
    pub row: HotRow,
    pub rates: Option<Vec<f64>>,
}

impl Rated {
    pub fn rate(&self, count: usize) -> Option<f64> {
        Some(self.rates.as_ref()?[count])
    }
}

impl Frame {
    /// Without `before`, or when the clock went back, there are no rates.
    pub fn new(before: Option<&Sample>, mut now: Sample) -> Self {
        let before = before.filter(|before| before.now < now.now);
        let seconds = before.map_or(0.0, |before| (now.now - before.now) as f64 / 1e6);
        let known: HashMap<_, _> = before
            .iter()
            .flat_map(|before| &before.rows)
            .map(|row| (identity(row), &row.counts))
            .collect();
        let rate = |row: HotRow| {
            let nothing = Counters {
                life: row.counts.life,
                values: vec![0; row.counts.values.len()],
            };
            // What became hot in between began at zero.
            let is_new = before.is_some_and(|before| row.since >= before.now);
            let start = known.get(&identity(&row)).copied();
            let start = start.or_else(|| is_new.then_some(&nothing));
            let rates = start.and_then(|start| row.counts.rates(start, seconds));
            Rated { row, rates }
        };
        let rows = std::mem::take(&mut now.rows);
        Self {
            rows: rows.into_iter().map(rate).collect(),
            transactions: before
                .and_then(|before| now.transactions.rates(&before.transactions, seconds)),
            totals: before.and_then(|before| now.totals.rates(&before.totals, seconds)),
            sample: now,
        }
    }

    pub fn sort(&mut self, by: Sort) {
        self.rows.sort_by(|one, other| {
            let name = |rated: &Rated| (rated.row.relation.clone(), rated.row.key.clone());
            by.compare(one, other)
                .then_with(|| name(one).cmp(&name(other)))
        });
        self.sample
            .waits
            .sort_by_key(|wait| (Reverse(wait.age), wait.pid));
    }
}

/// A row that cooled and came back is another one.
fn identity(row: &HotRow) -> (u32, Option<String>, i64) {
    (row.oid, row.key.clone(), row.since)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    const SECOND: i64 = 1_000_000;

    fn row(key: &str, since: i64, updates: i64) -> HotRow {
        HotRow {
            relation: "t".into(),
            key: Some(key.into()),
            since,
            counts: Counters {
                life: (since, 0),
                values: vec![updates, updates / 2, 0, 0],
            },
            ..HotRow::default()
        }
    }

    fn sample(now: i64, rows: Vec<HotRow>) -> Sample {
        Sample {
            now,
            rows,
            ..Sample::default()
        }
    }

    fn updates(before: Option<&Sample>, now: Sample) -> Vec<Option<f64>> {
        let frame = Frame::new(before, now);
        frame.rows.iter().map(|row| row.rate(0)).collect()
    }

    #[test]
    fn rates_are_growth_per_second() {
        let before = sample(10 * SECOND, vec![row("1", SECOND, 1000)]);
        let now = sample(12 * SECOND, vec![row("1", SECOND, 1500)]);
        assert_eq!(updates(Some(&before), now.clone()), [Some(250.0)]);
        assert_eq!(updates(None, now), [None]);
    }

    #[test]
    fn a_row_that_became_hot_in_between_counts_from_zero() {
        let before = sample(10 * SECOND, vec![]);
        let now = sample(12 * SECOND, vec![row("1", 11 * SECOND, 100)]);
        assert_eq!(updates(Some(&before), now), [Some(50.0)]);
        // Hot before, but not seen then: who knows how much of it is recent.
        let now = sample(12 * SECOND, vec![row("1", 9 * SECOND, 100)]);
        assert_eq!(updates(Some(&before), now), [None]);
    }

    #[test]
    fn a_row_that_cooled_and_came_back_is_another_one() {
        let before = sample(10 * SECOND, vec![row("1", SECOND, 1_000_000)]);
        let now = sample(11 * SECOND, vec![row("1", 10 * SECOND + 5, 7)]);
        assert_eq!(updates(Some(&before), now), [Some(7.0)]);
    }

    #[test]
    fn resets_and_clocks_that_go_back_give_no_rates() {
        let before = sample(10 * SECOND, vec![row("1", SECOND, 1000)]);
        let less = sample(11 * SECOND, vec![row("1", SECOND, 10)]);
        assert_eq!(updates(Some(&before), less), [None]);
        let earlier = sample(9 * SECOND, vec![row("1", SECOND, 2000)]);
        assert_eq!(updates(Some(&before), earlier), [None]);
    }

    #[test]
    fn totals_and_transactions_have_rates() {
        let with = |now, life, value| Sample {
            transactions: Counters {
                life: (1, 0),
                values: vec![value, 0],
            },
            totals: Counters {
                life,
                values: vec![value],
            },
            ..sample(now, vec![])
        };
        let before = with(SECOND, (1, 0), 10);
        let frame = Frame::new(Some(&before), with(3 * SECOND, (1, 0), 20));
        assert_eq!(frame.transactions, Some(vec![5.0, 0.0]));
        assert_eq!(frame.totals, Some(vec![5.0]));
        let frame = Frame::new(Some(&before), with(3 * SECOND, (1, 2), 20));
        assert_eq!(frame.totals, None);
        assert!(frame.transactions.is_some());
    }

    #[test]
    fn rows_are_sorted_by_what_is_asked_for() {
        let waiting = |key, since, updates, waiting| HotRow {
            waiting,
            ..row(key, since, updates)
        };
        let before = sample(10 * SECOND, vec![row("slow", 0, 900), row("quick", 0, 0)]);
        let rows = vec![
            waiting("unknown", 5, 800, 3),
            waiting("slow", 0, 910, 5),
            waiting("quick", 0, 100, 1),
            waiting("idle", 10 * SECOND, 0, 5),
        ];
        let mut frame = Frame::new(Some(&before), sample(11 * SECOND, rows));
        let mut keys = |sort| {
            frame.sort(sort);
            let keys = frame.rows.iter().flat_map(|rated| rated.row.key.clone());
            keys.collect::<Vec<_>>()
        };
        assert_eq!(keys(Sort::Updates), ["quick", "slow", "unknown", "idle"]);
        assert_eq!(keys(Sort::Waiting), ["slow", "idle", "unknown", "quick"]);
        assert_eq!(keys(Sort::Followed), ["quick", "slow", "unknown", "idle"]);
        assert_eq!(keys(Sort::Cascades), ["idle", "quick", "slow", "unknown"]);
    }

    #[test]
    fn every_sort_comes_round() {
        let mut sort = Sort::Updates;
        for expected in Sort::value_variants() {
            assert_eq!(sort, *expected);
            assert_eq!(
                sort.name(),
                expected.to_possible_value().unwrap().get_name()
            );
            sort = sort.next();
        }
        assert_eq!(sort, Sort::Updates);
    }
}
