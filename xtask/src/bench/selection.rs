//! Which benchmarks there are, which were asked for, and all that is done with these.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use pgserver::PgInstall;

use super::runner::Plan;
use super::{
    Args, catalog, family, fixed_rate, geo, hammerdb, instructions, keep, measure_one, range,
    results,
};

/// Prints the names that can be given, and what they are about.
pub fn list() {
    let single = catalog::all().filter(|one| one.family.is_none());
    let single = single.map(|one| (one.name, one.about));
    let families = catalog::FAMILIES.iter().copied();
    let hammers = hammerdb::ALL.iter().map(|one| (one.name, one.about));
    let ranges = range::ALL.iter().map(|one| (one.name, one.about));
    let geos = geo::ALL.iter().map(|one| (one.name, one.about));
    let others = [
        (fixed_rate::NAME, fixed_rate::ABOUT),
        (instructions::NAME, instructions::ABOUT),
        (results::NAME, results::ABOUT),
    ];
    let all = single
        .chain(families)
        .chain(hammers)
        .chain(ranges)
        .chain(geos);
    for (name, about) in all.chain(others) {
        println!("{name:<16} {about}");
    }
}

/// What is to be measured.
pub struct Selection {
    plans: Vec<Plan>,
    counts: bool,
    fixed_rate: Option<fixed_rate::Plan>,
    hammers: Vec<hammerdb::Plan>,
    ranges: Vec<range::Plan>,
    geos: Vec<geo::Plan>,
}

