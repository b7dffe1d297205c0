//! libclang, with which pgrx's bindgen reads PostgreSQL's headers: the user's, the system's, or
//! the one of a PyPI wheel.
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use pgserver::cache_dir;

use super::download::{Wheel, move_into_place, set_permissions, unzip, workshop};
use crate::steps::Steps;
use crate::tools::compiler_headers;

const WHEEL: Wheel = Wheel {
    requirement: "libclang==18.1.1",
    implementation: "py",
    abi: "none",
    platform: "manylinux2010_x86_64",
    sha256: "c533091d8a3bbf7460a00cb6c1a71da93bffe148f172c7d03b1c31fbf8aa2a0b",
};

const FOLDER: &str = "libclang-18.1.1";
/// Where the wheel keeps the library. It brings no headers of the compiler's own.
const NATIVE: &str = "libclang-18.1.1.data/platlib/clang/native";

const PATH: &str = "LIBCLANG_PATH";
const ARGUMENTS: &str = "BINDGEN_EXTRA_CLANG_ARGS";

/// Puts libclang into the cache, unless it is there or the machine has one.
pub fn provide() -> Result<()> {
    if user_choice().is_some() || system().is_some() || cached().is_some() {
        return Ok(());
    }
    if !cfg!(all(
        target_os = "linux",
        target_arch = "x86_64",
        target_env = "gnu"
    )) {
        bail!(
            "libclang is missing, which pgrx needs to read PostgreSQL's headers: install it \
             (Debian: libclang-dev, Fedora: clang-devel, Homebrew: llvm) or set {PATH} to the \
             folder of the library"
        );
    }
    let steps = Steps::new(1);
    steps.next("downloading libclang");
    let workshop = workshop()?;
    let wheel = WHEEL.download(&workshop.path().join("wheel"))?;
    let unpacked = workshop.path().join("unpacked");
    unzip(&wheel, &unpacked)?;
    set_permissions(&unpacked, &|_| false)?;
    move_into_place(&unpacked, &cache_dir().join(FOLDER))
}

/// What bindgen has to be told, less what the user has already set.
pub fn environment() -> Result<Vec<(&'static str, OsString)>> {
    if user_choice().is_some() {
        return Ok(Vec::new());
    }
    if let Some(folder) = system() {
        return Ok(vec![(PATH, folder.into())]);
    }
    let Some(folder) = cached() else {
        bail!("libclang is missing: run `cargo xtask setup`");
    };
    let mut environment = vec![(PATH, folder.into())];
    if env::var_os(ARGUMENTS).is_none() {
        let headers = compiler_headers()?;
        environment.push((ARGUMENTS, format!("-isystem {}", headers.display()).into()));
    }
    Ok(environment)
}

fn user_choice() -> Option<OsString> {
    env::var_os(PATH).filter(|path| !path.is_empty())
}

fn cached() -> Option<PathBuf> {
    Some(cache_dir().join(FOLDER).join(NATIVE)).filter(|folder| has_libclang(folder))
}

/// A folder of the system with libclang and, beside it, its compiler's own headers.
fn system() -> Option<PathBuf> {
    let mut folders = Vec::new();
    if let Ok(output) = Command::new("llvm-config").arg("--libdir").output()
        && output.status.success()
    {
        folders.push(PathBuf::from(
            String::from_utf8_lossy(&output.stdout).trim(),
        ));
    }
    let mut debian: Vec<(u32, PathBuf)> = entries(Path::new("/usr/lib"))
        .filter_map(|path| {
            let version = path
                .file_name()?
                .to_str()?
                .strip_prefix("llvm-")?
                .parse()
                .ok()?;
            Some((version, path.join("lib")))
        })
        .collect();
    debian.sort();
    folders.extend(debian.into_iter().rev().map(|(_, path)| path));
    for folder in [
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/lib",
        "/opt/homebrew/opt/llvm/lib",
    ] {
        folders.push(folder.into());
    }
    folders
        .into_iter()
        .find(|folder| has_libclang(folder) && has_headers(folder))
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
}

fn has_libclang(folder: &Path) -> bool {
    entries(folder).any(|path| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(names_it)
    })
}

/// `libclang.so`, `libclang.so.18`, `libclang-14.so.1`, but neither `libclang-cpp.so` nor
/// `libclangAST.so`.
fn names_it(file: &str) -> bool {
    let Some(rest) = file.strip_prefix("libclang") else {
        return false;
    };
    let rest = match rest.strip_prefix('-') {
        Some(version) => version.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.'),
        None => rest.trim_start_matches('.'),
    };
    rest.starts_with("so") || rest == "dylib"
}

fn has_headers(folder: &Path) -> bool {
    entries(&folder.join("clang")).any(|version| version.join("include/stddef.h").is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libclang_is_told_from_its_relatives() {
        for name in [
            "libclang.so",
            "libclang.so.18",
            "libclang-14.so.1",
            "libclang-14.so",
        ] {
            assert!(names_it(name), "{name}");
        }
        for name in [
            "libclang-cpp.so.14",
            "libclangAST.so.14",
            "libclang.a",
            "libLLVM.so",
        ] {
            assert!(!names_it(name), "{name}");
        }
    }
}
