//! The user that runs the server. PostgreSQL refuses to run as root, so root hands over to an
//! unprivileged user. All other users run it as themselves.
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Users that may run the server when we are root, the first that exists is taken.
const CANDIDATES: [&str; 2] = ["postgres", "nobody"];

/// The user that runs the server and its tools.
#[derive(Clone, Debug)]
pub struct ServerUser {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    /// Whether that is another user than ours.
    switch: bool,
}

pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

impl ServerUser {
    /// Ourselves, or `postgres` or `nobody` when we are root. Error when neither exists.
    pub fn choose() -> Result<Self> {
        if !is_root() {
            // SAFETY: geteuid and getegid have no preconditions and cannot fail.
            let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
            let name = std::env::var("USER").unwrap_or_else(|_| format!("uid {uid}"));
            return Ok(ServerUser {
                name,
                uid,
                gid,
                switch: false,
            });
        }
        for name in CANDIDATES {
            if let Some((uid, gid)) = lookup(name)
                && uid != 0
            {
                return Ok(ServerUser {
                    name: name.to_owned(),
                    uid,
                    gid,
                    switch: true,
                });
            }
        }
        bail!(
            "PostgreSQL refuses to run as root and this machine has neither a user \"postgres\" \
             nor \"nobody\" to run it: create one (useradd --system postgres)"
        )
    }

    /// Makes `command` run as this user.
    pub fn apply<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        if self.switch {
            // As root, std also empties the list of supplementary groups.
            command.uid(self.uid).gid(self.gid);
        }
        command
    }

    /// Makes this user the owner of the file or folder `path`.
    pub fn own(&self, path: &Path) -> Result<()> {
        if self.switch {
            chown(path, Some(self.uid), Some(self.gid)).with_context(|| {
                format!(
                    "could not make {} the owner of {}",
                    self.name,
                    path.display()
                )
            })?;
        }
        Ok(())
    }

    /// A new folder of this user, with a path of at most `longest` bytes, in a temporary folder
    /// that he can reach.
    pub(crate) fn private_folder(&self, longest: usize) -> Result<PathBuf> {
        let places = [
            std::env::temp_dir(),
            PathBuf::from("/tmp"),
            PathBuf::from("/var/tmp"),
        ];
        let fits = |place: &&PathBuf| {
            place.is_dir()
                && place.as_os_str().len() + "/txn-123456".len() <= longest
                && self.can_reach(place)
        };
        let place = places.iter().find(fits).with_context(|| {
            format!(
                "user \"{}\" can reach none of the temporary folders {places:?}",
                self.name
            )
        })?;
        let folder = tempfile::Builder::new()
            .prefix("txn-")
            .tempdir_in(place)
            .with_context(|| format!("could not create a folder in {}", place.display()))?
            .keep();
        self.own(&folder)?;
        Ok(folder)
    }

    /// Whether this user gets through every folder from the root to `path`.
    pub fn can_reach(&self, path: &Path) -> bool {
        !self.switch
            || path.ancestors().all(|part| match fs::metadata(part) {
                Ok(data) => {
                    !data.is_dir()
                        || data.mode() & 0o001 != 0
                        || data.uid() == self.uid && data.mode() & 0o100 != 0
                        || data.gid() == self.gid && data.mode() & 0o010 != 0
                }
                Err(_) => false,
            })
    }

    /// Error that says what to do unless this user gets through to `path`.
    pub fn check_reach(&self, path: &Path) -> Result<()> {
        if !self.can_reach(path) {
            bail!(
                "the server runs as user \"{}\", who cannot reach {}: make every folder of that \
                 path searchable for all users (chmod o+x), or choose another place (TXN_CACHE \
                 for the cache, --pg-config for PostgreSQL)",
                self.name,
                path.display()
            );
        }
        Ok(())
    }
}

/// User and group id of `name`, if there is such a user.
fn lookup(name: &str) -> Option<(u32, u32)> {
    let name = CString::new(name).ok()?;
    let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
    let mut buffer = vec![0; 16 * 1024];
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are valid for the call and the buffer's length is its own.
    let status = unsafe {
        libc::getpwnam_r(
            name.as_ptr(),
            entry.as_mut_ptr(),
            buffer.as_mut_ptr(),
            buffer.len(),
            &mut found,
        )
    };
    if status != 0 || found.is_null() {
        return None;
    }
    // SAFETY: a non-null result says that getpwnam_r has filled `entry`.
    let entry = unsafe { entry.assume_init() };
    Some((entry.pw_uid, entry.pw_gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_and_invented_users_are_not() {
        assert_eq!(lookup("root").map(|ids| ids.0), Some(0));
        assert_eq!(lookup("no such user"), None);
    }

    #[test]
    fn another_user_is_stopped_by_a_private_folder() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let other = ServerUser {
            name: "other".into(),
            uid: 4711,
            gid: 4711,
            switch: true,
        };
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(other.can_reach(folder.path()));
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(!other.can_reach(folder.path()));
        assert!(!other.can_reach(&folder.path().join("missing")));
    }
}
