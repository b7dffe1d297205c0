//! What is compared: how the coordinator commits, and others that do the same work.

use plotters::style::RGBColor;
use serde::Serialize;

use super::cluster::Abilities;

/// A way to run transactions over several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// Stock postgres_fdw, which is not atomic: it commits at one node after the other.
    #[value(name = "postgres_fdw")]
    PostgresFdw,
    /// Two-phase commit that begins with COMMIT.
    Classic,
    /// Nodes prepare with the last statement, where it is known.
    Early,
    /// In addition, near nodes start later, so that all locks begin together.
    Scheduled,
    /// In addition, the waits for locks are foreseen.
    Forecast,
    /// In addition, transactions that would fail wait before they begin.
    Admission,
    /// As scheduled, and writes travel with the next read or COMMIT.
    Defer,
    /// As scheduled, and COMMIT returns when the decision is durable.
    Decided,
    /// ShardingSphere's XA transactions, in place of a coordinator.
    #[value(skip)]
    Xa,
}

impl Variant {
    pub const ALL: [Self; 9] = [
        Self::PostgresFdw,
        Self::Classic,
        Self::Early,
        Self::Scheduled,
        Self::Forecast,
        Self::Admission,
        Self::Defer,
        Self::Decided,
        Self::Xa,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::PostgresFdw => "postgres_fdw",
            Self::Classic => "classic",
            Self::Early => "early",
            Self::Scheduled => "scheduled",
            Self::Forecast => "forecast",
            Self::Admission => "admission",
            Self::Defer => "defer",
            Self::Decided => "decided",
            Self::Xa => "xa",
        }
    }

    pub const fn about(self) -> &'static str {
        match self {
            Self::PostgresFdw => "stock postgres_fdw; not atomic",
            Self::Classic => "two-phase commit at COMMIT",
            Self::Early => "PREPARE with the last statement (O1)",
            Self::Scheduled => "early, and near nodes start later by the round trips (O1, O2)",
            Self::Forecast => "scheduled, with a forecast of the waits for locks",
            Self::Admission => "forecast, and transactions that would fail wait before (O1 to O3)",
            Self::Defer => "scheduled, and writes travel with the next read or COMMIT",
            Self::Decided => "scheduled, and COMMIT returns when the decision is durable",
            Self::Xa => "ShardingSphere-JDBC 5.3.2 with XA (Atomikos), in the client",
        }
    }

    /// Whether a client says before a block's last statement that it is the last one.
    pub const fn tells_last(self) -> bool {
        !matches!(self, Self::PostgresFdw | Self::Classic | Self::Xa)
    }

    /// What each session says first. None: the coordinator's extension cannot do that.
    pub fn settings(self, abilities: &Abilities) -> Option<String> {
        let (prepare, schedule, more) = match self {
            Self::PostgresFdw => return Some("SET search_path = stock".to_owned()),
            Self::Xa => return Some(String::new()),
            Self::Classic => ("at_commit", "off", None),
            Self::Early => ("early", "off", None),
            Self::Scheduled => ("early", "latency", None),
            Self::Forecast => ("early", "forecast", None),
            Self::Admission => ("early", "admission", None),
            Self::Defer => ("early", "latency", Some(("txn.geo_defer", "on"))),
            Self::Decided => ("early", "latency", Some(("txn.geo_answer", "decided"))),
        };
        let mut settings = format!("SET txn.geo_prepare = {prepare}");
        if abilities.knows("txn.geo_schedule", schedule) {
            settings += &format!("; SET txn.geo_schedule = {schedule}");
        } else if schedule != "off" {
            return None;
        }
        if let Some((name, value)) = more {
            if !abilities.knows(name, value) {
                return None;
            }
            settings += &format!("; SET {name} = {value}");
        }
        Some(settings)
    }
}

/// Readable on light and on dark.
pub const fn color_of(variant: Variant) -> RGBColor {
    match variant {
        Variant::PostgresFdw => RGBColor(128, 138, 157),
        Variant::Classic => RGBColor(214, 69, 80),
        Variant::Early => RGBColor(224, 160, 48),
        Variant::Scheduled => RGBColor(22, 163, 122),
        Variant::Forecast => RGBColor(91, 141, 239),
        Variant::Admission => RGBColor(8, 90, 140),
        Variant::Defer => RGBColor(120, 100, 200),
        Variant::Decided => RGBColor(217, 119, 87),
        Variant::Xa => RGBColor(170, 136, 104),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stock_tables_are_found_by_name() {
        let none = Abilities::of(&[]);
        let stock = Variant::PostgresFdw.settings(&none).unwrap();
        assert!(stock.contains("stock"));
    }

    #[test]
    fn what_the_extension_does_not_have_is_left_out() {
        let old = Abilities::of(&[]);
        let new = Abilities::of(&[
            ("txn.geo_schedule", &["off", "latency"]),
            ("txn.geo_defer", &[]),
        ]);
        assert_eq!(
            Variant::Early.settings(&old).unwrap(),
            "SET txn.geo_prepare = early"
        );
        assert_eq!(Variant::Scheduled.settings(&old), None);
        assert!(Variant::Scheduled.settings(&new).is_some());
        assert_eq!(Variant::Forecast.settings(&new), None);
        assert_eq!(Variant::Decided.settings(&new), None);
        assert_eq!(
            Variant::Defer.settings(&new).unwrap(),
            "SET txn.geo_prepare = early; SET txn.geo_schedule = latency; SET txn.geo_defer = on"
        );
    }
}
