//! Whether a series of figures rises: its line of regression, and its first third against its last.

use serde::Serialize;

use crate::stats::Spread;

/// A straight line through points, fitted by least squares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Line {
    /// y for each unit of x.
    pub slope: f64,
    /// Its standard error: a slope within two of them is none that could be told from noise.
    pub standard_error: f64,
}

impl Line {
    /// None of fewer than three points, or when all have the same x.
    pub fn through(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        if points.len() < 3 {
            return None;
        }
        let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
        let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
        let square_x: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        if square_x == 0.0 {
            return None;
        }
        let product: f64 = points
            .iter()
            .map(|(x, y)| (x - mean_x) * (y - mean_y))
            .sum();
        let slope = product / square_x;
        let rest: f64 = points
            .iter()
            .map(|(x, y)| (y - mean_y - slope * (x - mean_x)).powi(2))
            .sum();
        Some(Self {
            slope,
            standard_error: (rest / (count - 2.0) / square_x).sqrt(),
        })
    }
}

/// How a figure has developed over the run.
#[derive(Clone, Debug, Serialize)]
pub struct Trend {
    pub what: &'static str,
    pub unit: &'static str,
    /// Median of the first third of the samples, and of the last.
    pub first_third: f64,
    pub last_third: f64,
    /// Per hour.
    pub per_hour: Line,
}

impl Trend {
    /// Of points (seconds, figure) in the order of time. None of fewer than three.
    pub fn of(what: &'static str, unit: &'static str, points: &[(f64, f64)]) -> Option<Self> {
        let hours: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x / 3600.0, *y)).collect();
        let third = points.len() / 3;
        let median = |points: &[(f64, f64)]| {
            Spread::of(points.iter().map(|(_, y)| *y)).map(|spread| spread.median)
        };
        Some(Self {
            what,
            unit,
            first_third: median(points.get(..third)?)?,
            last_third: median(points.get(points.len() - third..)?)?,
            per_hour: Line::through(&hours)?,
        })
    }

    /// The last third against the first, in per cent of the first. None when that is 0.
    pub fn change(&self) -> Option<f64> {
        (self.first_third != 0.0).then(|| 100.0 * (self.last_third / self.first_third - 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_on_a_line_have_its_slope_and_no_error() {
        let points: Vec<(f64, f64)> = (0..10_i32)
            .map(|x| (f64::from(x), 7.0 - 0.5 * f64::from(x)))
            .collect();
        let line = Line::through(&points).unwrap();
        assert!((line.slope + 0.5).abs() < 1e-12 && line.standard_error < 1e-12);
    }

    #[test]
    fn the_slope_and_error_of_scattered_points() {
        // By hand: mean (2, 4), sum of squares of x 10, of products 6, of the rest 2.4, and
        // sqrt(2.4 / 3 / 10).
        let points = [(0.0, 2.0), (1.0, 4.0), (2.0, 5.0), (3.0, 4.0), (4.0, 5.0)];
        let line = Line::through(&points).unwrap();
        assert!((line.slope - 0.6).abs() < 1e-12);
        assert!((line.standard_error - 0.08_f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn too_few_points_and_a_single_moment_have_no_slope() {
        assert_eq!(Line::through(&[(0.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(Line::through(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
    }

    #[test]
    fn thirds_and_slope_of_a_leak() {
        // A unit a minute, for an hour and a half.
        let points: Vec<(f64, f64)> = (0..90_i32)
            .map(|minute| (60.0 * f64::from(minute), 100.0 + f64::from(minute)))
            .collect();
        let trend = Trend::of("memory", "MB", &points).unwrap();
        assert_eq!((trend.first_third, trend.last_third), (114.5, 174.5));
        assert!((trend.per_hour.slope - 60.0).abs() < 1e-9);
        assert!((trend.change().unwrap() - 6000.0 / 114.5).abs() < 1e-9);
    }
}
