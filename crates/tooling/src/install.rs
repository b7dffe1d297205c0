//! Builds of the library, and where they go.
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use pgserver::{PgInstall, cache_dir, make_readable_dir};
use serde_json::Value;
use tempfile::TempDir;

use crate::setup;
use crate::tools::{cargo, checkout};

/// How the library is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// What users run.
    Release,
    /// With assertions, overflow checks, stop events and faults that can be planted: for tests
    /// only, never installed.
    Checked,
}

/// Builds the release and copies library, control file and SQL to where `install` looks for them.
pub fn install_release(install: &PgInstall) -> Result<()> {
    let library = build_library(Variant::Release, install)?;
    put(&library, &install.pkglibdir, &library_name())?;
    install_scripts(install)
}

/// Copies control file and SQL only, for servers that get their library from elsewhere.
pub fn install_scripts(install: &PgInstall) -> Result<()> {
    let scripts = scripts(checkout())?;
    for file in scripts.iter().chain([&checkout().join("txn.control")]) {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        put(file, &install.extension_dir(), &name)?;
    }
    Ok(())
}

/// Builds the library and returns its path in cargo's target folder.
pub fn build_library(variant: Variant, install: &PgInstall) -> Result<PathBuf> {
    Ok(build(variant, install)?.path)
}

/// A build of the library.
pub struct Build {
    /// In cargo's target folder.
    pub path: PathBuf,
    /// Nothing had to be compiled for it.
    pub was_there: bool,
}

/// Builds the library.
pub fn build(variant: Variant, install: &PgInstall) -> Result<Build> {
    let mut build = cargo();
    build.args(["build", "--package", "txn", "--lib"]);
    match variant {
        Variant::Release => build.arg("--release"),
        Variant::Checked => build.args([
            "--profile",
            "checked",
            "--features",
            "stop_events,planted_faults",
        ]),
    };
    build
        .arg("--message-format=json-render-diagnostics")
        .envs(setup::build_environment(install)?)
        .stderr(Stdio::inherit());
    let output = build.output().context("could not run cargo")?;
    if !output.status.success() {
        bail!(
            "the {variant:?} build of the extension failed ({})",
            output.status
        );
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    find_library(&messages).context("cargo has built the extension but names no library file")
}

/// Copies `library` to a new folder that the server's user can read, for `library_dir`; the
/// folder goes when it is dropped.
pub fn publish(library: &Path) -> Result<TempDir> {
    let folder = new_folder("txn-")?;
    put(library, folder.path(), &library_name())?;
    Ok(folder)
}

/// A new folder in the cache that the server's user can read; it goes when it is dropped.
pub fn new_folder(prefix: &str) -> Result<TempDir> {
    let parent = cache_dir().join("builds");
    make_readable_dir(&parent)?;
    let folder = tempfile::Builder::new()
        .prefix(prefix)
        .permissions(Permissions::from_mode(0o755))
        .tempdir_in(&parent)
        .with_context(|| format!("could not create a folder in {}", parent.display()))?;
    // The umask may have taken some of it away.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
    Ok(folder)
}

/// The library's name for PostgreSQL: cargo's without the prefix.
pub fn library_name() -> String {
    format!("txn{}", std::env::consts::DLL_SUFFIX)
}

/// The install and upgrade scripts; an error without one for the version of the control file.
pub fn scripts(checkout: &Path) -> Result<Vec<PathBuf>> {
    let mut scripts = Vec::new();
    for folder in ["sql/install", "sql/upgrade"] {
        let Ok(entries) = fs::read_dir(checkout.join(folder)) else {
            continue;
        };
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "sql") {
                scripts.push(path);
            }
        }
    }
    let control = fs::read_to_string(checkout.join("txn.control"))?;
    let version = default_version(&control).context("txn.control names no default_version")?;
    let needed = format!("txn--{version}.sql");
    if !scripts.iter().any(|path| path.ends_with(&needed)) {
        bail!("sql/install/{needed} is missing, the script of txn.control's default_version");
    }
    scripts.sort();
    Ok(scripts)
}

pub fn default_version(control: &str) -> Option<&str> {
    control.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == "default_version").then(|| value.trim().trim_matches('\''))
    })
}

/// The shared library that cargo's messages name for the package txn.
fn find_library(messages: &str) -> Option<Build> {
    let is_library = |name: &&str| name.ends_with(std::env::consts::DLL_SUFFIX);
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact")
        .filter(|message| message["target"]["name"] == "txn")
        .find_map(|message| {
            let names = message["filenames"].as_array()?;
            let path = names.iter().filter_map(Value::as_str).find(is_library)?;
            Some(Build {
                path: path.into(),
                was_there: message["fresh"] == true,
            })
        })
}

/// Copies `file` to `folder/name` in one step: a server that has the old file open keeps it.
fn put(file: &Path, folder: &Path, name: &str) -> Result<()> {
    let target = folder.join(name);
    let fresh = folder.join(format!(".{name}.{}", std::process::id()));
    let copied = fs::copy(file, &fresh)
        .and_then(|_| fs::set_permissions(&fresh, Permissions::from_mode(0o644)))
        .and_then(|()| fs::rename(&fresh, &target));
    match copied {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => bail!(
            "you may not write to {}: run this command as the owner of that PostgreSQL (sudo, \
             with your PATH), or use the cached one (without --pg-config)",
            folder.display()
        ),
        Err(error) => Err(error)
            .with_context(|| format!("could not copy {} to {}", file.display(), target.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_among_cargos_messages() {
        let line = |package: &str, files: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","target":{{"name":"{package}"}},"filenames":[{files}],"fresh":true}}"#
            )
        };
        let library = format!("/t/libtxn{}", std::env::consts::DLL_SUFFIX);
        let messages = [
            line("hotrow", r#""/t/libhotrow.so""#),
            "not json".to_owned(),
            line("txn", &format!(r#""/t/libtxn.rlib","{library}""#)),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let found = find_library(&messages.join("\n")).unwrap();
        assert_eq!((found.path, found.was_there), (library.into(), true));
        assert!(find_library("").is_none());
    }

    #[test]
    fn a_control_file_without_its_script_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        file("txn.control", "comment = 'x'\ndefault_version = '1.2'\n");
        file("sql/install/txn--1.1.sql", "");
        assert!(
            scripts(folder.path())
                .unwrap_err()
                .to_string()
                .contains("txn--1.2.sql")
        );
        file("sql/install/txn--1.2.sql", "");
        file("sql/upgrade/txn--1.1--1.2.sql", "");
        file("sql/upgrade/README.md", "");
        assert_eq!(scripts(folder.path()).unwrap().len(), 3);
    }
}
