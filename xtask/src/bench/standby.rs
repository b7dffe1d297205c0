//! A synchronous standby on the same machine.

use anyhow::{Context, ensure};
use pgserver::{PgInstall, Server, ServerOptions};
use postgres::Client;

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
    // From here on commits wait, so this returns when the standby has caught up.
    control
        .batch_execute("SELECT pg_sleep(0.2); CREATE TABLE standby_is_there ()")
        .context("waiting for the standby to catch up")?;
    let state = control
        .query_one(
            "SELECT coalesce(max(sync_state), 'absent') FROM pg_stat_replication",
            &[],
        )?
        .get::<_, String>(0);
    ensure!(
        state == "sync",
        "the standby is {state}, not synchronous:\n{}",
        standby.log()?
    );
    Ok(standby)
}
