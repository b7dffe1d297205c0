//! The source archive: the committed files, for PGXN.
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::version;
use tooling::tools::{checkout, output};

/// Writes `txn-VERSION.zip` into `out`: all files of the last commit, in a folder of that name.
pub fn build(out: &Path) -> Result<PathBuf> {
    let name = format!("txn-{}", version()?);
    let file = std::path::absolute(out)?.join(format!("{name}.zip"));
    let mut git = Command::new("git");
    git.args(["archive", "--format=zip", "HEAD"])
        .arg(format!("--prefix={name}/"))
        .arg("--output")
        .arg(&file)
        .current_dir(checkout());
    output(&mut git, "the source archive holds what is committed")?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What PGXN needs to know agrees with cargo and with PostgreSQL.
    #[test]
    fn all_versions_are_one() {
        let text = std::fs::read_to_string(checkout().join("META.json")).unwrap();
        let meta: serde_json::Value = serde_json::from_str(&text).unwrap();
        let version = version().unwrap();
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
        assert_eq!(meta["version"], version.as_str());
        let extension = &meta["provides"]["txn"];
        assert_eq!(extension["version"], version.as_str());
        for file in ["file", "docfile"] {
            let path = checkout().join(extension[file].as_str().unwrap());
            assert!(path.is_file(), "{}", path.display());
        }
        let script = extension["file"].as_str().unwrap();
        assert!(script.ends_with(&format!("txn--{version}.sql")), "{script}");
        for needed in ["name", "abstract", "maintainer", "license"] {
            assert!(meta[needed].is_string(), "{needed}");
        }
        assert_eq!(meta["meta-spec"]["version"], "1.0.0");
    }

    #[test]
    fn the_changelog_begins_with_this_version() {
        let changes = std::fs::read_to_string(checkout().join("CHANGELOG.md")).unwrap();
        let first = changes.lines().find_map(|line| line.strip_prefix("## "));
        assert_eq!(first, Some(env!("CARGO_PKG_VERSION")));
    }
}
