//! Makes a folder equal to another one, with as little writing as possible.
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{
    DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown,
};
use std::path::Path;

/// So much of two files is read at a time, and written where they differ.
const PIECE: usize = 128 << 10;
const BLOCK: usize = 8 << 10;
const MODE: u32 = 0o7777;

/// Makes the folder `to` equal to `from`, which holds files and folders only: names, contents,
/// owners and modes. Nobody else may change either of them meanwhile. Contents are compared, not
/// times, so nothing that was ever written to `to` stays. Symbolic links in `to` are removed, not
/// followed; after an error `to` may be anything.
pub(crate) fn make_equal(from: &Path, to: &Path) -> io::Result<()> {
    let pieces = &mut Pieces {
        wanted: vec![0; PIECE],
        found: vec![0; PIECE],
    };
    let (wanted, found) = (fs::symlink_metadata(from)?, fs::symlink_metadata(to)?);
    if !fits(&wanted, &found) {
        return Err(other(to, "is not what it has to be"));
    }
    folder(from, to, pieces)
}

struct Pieces {
    wanted: Vec<u8>,
    found: Vec<u8>,
}

/// Makes two folders equal whose own owner and mode agree.
fn folder(from: &Path, to: &Path, pieces: &mut Pieces) -> io::Result<()> {
    let wanted = list(from)?;
    let mut found = list(to)?;
    for (name, entry) in &found {
        if !wanted.get(name).is_some_and(|wanted| fits(wanted, entry)) {
            remove(&to.join(name), entry)?;
        }
    }
    found.retain(|name, entry| wanted.get(name).is_some_and(|wanted| fits(wanted, entry)));
    for (name, wanted) in &wanted {
        let (from, to) = (from.join(name), to.join(name));
        let found = found.get(name);
        if wanted.is_dir() {
            if found.is_none() {
                fs::DirBuilder::new().mode(0o700).create(&to)?;
                own(&File::open(&to)?, wanted)?;
            }
            folder(&from, &to, pieces)?;
        } else if wanted.is_file() {
            match found {
                Some(found) if wanted.len() == 0 && found.len() == 0 => (),
                Some(_) => content(&from, &open(&to, false)?, pieces)?,
                None => {
                    let new = open(&to, true)?;
                    own(&new, wanted)?;
                    content(&from, &new, pieces)?;
                }
            }
        } else {
            return Err(other(&from, "is neither a file nor a folder"));
        }
    }
    Ok(())
}

/// What is in `folder`, not looking through symbolic links.
fn list(folder: &Path) -> io::Result<BTreeMap<OsString, Metadata>> {
    fs::read_dir(folder)?
        .map(|entry| entry.and_then(|entry| Ok((entry.file_name(), entry.metadata()?))))
        .collect()
}

/// Whether `found` needs no more than other contents. A file with a second name does: that may be
/// anywhere.
fn fits(wanted: &Metadata, found: &Metadata) -> bool {
    let same_kind = match wanted.is_dir() {
        true => found.is_dir(),
        false => found.is_file() && found.nlink() == 1,
    };
    let of = |data: &Metadata| (data.uid(), data.gid(), data.mode() & MODE);
    same_kind && of(wanted) == of(found)
}

