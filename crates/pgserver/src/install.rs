//! An installed PostgreSQL 16, found through its `pg_config`.
use std::collections::HashMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache::cache_dir;

/// The release that `cargo xtask setup` puts into the cache.
pub const PINNED_VERSION: &str = "16.14";

/// The only major version that the extension is built for.
const MAJOR: u32 = 16;

/// The folders of one PostgreSQL 16.
#[derive(Clone, Debug)]
pub struct PgInstall {
    pub pg_config: PathBuf,
    pub bindir: PathBuf,
    pub pkglibdir: PathBuf,
    pub sharedir: PathBuf,
    /// As PostgreSQL writes it, for example `16.14`.
    pub version: String,
    pgxs: PathBuf,
}

impl PgInstall {
    /// Asks `pg_config` for the folders. Another major version than 16 is an error.
    pub fn from_pg_config(pg_config: &Path) -> Result<Self> {
        let pg_config = std::path::absolute(pg_config)?;
        let output = Command::new(&pg_config).output().with_context(|| {
            format!(
                "could not run {}: give the pg_config of a PostgreSQL {MAJOR}",
                pg_config.display()
            )
        })?;
        if !output.status.success() {
            bail!(
                "{} failed: {}",
                pg_config.display(),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let values = parse_pg_config(&text);
        let value = |name: &str| {
            values.get(name).cloned().with_context(|| {
                format!(
                    "{} says nothing about {name}: is it a pg_config?",
                    pg_config.display()
                )
            })
        };
        let version = parse_version(&value("VERSION")?).with_context(|| {
            format!(
                "{} is not PostgreSQL {MAJOR}, which txn needs",
                pg_config.display()
            )
        })?;
        Ok(PgInstall {
            bindir: value("BINDIR")?.into(),
            pkglibdir: value("PKGLIBDIR")?.into(),
            sharedir: value("SHAREDIR")?.into(),
            pgxs: value("PGXS")?.into(),
            version,
            pg_config,
        })
    }

    /// The PostgreSQL of `TXN_PG_CONFIG`, else the cached one.
    pub fn from_env() -> Result<Self> {
        if let Some(path) = env::var_os("TXN_PG_CONFIG").filter(|path| !path.is_empty()) {
            return Self::from_pg_config(Path::new(&path));
        }
        let cached = Self::cached_pg_config();
        if !cached.is_file() {
            bail!(
                "no PostgreSQL {MAJOR} at {}: run `cargo xtask setup`, or name one that you have \
                 with --pg-config PATH or TXN_PG_CONFIG",
                cached.display()
            );
        }
        Self::from_pg_config(&cached)
    }

    /// Where `cargo xtask setup` puts the pinned release's pg_config.
    pub fn cached_pg_config() -> PathBuf {
        cache_dir().join(format!("postgresql-{PINNED_VERSION}/bin/pg_config"))
    }

    /// The program `name` of this PostgreSQL, whether or not it is there.
    pub fn bin(&self, name: &str) -> PathBuf {
        self.bindir.join(name)
    }

    /// The folder of the extensions' control and SQL files.
    pub fn extension_dir(&self) -> PathBuf {
        self.sharedir.join("extension")
    }

    pub fn has_extension(&self, name: &str) -> bool {
        self.extension_dir()
            .join(format!("{name}.control"))
            .is_file()
    }

    /// `pg_regress`, `pg_isolation_regress` or `isolationtester`, which some packages leave out.
    pub fn pgxs_test(&self, name: &str) -> Option<PathBuf> {
        let tests = self.pgxs.parent()?.parent()?.join("test");
        ["regress", "isolation"]
            .iter()
            .map(|folder| tests.join(folder).join(name))
            .find(|path| path.is_file())
    }

    /// The program `name`, or an error that says what is missing.
    pub(crate) fn required(&self, name: &str) -> Result<PathBuf> {
        let path = self.bin(name);
        if !path.is_file() {
            bail!(
                "{} is missing: install PostgreSQL {MAJOR}'s server package, or use another one \
                 with --pg-config",
                path.display()
            );
        }
        Ok(path)
    }
}

/// The lines `NAME = value` that pg_config prints.
fn parse_pg_config(text: &str) -> HashMap<&str, String> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.trim(), value.trim().to_owned()))
        .collect()
}

/// `16.14` from `PostgreSQL 16.14 (Debian ...)`. Error for another major version.
fn parse_version(text: &str) -> Result<String> {
    let version = text
        .strip_prefix("PostgreSQL ")
        .and_then(|rest| rest.split_whitespace().next())
        .with_context(|| format!("it calls itself \"{text}\""))?;
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    match digits.parse::<u32>() {
        Ok(MAJOR) => Ok(version.to_owned()),
        _ => bail!("it is PostgreSQL {version}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_of_every_packager_is_understood() {
        assert_eq!(parse_version("PostgreSQL 16.14").unwrap(), "16.14");
        assert_eq!(
            parse_version("PostgreSQL 16.4 (Debian 16.4-1.pgdg120+1)").unwrap(),
            "16.4"
        );
        assert_eq!(parse_version("PostgreSQL 16beta1").unwrap(), "16beta1");
    }

    #[test]
    fn other_major_versions_are_refused_by_name() {
        for (text, told) in [
            ("PostgreSQL 15.7", "it is PostgreSQL 15.7"),
            ("PostgreSQL 17devel", "it is PostgreSQL 17devel"),
            ("PostgreSQL 160.1", "it is PostgreSQL 160.1"),
            ("MariaDB 16.1", "it calls itself \"MariaDB 16.1\""),
        ] {
            assert_eq!(parse_version(text).unwrap_err().to_string(), told);
        }
    }

    #[test]
    fn values_with_equal_signs_stay_whole() {
        let values = parse_pg_config("BINDIR = /usr/bin\nCONFIGURE =  '--prefix=/usr'\n");
        assert_eq!(values["BINDIR"], "/usr/bin");
        assert_eq!(values["CONFIGURE"], "'--prefix=/usr'");
    }
}
