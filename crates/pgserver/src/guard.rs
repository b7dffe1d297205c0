//! Cleans up after us. A shell of its own waits for the end of a pipe that only we hold open: it
//! ends when the server is dropped, and also when this process dies of a signal or `exit`, where
//! no `Drop` runs. Then the shell stops the server and removes its folder.
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use crate::install::PgInstall;
use crate::user::ServerUser;

/// $1: folder to remove or nothing, $2: data folder, $3: pg_ctl.
const SCRIPT: &str = r#"cat
if [ -e "$2/postmaster.pid" ]; then "$3" stop --silent --mode=immediate --timeout=60 -D "$2"; fi
if [ -n "$1" ]; then rm -rf "$1"; fi"#;

pub(crate) struct Guard(Child);

impl Guard {
    /// A guard of the server in `data_dir`, which removes `folder` in the end.
    pub(crate) fn new(
        install: &PgInstall,
        user: &ServerUser,
        data_dir: &Path,
        folder: Option<&Path>,
    ) -> Result<Self> {
        let pg_ctl = install.required("pg_ctl")?;
        let folder = folder.unwrap_or(Path::new(""));
        Self::start(user, &[folder, data_dir, &pg_ctl])
    }

    /// A guard that removes `folder`, where no server is.
    pub(crate) fn of_folder(user: &ServerUser, folder: &Path) -> Result<Self> {
        Self::start(user, &[folder])
    }

    fn start(user: &ServerUser, arguments: &[&Path]) -> Result<Self> {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", SCRIPT, "txn-guard"])
            .args(arguments)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C in a terminal reaches us, and through us the guard.
            .process_group(0);
        let child = user
            .apply(&mut command)
            .spawn()
            .context("could not start a shell")?;
        Ok(Guard(child))
    }

    /// Lets it work now and waits until it has.
    pub(crate) fn finish(mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
