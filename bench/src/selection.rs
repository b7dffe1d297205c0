//! Which benchmarks there are, which were asked for, and all that is done with these.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, ensure};

use super::common::Common;
use super::plan::{Entry, Extent, Kind, Lacking, Planned, given};
use super::{family, fixed_rate, geo, hammerdb, instructions, range};

#[derive(clap::Args)]
pub struct Args {
    /// Which benchmark: a name of `bench list`, `list`, `all`, `results`, or the name of a family
    /// (`shapes`, `tpcc`, `sysbench`)
    #[arg(default_value = "list")]
    pub name: String,
    #[command(flatten)]
    pub common: Common,
    /// Folder for the JSON results [default: bench/results in the checkout]
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Use the extension as it is installed: neither build nor install it
    #[arg(long)]
    pub no_install: bool,
    /// Leave out what has a record by the present build of the library in that folder
    #[arg(long)]
    pub missing: bool,
    /// Folder for the HTML reports of range benchmarks, geo benchmarks and fixed-rate
    /// [default: bench-report in the checkout]
    #[arg(long, value_name = "FOLDER")]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    fixed_rate: fixed_rate::Options,
    #[command(flatten)]
    geo: geo::Options,
    #[command(flatten)]
    hammerdb: hammerdb::Options,
    #[command(flatten)]
    range: range::Options,
}

impl Args {
    /// In the order in which they are listed and run.
    fn kinds(&self) -> [Kind<'_>; 6] {
        [
            family::kind(&self.common),
            self.hammerdb.kind(&self.common),
            self.range.kind(&self.common),
            self.geo.kind(&self.common),
            self.fixed_rate.kind(&self.common),
            instructions::kind(&self.common),
        ]
    }

    /// The names that can be given, and what they are about.
    pub fn list(&self) -> Vec<(&'static str, &'static str)> {
        let entries = self.kinds().into_iter().flat_map(|kind| kind.entries);
        let listed = entries.filter(|entry| !entry.is_part);
        listed.map(|entry| (entry.name, entry.about)).collect()
    }

    /// What was asked for. Fails when there is no such benchmark, or when it cannot be run. What
    /// the machine lacks a program for is left out of `all`.
    pub fn select(&self) -> anyhow::Result<Vec<Box<dyn Planned>>> {
        let is_all = self.name == "all";
        let mut kinds = self.kinds();
        for kind in &mut kinds {
            let all = |entry: &Entry| is_all && !entry.is_part;
            kind.entries
                .retain(|entry| all(entry) || entry.name == self.name);
        }
        let has = |what: fn(&Kind) -> bool| {
            let mut selected = kinds.iter().filter(|kind| !kind.entries.is_empty());
            selected.any(what)
        };
        ensure!(
            has(|_| true),
            "there is no benchmark \"{}\": `cargo xtask bench list` shows them",
            self.name
        );
        for kind in kinds.iter().filter(|kind| kind.entries.is_empty()) {
            if let Some(option) = given(&kind.options) {
                bail!("only {} {option}", kind.who);
            }
        }
        ensure!(
            self.common.warehouses.is_none() || has(|kind| kind.has_warehouses),
            "only range and geo benchmarks and hammerdb have --warehouses"
        );
        ensure!(
            self.report.is_none() || has(|kind| kind.has_report),
            "only range and geo benchmarks and fixed-rate have --report"
        );
        let mut plans = Vec::new();
        for entry in kinds.iter().flat_map(|kind| &kind.entries) {
            match (entry.plan)() {
                Err(error) if is_all && error.is::<Lacking>() => {
                    println!("{} is left out: {error:#}", entry.name);
                }
                planned => plans.push(planned?),
            }
        }
        Ok(plans)
    }
}

/// How much it is, and about how long it takes.
pub fn told(extents: &[Extent]) -> String {
    format!(
        "{} benchmarks, {} runs, about {}",
        extents.iter().map(|one| one.names.len()).sum::<usize>(),
        extents.iter().map(|one| one.runs).sum::<usize>(),
        in_minutes(extents.iter().map(|one| one.time).sum())
    )
}

/// For people, who need no seconds.
fn in_minutes(time: Duration) -> String {
    let minutes = time.as_secs().div_ceil(60);
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
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

    fn args(words: &str) -> Args {
        Cli::parse_from(["bench"].into_iter().chain(words.split_whitespace())).args
    }

    fn select(words: &str) -> anyhow::Result<Vec<Box<dyn Planned>>> {
        args(words).select()
    }

    fn names(words: &str) -> Vec<&'static str> {
        let plans = select(words).unwrap();
        plans.iter().flat_map(|plan| plan.extent().names).collect()
    }

    #[test]
    fn all_is_everything_but_hammerdb_which_wants_a_folder() {
        let selected = names("all");
        let args = args("all");
        for kind in [2, 3, 4].map(|n| args.kinds().into_iter().nth(n).unwrap()) {
            let mut all = kind.entries.iter();
            assert!(all.all(|entry| selected.contains(&entry.name)));
        }
        assert!(selected.contains(&"tpcc-procedures-1"));
        assert!(!selected.contains(&"hammerdb"));
        assert!(select("hammerdb").is_err());
        assert!(select("all --hammerdb /no/such/folder").is_err());
    }

    #[test]
    fn a_name_selects_its_benchmark_and_a_family_all_of_its_own() {
        assert_eq!(names("hot-row"), ["hot-row"]);
        assert_eq!(names("tpcc-procedures-1"), ["tpcc-procedures-1"]);
        assert_eq!(names("tpcc").len(), 8);
        assert_eq!(select("tpcc").unwrap().len(), 1);
        assert_eq!(names("instructions"), ["instructions"]);
        assert_eq!(names("fixed-rate"), ["fixed-rate"]);
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
            "geo --hammerdb x",
            "hot-row --node-rows 7",
        ] {
            assert!(select(words).is_err(), "{words}");
        }
        assert!(select("fixed-rate --rate 5 --report x").is_ok());
    }

    #[test]
    fn what_is_asked_for_replaces_all_of_the_benchmark_s_own() {
        let runs = |words| select(words).unwrap()[0].extent().runs;
        let one = runs("range --rounds 1 --scan 10 --variants SSI");
        let two = runs("range --rounds 1 --scan 10,100 --variants SSI");
        assert_eq!((one, two), (1 + 1, 1 + 2));
        assert!(select("range --scan 10,10").is_err());
        assert_eq!(runs("geo --rounds 1 --theta 0.5 --variants early"), 3);
    }

    #[test]
    fn the_estimate_of_a_fixed_rate_has_all_phases_of_all_runs() {
        let plan = |words| select(words).unwrap()[0].extent();
        let (one, more) = (
            plan("fixed-rate --seconds 60 --rounds 1 --clients 4"),
            plan("fixed-rate --seconds 60 --rounds 3 --clients 4,8"),
        );
        assert_eq!((one.runs, more.runs), (2, 12));
        let added = (more.time - one.time).as_secs();
        assert!((10 * 240..10 * 260).contains(&added), "{added}");
    }

    #[test]
    fn times_are_told_in_minutes_and_hours() {
        let told = |seconds| in_minutes(Duration::from_secs(seconds));
        assert_eq!([1, 61, 7200].map(told), ["1 min", "2 min", "2 h 0 min"]);
    }
}
