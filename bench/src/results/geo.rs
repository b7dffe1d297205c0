//! The page's part about transactions over distant nodes.

use super::records::{File, Geo, GeoLine, Record};
use super::{command, list, origin, rate, ratio, table, variants};
use crate::geo::paper::{self, Measured};
use crate::geo::{At, options};
use crate::table::{milliseconds, percent};

impl GeoLine {
    fn measured(&self) -> Measured<'_> {
        let median = |name: &str| self.ratios.get(name).map(|spread| spread.median);
        Measured {
            place: &self.place,
            variant: &self.variant,
            to_xa: median("xa"),
            to_classic: median("classic"),
            p99_ms: self.p99_ms,
        }
    }

    fn cells(&self, baselines: &[String]) -> Vec<String> {
        let latency = |value: Option<f64>| value.map(milliseconds).unwrap_or_default();
        let holds = self.hold_p50_ms.iter().map(|hold| match hold {
            Some(hold) => milliseconds(*hold),
            None => "–".to_owned(),
        });
        let mut cells = vec![
            self.place.clone(),
            self.variant.clone(),
            rate(self.tps),
            percent(self.refused.median),
            latency(self.p50_ms),
            latency(self.p99_ms),
            format!("{:.1}", self.trips.median),
            holds.collect::<Vec<_>>().join(" / "),
        ];
        let ratios = baselines.iter();
        cells.extend(ratios.map(|name| ratio(self.ratios.get(name).copied())));
        cells
    }
}

impl Geo {
    fn command(&self) -> String {
        let own = command(&self.benchmark, &self.protocol, self.seconds, self.rounds);
        let places: Vec<At> = self.places.iter().map(|place| place.at).collect();
        let rtt = self.rtt_ms.first().map_or(&[][..], Vec::as_slice);
        let options = options(&self.benchmark, &places, rtt, &self.sizes);
        let variants = variants(self.summary.iter().map(|line| line.variant.as_str()));
        own + &options + &variants
    }

    pub fn section(&self) -> String {
        let origin = origin(&self.machine, &self.command(), self.servers.iter());
        let rtt = self.rtt_ms.first().into_iter().flatten();
        let hold = format!("hold p50 ms at {}", list(rtt).replace(',', " / "));
        let against: Vec<String> = self
            .baselines
            .iter()
            .map(|name| format!("× {name}"))
            .collect();
        let mut header = vec![
            "place", "variant", "tps", "refused", "p50 ms", "p99 ms", "trips", &hold,
        ];
        header.extend(against.iter().map(String::as_str));
        let rows = self.summary.iter();
        let rows = rows.map(|line| line.cells(&self.baselines));
        format!(
            "{}. postgres_fdw is not atomic.\n\n{origin}{}",
            self.about,
            table(&header, rows)
        )
    }
}

/// The paper's figures beside those of the newest records that have a counterpart.
pub fn beside_the_paper(files: &[File]) -> String {
    let mut seen: Vec<&str> = Vec::new();
    let mut rows = Vec::new();
    for file in files.iter().rev() {
        let Record::Geo(record) = &file.record else {
            continue;
        };
        if seen.contains(&&*record.benchmark) {
            continue;
        }
        seen.push(&record.benchmark);
        let lines: Vec<Measured> = record.summary.iter().map(GeoLine::measured).collect();
        for row in paper::rows(&record.benchmark, &lines) {
            let mut row = row.to_vec();
            row.push(format!("`{}`", record.command()));
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut header = paper::HEADER.to_vec();
    header.push("command");
    format!(
        "\n## Beside GeoTP\n\nThe paper's figures are multiples of ShardingSphere's rate, on other \
         machines; ours are of the best variant. xa is ShardingSphere-JDBC on this machine.\n\n{}",
        table(&header, rows)
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::archive::Content;

    fn file() -> File {
        let spread = |value: f64| json!({"median": value, "min": value, "max": value});
        let line = |variant: &str, to_xa| {
            json!({"place": "75 % distributed, θ 0.9", "variant": variant, "tps": spread(80.0),
                   "refused": spread(0.125), "refusals": {"40001": 1}, "p50_ms": 12.5,
                   "p95_ms": null, "p99_ms": 300.0, "trips": spread(4.0),
                   "hold_p50_ms": [null, 27.0], "hold_p99_ms": [null, 30.0],
                   "ratios": {"classic": spread(2.0), "xa": spread(to_xa)}})
        };
        let at = json!({"kind": "ycsb", "clients": 8, "operations": 5, "batches": 1, "theta": 0.9,
                        "distributed": 75, "rtt_mean": 0.0, "rtt_deviation": 0.0, "jitter": 0,
                        "change": 0, "coordinators": 1, "group_lock": null});
        let record = json!({
            "benchmark": "geo", "about": "the headlines",
            "machine": {"processor": "P", "cores": 2, "system": "S", "checkout": "abc",
                        "time": "2026-11-26T06:40:39Z"},
            "servers": [{"system": "coordinator", "version": "16.14", "build": "0.5.0 def 1"}],
            "protocol": "prepared", "seconds": 8, "rounds": 3, "rtt_ms": [[0.0, 27.0]],
            "sizes": {"nodes": 2, "rows": 100_000, "warehouses": 4},
            "baselines": ["classic", "xa"],
            "places": [{"place": "75 % distributed, θ 0.9", "at": at}],
            "summary": [line("scheduled", 3.0), line("early", 2.5)], "runs": [],
        });
        let content = Content::parse(record.to_string().as_bytes()).unwrap();
        File {
            name: "geo-2026-11-26".to_owned(),
            record: Record::of(content).unwrap(),
        }
    }

    #[test]
    fn a_record_has_a_section_of_its_own() {
        let file = file();
        let Record::Geo(record) = &file.record else {
            panic!("another record");
        };
        let section = record.section();
        assert!(
            section.contains(
                "cargo xtask bench geo --seconds 8 --rounds 3 --clients 8 --distributed 75 \
                 --theta 0.9 --rtt 0,27 --variants \"scheduled,early\""
            ),
            "{section}"
        );
        assert!(
            section.contains("| 12.5 % | 12.5 | 300 | 4.0 | – / 27.0 | 2.00 (2.00 … 2.00) |"),
            "{section}"
        );
    }

    #[test]
    fn the_paper_stands_beside_it() {
        let page = beside_the_paper(&[file()]);
        assert!(
            page.contains(
                "| PostgreSQL nodes, 75 % distributed | 4.6 | 3.0 | 2.0 | – | scheduled, "
            ),
            "{page}"
        );
        assert_eq!(beside_the_paper(&[]), "");
    }
}
