//! The axes along which the benchmarks go, and places on them.

use super::workload::Kind;

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

    /// In words: what differs from the default, and what the benchmark is about.
    pub fn label(&self, differs: &[Axis]) -> String {
        let parts: Vec<String> = differs.iter().map(|axis| axis.label(self)).collect();
        parts.join(", ")
    }
}

/// Something that may differ between places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    Kind,
    Distributed,
    Theta,
    Clients,
    Operations,
    Batches,
    RoundTrip,
    Deviation,
    Jitter,
    Change,
    Coordinators,
    GroupLock,
}

impl Axis {
    const ALL: [Self; 12] = [
        Self::Kind,
        Self::Distributed,
        Self::Theta,
        Self::Clients,
        Self::Operations,
        Self::Batches,
        Self::RoundTrip,
        Self::Deviation,
        Self::Jitter,
        Self::Change,
        Self::Coordinators,
        Self::GroupLock,
    ];

    /// In which places differ; if there is none, the share of distributed transactions.
    pub fn varying(places: &[At]) -> Vec<Self> {
        let differs = |axis: &Self| {
            let mut labels = places.iter().map(|at| axis.label(at));
            let first = labels.next();
            labels.any(|label| Some(label) != first)
        };
        let varying: Vec<Self> = Self::ALL.into_iter().filter(differs).collect();
        match varying.is_empty() {
            true => vec![Self::Distributed],
            false => varying,
        }
    }

    /// The place on this axis.
    pub fn label(self, at: &At) -> String {
        match self {
            Self::Kind => at.kind.name().to_owned(),
            Self::Distributed => format!("{} % distributed", at.distributed),
            Self::Theta => format!("θ {}", at.theta),
            Self::Clients => format!("{} clients", at.clients),
            Self::Operations => format!("{} operations", at.operations),
            Self::Batches if at.batches == 1 => "1 batch".to_owned(),
            Self::Batches => format!("{} batches", at.batches),
            Self::RoundTrip if at.rtt_mean == 0.0 => "round trips of the paper".to_owned(),
            Self::RoundTrip => format!("mean {} ms", at.rtt_mean),
            Self::Deviation => format!("± {} ms", at.rtt_deviation),
            Self::Jitter => format!("jitter {} %", at.jitter),
            Self::Change if at.change == 0 => "no change".to_owned(),
            Self::Change => format!("change each {} s", at.change),
            Self::Coordinators if at.coordinators == 1 => "1 coordinator".to_owned(),
            Self::Coordinators => format!("{} coordinators", at.coordinators),
            Self::GroupLock => match at.group_lock {
                None => "stock nodes".to_owned(),
                Some(true) => "group lock on".to_owned(),
                Some(false) => "group lock off".to_owned(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_what_differs() {
        let places = [0.3, 1.5].map(|theta| At { theta, ..DEFAULT });
        let varying = Axis::varying(&places);
        assert_eq!(varying, [Axis::Theta]);
        assert_eq!(places[1].label(&varying), "θ 1.5");
        assert_eq!(
            DEFAULT.label(&Axis::varying(&[DEFAULT])),
            "20 % distributed"
        );
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
