//! HammerDB's command line: runs the scripts of bench/hammerdb, and reads what it prints.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use pgserver::{Server, ServerUser};

use crate::pgbench::{Tick, run_watched};
use crate::scratch::Scratch;

/// The scripts, and what they read.
const SCRIPTS: [(&str, &str); 5] = [
    ("connect.tcl", include_str!("../../hammerdb/connect.tcl")),
    ("build.tcl", include_str!("../../hammerdb/build.tcl")),
    ("run.tcl", include_str!("../../hammerdb/run.tcl")),
    ("check.tcl", include_str!("../../hammerdb/check.tcl")),
    ("check.sql", include_str!("../../hammerdb/check.sql")),
];

/// What makes the tables and procedures, in HammerDB's folder.
const SCHEMA: &str = "src/postgresql/pgoltp.tcl";

/// How many of TPC-C's conditions check.sql has.
const CONDITIONS: usize = 9;

/// A folder with HammerDB.
pub struct Hammer {
    folder: PathBuf,
    /// As it names itself.
    pub version: String,
}

impl Hammer {
    /// Fails when `folder` has none, or the servers' user cannot reach it.
    pub fn find(folder: &Path) -> anyhow::Result<Self> {
        let folder = std::path::absolute(folder)?;
        let cli = fs::read_to_string(folder.join("hammerdbcli")).unwrap_or_default();
        let version = version(&cli).filter(|_| folder.join(SCHEMA).is_file());
        let version = version.with_context(|| {
            format!(
                "{} is not a folder with HammerDB: it needs hammerdbcli and {SCHEMA} \
                 (bench/README.md says how to get it)",
                folder.display()
            )
        })?;
        ServerUser::choose()?.check_reach(&folder)?;
        Ok(Self {
            version: version.to_owned(),
            folder,
        })
    }

    /// Changes with what `build` makes.
    pub fn schema_hash(&self) -> anyhow::Result<u32> {
        let mut hash = DefaultHasher::new();
        fs::read(self.folder.join(SCHEMA))?.hash(&mut hash);
        SCRIPTS[..2].hash(&mut hash);
        Ok(hash.finish() as u32)
    }

    /// Makes and fills database tpcc.
    pub fn build(&self, server: &Server, warehouses: usize) -> anyhow::Result<()> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let loaders = cores.min(warehouses).to_string();
        let warehouses_text = warehouses.to_string();
        let options = [
            ("TPCC_WAREHOUSES", warehouses_text.as_str()),
            ("TPCC_LOADERS", loaders.as_str()),
        ];
        let patience = SECONDS_OF_A_WAREHOUSE * warehouses as u64;
        let said = self.script(server, "build.tcl", &options, patience, &mut || Ok(()))?;
        ensure!(
            said.contains("SCHEMA COMPLETE") && !said.contains("Error"),
            "HammerDB has not built the schema; it ended with\n{}",
            end(&said)
        );
        Ok(())
    }

    /// Runs so many virtual users.
    pub fn run(
        &self,
        server: &Server,
        users: usize,
        times: Times,
        tick: &mut Tick,
    ) -> anyhow::Result<Outcome> {
        let [users_text, ramp_up, minutes] =
            [users as u64, times.ramp_up, times.minutes].map(|number| number.to_string());
        let options = [
            ("TPCC_USERS", users_text.as_str()),
            ("TPCC_RAMP_UP", ramp_up.as_str()),
            ("TPCC_MINUTES", minutes.as_str()),
        ];
        let said = self.script(server, "run.tcl", &options, times.seconds(), tick)?;
        Outcome::parse(&said, users)
            .with_context(|| format!("HammerDB's run failed; it ended with\n{}", end(&said)))
    }

    /// The conditions of TPC-C that the data violates, with how often. `ways` are settings that
    /// leave the planner one way to read.
    pub fn violations(&self, server: &Server, ways: &str) -> anyhow::Result<Vec<String>> {
        let options = [("PGOPTIONS", ways)];
        let said = self.script(
            server,
            "check.tcl",
            &options,
            SECONDS_OF_A_CHECK,
            &mut || Ok(()),
        )?;
        violations(&said)
            .with_context(|| format!("HammerDB's check failed; it ended with\n{}", end(&said)))
    }

    /// Runs a script with these environment variables, which takes so many seconds; all that was
    /// printed.
    fn script(
        &self,
        server: &Server,
        name: &str,
        options: &[(&str, &str)],
        seconds: u64,
        tick: &mut Tick,
    ) -> anyhow::Result<String> {
        let scratch = Scratch::new(server.user())?;
        for (name, text) in SCRIPTS {
            fs::write(scratch.path().join(name), text)?;
        }
        let mut command = Command::new("tclsh8.6");
        command
            .args(["./hammerdbcli", "tcl", "auto"])
            .arg(scratch.path().join(name));
        let mut command = server.prepare_command(command);
        command
            .current_dir(&self.folder)
            // HammerDB keeps its settings there from one call to the next.
            .env("TMP", scratch.path())
            .envs(options.iter().copied());
        let (_, said) = run_watched(command, &scratch, seconds, tick)?;
        Ok(said)
    }
}

/// What building a warehouse may take, and a check.
const SECONDS_OF_A_WAREHOUSE: u64 = 300;
const SECONDS_OF_A_CHECK: u64 = 600;

/// How long a run is, in minutes.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Before what counts.
    pub ramp_up: u64,
    pub minutes: u64,
}

impl Times {
    pub fn seconds(self) -> u64 {
        60 * (self.ramp_up + self.minutes)
    }
}

