//! Data folders of servers that are gone, for the next ones of this process.
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;

use crate::guard::Guard;
use crate::mirror::make_equal;
use crate::user::ServerUser;

/// So many folders are kept: those of the servers of a few tests.
const ROOM: usize = 8;

static POOL: Mutex<Option<Pool>> = Mutex::new(None);

struct Pool {
    /// A private folder with the data folders in it.
    home: PathBuf,
    /// Removes it when this process ends in any way.
    _guard: Guard,
    /// Each with the template to which it is equal.
    free: Vec<(PathBuf, PathBuf)>,
    /// Numbers given to folders up to now.
    last: u64,
}

/// Puts a folder that is equal to `template` into the place of the empty folder `to`, if one is
/// left.
pub(crate) fn take(template: &Path, to: &Path) -> Result<bool> {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(pool) = pool.as_mut() else {
        return Ok(false);
    };
    // The one that came last, which is in memory.
    let found = pool.free.iter().rposition(|(of, _)| of == template);
    let Some((_, folder)) = found.map(|place| pool.free.remove(place)) else {
        return Ok(false);
    };
    fs::rename(folder, to)?;
    Ok(true)
}

/// Takes the data folder `from` away, unless there are enough of them, and makes it equal to
/// `template`. No server and no process of one uses it any more.
pub(crate) fn give(user: &ServerUser, template: &Path, from: &Path) -> Result<()> {
    let folder = {
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = match &mut *pool {
            Some(pool) => pool,
            none => none.insert(Pool::new(user)?),
        };
        if pool.free.len() >= ROOM {
            return Ok(());
        }
        pool.last += 1;
        pool.home.join(pool.last.to_string())
    };
    fs::rename(from, &folder)?;
    // Now rather than for the next server: what a test has written goes at once, and not to disk.
    let equal = renew(template, &folder);
    if let Err(error) = equal {
        let _ = fs::remove_dir_all(&folder);
        return Err(error.into());
    }
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = pool.as_mut() {
        pool.free.push((template.to_owned(), folder));
    }
    Ok(())
}

/// Makes `folder` equal to `template`, with a new `PG_VERSION`: by the inode of that file the
/// library tells a server from a copy of it.
fn renew(template: &Path, folder: &Path) -> std::io::Result<()> {
    let old = folder.with_extension("old");
    fs::rename(folder.join("PG_VERSION"), &old)?;
    make_equal(template, folder)?;
    // Not before: the new file would perhaps get its inode.
    fs::remove_file(old)
}

impl Pool {
    fn new(user: &ServerUser) -> Result<Self> {
        let home = user.private_folder(usize::MAX)?;
        Ok(Pool {
            _guard: Guard::of_folder(user, &home)?,
            home,
            free: Vec::new(),
            last: 0,
        })
    }
}
