//! What has become worse since the last committed record of the same benchmark. Only ratios are
//! compared: absolute figures do not outlast the state of the machine. Ratios do, but for what a
//! wait costs beside other work, which differs between processors. So other ones are named.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use super::archive;
use super::catalog::STOCK;
use super::stats::Spread;

/// What records must have in common to be compared.
const CONDITIONS: [&str; 4] = ["benchmark", "protocol", "standby", "arrivals"];
/// What lines must have in common, in the order in which it is told.
const IDENTITY: [&str; 6] = ["place", "phase", "class", "workload", "variant", "clients"];

/// Says what fell in `records`, which were just measured, by more than the rounds were apart.
pub fn tell(records: &[impl Serialize]) {
    match committed_for(records).map(|(new, old)| Comparison::of(&new, &old)) {
        Ok(comparison) => println!("{comparison}"),
        Err(error) => println!("not compared with committed records: {error:#}"),
    }
}

/// The new records as JSON, and the committed ones of the same benchmarks.
fn committed_for(records: &[impl Serialize]) -> anyhow::Result<(Vec<Value>, Vec<Value>)> {
    let new = records.iter().map(serde_json::to_value);
    let new = new.collect::<Result<Vec<Value>, _>>()?;
    let names = new.iter().filter_map(|record| record["benchmark"].as_str());
    let old = archive::committed(names)?;
    Ok((new, old))
}

/// A ratio that was measured before and now.
#[derive(Debug, PartialEq)]
struct Fall {
    /// Which one, for people.
    what: String,
    before: Spread,
    now: Spread,
    /// When it was measured before.
    time: String,
}

#[derive(Debug, Default, PartialEq)]
struct Comparison {
    compared: usize,
    /// Ratios that no committed record has.
    new: usize,
    falls: Vec<Fall>,
    /// Processors of the earlier records, where they are not those of the new ones.
    others: BTreeSet<String>,
}

impl Comparison {
    fn of(new: &[Value], old: &[Value]) -> Self {
        let mut comparison = Self::default();
        for record in new {
            let mut earlier: Vec<&Value> = old
                .iter()
                .filter(|old| CONDITIONS.iter().all(|name| old[*name] == record[*name]))
                .collect();
            earlier.sort_by_key(|old| std::cmp::Reverse(time(old)));
            for line in lines(record) {
                for (base, now) in ratios(record, line) {
                    let before = earlier.iter().find_map(|old| {
                        let same = lines(old).find(|other| is_same(record, line, old, other))?;
                        let (_, before) =
                            ratios(old, same).into_iter().find(|one| one.0 == base)?;
                        Some((before, *old))
                    });
                    let Some((before, old)) = before else {
                        comparison.new += 1;
                        continue;
                    };
                    comparison.compared += 1;
                    if processor(old) != processor(record) {
                        comparison.others.insert(processor(old).to_owned());
                    }
                    if has_fallen(before, now) {
                        comparison.falls.push(Fall {
                            what: format!("{}, {base}", name(record, line)),
                            before,
                            now,
                            time: time(old).to_owned(),
                        });
                    }
                }
            }
        }
        comparison
    }
}

/// By more than the rounds of either were apart.
fn has_fallen(before: Spread, now: Spread) -> bool {
    let apart = |spread: Spread| spread.max - spread.min;
    before.median - now.median > apart(before).max(apart(now))
}

/// Those of the summary; benchmark `instructions` has nothing else.
fn lines(record: &Value) -> impl Iterator<Item = &Value> {
    let lines = record["summary"].as_array();
    lines.or(record["lines"].as_array()).into_iter().flatten()
}

fn time(record: &Value) -> &str {
    record["machine"]["time"].as_str().unwrap_or_default()
}

fn processor(record: &Value) -> &str {
    record["machine"]["processor"].as_str().unwrap_or("unknown")
}

fn is_same(record: &Value, line: &Value, old: &Value, other: &Value) -> bool {
    IDENTITY.iter().all(|name| line[*name] == other[*name])
        && line["warehouses"] == other["warehouses"]
        && sizes(record, line) == sizes(old, other)
}

/// What a range benchmark runs at the place of a line; nothing elsewhere.
fn sizes<'a>(record: &'a Value, line: &Value) -> &'a Value {
    let places = record["places"].as_array().into_iter().flatten();
    let mut here = places.filter(|place| place["place"] == line["place"]);
    here.next().map_or(&Value::Null, |place| &place["at"])
}

