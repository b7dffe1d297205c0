//! The life of a server, without the extension: every way to end one and what is left behind.
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Result;
use pgserver::{PgInstall, PostmasterFile, Server, ServerOptions, StopMode};

fn stock() -> Result<Server> {
    Server::start(
        &PgInstall::from_env()?,
        ServerOptions::stock().set("shared_buffers", "16MB"),
    )
}

#[test]
fn a_dropped_server_leaves_nothing() -> Result<()> {
    let server = stock()?;
    let pid = server.postmaster_pid()?;
    let home = server.host().to_owned();
    assert_eq!(
        server.psql("SELECT 6 * 7; SHOW listen_addresses")?,
        "42\n\n"
    );
    assert!(
        server
            .psql("SELECT 1/0")
            .unwrap_err()
            .to_string()
            .contains("division by zero")
    );
    let file = PostmasterFile::read(server.data_dir()).expect("a running server has its file");
    assert!(file.is_alive() && file.ready && file.pid == pid);
    drop(server);
    assert!(!file.is_alive());
    assert!(!home.exists());
    Ok(())
}

#[test]
fn committed_rows_survive_every_stop() -> Result<()> {
    let mut server = stock()?;
    server.psql("CREATE TABLE t (a int)")?;
    let mut rows = 0;
    for mode in [StopMode::Smart, StopMode::Fast, StopMode::Immediate] {
        server.psql("INSERT INTO t VALUES (1)")?;
        rows += 1;
        server.stop(mode)?;
        assert!(server.connect().is_err());
        server.start_again()?;
        let found: i64 = server
            .connect()?
            .query_one("SELECT count(*) FROM t", &[])?
            .get(0);
        assert_eq!(found, rows, "after {mode:?}");
    }
    Ok(())
}

#[test]
fn a_killed_server_recovers() -> Result<()> {
    let mut server = stock()?;
    server.psql("CREATE TABLE t (a int)")?;
    let mut client = server.connect()?;
    client.batch_execute("INSERT INTO t VALUES (1)")?;
    client.batch_execute("BEGIN; INSERT INTO t VALUES (2)")?;
    server.kill9()?;
    assert!(client.batch_execute("COMMIT").is_err());
    server.start_again()?;
    assert_eq!(server.psql("SELECT a FROM t")?, "1\n");
    assert!(
        server
            .log()?
            .contains("database system was not properly shut down")
    );
    Ok(())
}

#[test]
fn a_failed_start_shows_the_log() -> Result<()> {
    let options = ServerOptions::stock().set("shared_preload_libraries", "no_such_library");
    let error = Server::start(&PgInstall::from_env()?, options)
        .err()
        .expect("it must fail");
    assert!(error.to_string().contains("no_such_library"), "{error:#}");
    Ok(())
}

#[test]
fn missing_library_is_told_before_the_start() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let options = ServerOptions {
        library_dir: Some(folder.path().to_owned()),
        ..ServerOptions::default()
    };
    let error = Server::start(&PgInstall::from_env()?, options)
        .err()
        .expect("it must fail");
    assert!(
        error.to_string().contains("the library folder"),
        "{error:#}"
    );
    Ok(())
}

/// Starts itself as another process, which starts a server after another one and is killed: no
/// `Drop` runs there.
#[test]
fn a_killed_owner_leaves_nothing() -> Result<()> {
    const ROLE: &str = "PGSERVER_TEST_OWNER";
    if let Some(report) = std::env::var_os(ROLE) {
        drop(stock()?);
        let server = stock()?;
        drop(stock()?);
        std::fs::write(report, server.data_dir().to_string_lossy().as_bytes())?;
        std::thread::park();
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let report = folder.path().join("data_dir");
    let places = tempfile::tempdir()?;
    std::fs::set_permissions(places.path(), Permissions::from_mode(0o777))?;
    let mut owner = Command::new(std::env::current_exe()?)
        .args(["--exact", "a_killed_owner_leaves_nothing"])
        .env(ROLE, &report)
        .env("TMPDIR", places.path())
        .stdout(Stdio::null())
        .spawn()?;
    let data_dir = loop {
        match std::fs::read_to_string(&report) {
            Ok(path) if !path.is_empty() => break PathBuf::from(path),
            _ => assert!(
                owner.try_wait()?.is_none(),
                "the owner ended without a server"
            ),
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    assert!(data_dir.starts_with(places.path()));
    let file = PostmasterFile::read(&data_dir).expect("a running server has its file");
    // The server's, and that of the folder which waits for the next one.
    assert_eq!(std::fs::read_dir(places.path())?.count(), 2);
    owner.kill()?;
    owner.wait()?;
    while std::fs::read_dir(places.path())?.count() > 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(!file.is_alive());
    Ok(())
}
