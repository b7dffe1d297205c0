//! A disk that is full: WAL on a small file system in memory (for root only).
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use pgserver::{Server, ServerUser, StopMode};
use postgres::Client;

/// Room beside the WAL that is there already: three segments of 16 MB until the disk is full, and
/// what is cleared away then, in the file `RESERVE`.
const ROOM_MB: u64 = 128;
const RESERVE: &str = "reserve";
const RESERVE_MB: usize = 80;
/// Segments are not used again before the disk is full.
pub const SETTINGS: [(&str, &str); 3] = [
    ("max_wal_size", "1GB"),
    ("min_wal_size", "32MB"),
    ("checkpoint_timeout", "1h"),
];
/// Segments that may be there already, and have to be used up.
const SWITCHES: usize = 20;

/// `pg_wal` of a stopped server is there for as long as this lives, which has to end with it
/// stopped.
pub struct Disk {
    mounted: PathBuf,
    wal: PathBuf,
}

impl Disk {
    pub fn mount(data_dir: &Path, mounted: PathBuf) -> Result<Self> {
        fs::create_dir_all(&mounted)?;
        let [source, target] = [Path::new("tmpfs"), &mounted].map(c_string);
        let wal = data_dir.join("pg_wal");
        let options = format!("size={}m", megabytes(&wal)? + ROOM_MB);
        let options = c_string(Path::new(&options));
        // SAFETY: four strings that end in 0 and live through the call.
        let status = unsafe {
            libc::mount(
                source.as_ptr(),
                target.as_ptr(),
                source.as_ptr(),
                0,
                options.as_ptr().cast(),
            )
        };
        ensure!(
            status == 0,
            "only root can have a small disk: {}",
            io::Error::last_os_error()
        );
        let disk = Disk { mounted, wal };
        let inside = disk.mounted.join("pg_wal");
        copy(&disk.wal, &inside)?;
        ServerUser::choose()?.own(&disk.mounted)?;
        fs::remove_dir_all(&disk.wal)?;
        symlink(&inside, &disk.wal)?;
        fs::write(disk.mounted.join(RESERVE), vec![0; RESERVE_MB << 20])?;
        Ok(disk)
    }

    /// Fills it until the server has died of it, makes room, and starts the server again.
    pub fn fill_up(&self, server: &mut Server, control: &mut Client) -> Result<bool> {
        let path = self.mounted.join("full");
        let mut file = File::create(&path)?;
        while file.write_all(&[0; 65536]).is_ok() {}
        drop(file);
        let died = (0..SWITCHES).any(|_| {
            let switch = "SELECT pg_logical_emit_message(true, '', 'not empty'), pg_switch_wal()";
            control.batch_execute(switch).is_err()
        });
        fs::remove_file(&path)?;
        if died {
            fs::remove_file(self.mounted.join(RESERVE))?;
            // The recovery may have failed of it, too, and the server be gone.
            server.stop(StopMode::Immediate)?;
            server.start_again()?;
        }
        Ok(died)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let back =
            fs::remove_file(&self.wal).and_then(|()| copy(&self.mounted.join("pg_wal"), &self.wal));
        let target = c_string(&self.mounted);
        // SAFETY: a string that ends in 0.
        unsafe { libc::umount(target.as_ptr()) };
        if let Err(error) = back {
            eprintln!("{} could not be put back: {error}", self.wal.display());
        }
    }
}

fn c_string(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("our paths have no 0 in them")
}

/// The size of the files in `folder`, rounded up.
fn megabytes(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes.div_ceil(1 << 20))
}

/// With owners and modes.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let status = Command::new("cp").arg("-a").args([from, to]).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("cp -a failed ({status})"))),
    }
}
