//! The order of all runs: variants in turn at each place, round by round.

use serde::Serialize;

use tooling::interrupt;
use tooling::progress::Progress;

/// Which run it is; the default is that of a warm-up.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Turn {
    /// Position in the order of execution, from 1.
    pub order: usize,
    /// From 1.
    pub round: usize,
}

/// A finished run.
pub trait Ran {
    /// In one line, without its round.
    fn line(&self) -> String;
}

/// Runs all variants of all places in each round. Fails with the first that fails.
pub fn in_rounds<P, V, R: Ran>(
    progress: &Progress,
    rounds: usize,
    places: &[P],
    variants: impl Fn(&P) -> Vec<V>,
    mut run: impl FnMut(Turn, &P, &V) -> anyhow::Result<R>,
) -> anyhow::Result<Vec<R>> {
    let mut runs: Vec<R> = Vec::new();
    for round in 1..=rounds {
        for place in places {
            for variant in in_turn(&variants(place), round) {
                interrupt::check()?;
                let order = runs.len() + 1;
                let run = run(Turn { order, round }, place, variant)?;
                progress.print(&format!("{round:>2}/{rounds} {}", run.line()));
                progress.end();
                runs.push(run);
            }
        }
    }
    Ok(runs)
}

/// The variants in the order of a round: each begins as often as the others, as what ran before may
/// still be felt.
fn in_turn<T>(variants: &[T], round: usize) -> impl Iterator<Item = &T> {
    let first = (round - 1) % variants.len().max(1);
    variants.iter().cycle().skip(first).take(variants.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Ran for String {
        fn line(&self) -> String {
            self.clone()
        }
    }

    #[test]
    fn every_variant_runs_once_in_a_round_and_each_begins_one() {
        let order = |round| {
            in_turn(&["a", "b", "c"], round)
                .copied()
                .collect::<String>()
        };
        assert_eq!([1, 2, 3, 4].map(order), ["abc", "bca", "cab", "abc"]);
        assert_eq!(in_turn::<u8>(&[], 1).count(), 0);
    }

    #[test]
    fn a_round_goes_over_all_places_and_leaves_out_what_a_place_does_not_have() {
        let progress = Progress::new(5).unwrap();
        let variants = |place: &u8| {
            if *place == 1 {
                vec!["a", "b"]
            } else {
                vec!["b"]
            }
        };
        let run = |turn: Turn, place: &u8, variant: &&str| {
            Ok(format!("{}.{} {place}{variant}", turn.order, turn.round))
        };
        let runs = in_rounds(&progress, 2, &[1, 2], variants, run).unwrap();
        let expected = ["1.1 1a", "2.1 1b", "3.1 2b", "4.2 1b", "5.2 1a", "6.2 2b"];
        assert_eq!(runs, expected);
    }
}
