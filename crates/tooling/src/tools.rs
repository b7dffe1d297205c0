//! Programs of the machine, and the checkout we belong to.
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

/// The root of the checkout.
pub fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("tooling is in crates/ of the workspace")
}

/// Cargo, in the checkout's root.
pub fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(checkout());
    command
}

/// Where cargo puts what it builds.
pub fn target() -> PathBuf {
    let chosen = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    checkout().join(chosen.unwrap_or_else(|| "target".into()))
}

/// Runs `command` and returns what it printed. `purpose` tells, when it is not there, what it is
/// for and how to get it; when it fails, its own words are the error.
pub fn output(command: &mut Command, purpose: &str) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("{name} is missing on this machine: {purpose}")
        }
        Err(error) => return Err(error).with_context(|| format!("could not run {name}")),
    };
    if !output.status.success() {
        let arguments: Vec<_> = command
            .get_args()
            .map(|arg| arg.to_string_lossy())
            .collect();
        bail!(
            "{name} {} failed ({}):\n{}{}",
            arguments.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(output)
}

const C_COMPILER: &str = "a C compiler links the library and has the C headers for pgrx (Debian: \
                          apt install gcc libc6-dev)";

/// Where the C compiler keeps its own headers (stddef.h and the like).
pub fn compiler_headers() -> Result<PathBuf> {
    let output = output(
        Command::new("cc").arg("-print-file-name=include"),
        C_COMPILER,
    )?;
    Ok(PathBuf::from(
        String::from_utf8_lossy(&output.stdout).trim(),
    ))
}
