//! A synchronous standby on the same machine.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use pgserver::{PgInstall, Server, ServerOptions};
use postgres::Client;

/// How long the standby may take to catch up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Copies `primary`, starts the copy as its standby with the same `options`, and makes the
/// primary's commits wait for it. The copy lives in the primary's folder: drop it first.
pub fn attach(
    install: &PgInstall,
    primary: &Server,
    control: &mut Client,
    options: ServerOptions,
) -> anyhow::Result<Server> {
    let folder = primary.data_dir().with_file_name("standby");
    let copy = primary
        .command("pg_basebackup")
        .args([
            "--write-recovery-conf",
            "--checkpoint=fast",
            "--no-sync",
            "--pgdata",
        ])
        .arg(&folder)
        .output()?;
    ensure!(
        copy.status.success(),
        "could not copy the server for its standby: {}",
        String::from_utf8_lossy(&copy.stderr).trim_end()
    );
    let options = ServerOptions {
        create_extension: false,
        data_dir: Some(folder.clone()),
        ..options
    };
    let standby = Server::start(install, options).context("starting the standby")?;
    control.batch_execute("ALTER SYSTEM SET synchronous_standby_names = '*'")?;
    primary.reload()?;
    wait_until_synchronous(control)
        .with_context(|| format!("the standby's log:\n{}", standby.log().unwrap_or_default()))?;
    Ok(standby)
}

/// Waits until the standby has caught up and the primary's commits wait for it.
fn wait_until_synchronous(control: &mut Client) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        let state: String = control
            .query_one(
                "SELECT coalesce(max(sync_state), 'absent') FROM pg_stat_replication",
                &[],
            )?
            .get(0);
        if state == "sync" {
            return Ok(());
        }
        ensure!(
            Instant::now() < end,
            "the standby is {state}, not synchronous"
        );
        sleep(Duration::from_millis(50));
    }
}
