//! Where everything lives that is downloaded or built once.
use std::env;
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::user::is_root;

/// `TXN_CACHE`, else `/var/cache/txn` for root (other users must reach it) and the user's cache
/// folder for everybody else.
pub fn cache_dir() -> PathBuf {
    if let Some(dir) = env::var_os("TXN_CACHE").filter(|dir| !dir.is_empty()) {
        return std::path::absolute(&dir).unwrap_or_else(|_| PathBuf::from(dir));
    }
    if is_root() {
        return PathBuf::from("/var/cache/txn");
    }
    let set = |name| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(env::temp_dir)
        .join("txn")
}

/// Creates `dir` and its missing parents readable by every user, whatever the umask: the server
/// may run as another user than we do.
pub fn make_readable_dir(dir: &Path) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(parent) = dir.parent() {
        make_readable_dir(parent)?;
    }
    match fs::create_dir(dir) {
        Ok(()) => fs::set_permissions(dir, Permissions::from_mode(0o755))
            .with_context(|| format!("could not set the permissions of {}", dir.display())),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error).with_context(|| {
            format!(
                "could not create {}: set TXN_CACHE to a folder you may write",
                dir.display()
            )
        }),
    }
}

/// Opens and locks the file `path`; waits for another process that holds it. The lock lasts as
/// long as the returned file.
pub fn lock_file(path: &Path) -> Result<File> {
    if let Some(parent) = path.parent() {
        make_readable_dir(parent)?;
    }
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| format!("could not open the lock file {}", path.display()))?;
    file.lock()
        .with_context(|| format!("could not lock {}", path.display()))?;
    Ok(file)
}
