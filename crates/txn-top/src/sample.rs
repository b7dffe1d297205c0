//! What the server says at one moment. Times are microseconds of its clock since 1970.

/// The totals that are shown, in this order: what is most telling first, those of the lane last.
pub const TOTALS: [&str; HOT_TOTALS + 7] = [
    "tickets",
    "followed",
    "combined",
    "groups",
    "early_commits",
    "cascades",
    "doomed",
    "cycles",
    "fallbacks",
    "ticket_waits",
    "commit_waits",
    "read_waits",
    "snapshot_waits",
    "validated_reads",
    "refused_reads",
    "direct_handovers",
    "ordinary",
    "abandoned",
    "own_row",
    "backoffs",
    "promotions",
    "coolings",
    "table_full",
    "lane_taken",
    "lane_waits",
    "lane_drains",
    "lane_skipped",
    "lane_cold",
    "lane_rescheduled",
    "lane_overflows",
];

/// Of these, so many are of hot rows.
pub const HOT_TOTALS: usize = 23;

/// The counters of a hot row that are shown as rates, in this order.
pub const COUNTS: [&str; 4] = ["updates", "followed", "combined", "cascades"];

#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub version: String,
    pub database: String,
    /// The server's time of day.
    pub clock: String,
    pub now: i64,
    pub started: i64,
    /// Commits and rollbacks in this database.
    pub transactions: Counters,
    pub hot_rows: i32,
    /// Those named in `TOTALS`.
    pub totals: Counters,
    pub rows: Vec<HotRow>,
    pub waits: Vec<Wait>,
}

impl Sample {
    /// Whether anybody has used the lane since the totals were reset.
    pub fn uses_lane(&self) -> bool {
        let lane = self.totals.values.iter().skip(HOT_TOTALS);
        lane.into_iter().any(|&total| total > 0)
    }
}

#[derive(Clone, Debug, Default)]
pub struct HotRow {
    pub oid: u32,
    pub relation: String,
    /// None when we may not read the table.
    pub key: Option<String>,
    pub mode: String,
    pub since: i64,
    pub waiting: i32,
    pub running: i32,
    /// Those named in `COUNTS`.
    pub counts: Counters,
    pub handover_us: Option<f64>,
    /// What has kept updates from following, the most frequent first.
    pub obstacles: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Wait {
    pub pid: i32,
    pub blocked_by: Option<i32>,
    pub relation: String,
    pub key: Option<String>,
    pub reason: String,
    /// In microseconds; too short for the clock of the sample.
    pub age: i64,
}

/// Numbers that grow until something sets them to zero.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Start and reset: counters can be compared only with those of the same life.
    pub life: (i64, i64),
    pub values: Vec<i64>,
}

impl Counters {
    /// Growth per second. None after a reset, also one that `life` does not tell of.
    pub fn rates(&self, before: &Self, seconds: f64) -> Option<Vec<f64>> {
        if self.life != before.life || self.values.len() != before.values.len() {
            return None;
        }
        let growth = self.values.iter().zip(&before.values);
        growth
            .map(|(now, before)| (now >= before).then(|| (now - before) as f64 / seconds))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const INSTALL: &str = include_str!("../../../sql/install/txn--0.4.0.sql");

    fn columns(view: &str) -> BTreeSet<&'static str> {
        let prefix = format!("COMMENT ON COLUMN txn.{view}.");
        let lines = INSTALL.lines().filter_map(|l| l.strip_prefix(&prefix));
        lines.map(|l| l.split(' ').next().unwrap()).collect()
    }

    #[test]
    fn every_total_of_hot_rows_and_the_lane_is_shown() {
        let mut shown = BTreeSet::from(TOTALS);
        shown.extend(["hot_rows", "stats_reset"]);
        let mut totals = columns("stats");
        totals.retain(|name| !name.starts_with("range_"));
        assert_eq!(shown, totals);
        let is_lanes = |name: &&str| name.starts_with("lane_");
        assert_eq!(TOTALS.iter().position(is_lanes), Some(HOT_TOTALS));
        assert!(TOTALS[HOT_TOTALS..].iter().all(is_lanes));
    }

    #[test]
    fn the_counts_are_columns_of_the_view() {
        assert!(columns("hotspots").is_superset(&BTreeSet::from(COUNTS)));
    }

    #[test]
    fn counters_of_one_life_have_rates() {
        let counters = |life, values: &[i64]| Counters {
            life,
            values: values.to_vec(),
        };
        let before = counters((1, 0), &[10, 20]);
        let rates = |now: Counters| now.rates(&before, 2.0);
        assert_eq!(rates(counters((1, 0), &[10, 25])), Some(vec![0.0, 2.5]));
        assert_eq!(rates(counters((1, 5), &[11, 25])), None);
        assert_eq!(rates(counters((2, 0), &[11, 25])), None);
        assert_eq!(rates(counters((1, 0), &[50, 19])), None);
        assert_eq!(rates(counters((1, 0), &[50])), None);
    }
}
