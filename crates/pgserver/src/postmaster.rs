//! The file in which a running server says who and where it is.
use std::fs;
use std::path::{Path, PathBuf};

use crate::process;

/// What `postmaster.pid` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostmasterFile {
    pub pid: i32,
    pub port: u16,
    pub socket_dir: PathBuf,
    /// It takes connections.
    pub ready: bool,
}

impl PostmasterFile {
    /// Reads the file of `data_dir`; `None` when it is not there or not complete yet.
    pub fn read(data_dir: &Path) -> Option<Self> {
        parse(&fs::read_to_string(data_dir.join("postmaster.pid")).ok()?)
    }

    /// Whether its process still runs; after a crash the file stays behind.
    pub fn is_alive(&self) -> bool {
        process::exists(self.pid)
    }
}

/// The lines are: pid, data folder, start time, port, socket folder, address, shared memory,
/// state (src/include/utils/pidfile.h).
fn parse(text: &str) -> Option<PostmasterFile> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let state = lines.get(7).copied().unwrap_or_default();
    Some(PostmasterFile {
        pid: lines.first()?.parse().ok()?,
        port: lines.get(3)?.parse().ok()?,
        socket_dir: PathBuf::from(lines.get(4)?),
        ready: matches!(state, "ready" | "standby"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_is_the_last_line() {
        let text = "4711\n/tmp/x/data\n1700000000\n5432\n/tmp/x\n\n 1234 5\n";
        let starting = parse(text).unwrap();
        assert_eq!(
            (starting.pid, starting.port, starting.ready),
            (4711, 5432, false)
        );
        assert!(parse(&format!("{text}ready   \n")).unwrap().ready);
        assert!(parse(&format!("{text}standby \n")).unwrap().ready);
        assert!(!parse(&format!("{text}stopping\n")).unwrap().ready);
    }

    #[test]
    fn a_file_in_the_making_is_no_server() {
        assert_eq!(parse(""), None);
        assert_eq!(parse("4711\n/tmp/x/data\n"), None);
    }
}
