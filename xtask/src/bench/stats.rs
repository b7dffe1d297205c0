//! Figures of several runs: medians with their range, and ratios taken within a round.

/// The middle of some runs, and how far they were apart.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// None of no values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[half]
        } else {
            f64::midpoint(values[half - 1], values[half])
        };
        Some(Self { median, min, max })
    }

    /// Of the ratios within each round: both were measured one after the other on the same
    /// machine in the same state. Pairs are (round, value).
    pub fn of_ratios(values: &[(usize, f64)], bases: &[(usize, f64)]) -> Option<Self> {
        let base_of = |round| bases.iter().find(|(other, _)| *other == round);
        Self::of(values.iter().filter_map(|(round, value)| {
            let (_, base) = base_of(*round)?;
            (*base > 0.0).then(|| value / base)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_numbers_of_runs() {
        let spread = Spread::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!(
            spread,
            Spread {
                median: 2.0,
                min: 1.0,
                max: 3.0
            }
        );
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn ratios_compare_only_runs_of_the_same_round() {
        let slow_then_fast = [(0, 10.0), (1, 100.0)];
        let twice_as_fast = [(1, 200.0), (0, 20.0)];
        let ratio = Spread::of_ratios(&twice_as_fast, &slow_then_fast).unwrap();
        assert_eq!(
            ratio,
            Spread {
                median: 2.0,
                min: 2.0,
                max: 2.0
            }
        );
        assert_eq!(Spread::of_ratios(&[(2, 1.0)], &slow_then_fast), None);
        assert_eq!(Spread::of_ratios(&[(0, 1.0)], &[(0, 0.0)]), None);
    }
}
