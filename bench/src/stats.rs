//! Figures of several runs: medians with their range, and ratios taken within a round.

use std::collections::BTreeMap;

/// The middle of some runs, and how far they were apart.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
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

    /// In another unit.
    pub fn times(self, factor: f64) -> Self {
        let Self { median, min, max } = self;
        Self {
            median: median * factor,
            min: min * factor,
            max: max * factor,
        }
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

/// Runs that are taken together: those of a line.
pub struct Group<T> {
    pub runs: Vec<T>,
    /// Of each run: its round and its rate.
    rates: Vec<(usize, f64)>,
}

impl<T> Group<T> {
    pub fn new(runs: impl IntoIterator<Item = T>, rate: impl Fn(&T) -> (usize, f64)) -> Self {
        let runs: Vec<T> = runs.into_iter().collect();
        let rates = runs.iter().map(rate).collect();
        Self { runs, rates }
    }

    pub fn sum<S: std::iter::Sum>(&self, value: impl Fn(&T) -> S) -> S {
        self.runs.iter().map(value).sum()
    }

    /// None of no runs.
    pub fn spread(&self, value: impl Fn(&T) -> f64) -> Option<Spread> {
        Spread::of(self.runs.iter().map(value))
    }

    /// None of no runs.
    pub fn rate(&self) -> Option<Spread> {
        Spread::of(self.rates.iter().map(|(_, rate)| *rate))
    }

    /// Of the runs that have the value; None when none has it.
    pub fn spread_of(&self, value: impl Fn(&T) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.runs.iter().filter_map(value))
    }

    /// Likewise.
    pub fn median(&self, value: impl Fn(&T) -> Option<f64>) -> Option<f64> {
        self.spread_of(value).map(|spread| spread.median)
    }

    /// The rate as a multiple of the base's in the same round.
    pub fn to(&self, base: &Self) -> Option<Spread> {
        Spread::of_ratios(&self.rates, &base.rates)
    }

    /// The rate as a multiple of each base's of which there are runs.
    pub fn to_all(
        &self,
        bases: impl IntoIterator<Item = (&'static str, Self)>,
    ) -> BTreeMap<&'static str, Spread> {
        let ratios = bases
            .into_iter()
            .map(|(name, base)| Some((name, self.to(&base)?)));
        ratios.flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_compared_within_its_rounds() {
        let group = |runs: &[(usize, f64)]| Group::new(runs.to_vec(), |run| *run);
        let runs = group(&[(1, 10.0), (2, 40.0)]);
        let bases = [
            ("base", group(&[(2, 20.0), (1, 10.0)])),
            ("nothing", group(&[(1, 0.0)])),
        ];
        let ratios = runs.to_all(bases);
        assert_eq!(ratios.keys().collect::<Vec<_>>(), [&"base"]);
        assert_eq!(ratios["base"].median, 1.5);
        assert_eq!(runs.rate(), runs.spread(|(_, rate)| *rate));
        assert_eq!(
            runs.median(|(round, rate)| (*round == 2).then_some(*rate)),
            Some(40.0)
        );
        assert_eq!(
            (runs.median(|_| None), runs.sum(|(round, _)| *round)),
            (None, 3)
        );
    }

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