/// The ratios of a line, by what they are to. Those of the baselines themselves are not ours to
/// keep.
fn ratios(record: &Value, line: &Value) -> Vec<(String, Spread)> {
    if let Some(share) = share_of_stock(line) {
        return vec![("stock's instructions as a share of these".to_owned(), share)];
    }
    let mut bases: Vec<&str> = ["baseline", "ceiling"]
        .iter()
        .filter_map(|role| record[*role].as_str())
        .collect();
    let several = record["baselines"].as_array().into_iter().flatten();
    bases.extend(several.filter_map(Value::as_str));
    if bases.iter().any(|base| line["variant"] == *base) {
        return Vec::new();
    }
    let spread_to = |base: &&str| {
        let spread = if record["baseline"] == **base {
            &line["to_baseline"]
        } else if record["ceiling"] == **base {
            &line["to_ceiling"]
        } else {
            &line["ratios"][*base]
        };
        let spread = serde_json::from_value(spread.clone()).ok()?;
        Some((format!("× {base}"), spread))
    };
    bases.iter().filter_map(spread_to).collect()
}

/// Of a line of `instructions`: how many stock needs, by how many there are. The more there are,
/// the worse.
fn share_of_stock(line: &Value) -> Option<Spread> {
    let stock = line["median"].as_f64()? / line["to_stock"].as_f64()?;
    let rounds = line["rounds"].as_array()?.iter();
    let is_stock = line["variant"] == STOCK;
    Spread::of(rounds.filter_map(|count| Some(stock / count.as_f64()?))).filter(|_| !is_stock)
}

/// Of a line, for people.
fn name(record: &Value, line: &Value) -> String {
    let parts = IDENTITY.iter().filter_map(|name| match &line[*name] {
        Value::String(text) => Some(text.clone()),
        Value::Number(clients) => Some(format!("{clients} {name}")),
        _ => None,
    });
    let benchmark = record["benchmark"].as_str().map(str::to_owned);
    benchmark
        .into_iter()
        .chain(parts)
        .collect::<Vec<_>>()
        .join(", ")
}

