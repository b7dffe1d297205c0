//! What the paper has measured (GeoTP: Latency-aware Geo-Distributed Transaction Processing in
//! Database Middlewares), and what of ours is its counterpart.

use super::variant::Variant;

/// A figure of the paper: its rate as a multiple of ShardingSphere's.
pub struct Figure {
    pub what: &'static str,
    pub paper: &'static str,
    pub benchmark: &'static str,
    /// The place has all of these in its label.
    pub place: &'static [&'static str],
}

const fn figure(
    what: &'static str,
    paper: &'static str,
    benchmark: &'static str,
    place: &'static [&'static str],
) -> Figure {
    Figure {
        what,
        paper,
        benchmark,
        place,
    }
}

pub const FIGURES: &[Figure] = &[
    figure(
        "half distributed, high skew",
        "up to 17.7 (p99 −84 %, aborts −32 %)",
        "geo",
        &["50 %", "θ 1.5"],
    ),
    figure(
        "PostgreSQL nodes, 25 % distributed",
        "6.1 (902 → 199 ms)",
        "geo",
        &["25 %", "θ 0.9"],
    ),
    figure(
        "PostgreSQL nodes, 75 % distributed",
        "4.6",
        "geo",
        &["75 %", "θ 0.9"],
    ),
    figure(
        "by the number of clients, at best",
        "5.1",
        "geo-clients",
        &[],
    ),
    figure(
        "two coordinators",
        "6.7",
        "geo-coordinators",
        &["2 coordinators"],
    ),
    figure("other round trips", "4.5 to 9.1", "geo-rtt", &[]),
    figure("TPC-C, Payment", "2.8", "geo-tpcc", &["Payment"]),
    figure("TPC-C, New-Order", "2.0", "geo-tpcc", &["New-Order"]),
    figure(
        "6 rounds, low skew",
        "1.5",
        "geo-batches",
        &["6 batches", "θ 0.3"],
    ),
    figure(
        "6 rounds, medium skew",
        "3.4",
        "geo-batches",
        &["6 batches", "θ 0.9"],
    ),
];

/// Which of ours count: atomic, and with COMMIT's full promise.
const OURS: [Variant; 5] = [
    Variant::Early,
    Variant::Scheduled,
    Variant::Forecast,
    Variant::Admission,
    Variant::Defer,
];

pub const HEADER: [&str; 6] = [
    "what",
    "paper, × ShardingSphere",
    "ours, × xa",
    "ours, × classic",
    "p99 to classic's",
    "variant, place",
];

/// A line of a benchmark's summary.
pub struct Measured<'a> {
    pub place: &'a str,
    pub variant: &'a str,
    /// Medians of the ratios.
    pub to_xa: Option<f64>,
    pub to_classic: Option<f64>,
    pub p99_ms: Option<f64>,
}

/// The figures of the paper that a benchmark has counterparts of, in the columns of `HEADER`; of
/// ours that with the greatest multiple of `xa`, or else of `classic`.
pub fn rows(benchmark: &str, lines: &[Measured]) -> Vec<[String; 6]> {
    let figures = FIGURES.iter().filter(|one| one.benchmark == benchmark);
    let rows = figures.filter_map(|figure| {
        let fits = |line: &&Measured| {
            let is_ours = OURS.iter().any(|variant| variant.name() == line.variant);
            is_ours && figure.place.iter().all(|part| line.place.contains(part))
        };
        let height = |line: &&Measured| line.to_xa.or(line.to_classic).unwrap_or(0.0);
        let best = lines
            .iter()
            .filter(fits)
            .max_by(|one, other| height(one).total_cmp(&height(other)))?;
        let ratio =
            |ratio: Option<f64>| ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.1}"));
        Some([
            figure.what.to_owned(),
            figure.paper.to_owned(),
            ratio(best.to_xa),
            ratio(best.to_classic),
            change_of_p99(best, lines).unwrap_or("–".to_owned()),
            format!("{}, {}", best.variant, best.place),
        ])
    });
    rows.collect()
}

/// In percent, to that of `classic` at the same place.
fn change_of_p99(ours: &Measured, lines: &[Measured]) -> Option<String> {
    let is_base =
        |line: &&Measured| line.place == ours.place && line.variant == Variant::Classic.name();
    let base = lines.iter().find(is_base)?.p99_ms?;
    let change = 100.0 * (ours.p99_ms? / base - 1.0);
    Some(match change < 0.0 {
        true => format!("−{:.0} %", -change),
        false => format!("+{change:.0} %"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::catalog;
    use crate::geo::place::labels;

    #[test]
    fn every_figure_has_a_place() {
        for figure in FIGURES {
            let mut all = catalog::ALL.iter();
            let benchmark = all.find(|one| one.name == figure.benchmark).unwrap();
            let fits = |label: String| figure.place.iter().all(|part| label.contains(part));
            let mut labels = labels(benchmark.places).into_iter();
            assert!(labels.any(fits), "{}", figure.what);
        }
    }

    #[test]
    fn the_best_of_ours_stands_beside_the_papers() {
        let line = |place, variant, to_xa, to_classic| Measured {
            place,
            variant,
            to_xa,
            to_classic,
            p99_ms: to_classic.map(|ratio| 100.0 / ratio),
        };
        let lines = [
            line("25 % distributed, θ 0.9", "early", Some(2.0), Some(9.0)),
            line("25 % distributed, θ 0.9", "scheduled", Some(3.0), Some(1.5)),
            line("25 % distributed, θ 0.9", "postgres_fdw", Some(9.0), None),
            line("75 % distributed, θ 0.9", "scheduled", None, Some(4.0)),
            line("75 % distributed, θ 0.9", "classic", None, Some(1.0)),
        ];
        let rows = rows("geo", &lines);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0][2..5], ["3.0", "1.5", "–"]);
        assert_eq!(rows[1][2..5], ["–", "4.0", "−75 %"]);
    }
}
