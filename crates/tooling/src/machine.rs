//! Where and when a measurement was made.

use std::fs;
use std::process::Command;
use std::time::SystemTime;

use crate::tools::checkout;

/// The machine and the source.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub memory_gb: f64,
    pub kernel: String,
    pub system: String,
    /// The commit of the checkout that measured, which has the workloads; with "+ changes" when it
    /// has others. The library says itself what it was built from (`Description::build`).
    pub checkout: String,
    /// In UTC.
    pub time: String,
}

impl Machine {
    /// Of a record of what was measured today.
    pub fn file_name(&self, name: &str) -> String {
        let day = self.time.split('T').next().unwrap_or_default();
        format!("{name}-{day}.json")
    }

    pub fn look() -> Self {
        Self {
            processor: field("/proc/cpuinfo", "model name", ':'),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gb: memory_gb(&field("/proc/meminfo", "MemTotal", ':')),
            kernel: said("uname", &["-sr"]),
            system: field("/etc/os-release", "PRETTY_NAME", '=')
                .trim_matches('"')
                .to_owned(),
            checkout: commit(),
            time: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        }
    }

    /// One line for people.
    pub fn summary(&self) -> String {
        let Self {
            processor,
            cores,
            memory_gb,
            system,
            kernel,
            ..
        } = self;
        format!("{processor}, {cores} cores, {memory_gb:.0} GB, {system}, {kernel}")
    }
}

/// The value of the first line "name separator value" of a file of the system.
fn field(file: &str, name: &str, separator: char) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(separator))
        .find(|(key, _)| key.trim() == name)
        .map_or_else(
            || "unknown".to_owned(),
            |(_, value)| value.trim().to_owned(),
        )
}

fn memory_gb(kilobytes: &str) -> f64 {
    let number = kilobytes
        .split_whitespace()
        .next()
        .and_then(|number| number.parse().ok());
    number.unwrap_or(0.0) / 1024.0 / 1024.0
}

fn commit() -> String {
    let checkout = checkout().to_string_lossy();
    let commit = said("git", &["-C", &checkout, "rev-parse", "--short=12", "HEAD"]);
    let changes = said(
        "git",
        &[
            "-C",
            &checkout,
            "status",
            "--porcelain",
            "--untracked-files=no",
        ],
    );
    if changes.is_empty() {
        commit
    } else {
        commit + " + changes"
    }
}

/// What a command prints; empty when it cannot run.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_kilobytes() {
        assert_eq!(memory_gb("2097152 kB"), 2.0);
        assert_eq!(memory_gb("unknown"), 0.0);
    }
}
