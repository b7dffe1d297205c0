use super::*;

pub(crate) const NOW: u64 = 1 << 40;
pub(crate) const TRIP: u64 = 100_000;

pub(crate) fn records() -> Box<Records> {
    let zero = || AtomicU64::new(0);
    Box::new(Records {
        places: std::array::from_fn(|_| Record {
            hash: zero(),
            database: zero(),
            server: zero(),
            relation: zero(),
            used_at: zero(),
            aged_at: zero(),
            local: zero(),
            tries: zero(),
            commits: zero(),
            in_flight: zero(),
            window: Window::default(),
            queue: zero(),
            turn: zero(),
            follows: zero(),
            reported_at: zero(),
        }),
        line: Head::default(),
    })
}

pub(crate) fn report(queue: u64, turn: u64, follows: bool) -> Report {
    Report {
        queue,
        turn,
        follows,
    }
}

pub(crate) fn id(key: &str) -> RecordId {
    RecordId::new(5, 1, 7, "public.account", key)
}

/// Records of one set.
fn of_one_set() -> impl Iterator<Item = RecordId> {
    let set = |id: &RecordId| id.hash() as usize % SETS;
    let first = set(&id("0"));
    let all = (0..).map(|n| id(&n.to_string()));
    all.filter(move |id| set(id) == first)
}

#[test]
fn records_differ_by_all_that_names_them() {
    let one = id("1");
    assert_eq!(one, id("1"));
    // The foreign table does not name it: several may be of one table.
    let same = RecordId::new(5, 1, 8, "public.account", "1");
    assert_eq!(one.hash(), same.hash());
    let others = [
        RecordId::new(6, 1, 7, "public.account", "1"),
        RecordId::new(5, 2, 7, "public.account", "1"),
        RecordId::new(5, 1, 7, "public.account1", ""),
        RecordId::new(5, 1, 7, "public.account", "2"),
    ];
    assert!(others.iter().all(|other| other.hash() != one.hash()));
}

#[test]
fn keys_spread_over_the_sets() {
    let mut counts = [0; SETS];
    for n in 0..SETS * 4 {
        counts[id(&n.to_string()).hash() as usize % SETS] += 1;
    }
    assert!(counts.iter().all(|&count| count <= 4 * WAYS));
    assert!(counts.iter().filter(|&&count| count == 0).count() < SETS / 8);
}

#[test]
fn the_least_recently_used_makes_room() {
    let all = records();
    let ids: Vec<RecordId> = of_one_set().take(WAYS + 1).collect();
    for (n, id) in ids[..WAYS].iter().enumerate() {
        assert!(all.begin(id, NOW + n as u64));
        all.end(id.hash(), true, NOW + n as u64);
    }
    // The first was used again, so the second goes.
    assert!(all.begin(&ids[0], NOW + 100));
    all.end(ids[0].hash(), true, NOW + 100);
    assert!(all.begin(&ids[WAYS], NOW + 101));
    let tries = |n: usize| all.known(ids[n].hash(), NOW + 101).tries;
    assert_eq!((tries(0), tries(1), tries(2)), (2, 0, 1));
    assert_eq!(all.known(ids[WAYS].hash(), NOW + 101).in_flight, 1);
    assert_eq!(all.all(5, NOW + 101).len(), WAYS);
    assert!(all.all(6, NOW + 101).is_empty());
}

#[test]
fn what_is_at_work_stays() {
    let all = records();
    let ids: Vec<RecordId> = of_one_set().take(WAYS + 1).collect();
    assert!(ids[..WAYS].iter().all(|id| all.begin(id, NOW)));
    assert!(!all.begin(&ids[WAYS], NOW + 1));
    all.end(ids[WAYS].hash(), true, NOW + 1);
    all.end(ids[3].hash(), false, NOW + 1);
    assert!(all.begin(&ids[WAYS], NOW + 1));
    assert_eq!(all.known(ids[3].hash(), NOW + 1), Known::default());
    assert_eq!(all.known(ids[2].hash(), NOW + 1).in_flight, 1);
}

#[test]
fn times_are_averaged() {
    let all = records();
    let one = id("1");
    all.measured(&[one.hash()], 8000, TRIP, true, NOW);
    assert_eq!(all.forecast(&[one.hash()], NOW), 0);
    all.begin(&one, NOW);
    all.measured(&[one.hash()], 8000, TRIP, true, NOW);
    assert_eq!(all.forecast(&[one.hash()], NOW), 8000);
    all.measured(&[one.hash()], 4000, TRIP, true, NOW);
    assert_eq!(all.forecast(&[one.hash()], NOW), 6000);
    (0..40).for_each(|_| all.measured(&[one.hash()], 100_000, TRIP, true, NOW));
    assert!(all.forecast(&[one.hash()], NOW) > 99_000);
}

