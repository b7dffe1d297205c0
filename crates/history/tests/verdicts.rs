//! Histories with known verdicts: what every level refuses, unknown outcomes, real time, texts.

mod common;

use Level::{ReadCommitted, RepeatableRead, Serializable};
use common::*;
use history::{Class, History, Level, Outcome, Promise, check};

#[test]
fn one_after_the_other() {
    accepted(&history(
        &[(5, 100)],
        vec![
            tx(vec![
                append(1, 1),
                list(1, &[1]),
                write(1, 0, 2),
                read(1, 2),
            ]),
            tx(vec![
                scan(0, 9, &[(5, 100)]),
                update(5, 100, 3),
                insert(6, 4),
            ]),
            tx(vec![
                rekey(5, 7, 3, 5),
                scan(0, 9, &[(6, 4), (7, 5)]),
                delete(6, 4),
            ]),
            tx(vec![
                list(1, &[1]),
                scan(0, 9, &[(7, 5)]),
                delete(6, 0),
                append(1, 6),
            ]),
        ],
    ));
}

#[test]
fn garbage() {
    let all = ReadCommitted;
    refused_from(
        all,
        Class::Garbage,
        &history(&[], vec![tx(vec![read(1, 77)])]),
    );
    refused_from(
        all,
        Class::Garbage,
        &history(&[], vec![tx(vec![list(1, &[77])])]),
    );
    let elsewhere = vec![tx(vec![write(1, 0, 1)]), tx(vec![read(2, 1)])];
    refused_from(all, Class::Garbage, &history(&[], elsewhere));
    let missed_key = vec![tx(vec![scan(0, 9, &[(4, 100)])])];
    refused_from(all, Class::Garbage, &history(&[(5, 100)], missed_key));
}

#[test]
fn own_writes_that_are_not_seen() {
    for ops in [
        vec![write(1, 0, 1), read(1, 0)],
        vec![append(1, 1), list(1, &[])],
        vec![insert(5, 1), scan(0, 9, &[])],
        vec![insert(5, 1), delete(5, 1), scan(0, 9, &[(5, 1)])],
        vec![insert(5, 1), update(5, 0, 2)],
        vec![read(1, 1), write(1, 0, 1)],
        vec![write(1, 0, 1), write(1, 0, 2)],
    ] {
        refused_from(ReadCommitted, Class::Internal, &history(&[], vec![tx(ops)]));
    }
}

#[test]
fn malformed_results() {
    let rows = [(5, 100), (6, 101)];
    for op in [
        scan(0, 9, &[(5, 100), (5, 100), (6, 101)]),
        scan(0, 6, &[(5, 100), (6, 101)]),
        scan(0, 9, &[(6, 101)]),
    ] {
        refused_from(
            ReadCommitted,
            Class::Malformed,
            &history(&rows, vec![tx(vec![op])]),
        );
    }
    let twice = vec![tx(vec![append(1, 1)]), tx(vec![list(1, &[1, 1])])];
    refused_from(ReadCommitted, Class::Malformed, &history(&[], twice));
}

#[test]
fn lists_in_two_orders() {
    let transactions = vec![
        tx(vec![append(1, 1)]),
        tx(vec![append(1, 2)]),
        tx(vec![list(1, &[1, 2])]),
        tx(vec![list(1, &[2])]),
    ];
    refused_from(
        ReadCommitted,
        Class::IncompatibleOrder,
        &history(&[], transactions),
    );
}

#[test]
fn one_version_replaced_twice() {
    let register = vec![tx(vec![write(1, 0, 1)]), tx(vec![write(1, 0, 2)])];
    refused_from(ReadCommitted, Class::Fork, &history(&[], register));
    let row = vec![tx(vec![update(5, 100, 1)]), tx(vec![delete(5, 100)])];
    refused_from(ReadCommitted, Class::Fork, &history(&[(5, 100)], row));
    let two_rows = vec![tx(vec![insert(5, 1)]), tx(vec![insert(5, 2)])];
    refused_from(ReadCommitted, Class::Fork, &history(&[], two_rows));
    let over_the_first = vec![tx(vec![insert(5, 1)]), tx(vec![delete(5, 1)])];
    refused_from(
        ReadCommitted,
        Class::Fork,
        &history(&[(5, 100)], over_the_first),
    );
}

