//! Bakes into the library what it was built from. `txn.build_id` shows it, so that a measurement
//! can record the library that was measured, whatever the checkout holds by then.
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files of the build beside the crates' own.
const FILES: [&str; 3] = ["build.rs", "Cargo.toml", "Cargo.lock"];

fn main() {
    let folders = folders(&fs::read_to_string("Cargo.toml").unwrap_or_default());
    let sources: Vec<&str> = FILES
        .into_iter()
        .chain(folders.iter().map(String::as_str))
        .collect();
    for path in &sources {
        println!("cargo::rerun-if-changed={path}");
    }
    let mut parts = vec![variable("CARGO_PKG_VERSION")];
    parts.extend(commit(&sources));
    parts.push(format!("{:016x}", hash(&sources).unwrap_or(0)));
    parts.extend(
        ["stop_events", "planted_faults"]
            .into_iter()
            .filter(|name| env::var_os(format!("CARGO_FEATURE_{}", name.to_uppercase())).is_some())
            .map(str::to_owned),
    );
    if variable("PROFILE") != "release" {
        parts.push(variable("PROFILE"));
    }
    println!("cargo::rustc-env=TXN_BUILD_ID={}", parts.join(" "));
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

/// The folders of the library and of the crates of this workspace that it is built from.
fn folders(manifest: &str) -> Vec<String> {
    let lines = manifest
        .lines()
        .skip_while(|line| *line != "[dependencies]");
    let names = lines
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.is_empty())
        .filter_map(|line| line.split(['.', ' ']).next());
    let crates = names
        .map(|name| format!("crates/{name}"))
        .filter(|folder| Path::new(folder).is_dir())
        .flat_map(|folder| [format!("{folder}/Cargo.toml"), format!("{folder}/src")]);
    ["src".to_owned()].into_iter().chain(crates).collect()
}

/// The commit, with "+changes" if a source differs from it; none without git.
fn commit(sources: &[&str]) -> Option<String> {
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    // Git writes a line there with each commit and checkout.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"])
        && Path::new(&log).exists()
    {
        println!("cargo::rerun-if-changed={log}");
    }
    let mut status = vec!["status", "--porcelain", "--"];
    status.extend(sources);
    let is_clean = git(&status).is_some_and(|changes| changes.is_empty());
    Some(commit + if is_clean { "" } else { "+changes" })
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

/// FNV-1a of all files with their paths, but for documents: the same sources have the same number,
/// committed or not.
fn hash(sources: &[&str]) -> io::Result<u64> {
    let mut files = Vec::new();
    for source in sources {
        list(Path::new(source), &mut files)?;
    }
    files.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes.iter().chain(&[0]) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for file in files {
        add(file.to_string_lossy().as_bytes());
        add(&fs::read(&file)?);
    }
    Ok(hash)
}

fn list(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            list(&entry?.path(), files)?;
        }
    } else if path.exists() && path.extension() != Some("md".as_ref()) {
        files.push(path.to_owned());
    }
    Ok(())
}
