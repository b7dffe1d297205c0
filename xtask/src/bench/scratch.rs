//! A temporary folder that the server's user may write to.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

/// Removed when dropped.
pub struct Scratch(TempDir);

impl Scratch {
    /// In memory where there is such a place: what is written here must not share the disk with
    /// the WAL that is being measured.
    pub fn new() -> anyhow::Result<Self> {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = tempfile::Builder::new().prefix("txn-bench-").tempdir_in(parent)?;
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777))?;
        Ok(Self(folder))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}