impl Selection {
    /// Fails when there is no such benchmark, or when it cannot be run. What the machine lacks a
    /// program for is left out of `all`.
    pub fn of(args: &Args) -> anyhow::Result<Self> {
        let chosen = |name: &str| args.name == "all" || args.name == name;
        let mut plans: Vec<Plan> = catalog::all()
            .filter(|one| chosen(one.name) || one.family == Some(args.name.as_str()))
            .map(|benchmark| args.plan(benchmark))
            .collect();
        let mut hammers: Vec<&hammerdb::Benchmark> = hammerdb::ALL.iter().collect();
        hammers.retain(|benchmark| chosen(benchmark.name));
        let mut counts = chosen(instructions::NAME);
        let fixed_rate = chosen(fixed_rate::NAME)
            .then(|| args.fixed_rate.plan(&args.for_fixed_rate()))
            .transpose()?;
        let ranges = range::ALL
            .iter()
            .filter(|benchmark| chosen(benchmark.name))
            .map(|benchmark| args.range.plan(benchmark, &args.for_ranges()))
            .collect::<Result<Vec<_>, _>>()?;
        let geos = geo::ALL.iter().filter(|benchmark| chosen(benchmark.name));
        let mut geos: Vec<&'static geo::Benchmark> = geos.collect();
        let nothing = plans.is_empty() && hammers.is_empty() && ranges.is_empty();
        if nothing && geos.is_empty() && fixed_rate.is_none() && !counts {
            bail!(
                "there is no benchmark \"{}\": `cargo xtask bench list` shows them",
                args.name
            );
        }
        if fixed_rate.is_none() {
            args.fixed_rate.refuse()?;
        }
        if hammers.is_empty() {
            args.hammerdb.refuse()?;
        }
        if ranges.is_empty() {
            args.range.refuse()?;
        }
        if geos.is_empty() {
            args.geo.refuse()?;
        }
        let has_warehouses = !(ranges.is_empty() && geos.is_empty() && hammers.is_empty());
        if args.warehouses.is_some() && !has_warehouses {
            bail!("only range and geo benchmarks and hammerdb have --warehouses");
        }
        let has_report = !(ranges.is_empty() && geos.is_empty() && fixed_rate.is_none());
        if args.report.is_some() && !has_report {
            bail!(
                "only range and geo benchmarks and {} have --report",
                fixed_rate::NAME
            );
        }
        if args.name == "all" {
            plans.retain(|plan| is_possible(plan.benchmark.name, plan.check_packages()));
            hammers.retain(|one| is_possible(one.name, args.hammerdb.folder().map(drop)));
            counts = is_possible(instructions::NAME, instructions::version().map(drop));
            let is_geo = |one: &&'static geo::Benchmark| {
                is_possible(one.name, args.geo.plan(one, &args.for_geo()).map(drop))
            };
            geos.retain(is_geo);
        }
        for plan in &plans {
            plan.check()?;
        }
        let hammers = hammers
            .into_iter()
            .map(|benchmark| args.hammerdb.plan(benchmark, &args.for_hammerdb()));
        Ok(Self {
            plans,
            counts,
            fixed_rate,
            hammers: hammers.collect::<Result<_, _>>()?,
            ranges,
            geos: geos
                .into_iter()
                .map(|benchmark| args.geo.plan(benchmark, &args.for_geo()))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Whether something runs on the extension.
    pub fn needs_library(&self) -> bool {
        self.counts
            || !self.geos.is_empty()
            || self.plans.iter().any(Plan::needs_library)
            || self.fixed_rate.iter().any(fixed_rate::Plan::needs_library)
            || self.hammers.iter().any(hammerdb::Plan::needs_library)
            || self.ranges.iter().any(range::Plan::needs_library)
    }

    /// Says how much it is, and about how long it takes.
    pub fn announce(&self, rounds: usize) {
        let plans = self.plans.iter().map(|one| (one.runs(), one.estimate()));
        let hammers = self.hammers.iter().map(|one| (one.runs(), one.estimate()));
        let ranges = self.ranges.iter().map(|one| (one.runs(), one.estimate()));
        let geos = self.geos.iter().map(|one| (one.runs(), one.estimate()));
        let fixed_rate = self.fixed_rate.iter();
        let fixed_rate = fixed_rate.map(|one| (one.runs(), one.estimate()));
        let counts = instructions::runs(rounds);
        let counts = self
            .counts
            .then(|| (counts, instructions::estimate(rounds)));
        let parts = plans.chain(hammers).chain(ranges).chain(geos);
        let parts = parts.chain(fixed_rate);
        let parts: Vec<(usize, Duration)> = parts.chain(counts).collect();
        println!(
            "{} benchmarks, {} runs, about {}",
            parts.len(),
            parts.iter().map(|(runs, _)| runs).sum::<usize>(),
            in_minutes(parts.iter().map(|(_, time)| *time).sum())
        );
    }

    /// Measures everything, prints tables, keeps records in the folder `out` and reports in
    /// `reports`.
    pub fn measure(
        self,
        args: &Args,
        install: &PgInstall,
        out: &Path,
        reports: &Path,
    ) -> anyhow::Result<()> {
        let family_of = |plan: &Plan| {
            let family = plan.benchmark.family;
            family.filter(|_| args.name != plan.benchmark.name)
        };
        let together =
            |one: &Plan, next: &Plan| family_of(one).is_some() && family_of(one) == family_of(next);
        for plans in self.plans.chunk_by(together) {
            match family_of(&plans[0]) {
                Some(family) => family::measure(family, plans, install, out)?,
                None => measure_one(&plans[0], install, out)?,
            }
        }
        if self.counts {
            let record = instructions::measure(install, args.rounds, args.protocol)?;
            println!("{}", instructions::render(&record));
            keep(&record, &out.join(record.file_name()))?;
        }
        if let Some(plan) = self.fixed_rate {
            plan.run(install, out, reports)?;
        }
        for plan in self.hammers {
            plan.run(install, out)?;
        }
        for plan in self.ranges {
            args.range.measure(plan, install, out, reports)?;
        }
        for plan in self.geos {
            geo::measure(&plan, install, out, reports)?;
        }
        Ok(())
    }
}

/// For people, who need no seconds.
fn in_minutes(time: Duration) -> String {
    let minutes = time.as_secs().div_ceil(60);
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

/// Says so when it is not.
fn is_possible(name: &str, checked: anyhow::Result<()>) -> bool {
    checked
        .inspect_err(|error| println!("{name} is left out: {error}"))
        .is_ok()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn select(words: &str) -> anyhow::Result<Selection> {
        let words = words.split_whitespace();
        Selection::of(&Cli::parse_from(["bench"].into_iter().chain(words)).args)
    }

    #[test]
    fn all_is_everything_but_hammerdb_which_wants_a_folder() {
        let all = select("all").unwrap();
        assert!(all.hammers.is_empty() && all.fixed_rate.is_some());
        assert_eq!(all.ranges.len(), range::ALL.len());
        assert_eq!(all.geos.len(), geo::ALL.len());
        let mut families = all.plans.iter().filter_map(|plan| plan.benchmark.family);
        assert!(families.any(|family| family == "tpcc"));
        assert!(select("hammerdb").is_err());
        assert!(select("all --hammerdb /no/such/folder").is_err());
    }

    #[test]
    fn a_name_selects_its_benchmark_and_a_family_all_of_its_own() {
        let names = |words| -> Vec<&str> {
            let plans = select(words).unwrap().plans;
            plans.iter().map(|plan| plan.benchmark.name).collect()
        };
        assert_eq!(names("hot-row"), ["hot-row"]);
        assert_eq!(names("tpcc-procedures-1"), ["tpcc-procedures-1"]);
        assert_eq!(names("tpcc").len(), 8);
        assert!(names("instructions").is_empty() && names("fixed-rate").is_empty());
        assert!(select("no-such-benchmark").is_err());
    }

    #[test]
    fn options_of_benchmarks_that_are_not_selected_are_refused() {
        for words in [
            "hot-row --rate 5",
            "tpcc --warehouses 5",
            "fixed-rate --minutes 1",
            "hot-row --report x",
            "range --theta 0.9",
            "geo --scan 10",
        ] {
            assert!(select(words).is_err(), "{words}");
        }
        assert!(select("fixed-rate --rate 5 --report x").is_ok());
    }

    #[test]
    fn the_estimate_of_a_fixed_rate_has_all_phases_of_all_runs() {
        let plan = |words| select(words).unwrap().fixed_rate.unwrap();
        let (one, more) = (
            plan("fixed-rate --seconds 60 --rounds 1 --clients 4"),
            plan("fixed-rate --seconds 60 --rounds 3 --clients 4,8"),
        );
        assert_eq!((one.runs(), more.runs()), (2, 12));
        let added = (more.estimate() - one.estimate()).as_secs();
        assert!((10 * 240..10 * 260).contains(&added), "{added}");
    }

    #[test]
    fn times_are_told_in_minutes_and_hours() {
        let told = |seconds| in_minutes(Duration::from_secs(seconds));
        assert_eq!([1, 61, 7200].map(told), ["1 min", "2 min", "2 h 0 min"]);
    }
}
