//! Which benchmarks there are, which were asked for, and all that is done with these.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use pgserver::PgInstall;

use super::runner::Plan;
use super::{
    Args, catalog, family, fixed_rate, hammerdb, instructions, keep, measure_one, range, results,
};

/// Prints the names that can be given, and what they are about.
pub fn list() {
    let single = catalog::all().filter(|one| one.family.is_none());
    let single = single.map(|one| (one.name, one.about));
    let families = catalog::FAMILIES.iter().copied();
    let hammers = hammerdb::ALL.iter().map(|one| (one.name, one.about));
    let ranges = range::ALL.iter().map(|one| (one.name, one.about));
    let others = [
        (fixed_rate::NAME, fixed_rate::ABOUT),
        (instructions::NAME, instructions::ABOUT),
        (results::NAME, results::ABOUT),
    ];
    let all = single.chain(families).chain(hammers).chain(ranges);
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
        let nothing = plans.is_empty() && hammers.is_empty() && ranges.is_empty();
        if nothing && fixed_rate.is_none() && !counts {
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
        if args.warehouses.is_some() && ranges.is_empty() && hammers.is_empty() {
            bail!("only range benchmarks and hammerdb have --warehouses");
        }
        if args.report.is_some() && ranges.is_empty() && fixed_rate.is_none() {
            bail!(
                "only range benchmarks and {} have --report",
                fixed_rate::NAME
            );
        }
        if args.name == "all" {
            plans.retain(|plan| is_possible(plan.benchmark.name, plan.check_packages()));
            hammers.retain(|one| is_possible(one.name, args.hammerdb.folder().map(drop)));
            counts = is_possible(instructions::NAME, instructions::version().map(drop));
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
        })
    }

    /// Whether something runs on the extension.
    pub fn needs_library(&self) -> bool {
        self.counts
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
        let fixed_rate = self.fixed_rate.iter();
        let fixed_rate = fixed_rate.map(|one| (one.runs(), one.estimate()));
        let counts = instructions::runs(rounds);
        let counts = self
            .counts
            .then(|| (counts, instructions::estimate(rounds)));
        let parts = plans.chain(hammers).chain(ranges).chain(fixed_rate);
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