impl std::fmt::Display for Comparison {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            compared,
            new,
            falls,
            others,
        } = self;
        if *compared == 0 {
            return f.write_str("no committed record has these lines to compare with");
        }
        write!(
            f,
            "of {compared} ratios that committed records have too, {} fell by more than the \
             rounds' spread",
            falls.len()
        )?;
        if *new > 0 {
            write!(f, "; {new} are new")?;
        }
        if !others.is_empty() {
            let others = others.iter().cloned().collect::<Vec<_>>().join(", ");
            write!(f, "; some were of another processor ({others})")?;
        }
        for fall in falls {
            let Fall {
                what,
                before,
                now,
                time,
            } = fall;
            write!(
                f,
                "\n  {what}: {:.3} ({:.3} … {:.3}), was {:.3} ({:.3} … {:.3}) at {time}",
                now.median, now.min, now.max, before.median, before.min, before.max
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spread(median: f64) -> Value {
        json!({"median": median, "min": median - 0.1, "max": median + 0.1})
    }

    fn record(time: &str, clients: u64, to_stock: f64, to_u: f64) -> Value {
        let line = |variant: &str, to_stock, to_u| {
            json!({"variant": variant, "clients": clients,
                   "to_baseline": to_stock, "to_ceiling": to_u})
        };
        json!({
            "benchmark": "foreign-key", "protocol": "prepared", "standby": null,
            "machine": {"time": time}, "baseline": "stock", "ceiling": "U",
            "summary": [
                line("stock", spread(1.0), spread(to_u)),
                line("queue lock", spread(to_stock), spread(to_u)),
                line("U", spread(to_stock), Value::Null),
            ],
        })
    }

    #[test]
    fn what_fell_by_more_than_the_spread_is_told_with_its_figures() {
        let old = [record("2026-11-22", 256, 4.1, 0.5)];
        let new = [record("2026-11-23", 256, 0.64, 0.4)];
        let comparison = Comparison::of(&new, &old);
        assert_eq!((comparison.compared, comparison.new), (2, 0));
        assert_eq!(
            comparison.to_string(),
            "of 2 ratios that committed records have too, 1 fell by more than the rounds' \
             spread\n  \
             foreign-key, queue lock, 256 clients, × stock: 0.640 (0.540 … 0.740), \
             was 4.100 (4.000 … 4.200) at 2026-11-22"
        );
    }

    #[test]
    fn records_of_another_processor_are_named() {
        let of = |processor: &str| {
            let mut record = record("2026-11-22", 256, 1.0, 0.5);
            record["machine"]["processor"] = json!(processor);
            [record]
        };
        let said = |before, now| Comparison::of(&of(now), &of(before)).to_string();
        assert!(said("slow", "fast").ends_with("; some were of another processor (slow)"));
        assert!(said("fast", "fast").ends_with("spread"));
    }

    #[test]
    fn the_wider_of_both_spreads_counts_and_rises_do_not() {
        let of = |median, apart| Spread {
            median,
            min: median - apart / 2.0,
            max: median + apart / 2.0,
        };
        assert!(has_fallen(of(1.0, 0.1), of(0.8, 0.1)));
        assert!(!has_fallen(of(1.0, 0.1), of(0.8, 0.3)));
        assert!(!has_fallen(of(1.0, 0.3), of(0.8, 0.1)));
        assert!(!has_fallen(of(0.8, 0.1), of(1.0, 0.1)));
        assert!(has_fallen(of(1.0, 0.0), of(0.99, 0.0)));
    }

    #[test]
    fn the_last_record_that_has_the_line_counts() {
        let old = [
            record("2026-11-20", 256, 9.0, 0.5),
            record("2026-11-22", 16, 9.0, 0.5),
            record("2026-11-21", 256, 1.0, 0.5),
        ];
        let comparison = Comparison::of(&[record("2026-11-23", 256, 1.0, 0.5)], &old);
        assert_eq!((comparison.compared, comparison.falls.len()), (2, 0));
        let comparison = Comparison::of(&[record("2026-11-23", 64, 1.0, 0.5)], &old);
        assert_eq!((comparison.compared, comparison.new), (0, 2));
    }

    #[test]
    fn benchmarks_of_a_family_are_compared_with_those_of_the_same_name() {
        let named = |name: &str, to_stock| {
            let mut record = record("2026-11-23", 16, to_stock, 0.5);
            record["benchmark"] = json!(name);
            record
        };
        let old = [
            named("tpcc-procedures-1", 2.0),
            named("tpcc-procedures-2", 1.5),
        ];
        let new = [
            named("tpcc-procedures-2", 1.5),
            named("tpcc-procedures-1", 1.5),
        ];
        let comparison = Comparison::of(&new, &old);
        assert_eq!((comparison.compared, comparison.new), (4, 0));
        let falls: Vec<&str> = comparison.falls.iter().map(|fall| &*fall.what).collect();
        assert_eq!(
            falls,
            ["tpcc-procedures-1, queue lock, 16 clients, × stock"]
        );
    }

    #[test]
    fn another_protocol_or_standby_is_not_compared() {
        let new = [record("2026-11-23", 256, 1.0, 0.5)];
        for (condition, value) in [
            ("protocol", json!("simple")),
            ("standby", json!({"delay_ms": 1})),
            ("benchmark", json!("upsert")),
        ] {
            let mut old = record("2026-11-22", 256, 4.0, 0.5);
            old[condition] = value;
            assert_eq!(Comparison::of(&new, &[old]).compared, 0, "{condition}");
        }
    }

    #[test]
    fn more_instructions_are_a_fall() {
        let record = |rounds: [f64; 2], median: f64| {
            let line = |variant: &str, rounds, median| {
                json!({"workload": "hot-row", "variant": variant, "rounds": rounds,
                       "median": median, "to_stock": median / 100.0})
            };
            json!({"benchmark": "instructions", "machine": {"time": "2026"},
                   "lines": [line(STOCK, json!([100.0, 101.0]), 100.0),
                             line("group lock", json!(rounds), median)]})
        };
        let old = [record([103.0, 104.0], 103.5)];
        let comparison = Comparison::of(&[record([109.0, 110.0], 109.5)], &old);
        assert_eq!((comparison.compared, comparison.new), (1, 0));
        assert!(
            comparison.falls[0]
                .what
                .starts_with("instructions, hot-row, group lock, stock's")
        );
        assert!(
            Comparison::of(&[record([103.5, 104.5], 104.0)], &old)
                .falls
                .is_empty()
        );
    }

    #[test]
    fn places_of_range_benchmarks_are_the_same_when_their_sizes_are() {
        let range = |rows: u64, ratio| {
            let line = |variant: &str| {
                json!({"place": "10 keys", "class": "bulk", "variant": variant,
                       "ratios": {"SSI": spread(ratio)}})
            };
            json!({
                "benchmark": "range", "protocol": "prepared", "machine": {"time": "2026"},
                "baselines": ["SSI"], "places": [{"place": "10 keys", "at": {"rows": rows}}],
                "summary": [line("SSI"), line("range OCC")],
            })
        };
        let falls = |rows| {
            Comparison::of(&[range(rows, 1.0)], &[range(100, 5.0)])
                .falls
                .len()
        };
        assert_eq!((falls(100), falls(1000)), (1, 0));
    }
}