#[test]
fn g1a_aborted_read() {
    for (write, read) in [
        (write(1, 0, 1), read(1, 1)),
        (append(1, 1), list(1, &[1])),
        (insert(5, 1), scan(0, 9, &[(5, 1)])),
        (insert(5, 1), update(5, 1, 2)),
        (insert(5, 1), delete(5, 1)),
    ] {
        let transactions = vec![aborted(vec![write]), tx(vec![read])];
        refused_from(ReadCommitted, Class::G1a, &history(&[], transactions));
    }
    let aborted_reader = vec![aborted(vec![append(1, 1)]), aborted(vec![list(1, &[1])])];
    accepted(&history(&[], aborted_reader));
}

#[test]
fn g1b_intermediate_read() {
    for (writes, read) in [
        (vec![write(1, 0, 1), write(1, 1, 2)], read(1, 1)),
        (vec![append(1, 1), append(1, 2)], list(1, &[1])),
        (vec![insert(5, 1), update(5, 1, 2)], scan(0, 9, &[(5, 1)])),
        (vec![insert(5, 1), delete(5, 1)], scan(0, 9, &[(5, 1)])),
        (vec![insert(5, 1), rekey(5, 6, 1, 2)], scan(0, 9, &[(5, 1)])),
    ] {
        let transactions = vec![tx(writes), tx(vec![read]), tx(vec![list(1, &[])])];
        refused_from(ReadCommitted, Class::G1b, &history(&[], transactions));
    }
}

#[test]
fn g0_dirty_write() {
    let registers = vec![
        tx(vec![write(1, 0, 1), write(2, 2, 3)]),
        tx(vec![write(2, 0, 2), write(1, 1, 4)]),
    ];
    refused_from(ReadCommitted, Class::G0, &history(&[], registers));
    let interleaved = vec![
        tx(vec![append(1, 1), append(1, 3)]),
        tx(vec![append(1, 2)]),
        tx(vec![list(1, &[1, 2, 3])]),
    ];
    refused_from(ReadCommitted, Class::G0, &history(&[], interleaved));
    let rows = vec![
        tx(vec![delete(5, 100), update(6, 2, 1)]),
        tx(vec![update(6, 101, 2), insert(5, 3)]),
        tx(vec![scan(0, 9, &[(5, 3), (6, 1)])]),
    ];
    refused_from(
        ReadCommitted,
        Class::G0,
        &history(&[(5, 100), (6, 101)], rows),
    );
}

#[test]
fn g1c_circular_information_flow() {
    let lists = vec![
        tx(vec![append(1, 1), list(2, &[2])]),
        tx(vec![append(2, 2), list(1, &[1])]),
    ];
    refused_from(ReadCommitted, Class::G1c, &history(&[], lists));
    let a_removed_row = vec![
        tx(vec![delete(5, 100), read(1, 1)]),
        tx(vec![write(1, 0, 1), scan(0, 9, &[])]),
    ];
    refused_from(
        ReadCommitted,
        Class::G1c,
        &history(&[(5, 100)], a_removed_row),
    );
}

/// Half of a transaction in one statement; in two statements that is for READ COMMITTED to do.
#[test]
fn fractured_statement() {
    let writer = || tx(vec![update(5, 100, 1), update(6, 101, 2)]);
    let rows = [(5, 100), (6, 101)];
    let one = vec![writer(), tx(vec![scan(0, 9, &[(5, 1), (6, 101)])])];
    let one = history(&rows, one);
    assert!(verdict(&one, ReadCommitted.into()).has(Class::FracturedStatement));
    assert!(verdict(&one, RepeatableRead.into()).has(Class::GSingle));
    let two = vec![
        writer(),
        tx(vec![scan(0, 6, &[(5, 100)]), scan(6, 9, &[(6, 2)])]),
    ];
    refused_from(RepeatableRead, Class::GSingle, &history(&rows, two));
    let moved = vec![
        tx(vec![rekey(5, 7, 100, 1)]),
        tx(vec![scan(0, 9, &[(5, 100), (6, 101), (7, 1)])]),
    ];
    assert!(!verdict(&history(&rows, moved), ReadCommitted.into()).holds());
}

