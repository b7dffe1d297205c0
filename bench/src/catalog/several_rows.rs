//! More than one hot row.

use super::*;

pub static ROWS_8: Benchmark = Benchmark {
    name: "rows-8",
    about: "UPDATE of one of 8 rows, each its own transaction",
    clients: &[16, 64, 256],
    series: &three_ways(&workload::ROWS_8),
    ceiling: Some(DIFFERENT),
    ..BASE
};

pub static ROWS_64: Benchmark = Benchmark {
    name: "rows-64",
    about: "UPDATE of one of 64 rows",
    clients: &[16, 64, 256],
    series: &three_ways(&workload::ROWS_64),
    ceiling: Some(DIFFERENT),
    ..BASE
};

pub static ZIPF: Benchmark = Benchmark {
    name: "zipf",
    about: "UPDATE of one of 10,000 rows, by Zipf's law with exponent 0.99",
    clients: &[16, 64, 256],
    series: &three_ways(&workload::ZIPF),
    ceiling: Some(DIFFERENT),
    ..BASE
};
