//! The data folder that a server leaves to the next one.
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use anyhow::{Result, ensure};

use super::{Server, StopMode};
use crate::install::PgInstall;
use crate::mirror::tests::tree;
use crate::options::ServerOptions;
use crate::pool;
use crate::template;
use crate::user::ServerUser;

/// Leaves traces of all kinds.
const WRITE: [&str; 3] = [
    "CREATE TABLE t AS SELECT a, 'some text' FROM generate_series(1, 100000) a; \
     CREATE INDEX ON t (a); CREATE ROLE somebody; CREATE VIEW v AS SELECT * FROM t; \
     COMMENT ON DATABASE postgres IS 'no longer new'; ALTER SYSTEM SET work_mem = '8MB'",
    "CREATE DATABASE other",
    "VACUUM FULL pg_class; VACUUM FREEZE; SELECT pg_switch_wal(); CHECKPOINT; \
     SELECT pg_create_physical_replication_slot('slot', true); \
     BEGIN; INSERT INTO t VALUES (0, 'prepared'); PREPARE TRANSACTION 'p'",
];

fn inode(path: &Path) -> Result<u64> {
    Ok(fs::metadata(path)?.ino())
}

fn start(install: &PgInstall) -> Result<Server> {
    let options = ServerOptions::stock().set("shared_buffers", "16MB");
    Server::start(install, options.set("max_prepared_transactions", 2))
}

#[test]
fn the_next_server_finds_a_fresh_folder() -> Result<()> {
    let install = PgInstall::from_env()?;
    let user = ServerUser::choose()?;
    let template = template::template(&install, &user)?;
    let fresh = tree(&template);
    for end in [None, Some(StopMode::Fast), Some(StopMode::Immediate)] {
        let mut server = start(&install)?;
        for sql in WRITE {
            server.psql(sql)?;
        }
        let data = server.data_dir().to_owned();
        symlink("/tmp", data.join("pg_tblspc/1"))?;
        fs::write(data.join("pg_wal/archive_status/x.ready"), "")?;
        let (left, version) = (inode(&data)?, inode(&data.join("PG_VERSION"))?);
        if let Some(mode) = end {
            server.stop(mode)?;
        }
        drop(server);
        assert!(!data.exists());

        let folder = user.private_folder(100)?;
        template::fill(&install, &user, &folder)?;
        assert_eq!(inode(&folder)?, left, "another folder");
        assert_ne!(inode(&folder.join("PG_VERSION"))?, version);
        assert!(tree(&folder) == fresh, "after {end:?}");

        template::recycle(&install, &user, &folder)?;
        let server = start(&install)?;
        assert_eq!(inode(server.data_dir())?, left, "another folder");
        let found = "SELECT count(*) FROM pg_class WHERE relname IN ('t', 'v'); \
                     SELECT count(*) FROM pg_database; SELECT count(*) FROM pg_prepared_xacts; \
                     SELECT count(*) FROM pg_replication_slots; SHOW work_mem";
        assert_eq!(server.psql(found)?, "0\n3\n0\n0\n4MB\n");
        let log = server.log()?;
        ensure!(!log.contains("not properly shut down"), "{log}");
    }
    // After a kill nobody knows whether its processes are gone.
    let mut server = start(&install)?;
    server.kill9()?;
    drop(server);
    let folder = tempfile::tempdir()?;
    assert!(!pool::take(&template, folder.path())?);
    Ok(())
}