#[test]
fn rows_that_come_and_go_under_one_key() {
    let coming_and_going = || {
        vec![
            tx(vec![delete(5, 100), write(1, 0, 10)]),
            tx(vec![insert(5, 1), write(1, 10, 11)]),
            tx(vec![delete(5, 1), write(1, 11, 12)]),
            tx(vec![insert(5, 2), write(1, 12, 13)]),
        ]
    };
    let with = |reader| {
        let mut transactions = coming_and_going();
        transactions.push(tx(reader));
        history(&[(5, 100)], transactions)
    };
    // The order is not in the times (all are equal) but in the register.
    accepted(&with(vec![scan(0, 9, &[]), read(1, 10)]));
    accepted(&with(vec![scan(0, 9, &[]), read(1, 12)]));
    accepted(&with(vec![scan(0, 9, &[(5, 1)]), read(1, 11)]));
    for wrong in [
        vec![scan(0, 9, &[]), read(1, 11)],
        vec![scan(0, 9, &[]), read(1, 13)],
        vec![scan(0, 9, &[(5, 2)]), read(1, 10)],
    ] {
        let verdict = verdict(&with(wrong), RepeatableRead.into());
        assert!(verdict.has(Class::GSingle), "{verdict}");
    }
}

#[test]
fn unknown_outcomes_count_when_they_are_seen() {
    let seen = vec![
        unknown(vec![write(1, 0, 1), write(2, 0, 2)]),
        tx(vec![read(1, 1)]),
    ];
    accepted(&history(&[], seen.clone()));
    let half = vec![seen[0].clone(), tx(vec![read(1, 1), read(2, 0)])];
    refused_from(RepeatableRead, Class::GSingle, &history(&[], half));
    let not_seen = vec![unknown(vec![write(1, 0, 1)]), tx(vec![write(1, 0, 2)])];
    accepted(&history(&[], not_seen));
    let removal = |rows: &[_]| vec![unknown(vec![delete(5, 100)]), tx(vec![scan(0, 9, rows)])];
    accepted(&history(&[(5, 100)], removal(&[])));
    accepted(&history(&[(5, 100)], removal(&[(5, 100)])));
    let neither = vec![
        unknown(vec![delete(5, 100), delete(6, 101)]),
        tx(vec![scan(0, 9, &[(5, 100)])]),
    ];
    assert!(
        !verdict(
            &history(&[(5, 100), (6, 101)], neither),
            ReadCommitted.into()
        )
        .holds()
    );
}

#[test]
fn strict_is_more_than_serializable() {
    let done = Outcome::Committed;
    let stale = |began| {
        let writer = at(1, 2, done, vec![append(1, 1)]);
        let reader = at(began, 9, done, vec![list(1, &[])]);
        history(&[], vec![writer, reader])
    };
    accepted(&stale(3));
    let verdict = check(&stale(3), Promise::STRICT).unwrap();
    assert!(verdict.has(Class::GSingle), "{verdict}");
    assert!(check(&stale(2), Promise::STRICT).unwrap().holds());
    let late = Promise {
        level: ReadCommitted,
        real_time: true,
    };
    assert!(
        check(&stale(3), late)
            .unwrap()
            .has(Class::FracturedStatement)
    );
}

/// The text names both transactions, the operations, the objects and the values.
#[test]
fn a_circle_is_told_edge_by_edge() {
    let transactions = vec![
        tx(vec![scan(0, 5, &[]), insert(7, 1)]),
        tx(vec![read(1, 0), scan(5, 9, &[]), insert(3, 2)]),
    ];
    let verdict = verdict(&history(&[], transactions), Serializable.into());
    let told = "G2 (phantom): a circle of 2\n  \
        T0 (client 0) saw no row of key 3 of table 0 (scan of [0, 5) in operation 0), \
        T1 (client 1) put one there (insert in operation 2)\n  \
        T1 (client 1) saw no row of key 7 of table 0 (scan of [5, 9) in operation 1), \
        T0 (client 0) put one there (insert in operation 1)";
    let rotated = told
        .lines()
        .skip(1)
        .all(|line| verdict.to_string().contains(line));
    assert!(rotated, "{verdict}");
}

#[test]
fn a_value_written_twice_says_nothing() {
    let transactions = vec![tx(vec![append(1, 1)]), tx(vec![append(2, 1)])];
    assert!(check(&history(&[], transactions), Serializable.into()).is_err());
}

#[test]
fn a_history_survives_its_file() {
    let told = history(
        &[(5, 100)],
        vec![
            tx(vec![
                scan(0, 9, &[(5, 100)]),
                rekey(5, 6, 100, 1),
                write(1, 0, 2),
            ]),
            unknown(vec![list(1, &[]), delete(5, 0)]),
        ],
    );
    let mut file = Vec::new();
    told.save(&mut file).unwrap();
    assert_eq!(History::load(file.as_slice()).unwrap(), told);
    file.extend_from_slice(b"{\n");
    let error = History::load(file.as_slice()).unwrap_err();
    assert!(error.to_string().starts_with("line 4: "), "{error}");
}