/// Eq. 4: what the records took before is the proportion.
#[test]
fn times_are_shared_out() {
    let all = records();
    let (one, two) = (id("1"), id("2"));
    all.begin(&one, NOW);
    all.begin(&two, NOW);
    let both = [one.hash(), two.hash()];
    all.measured(&both, 8000, TRIP, true, NOW);
    let local = |id: &RecordId| all.known(id.hash(), NOW).local;
    assert_eq!((local(&one), local(&two)), (4000, 4000));
    all.measured(&[one.hash()], 32_000, TRIP, true, NOW);
    assert_eq!(local(&one), 11_000);
    // 11 : 4 of 30 ms: 22 and 8.
    all.measured(&both, 30_000, TRIP, true, NOW);
    assert!(local(&one).abs_diff((11_000 * 3 + 22_000) / 4) <= 1);
    assert!(local(&two).abs_diff((4000 * 3 + 8000) / 4) <= 1);
    assert_eq!(all.forecast(&both, NOW), local(&one) + local(&two));
}

#[test]
fn tries_and_commits_are_halved() {
    let all = records();
    let one = id("1");
    for n in 0..8 {
        all.begin(&one, NOW);
        all.end(one.hash(), n % 2 == 0, NOW);
    }
    let counts = |now| {
        let known = all.known(one.hash(), now);
        (known.tries, known.commits)
    };
    assert_eq!(counts(NOW + PERIOD_US - 1), (8, 4));
    assert_eq!(counts(NOW + PERIOD_US), (4, 2));
    assert_eq!(counts(NOW + 2 * PERIOD_US - 1), (4, 2));
    assert_eq!(counts(NOW + 2 * PERIOD_US), (2, 1));
    assert_eq!(counts(NOW + 200 * PERIOD_US), (0, 0));
}

#[test]
fn the_time_of_what_nobody_uses_fades() {
    let all = records();
    let one = id("1");
    all.begin(&one, NOW);
    all.measured(&[one.hash()], 8000, TRIP, true, NOW);
    // A transaction that is at work on it uses it.
    assert_eq!(all.forecast(&[one.hash()], NOW + 9 * PERIOD_US), 8000);
    all.end(one.hash(), true, NOW + 9 * PERIOD_US);
    assert_eq!(all.forecast(&[one.hash()], NOW + 10 * PERIOD_US - 1), 8000);
    assert_eq!(all.forecast(&[one.hash()], NOW + 10 * PERIOD_US), 4000);
    assert_eq!(all.forecast(&[one.hash()], NOW + 12 * PERIOD_US), 1000);
}

#[test]
fn the_longer_of_past_and_queue_is_forecast() {
    let all = records();
    let one = id("1");
    all.reported(one.hash(), report(3, 5000, true), NOW);
    all.begin(&one, NOW);
    assert_eq!(all.forecast(&[one.hash()], NOW), 0);
    all.measured(&[one.hash()], 8000, TRIP, true, NOW);
    all.reported(one.hash(), report(3, 5000, true), NOW);
    assert_eq!(all.forecast(&[one.hash()], NOW), 15_000);
    all.reported(one.hash(), report(1, 5000, true), NOW);
    assert_eq!(all.forecast(&[one.hash()], NOW), 8000);
    // A report does not last.
    all.reported(one.hash(), report(3, 5000, true), NOW);
    assert_eq!(all.forecast(&[one.hash()], NOW + REPORT_US + 1), 8000);
}

#[test]
fn contention_counts_the_others() {
    let all = records();
    let one = id("1");
    all.begin(&one, NOW);
    all.begin(&one, NOW);
    all.end(one.hash(), false, NOW);
    let expected = Contention {
        commits: 0,
        tries: 1,
        others: 1,
        local: 0,
    };
    assert_eq!(all.contention(&[one.hash()], NOW), [expected]);
    // The node knows of more.
    all.reported(one.hash(), report(3, 5000, true), NOW);
    assert_eq!(all.contention(&[one.hash()], NOW)[0].others, 3);
    let unknown = all.contention(&[id("2").hash()], NOW);
    assert_eq!(unknown, [Contention::default()]);
}
