//! The axes along which the benchmarks go, and places on them.

use anyhow::{Result, ensure};

use super::workload::Kind;
use crate::axis::{self, count};

/// The round trips of the paper, in milliseconds: to each node, from each coordinator.
pub const ROUND_TRIPS: [[f64; 4]; 2] = [[0.0, 27.0, 73.0, 251.0], [251.0, 226.0, 175.0, 0.0]];

/// A place on all axes: what clients do, and over which lines.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct At {
    pub kind: Kind,
    pub clients: usize,
    /// Of a transaction (YCSB).
    pub operations: usize,
    /// In which they come (YCSB).
    pub batches: usize,
    /// Skew of the rows within a node: Zipf's exponent (YCSB).
    pub theta: f64,
    /// Percent of the transactions that are over two nodes.
    pub distributed: u32,
    /// Mean of the round trips in milliseconds, 0 for those of the site, and their deviation.
    pub rtt_mean: f64,
    pub rtt_deviation: f64,
    /// By how many percent each way may take longer, by chance.
    pub jitter: u32,
    /// Seconds after which the nodes change their round trips; 0 for never.
    pub change: u64,
    pub coordinators: usize,
    /// Of nodes that have the extension.
    pub group_lock: Option<bool>,
}

pub const DEFAULT: At = At {
    kind: Kind::Ycsb,
    clients: 64,
    operations: 5,
    batches: 1,
    theta: 0.9,
    distributed: 20,
    rtt_mean: 0.0,
    rtt_deviation: 0.0,
    jitter: 0,
    change: 0,
    coordinators: 1,
    group_lock: None,
};

/// Distances of the nodes from the mean, in deviations: the middles of equal shares of a normal
/// distribution.
const DISTANCES: [f64; 4] = [-1.362, -0.379, 0.379, 1.362];

impl At {
    /// The round trips from each coordinator to each node, where `site` has them without more.
    pub fn round_trips(&self, site: &[Vec<f64>]) -> Vec<Vec<f64>> {
        if self.rtt_mean == 0.0 {
            return site.to_vec();
        }
        let at = |node: usize| {
            let distance = DISTANCES[node % DISTANCES.len()];
            (self.rtt_mean + distance * self.rtt_deviation).max(0.0)
        };
        let from = |site: &Vec<f64>| (0..site.len()).map(at).collect();
        site.iter().map(from).collect()
    }
}

/// Fails unless these are round trips in milliseconds that a line can have.
pub fn check_rtt(rtt: &[f64]) -> Result<()> {
    let is_time = |rtt: &f64| (0.0..=10_000.0).contains(rtt);
    ensure!(
        rtt.iter().all(is_time),
        "round trips take from 0 to 10000 ms"
    );
    Ok(())
}

/// Fails unless it is an exponent of Zipf's law.
pub fn check_theta(theta: f64) -> Result<()> {
    ensure!(theta >= 0.0 && theta.is_finite(), "theta is 0 or more");
    Ok(())
}

type Axis = axis::Axis<At>;

/// Nothing is plotted over a single one.
const fn axis(label: fn(&At) -> String) -> Axis {
    Axis {
        name: "",
        tick: label,
        label,
    }
}

static AXES: [Axis; 12] = [
    axis(|at| at.kind.name().to_owned()),
    axis(|at| format!("{} % distributed", at.distributed)),
    axis(|at| format!("θ {}", at.theta)),
    axis(|at| format!("{} clients", at.clients)),
    axis(|at| format!("{} operations", at.operations)),
    axis(|at| count(at.batches as u64, "batch", "batches")),
    axis(|at| match at.rtt_mean {
        0.0 => "round trips of the paper".to_owned(),
        mean => format!("mean {mean} ms"),
    }),
    axis(|at| format!("± {} ms", at.rtt_deviation)),
    axis(|at| format!("jitter {} %", at.jitter)),
    axis(|at| match at.change {
        0 => "no change".to_owned(),
        change => format!("change each {change} s"),
    }),
    axis(|at| count(at.coordinators as u64, "coordinator", "coordinators")),
    axis(|at| match at.group_lock {
        None => "stock nodes".to_owned(),
        Some(true) => "group lock on".to_owned(),
        Some(false) => "group lock off".to_owned(),
    }),
];

/// Each place in words: what they differ in; if that is nothing, the share of distributed
/// transactions.
pub fn labels(places: &[At]) -> Vec<String> {
    let varying = Axis::varying(&AXES, places, &AXES[1]);
    let labels = places.iter().map(|at| axis::label(&varying, at));
    labels.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_what_differs() {
        let places = [0.3, 1.5].map(|theta| At { theta, ..DEFAULT });
        assert_eq!(labels(&places)[1], "θ 1.5");
        assert_eq!(labels(&[DEFAULT]), ["20 % distributed"]);
    }

    #[test]
    fn round_trips_have_the_mean_and_the_deviation_asked_for() {
        let site = vec![vec![0.0, 27.0, 73.0, 251.0]; 2];
        assert_eq!(DEFAULT.round_trips(&site), site);
        let at = At {
            rtt_mean: 100.0,
            rtt_deviation: 50.0,
            ..DEFAULT
        };
        let trips = &at.round_trips(&site)[1];
        let mean = trips.iter().sum::<f64>() / 4.0;
        let squares = trips.iter().map(|trip| (trip - mean) * (trip - mean));
        let deviation = (squares.sum::<f64>() / 4.0).sqrt();
        assert!((mean - 100.0).abs() < 1e-9 && (deviation / 50.0 - 1.0).abs() < 0.001);
    }
}