fn remove(path: &Path, entry: &Metadata) -> io::Result<()> {
    match entry.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

fn open(path: &Path, new: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(new)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

/// Gives a new file or folder the owner and mode of `wanted`.
fn own(new: &File, wanted: &Metadata) -> io::Result<()> {
    let now = new.metadata()?;
    if (now.uid(), now.gid()) != (wanted.uid(), wanted.gid()) {
        fchown(new, Some(wanted.uid()), Some(wanted.gid()))?;
    }
    new.set_permissions(Permissions::from_mode(wanted.mode() & MODE))
}

/// Writes to `to` what is different in the file `from`.
fn content(from: &Path, to: &File, pieces: &mut Pieces) -> io::Result<()> {
    let mut from = File::open(from)?;
    let mut place = 0;
    loop {
        let wanted = fill(&mut pieces.wanted, |rest, _| from.read(rest))?;
        let wanted = &pieces.wanted[..wanted];
        let found = fill(&mut pieces.found[..wanted.len()], |rest, done| {
            to.read_at(rest, place + done as u64)
        })?;
        let mut found = pieces.found[..found].chunks(BLOCK);
        for block in wanted.chunks(BLOCK) {
            if found.next() != Some(block) {
                to.write_all_at(block, place)?;
            }
            place += block.len() as u64;
        }
        if wanted.len() < PIECE {
            break;
        }
    }
    if to.metadata()?.len() != place {
        to.set_len(place)?;
    }
    Ok(())
}

/// Reads until `buffer` is full or the file ends. `read` is told how much there is already.
fn fill(
    buffer: &mut [u8],
    mut read: impl FnMut(&mut [u8], usize) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match read(&mut buffer[done..], done) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn other(path: &Path, what: &str) -> io::Error {
    io::Error::other(format!("{} {what}", path.display()))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::{chown, symlink};
    use std::process::{Command, Stdio};

    use super::*;
    use crate::user::is_root;

    /// What `tar` finds in `folder`: names, contents, owners and modes, but no times.
    pub(crate) fn tree(folder: &Path) -> Vec<u8> {
        let mut tar = Command::new("tar");
        tar.args(["--create", "--sort=name", "--mtime=@0", "--directory"]);
        let output = tar.arg(folder).arg(".").stderr(Stdio::inherit()).output();
        let output = output.unwrap();
        assert!(output.status.success());
        output.stdout
    }

    fn write(path: impl AsRef<Path>, text: &str) {
        fs::write(path, text).unwrap();
    }

    fn set_mode(path: impl AsRef<Path>, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// A folder with `from`, an equal `to` and an `outside`.
    fn scene() -> tempfile::TempDir {
        let scene = tempfile::tempdir().unwrap();
        let path = |name: &str| scene.path().join(name);
        for folder in ["from", "from/base", "from/base/1", "from/empty", "outside"] {
            fs::create_dir(path(folder)).unwrap();
        }
        write(path("from/a"), "some text");
        write(path("from/nothing"), "");
        write(path("from/base/1/small"), &"x".repeat(BLOCK));
        write(path("from/base/1/large"), &"y".repeat(3 * PIECE + 1));
        write(path("outside/mine"), "stays");
        set_mode(path("from/a"), 0o640);
        set_mode(path("from/empty"), 0o700);
        fs::create_dir(path("to")).unwrap();
        make_equal(&path("from"), &path("to")).unwrap();
        assert!(tree(&path("from")) == tree(&path("to")));
        scene
    }

    /// What `change` does to `to` is undone, and `outside` stays as it is.
    #[track_caller]
    fn undone(change: impl Fn(&Path)) {
        let scene = scene();
        let [from, to, outside] = ["from", "to", "outside"].map(|name| scene.path().join(name));
        change(&to);
        let before = (tree(&from), tree(&outside));
        assert!(tree(&to) != before.0, "nothing has changed");
        make_equal(&from, &to).unwrap();
        assert!(tree(&to) == before.0);
        assert!((tree(&from), tree(&outside)) == before);
    }

    #[test]
    fn other_contents() {
        undone(|to| write(to.join("a"), "same size"));
        undone(|to| write(to.join("a"), "some"));
        undone(|to| write(to.join("a"), ""));
        undone(|to| write(to.join("a"), "some text, and more"));
        undone(|to| write(to.join("nothing"), "something"));
        undone(|to| write(to.join("base/1/small"), &"x".repeat(PIECE)));
        for place in [0, BLOCK as u64, PIECE as u64 - 1, 3 * PIECE as u64] {
            undone(|to| {
                let large = open(&to.join("base/1/large"), false).unwrap();
                large.write_all_at(b"?", place).unwrap();
            });
            undone(|to| {
                let large = open(&to.join("base/1/large"), false).unwrap();
                large.set_len(place).unwrap();
            });
        }
    }

    #[test]
    fn times_tell_nothing() {
        undone(|to| {
            let path = to.join("a");
            let modified = fs::metadata(&path).unwrap().modified().unwrap();
            write(&path, "same size");
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(modified).unwrap();
        });
    }

    #[test]
    fn files_and_folders_too_many_or_missing() {
        undone(|to| write(to.join("base/new"), "new"));
        undone(|to| {
            fs::create_dir_all(to.join("new/folder")).unwrap();
            write(to.join("new/folder/file"), "new");
        });
        undone(|to| fs::remove_file(to.join("base/1/large")).unwrap());
        undone(|to| fs::remove_dir(to.join("empty")).unwrap());
        undone(|to| fs::remove_dir_all(to.join("base")).unwrap());
    }

    #[test]
    fn other_kinds_and_modes() {
        undone(|to| {
            fs::remove_file(to.join("a")).unwrap();
            fs::create_dir(to.join("a")).unwrap();
            write(to.join("a/b"), "below");
        });
        undone(|to| {
            fs::remove_dir_all(to.join("base")).unwrap();
            write(to.join("base"), "a file");
        });
        undone(|to| set_mode(to.join("a"), 0o600));
        undone(|to| set_mode(to.join("base/1"), 0o711));
        if is_root() {
            undone(|to| chown(to.join("a"), Some(1), None).unwrap());
            undone(|to| chown(to.join("base"), None, Some(1)).unwrap());
        }
        undone(|to| {
            let name = to.join("a").into_os_string().into_string().unwrap();
            fs::remove_file(&name).unwrap();
            let made = Command::new("mkfifo").arg(&name).status().unwrap();
            assert!(made.success());
        });
    }

    #[test]
    fn other_names_for_files_outside() {
        for name in ["a", "new"] {
            undone(|to| {
                let _ = fs::remove_file(to.join(name));
                symlink("../outside/mine", to.join(name)).unwrap();
            });
            undone(|to| {
                let _ = fs::remove_file(to.join(name));
                fs::hard_link(to.join("../outside/mine"), to.join(name)).unwrap();
            });
        }
        for name in ["base", "new"] {
            undone(|to| {
                let _ = fs::remove_dir_all(to.join(name));
                symlink("../outside", to.join(name)).unwrap();
            });
        }
    }

    #[test]
    fn the_folders_themselves_have_to_fit() {
        let scene = scene();
        let [from, to, outside] = ["from", "to", "outside"].map(|name| scene.path().join(name));
        set_mode(&to, 0o711);
        assert!(make_equal(&from, &to).is_err());
        fs::remove_dir_all(&to).unwrap();
        symlink(&outside, &to).unwrap();
        assert!(make_equal(&from, &to).is_err());
        assert!(outside.join("mine").exists());
    }

    #[test]
    fn what_is_equal_is_not_written() {
        let scene = scene();
        let [from, to] = ["from", "to"].map(|name| scene.path().join(name));
        let changed = |file: &str| {
            let data = fs::metadata(to.join(file)).unwrap();
            (data.ino(), data.ctime(), data.ctime_nsec())
        };
        let before = ["a", "nothing", "base/1/large"].map(changed);
        std::thread::sleep(std::time::Duration::from_millis(50));
        make_equal(&from, &to).unwrap();
        assert_eq!(["a", "nothing", "base/1/large"].map(changed), before);
    }
}
