//! A fresh data folder. `initdb` runs once for each PostgreSQL and user, and so does CREATE
//! EXTENSION for each version of its scripts; servers get copies, or what an earlier one of this
//! process has left, made equal to it.
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::cache::{cache_dir, lock_file, make_readable_dir};
use crate::install::PgInstall;
use crate::options::{Content, EXTENSION};
use crate::pool;
use crate::user::ServerUser;

/// The file of our settings in the data folder, included at the end of postgresql.conf.
pub(crate) const SETTINGS_FILE: &str = "server.conf";

/// Fills the empty folder `data_dir`, which `user` owns.
pub(crate) fn fill(
    install: &PgInstall,
    user: &ServerUser,
    content: &Content,
    data_dir: &Path,
) -> Result<()> {
    let template = template(install, user, content)?;
    match pool::take(&template, data_dir)? {
        true => Ok(()),
        false => copy_data(user, &template, data_dir),
    }
}

/// Takes away the data folder of a server that is gone, for the next `fill`.
pub(crate) fn recycle(
    install: &PgInstall,
    user: &ServerUser,
    content: &Content,
    data_dir: &Path,
) -> Result<()> {
    pool::give(user, &template(install, user, content)?, data_dir)
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
pub(crate) fn template(
    install: &PgInstall,
    user: &ServerUser,
    content: &Content,
) -> Result<PathBuf> {
    user.check_reach(&install.required("initdb")?)?;
    let mut place = DefaultHasher::new();
    install.bindir.hash(&mut place);
    let name = format!(
        "template-{}-{:08x}-{}",
        install.version,
        place.finish() as u32,
        user.uid
    );
    let plain = made(&name, user, |folder| initdb(install, user, folder))?;
    let Content::Extension { library_dir } = content else {
        return Ok(plain);
    };
    let name = format!("{name}-{EXTENSION}-{:016x}", scripts(install)?);
    made(&name, user, |folder| {
        copy_data(user, &plain, folder)?;
        create_extension(install, user, folder, library_dir.as_deref())
    })
}

/// The template of that name. `make` fills its empty folder, which `user` owns, if it is not there.
fn made(name: &str, user: &ServerUser, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let folder = cache_dir().join("templates");
    make_readable_dir(&folder)?;
    let template = folder.join(name);
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
    make(&unfinished)?;
    fs::rename(&unfinished, &template)
        .with_context(|| format!("could not create {}", template.display()))?;
    Ok(template)
}

/// A hash of the extension's control file and scripts.
fn scripts(install: &PgInstall) -> Result<u64> {
    let folder = install.extension_dir();
    let read = || -> std::io::Result<u64> {
        let mut files: Vec<PathBuf> = fs::read_dir(&folder)?
            .map(|entry| Ok(entry?.path()))
            .collect::<std::io::Result<_>>()?;
        let is_its = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| {
                name.strip_prefix(EXTENSION)
                    .is_some_and(|rest| rest.starts_with(['.', '-']))
            })
        };
        files.retain(is_its);
        files.sort();
        let mut hash = DefaultHasher::new();
        for file in files {
            file.file_name().hash(&mut hash);
            fs::read(&file)?.hash(&mut hash);
        }
        Ok(hash.finish())
    };
    read().with_context(|| format!("could not read {}", folder.display()))
}

/// Creates the extension on the data of a stopped server, in the database `postgres`.
fn create_extension(
    install: &PgInstall,
    user: &ServerUser,
    data_dir: &Path,
    library_dir: Option<&Path>,
) -> Result<()> {
    let mut command = Command::new(install.required("postgres")?);
    command
        .args(["--single", "-c", "fsync=off", "-c"])
        .arg(format!("shared_preload_libraries={EXTENSION}"));
    if let Some(folder) = library_dir {
        let path = format!("dynamic_library_path={}:$libdir", folder.display());
        command.args(["-c", &path]);
    }
    command.arg("-D").arg(data_dir).arg("postgres");
    let mut server = user
        .apply(&mut command)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("could not run postgres")?;
    let mut stdin = server.stdin.take().context("postgres has no input")?;
    writeln!(stdin, "CREATE EXTENSION {EXTENSION}").context("postgres takes no input")?;
    drop(stdin);
    let output = server
        .wait_with_output()
        .context("postgres has no output")?;
    // It goes on after an error.
    let told = String::from_utf8_lossy(&output.stderr);
    if !output.status.success()
        || ["ERROR", "FATAL", "PANIC"]
            .iter()
            .any(|word| told.contains(word))
    {
        bail!(
            "could not create the extension {EXTENSION} ({}):\n{told}",
            output.status
        );
    }
    Ok(())
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
