//! The records of `bench/results`, read back: as they are in the checkout, or as they were
//! committed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

use tooling::tools::{checkout, output};

const FOLDER: &str = "bench/results";

/// What a file holds.
#[derive(Debug, PartialEq)]
pub enum Content {
    One(Value),
    /// Those of a family's benchmarks.
    Several(Vec<Value>),
}

impl Content {
    pub fn parse(text: &[u8]) -> serde_json::Result<Self> {
        Ok(match serde_json::from_slice(text)? {
            Value::Array(records) => Content::Several(records),
            record => Content::One(record),
        })
    }

    pub fn into_records(self) -> Vec<Value> {
        match self {
            Content::One(record) => vec![record],
            Content::Several(records) => records,
        }
    }
}

/// Where records are kept.
pub fn folder() -> PathBuf {
    checkout().join(FOLDER)
}

/// The files of the folder by name without the ending; those of its folders are left out.
pub fn in_folder(folder: &Path) -> anyhow::Result<Vec<(String, Content)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        let (Some(name), Some("json")) = (
            path.file_stem().and_then(|name| name.to_str()),
            path.extension().and_then(|ending| ending.to_str()),
        ) else {
            continue;
        };
        let content = Content::parse(&fs::read(&path)?)
            .with_context(|| format!("{} is not JSON", path.display()))?;
        files.push((name.to_owned(), content));
    }
    files.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(files)
}

/// All records of the last commit's files that have one of these benchmarks.
pub fn committed<'a>(benchmarks: impl Iterator<Item = &'a str>) -> anyhow::Result<Vec<Value>> {
    let mut grep = git(&["grep", "--files-with-matches", "--fixed-strings"]);
    for name in benchmarks {
        grep.args(["-e", &format!("\"benchmark\": \"{name}\"")]);
    }
    let found = grep.args(["HEAD", "--", FOLDER]).output();
    let found = found.context("cannot run git")?;
    // 1: no file has one.
    ensure!(
        matches!(found.status.code(), Some(0 | 1)),
        "git grep failed: {}",
        String::from_utf8_lossy(&found.stderr).trim_end()
    );
    let mut records = Vec::new();
    for object in String::from_utf8_lossy(&found.stdout).lines() {
        let file = output(&mut git(&["show", object]), "it has the committed records")?;
        let content = Content::parse(&file.stdout);
        let content = content.with_context(|| format!("{object} is not JSON"))?;
        records.extend(content.into_records());
    }
    Ok(records)
}

fn git(arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(checkout()).args(arguments);
    command
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_holds_one_record_or_those_of_a_family() {
        let (one, other) = (json!({"benchmark": "a"}), json!({"benchmark": "b"}));
        let parse = |value: &Value| Content::parse(value.to_string().as_bytes()).unwrap();
        assert_eq!(parse(&one), Content::One(one.clone()));
        let family = parse(&json!([one, other]));
        assert_eq!(family, Content::Several(vec![one.clone(), other.clone()]));
        assert_eq!(family.into_records(), [one, other]);
        assert!(Content::parse(b"{").is_err());
    }
}
