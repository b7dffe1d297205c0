//! Benchmarks with how long and how often they run: what can be asked of all of them, and what
//! becomes of what they have measured.

use std::path::PathBuf;
use std::time::Duration;

use pgserver::PgInstall;
use serde::Serialize;
use serde_json::Value;

use super::compare;
use tooling::files::{write, write_json};
use tooling::machine::Machine;

/// Where everything is written.
pub struct Folders {
    pub records: PathBuf,
    pub reports: PathBuf,
}

/// How much is to be done.
pub struct Extent {
    pub names: Vec<&'static str>,
    /// Whether something runs on the extension.
    pub needs_library: bool,
    /// Warm-ups among them.
    pub runs: usize,
    /// About.
    pub time: Duration,
}

/// A benchmark that can be run.
pub trait Bench {
    type Record: Measured;

    /// Its name, and what it is about.
    fn title(&self) -> (&'static str, &'static str);
    fn extent(&self) -> Extent;
    /// Fails at the first run whose data is wrong.
    fn measure(&self, install: &PgInstall) -> anyhow::Result<Self::Record>;
    /// What the files are called, but for the day.
    fn files(&self) -> String {
        self.title().0.to_owned()
    }
}

/// What a benchmark has measured, as it is written to JSON.
pub trait Measured: Serialize {
    fn machine(&self) -> &Machine;
    /// For the terminal.
    fn text(&self) -> String;
    /// A page, of those that have one.
    fn report(&self) -> anyhow::Result<Option<String>> {
        Ok(None)
    }
    /// Fails if a run does not count.
    fn verdict(&self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// One benchmark, or several that are reported together.
pub trait Planned {
    fn extent(&self) -> Extent;
    /// Measures, prints the table, keeps records and reports. A run whose data is wrong is an
    /// error.
    fn run(&self, install: &PgInstall, folders: &Folders) -> anyhow::Result<()>;
}

impl<B: Bench> Planned for B {
    fn extent(&self) -> Extent {
        Bench::extent(self)
    }

    fn run(&self, install: &PgInstall, folders: &Folders) -> anyhow::Result<()> {
        let (name, about) = self.title();
        println!("{name}: {about}");
        let record = self.measure(install)?;
        println!("{}", record.text());
        let name = record.machine().file_name(&self.files());
        let path = folders.records.join(&name);
        write_json(&record, &path)?;
        compare::tell(&[&record]);
        println!("raw results: {}\n", path.display());
        if let Some(page) = record.report()? {
            let path = folders.reports.join(name).with_extension("html");
            write(&path, &page)?;
            println!("report: {}\n", path.display());
        }
        record.verdict()
    }
}

/// Benchmarks with options of their own.
pub struct Kind<'a> {
    /// Which these are: "only ... --option".
    pub who: &'static str,
    /// What was given of their options, by name.
    pub options: Value,
    pub has_warehouses: bool,
    pub has_report: bool,
    pub entries: Vec<Entry<'a>>,
}

/// A name that can be given.
pub struct Entry<'a> {
    pub name: &'static str,
    pub about: &'static str,
    /// It is a part of another entry, and not listed by itself.
    pub is_part: bool,
    /// Fails when it cannot be run; with `Lacking` where only this machine cannot.
    pub plan: Box<dyn Fn() -> anyhow::Result<Box<dyn Planned>> + 'a>,
}

impl<'a> Entry<'a> {
    pub fn new<P: Planned + 'static>(
        (name, about): (&'static str, &'static str),
        plan: impl Fn() -> anyhow::Result<P> + 'a,
    ) -> Self {
        Self {
            name,
            about,
            is_part: false,
            plan: Box::new(move || Ok(Box::new(plan()?))),
        }
    }
}

/// The context of an error: `all` leaves the benchmark out.
#[derive(Debug)]
pub struct Lacking;

impl std::fmt::Display for Lacking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it cannot be run here")
    }
}

/// The first option that was given, as it is written.
pub fn given(options: &Value) -> Option<String> {
    let is_given = |value: &Value| !value.is_null() && *value != Value::Array(Vec::new());
    let mut options = options.as_object()?.iter();
    let (name, _) = options.find(|(_, value)| is_given(value))?;
    Some(format!("--{}", name.replace('_', "-")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::given;

    #[test]
    fn an_option_that_was_given_has_its_name() {
        let options = json!({"theta": [], "rtt": null, "node_rows": 4, "batches": [1]});
        assert!(["--node-rows", "--batches"].contains(&&*given(&options).unwrap()));
        assert_eq!(given(&json!({"theta": [], "rtt": null})), None);
        assert_eq!(given(&json!(null)), None);
    }
}
