//! Anomalies that READ COMMITTED allows, each refused from the level that forbids it.

mod common;

use Level::{ReadCommitted, RepeatableRead, Serializable};
use common::*;
use history::{Class, Level};

#[test]
fn lost_update() {
    let register = vec![
        tx(vec![read(1, 0), write(1, 0, 1)]),
        tx(vec![read(1, 0), write(1, 1, 2)]),
    ];
    refused_from(RepeatableRead, Class::LostUpdate, &history(&[], register));
    let lists = vec![
        tx(vec![list(1, &[]), append(1, 1)]),
        tx(vec![list(1, &[]), append(1, 2)]),
        tx(vec![list(1, &[1, 2])]),
    ];
    refused_from(RepeatableRead, Class::LostUpdate, &history(&[], lists));
    let row = vec![
        tx(vec![scan(0, 9, &[(5, 100)]), update(5, 100, 1)]),
        tx(vec![scan(0, 9, &[(5, 100)]), update(5, 1, 2)]),
    ];
    refused_from(
        RepeatableRead,
        Class::LostUpdate,
        &history(&[(5, 100)], row),
    );
    let nobody_reads_the_list_later = vec![
        tx(vec![list(1, &[]), append(1, 1)]),
        tx(vec![list(1, &[]), append(1, 2)]),
    ];
    refused_from(
        RepeatableRead,
        Class::GSingle,
        &history(&[], nobody_reads_the_list_later),
    );
}

#[test]
fn g_single_read_skew() {
    let skew = vec![
        tx(vec![read(1, 0), read(2, 2)]),
        tx(vec![write(1, 0, 1), write(2, 0, 2)]),
    ];
    refused_from(RepeatableRead, Class::GSingle, &history(&[], skew));
    let not_repeatable = vec![tx(vec![read(1, 0), read(1, 1)]), tx(vec![write(1, 0, 1)])];
    refused_from(
        RepeatableRead,
        Class::GSingle,
        &history(&[], not_repeatable),
    );
    let phantom = vec![
        tx(vec![scan(0, 9, &[]), scan(0, 9, &[(5, 1)])]),
        tx(vec![insert(5, 1)]),
    ];
    refused_from(RepeatableRead, Class::GSingle, &history(&[], phantom));
}

/// PostgreSQL's REPEATABLE READ lets one insert over a removal that its snapshot does not have.
#[test]
fn insert_over_an_invisible_removal() {
    let transactions = vec![
        tx(vec![scan(0, 9, &[(5, 100)]), insert(5, 1)]),
        tx(vec![delete(5, 100)]),
    ];
    refused_from(
        RepeatableRead,
        Class::GSingle,
        &history(&[(5, 100)], transactions),
    );
}

#[test]
fn long_fork() {
    let transactions = vec![
        tx(vec![write(1, 0, 1)]),
        tx(vec![write(2, 0, 2)]),
        tx(vec![read(1, 1), read(2, 0)]),
        tx(vec![read(1, 0), read(2, 2)]),
    ];
    refused_from(
        RepeatableRead,
        Class::GNonadjacent,
        &history(&[], transactions),
    );
    let in_one_statement_each = vec![
        tx(vec![insert(5, 1)]),
        tx(vec![insert(6, 2)]),
        tx(vec![scan(0, 9, &[(5, 1)])]),
        tx(vec![scan(0, 9, &[(6, 2)])]),
    ];
    let fork = history(&[], in_one_statement_each);
    assert!(verdict(&fork, ReadCommitted.into()).has(Class::FracturedStatement));
}

#[test]
fn write_skew() {
    let registers = vec![
        tx(vec![read(1, 0), write(2, 0, 1)]),
        tx(vec![read(2, 0), write(1, 0, 2)]),
    ];
    refused_from(Serializable, Class::G2Item, &history(&[], registers));
    let lists = vec![
        tx(vec![list(1, &[]), append(2, 1)]),
        tx(vec![list(2, &[]), append(1, 2)]),
    ];
    refused_from(Serializable, Class::G2Item, &history(&[], lists));
    let rows = vec![
        tx(vec![scan(5, 6, &[(5, 100)]), delete(6, 101)]),
        tx(vec![scan(6, 7, &[(6, 101)]), delete(5, 100)]),
    ];
    refused_from(
        Serializable,
        Class::G2Item,
        &history(&[(5, 100), (6, 101)], rows),
    );
}

#[test]
fn write_skew_by_phantoms() {
    let gaps = vec![
        tx(vec![scan(0, 5, &[]), insert(7, 1)]),
        tx(vec![scan(5, 9, &[]), insert(3, 2)]),
    ];
    refused_from(Serializable, Class::G2, &history(&[], gaps));
    let same_gap = vec![
        tx(vec![scan(0, 9, &[]), insert(7, 1)]),
        tx(vec![scan(0, 9, &[]), insert(3, 2)]),
    ];
    refused_from(Serializable, Class::G2, &history(&[], same_gap));
    let misses = vec![
        tx(vec![delete(3, 0), insert(7, 1)]),
        tx(vec![update(7, 0, 9), insert(3, 2)]),
    ];
    refused_from(Serializable, Class::G2, &history(&[], misses));
    let beside = vec![
        tx(vec![scan(0, 5, &[]), insert(7, 1)]),
        tx(vec![scan(8, 9, &[]), insert(3, 2)]),
    ];
    accepted(&history(&[], beside));
}

#[test]
fn key_moved_out_of_and_into_a_scanned_range() {
    let out = |scanned| {
        vec![
            tx(vec![scanned, write(1, 0, 1)]),
            tx(vec![read(1, 0), rekey(5, 20, 100, 2)]),
        ]
    };
    let rows = [(5, 100)];
    refused_from(
        Serializable,
        Class::G2Item,
        &history(&rows, out(scan(0, 9, &rows))),
    );
    refused_from(
        Serializable,
        Class::G2,
        &history(&rows, out(scan(10, 30, &[]))),
    );
    accepted(&history(&rows, out(scan(6, 20, &[]))));
}

/// Fekete, O'Neil and O'Neil 2004: the report shows the deposit but not the withdrawal, which was
/// decided without the deposit.
#[test]
fn read_only_anomaly() {
    let withdrawal = tx(vec![read(1, 10), read(2, 20), write(1, 10, 11)]);
    let deposit = tx(vec![read(2, 20), write(2, 20, 21)]);
    let report = tx(vec![read(1, 10), read(2, 21)]);
    let first = tx(vec![write(1, 0, 10), write(2, 0, 20)]);
    let all = vec![first.clone(), withdrawal.clone(), deposit.clone(), report];
    refused_from(Serializable, Class::G2Item, &history(&[], all));
    accepted(&history(&[], vec![first, withdrawal, deposit]));
}
