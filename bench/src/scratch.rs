//! A temporary folder of the user that runs servers and load generators.

use std::path::Path;

use pgserver::ServerUser;
use tempfile::TempDir;

/// Removed when dropped.
pub struct Scratch(TempDir);

impl Scratch {
    /// In memory where there is such a place: what is written here must not share the disk with
    /// the WAL that is being measured.
    pub fn new(user: &ServerUser) -> anyhow::Result<Self> {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        Self::within(&parent, user)
    }

    /// For data whose flushes to disk are what is measured.
    pub fn on_disk(user: &ServerUser) -> anyhow::Result<Self> {
        Self::within(&std::env::temp_dir(), user)
    }

    fn within(parent: &Path, user: &ServerUser) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("txn-bench-")
            .tempdir_in(parent)?;
        user.own(folder.path())?;
        Ok(Self(folder))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}
