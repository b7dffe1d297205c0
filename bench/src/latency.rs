//! Latency percentiles.

use hdrhistogram::Histogram;

/// Latency of the committed transactions of a run, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Latency {
    pub mean: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
}

/// From 1 µs to 10 minutes, with three digits.
pub fn histogram() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 600_000_000, 3)?)
}

impl From<&Histogram<u64>> for Latency {
    fn from(microseconds: &Histogram<u64>) -> Self {
        let at = |quantile| microseconds.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            mean: microseconds.mean() / 1e3,
            p50: at(0.50),
            p95: at(0.95),
            p99: at(0.99),
            max: microseconds.max() as f64 / 1e3,
        }
    }
}

/// From sysbench's histogram, whose lines read "  0.123 |****   42": value in ms, bar, count.
pub fn from_sysbench(output: &str) -> anyhow::Result<Latency> {
    let mut histogram = histogram()?;
    let rows = output.lines().filter_map(|line| {
        let (value, rest) = line.split_once('|')?;
        let milliseconds: f64 = value.trim().parse().ok()?;
        let count: u64 = rest.split_whitespace().next_back()?.parse().ok()?;
        Some((milliseconds, count))
    });
    for (milliseconds, count) in rows {
        histogram.saturating_record_n((milliseconds * 1e3) as u64, count);
    }
    anyhow::ensure!(!histogram.is_empty(), "no histogram in sysbench's report");
    Ok(Latency::from(&histogram))
}

#[cfg(test)]
impl Latency {
    /// Of transactions that all took so long.
    pub fn always(ms: f64) -> Self {
        Self {
            mean: ms,
            p50: ms,
            p95: ms,
            p99: ms,
            max: ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_a_known_distribution() {
        let mut histogram = histogram().unwrap();
        for milliseconds in 1..=1000_u64 {
            histogram.record(milliseconds * 1000).unwrap();
        }
        let latency = Latency::from(&histogram);
        for (found, expected) in [
            (latency.p50, 500.0),
            (latency.p95, 950.0),
            (latency.p99, 990.0),
            (latency.max, 1e3),
        ] {
            assert!(
                (found / expected - 1.0).abs() < 0.002,
                "{found} instead of {expected}"
            );
        }
    }

    #[test]
    fn the_histogram_of_sysbench() {
        let output = "Latency histogram (values are in milliseconds)
       value  ------------- distribution ------------- count
       1.000 |**                                       50
       2.000 |****************************************  50
";
        let latency = from_sysbench(output).unwrap();
        assert!((latency.p50 - 1.0).abs() < 0.01 && (latency.p99 - 2.0).abs() < 0.01);
        assert!(from_sysbench("nothing").is_err());
    }
}
