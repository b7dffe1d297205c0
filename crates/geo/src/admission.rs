//! Late admission: transactions that are likely to fail do not begin (GeoTP, section 5).

/// How often a transaction waits before it is refused.
const MOST_WAITS: u32 = 10;
/// Bounds of one wait, in microseconds.
const SHORTEST_US: u64 = 1000;
const LONGEST_US: u64 = 1_000_000;

/// How contended a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Contention {
    /// Transactions that have committed (c), of those that have ended (t).
    pub commits: u64,
    /// See `commits`.
    pub tries: u64,
    /// Transactions that are at work on it, without the one that asks (a - 1).
    pub others: u64,
    /// How long it takes at its node, in microseconds.
    pub local: u64,
}

/// Whether a transaction may begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// It may.
    Enter,
    /// It waits for so long, in microseconds, and asks again.
    Wait(u64),
    /// It has waited often enough.
    Refuse,
}

/// The probability that a transaction with these records fails (GeoTP, Eq. 9).
pub fn risk(records: &[Contention]) -> f64 {
    let commits = |one: &Contention| {
        let share = (one.commits as f64 + 1.0) / (one.tries as f64 + 1.0);
        share.powf(one.others as f64)
    };
    1.0 - records.iter().map(commits).product::<f64>()
}

/// Whether a transaction with these records may begin, after so many waits. `draw` is a random
/// number below 1, from 0 on.
///
/// It is blocked with the probability that it fails. (The paper's listing blocks if that
/// probability is *below* the random number, and so those that are safe.)
pub fn admit(records: &[Contention], draw: f64, waits: u32) -> Admission {
    if draw >= risk(records) {
        return Admission::Enter;
    }
    if waits >= MOST_WAITS {
        return Admission::Refuse;
    }
    let hottest = records.iter().map(|one| one.local).max().unwrap_or(0);
    Admission::Wait(hottest.clamp(SHORTEST_US, LONGEST_US))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn contention(commits: u64, tries: u64, others: u64) -> Contention {
        Contention {
            commits,
            tries,
            others,
            local: 30_000,
        }
    }

    /// xorshift64*: numbers below 1.
    fn draws(mut state: u64) -> impl FnMut() -> f64 {
        move || {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    proptest! {
        #[test]
        fn what_always_commits_is_never_blocked(
            all in prop::collection::vec((0..1000_u64, 0..1000_u64), 0..20),
            draw in 0.0..1.0_f64,
        ) {
            let all: Vec<_> = all.into_iter().map(|(t, a)| contention(t, t, a)).collect();
            prop_assert_eq!(admit(&all, draw, MOST_WAITS), Admission::Enter);
            prop_assert_eq!(admit(&all, 0.0, 0), Admission::Enter);
        }

        #[test]
        fn who_is_alone_is_never_blocked(commits in 0..9_u64, more in 0..99_u64) {
            let alone = contention(commits, commits + more, 0);
            prop_assert_eq!(admit(&[alone], 0.0, 0), Admission::Enter);
        }

        #[test]
        fn the_risk_is_a_probability(
            all in prop::collection::vec((0..99_u64, 0..99_u64, 0..1000_u64), 0..20),
        ) {
            let all: Vec<_> = all.into_iter().map(|(c, t, a)| contention(c, c + t, a)).collect();
            prop_assert!((0.0..=1.0).contains(&risk(&all)));
        }
    }

    /// One of two fails, and two are at work: three of four are blocked, and not one of four.
    #[test]
    fn as_many_are_blocked_as_fail() {
        let all = [contention(4, 9, 2)];
        assert!((risk(&all) - 0.75).abs() < 1e-9);
        let mut draw = draws(42);
        let blocked = (0..10_000)
            .filter(|_| admit(&all, draw(), 0) != Admission::Enter)
            .count();
        assert!((7300..7700).contains(&blocked), "{blocked} of 10000");
        // Of two such records each has its share of the risk.
        assert!((risk(&[all[0], contention(4, 9, 1)]) - 0.875).abs() < 1e-9);
    }

    #[test]
    fn the_hottest_record_is_waited_for() {
        let cold = Contention {
            local: 10,
            ..contention(0, 99, 9)
        };
        let wait = |all: &[Contention]| admit(all, 0.0, 0);
        assert_eq!(wait(&[cold]), Admission::Wait(SHORTEST_US));
        assert_eq!(wait(&[cold, contention(0, 9, 1)]), Admission::Wait(30_000));
        let hot = Contention {
            local: u64::MAX,
            ..cold
        };
        assert_eq!(wait(&[hot]), Admission::Wait(LONGEST_US));
    }

    #[test]
    fn after_ten_waits_it_is_refused() {
        let hopeless = [contention(0, 1_000_000, 1000)];
        let mut draw = draws(7);
        let mut waits = 0;
        while matches!(admit(&hopeless, draw(), waits), Admission::Wait(_)) {
            waits += 1;
        }
        assert_eq!(waits, 10);
        assert_eq!(admit(&hopeless, draw(), waits), Admission::Refuse);
    }
}
