//! A disk that is full: WAL on a small file system in memory (for root only).
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use pgserver::{Server, ServerUser, StopMode};
use postgres::Client;

/// Room for ten WAL segments of 16 MB.
const OPTIONS: &str = "size=160m";
/// Segments are not used again before the disk is full.
pub const SETTINGS: [(&str, &str); 3] = [
    ("max_wal_size", "1GB"),
    ("min_wal_size", "32MB"),
    ("checkpoint_timeout", "1h"),
];
/// Segments that may be there already, and have to be used up.
const SWITCHES: usize = 20;

/// `pg_wal` of a stopped server is there for as long as this lives, which has to end with it stopped.
pub struct Disk {
    mounted: PathBuf,
    wal: PathBuf,
}

impl Disk {
    pub fn mount(data_dir: &Path, mounted: PathBuf) -> Result<Self> {
        fs::create_dir_all(&mounted)?;
        let [source, target] = [Path::new("tmpfs"), &mounted].map(c_string);
        let options = c_string(Path::new(OPTIONS));
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
        let disk = Disk {
            wal: data_dir.join("pg_wal"),
            mounted,
        };
        let inside = disk.mounted.join("pg_wal");
        copy(&disk.wal, &inside)?;
        ServerUser::choose()?.own(&disk.mounted)?;
        fs::remove_dir_all(&disk.wal)?;
        std::os::unix::fs::symlink(&inside, &disk.wal)?;
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
        // The recovery that follows may have failed of it, too, and the server be gone.
        fs::remove_file(&path)?;
        server.stop(StopMode::Immediate)?;
        server.start_again()?;
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

/// With owners and modes.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let status = Command::new("cp").arg("-a").args([from, to]).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("cp -a failed ({status})"))),
    }
}
