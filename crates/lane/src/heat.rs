//! How often transactions have waited or were refused because of a stripe's keys, of late (HDCC's
//! rules of choice). It halves each second.

use crate::word::Word;

/// What a wait for declared keys adds.
pub const WAIT: u64 = 1;
/// What a refusal adds.
pub const REFUSAL: u64 = 4;

/// Parts of one unit of heat, so that halves are not lost.
const PARTS: u64 = 256;
const MOST: u64 = IS_HOT - 1;
/// The stripe has been hot, and has not been found cold since.
const IS_HOT: u64 = 1 << 31;
const SECONDS: u32 = 32;

/// The second of the last change in the upper half, then whether it was hot, and its parts.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Heat(Word);

/// The parts that are left of a word's.
fn parts(word: u64, second: u64) -> u64 {
    let age = second.saturating_sub(word >> SECONDS);
    (word & MOST).checked_shr(age.min(63) as u32).unwrap_or(0)
}

fn word(second: u64, is_hot: bool, parts: u64) -> u64 {
    let second = second & u64::from(u32::MAX);
    second << SECONDS | if is_hot { IS_HOT } else { 0 } | parts.min(MOST)
}

impl Heat {
    /// Something has happened, in that second.
    pub(crate) fn add(&self, weight: u64, second: u64) {
        loop {
            let old = self.0.get();
            let second = second.max(old >> SECONDS);
            let new = word(
                second,
                old & IS_HOT != 0,
                parts(old, second) + weight * PARTS,
            );
            if self.0.exchange(old, new) {
                return;
            }
        }
    }

    /// Whether it is hot: it has reached the threshold, and is not below a quarter of that yet.
    /// Processes with different thresholds share what was found last.
    pub(crate) fn is_hot(&self, threshold: u64, second: u64) -> bool {
        loop {
            let old = self.0.get();
            let left = parts(old, second);
            let was_hot = old & IS_HOT != 0;
            let is_hot = left >= threshold * PARTS || was_hot && left * 4 >= threshold * PARTS;
            if is_hot == was_hot || self.0.exchange(old, old ^ IS_HOT) {
                return is_hot;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn check(body: impl Fn() + Send + Sync + 'static) {
        shuttle::check_random(body, 1);
    }

    #[test]
    fn two_refusals_make_it_hot_and_seconds_make_it_cold() {
        check(|| {
            let heat = Heat::default();
            assert!(!heat.is_hot(8, 100));
            heat.add(REFUSAL, 100);
            assert!(!heat.is_hot(8, 100));
            heat.add(REFUSAL, 100);
            assert!(heat.is_hot(8, 100));
            // 4 and 2 are not below a quarter of the threshold.
            assert!(heat.is_hot(8, 101) && heat.is_hot(8, 102));
            assert!(!heat.is_hot(8, 103));
            // It was found cold: now it takes the whole threshold again.
            heat.add(REFUSAL, 103);
            assert!(!heat.is_hot(8, 103));
        });
    }

    #[test]
    fn a_threshold_of_zero_is_always_reached() {
        check(|| assert!(Heat::default().is_hot(0, 7)));
    }

    #[test]
    fn a_clock_that_goes_back_makes_nothing_hotter() {
        check(|| {
            let heat = Heat::default();
            heat.add(WAIT, 100);
            heat.add(WAIT, 90);
            assert!(!heat.is_hot(3, 90) && heat.is_hot(2, 90));
        });
    }

    proptest! {
        #[test]
        fn it_is_what_the_sum_of_halved_weights_is(
            events in vec((0_u64..5, prop_oneof![Just(WAIT), Just(REFUSAL)]), 0..60),
            threshold in 1_u64..40,
        ) {
            let expected = events.iter().fold(0.0, |heat: f64, &(age, weight)| {
                heat / f64::powi(2.0, age as i32) + weight as f64
            });
            shuttle::check_random(move || {
                let (heat, mut second) = (Heat::default(), 5);
                for &(age, weight) in &events {
                    second += age;
                    heat.add(weight, second);
                }
                // What is lost is less than a part for each event.
                let (is_hot, slack) = (heat.is_hot(threshold, second), 61.0 / PARTS as f64);
                let threshold = threshold as f64;
                assert!(is_hot || expected < threshold + slack);
                assert!(!is_hot || expected >= threshold);
            }, 1);
        }
    }
}