/// What HammerDB says of a run.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    /// New orders per minute.
    pub nopm: u64,
    /// Transactions of all kinds per minute, those that rolled back among them.
    pub tpm: u64,
    /// Calls that ended in an error, by procedure.
    pub failed: BTreeMap<String, u64>,
}

impl Outcome {
    /// Fails when there is no result, or a virtual user has not gone on to the end.
    fn parse(said: &str, users: usize) -> anyhow::Result<Self> {
        let result = said
            .lines()
            .find_map(|line| line.split_once("System achieved "))
            .and_then(|(_, result)| {
                let mut words = result.split_whitespace();
                let nopm = words.next()?.parse().ok()?;
                let tpm = words.find(|word| word.parse::<u64>().is_ok())?;
                Some((nopm, tpm.parse().ok()?))
            });
        let (nopm, tpm) = result.context("there is no test result")?;
        let finished = said.matches(":FINISHED SUCCESS").count();
        // The monitor is one more.
        ensure!(
            finished == users + 1,
            "{finished} of {} virtual users have finished",
            users + 1
        );
        let mut failed = BTreeMap::new();
        for procedure in said.lines().filter_map(failed_procedure) {
            *failed.entry(procedure.to_owned()).or_insert(0) += 1;
        }
        Ok(Self { nopm, tpm, failed })
    }
}

/// Of a line such as "Vuser 3:New Order Procedure Error set RAISEERROR for Details".
fn failed_procedure(line: &str) -> Option<&str> {
    let (start, _) = line.split_once(" Procedure Error")?;
    Some(start.rsplit(':').next().unwrap_or(start))
}

/// The conditions that check.tcl has found violated. Fails unless it has looked at all of them.
fn violations(said: &str) -> anyhow::Result<Vec<String>> {
    let conditions: Vec<&str> = said
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("CONDITION "))
        .collect();
    if conditions.len() != CONDITIONS {
        bail!(
            "{} of {CONDITIONS} conditions were checked",
            conditions.len()
        );
    }
    Ok(conditions
        .into_iter()
        .filter(|line| !line.ends_with(": 0 violations"))
        .map(str::to_owned)
        .collect())
}

/// Of HammerDB, by its program's text.
fn version(cli: &str) -> Option<&str> {
    let (_, rest) = cli.split_once("set hdb_version \"")?;
    rest.split_once('"').map(|(version, _)| version)
}

/// The last lines.
fn end(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
Vuser 1:RUNNING
Vuser 2:New Order Procedure Error set RAISEERROR for Details
Vuser 3:Payment Procedure Error set RAISEERROR for Details
Vuser 2:New Order Procedure Error set RAISEERROR for Details
Vuser 1:2 Active Virtual Users configured
Vuser 1:TEST RESULT : System achieved 67136 NOPM from 153953 PostgreSQL TPM
Vuser 1:FINISHED SUCCESS
Vuser 3:FINISHED SUCCESS
Vuser 2:FINISHED SUCCESS
ALL VIRTUAL USERS COMPLETE
";

    #[test]
    fn a_result_has_its_rates_and_the_calls_that_failed() {
        let outcome = Outcome::parse(SAID, 2).unwrap();
        assert_eq!((outcome.nopm, outcome.tpm), (67136, 153_953));
        let failed = [("New Order", 2), ("Payment", 1)].map(|(name, n)| (name.to_owned(), n));
        assert_eq!(outcome.failed, BTreeMap::from(failed));
    }

    #[test]
    fn a_run_without_result_or_without_a_user_is_an_error() {
        let wrong = |said: &str, users| Outcome::parse(said, users).unwrap_err().to_string();
        assert!(wrong(&SAID.replace("RESULT", ""), 3).contains("3 of 4"));
        assert!(wrong("Error in Virtual User 1: no Pgtcl", 2).contains("no test result"));
    }

    #[test]
    fn a_violated_condition_is_told_and_a_missing_one_is_an_error() {
        let said = |violations| {
            (1..=CONDITIONS)
                .map(|n| format!("CONDITION {n}: x: {} violations\n", violations * (n % 2)))
                .collect::<String>()
        };
        assert!(violations(&said(0)).unwrap().is_empty());
        let found = violations(&said(3)).unwrap();
        assert_eq!((found.len(), found[0].as_str()), (5, "1: x: 3 violations"));
        // HammerDB prints a carriage return in front of what a script prints first.
        assert!(violations(&format!("\r{}", said(0))).is_ok());
        let cut = said(0).replace("CONDITION 9", "");
        assert!(violations(&cut).is_err());
    }

    #[test]
    fn the_check_has_as_many_conditions_as_are_expected() {
        let (_, check) = SCRIPTS[4];
        let selected = (1..=CONDITIONS).filter(|n| check.contains(&format!("SELECT '{n}: ")));
        assert_eq!(selected.count(), CONDITIONS);
        assert_eq!(check.matches("SELECT '").count(), CONDITIONS);
    }

    #[test]
    fn another_folder_is_refused_with_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let error = Hammer::find(folder.path()).err().unwrap().to_string();
        assert!(error.contains("hammerdbcli"), "{error}");
        fs::write(
            folder.path().join("hammerdbcli"),
            "global hdb_version\nset hdb_version \"v4.9\"\n",
        )
        .unwrap();
        assert!(Hammer::find(folder.path()).is_err());
        assert_eq!(version("set hdb_version \"v4.9\""), Some("v4.9"));
    }
}
