use super::*;
use crate::latency::{TRUST, Trust};

const MOST: u64 = 1_000_000;

fn cost(round_trip: u64, local: u64) -> Cost {
    Cost {
        round_trip: Some(round_trip),
        local,
    }
}

fn taken(sent: u64, done: u64) -> Taken {
    Taken { sent, done }
}

#[test]
fn all_parts_are_done_at_one_time() {
    let unknown = Cost {
        round_trip: None,
        local: 500,
    };
    let parts = [cost(10, 0), cost(100, 30), cost(73, 0), unknown];
    assert_eq!(schedule(&parts, 1000), [120, 0, 57, 0]);
    assert_eq!(schedule(&parts, 60), [60, 0, 57, 0]);
    // What is waited for at a near node is as good as a distance.
    let parts = [cost(10, 200), cost(100, 30)];
    assert_eq!(schedule(&parts, 1000), [0, 80]);
    assert_eq!(schedule(&[cost(10, u64::MAX), cost(20, 0)], 30), [0, 30]);
}

#[test]
fn a_round_without_a_forecast_teaches_nothing() {
    let all = [taken(90_000, 100_000), taken(0, 100_000)];
    assert_eq!(
        lesson(&[cost(10_000, 0), cost(100_000, 0)], MOST, &all),
        None
    );
    // The forecast is for the part that is put off: it leaves the earlier for it.
    assert_eq!(
        lesson(&[cost(10_000, 500), cost(100_000, 0)], MOST, &all),
        None
    );
    assert_eq!(lesson(&[], MOST, &[]), None);
}

#[test]
fn who_was_put_off_must_not_come_last() {
    let parts = [cost(10_000, 0), cost(100_000, 50_000)];
    // It took at the far node what was forecast, less, or nothing.
    for (far, expected) in [
        (150_000, Lesson::Good(1)),
        (147_000, Lesson::Good(1)),
        (120_000, Lesson::TooLong(1)),
        (100_000, Lesson::TooLong(1)),
        (400_000, Lesson::Good(1)),
    ] {
        let all = [taken(140_000, 150_000), taken(0, far)];
        assert_eq!(lesson(&parts, MOST, &all), Some(expected), "{far}");
    }
    // It comes last because of what it met itself.
    let all = [taken(140_000, 190_000), taken(0, 150_000)];
    assert_eq!(lesson(&parts, MOST, &all), Some(Lesson::Good(1)));
}

/// Rounds over a near and a far node. At the far one a statement takes `local` there, and `factor`
/// times as long is forecast. How long the rounds take, per mille of what they would take if all
/// parts left at once.
fn rounds(local: u64, factor: u64, trust: &mut Trust) -> u64 {
    let (near, far) = (10_000, 100_000);
    let (mut scheduled, mut at_once) = (0, 0);
    for _ in 0..200 {
        let parts = [cost(near, 0), cost(far, trust.of(local * factor))];
        let delays = schedule(&parts, MOST);
        let all = [
            taken(delays[0], delays[0] + near),
            taken(delays[1], delays[1] + far + local),
        ];
        match lesson(&parts, MOST, &all) {
            Some(Lesson::TooLong(1)) => trust.lower(),
            Some(Lesson::Good(1)) => trust.raise(),
            other => assert_eq!(other, None),
        }
        scheduled += all.iter().map(|one| one.done).max().unwrap();
        at_once += far + local;
    }
    scheduled * 1000 / at_once
}

#[test]
fn forecasts_that_are_ten_times_too_long_cost_little() {
    for local in [1000, 10_000, 100_000] {
        let rounds = rounds(local, 10, &mut Trust::default());
        assert!(
            rounds <= 1100,
            "{rounds} per mille of unscheduled, for {local}"
        );
    }
}

/// Without lessons they would cost much: the test above tells something.
#[test]
fn what_is_never_lowered_costs_much() {
    let parts = [cost(10_000, 0), cost(100_000, 100_000 * 10 * TRUST / 1000)];
    let near = schedule(&parts, MOST)[0] + 10_000;
    assert!(near > 2 * 200_000);
}

#[test]
fn a_good_forecast_is_trusted_the_more() {
    let mut trust = Trust::default();
    let before = trust.of(1000);
    assert_eq!(rounds(100_000, 1, &mut trust), 1000);
    assert!(trust.of(1000) > before, "{} of 1000", trust.of(1000));
    rounds(100_000, 10, &mut trust);
    assert!(trust.of(1000) < 250, "{} of 1000", trust.of(1000));
    rounds(100_000, 1, &mut trust);
    rounds(100_000, 1, &mut trust);
    assert!(trust.of(1000) > 500, "{} of 1000", trust.of(1000));
}
