//! A fresh data folder. `initdb` runs once for each PostgreSQL and user; servers get copies,
//! or what an earlier one of this process has left, made equal to it.
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache::{cache_dir, lock_file, make_readable_dir};
use crate::install::PgInstall;
use crate::pool;
use crate::user::ServerUser;

/// The file of our settings in the data folder, included at the end of postgresql.conf.
pub(crate) const SETTINGS_FILE: &str = "server.conf";

/// Fills the empty folder `data_dir`, which `user` owns.
pub(crate) fn fill(install: &PgInstall, user: &ServerUser, data_dir: &Path) -> Result<()> {
    let template = template(install, user)?;
    match pool::take(&template, data_dir)? {
        true => Ok(()),
        false => copy_data(user, &template, data_dir),
    }
}

/// Takes away the data folder of a server that is gone, for the next `fill`.
pub(crate) fn recycle(install: &PgInstall, user: &ServerUser, data_dir: &Path) -> Result<()> {
    pool::give(user, &template(install, user)?, data_dir)
}

/// Copies the data folder `from` of a stopped server into the empty folder `to`, which `user` owns.
pub fn copy_data(user: &ServerUser, from: &Path, to: &Path) -> Result<()> {
    let mut copy = Command::new("cp");
    copy.args(["-a", "--reflink=auto"])
        .arg(from.join("."))
        .arg(to);
    run(user.apply(copy.current_dir("/")))
}

/// The folder to copy from, made when it is not there yet.
pub(crate) fn template(install: &PgInstall, user: &ServerUser) -> Result<PathBuf> {
    user.check_reach(&install.required("initdb")?)?;
    let mut place = DefaultHasher::new();
    install.bindir.hash(&mut place);
    let name = format!(
        "template-{}-{:08x}-{}",
        install.version,
        place.finish() as u32,
        user.uid
    );
    let folder = cache_dir().join("templates");
    make_readable_dir(&folder)?;
    let template = folder.join(&name);
    let _lock = lock_file(&folder.join(format!("{name}.lock")))?;
    if template.is_dir() {
        return Ok(template);
    }
    user.check_reach(&folder)?;

    // Built under another name: a template that exists is complete.
    let unfinished = folder.join(format!("{name}.new"));
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished)
            .with_context(|| format!("could not remove {}", unfinished.display()))?;
    }
    make_readable_dir(&unfinished)?;
    user.own(&unfinished)?;
    initdb(install, user, &unfinished)?;
    fs::rename(&unfinished, &template)
        .with_context(|| format!("could not create {}", template.display()))?;
    Ok(template)
}

/// Fills the empty folder `data_dir`, which `user` owns, with data of a system identifier of its
/// own. (Copies of the template all have the template's.)
pub fn initdb(install: &PgInstall, user: &ServerUser, data_dir: &Path) -> Result<()> {
    let mut command = Command::new(install.required("initdb")?);
    command
        .args([
            "--auth=trust",
            "--username=postgres",
            "--encoding=UTF8",
            "--locale=C",
        ])
        .args(["--no-sync", "--no-instructions", "-D"])
        .arg(data_dir)
        .current_dir("/");
    run(user.apply(&mut command))?;
    fs::OpenOptions::new()
        .append(true)
        .open(data_dir.join("postgresql.conf"))
        .and_then(|mut file| writeln!(file, "include_if_exists = '{SETTINGS_FILE}'"))
        .context("could not write postgresql.conf")
}

/// Runs `command` to its end; its output is the error's text.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("could not run {program}"))?;
    if !output.status.success() {
        bail!(
            "{program} failed ({}):\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
