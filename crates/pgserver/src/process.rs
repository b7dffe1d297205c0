//! Signals, and the processes of a server as the kernel lists them.
use std::fs;
use std::io;

use anyhow::{Context, Result};

/// Sends `signal` to the process `pid`.
pub fn signal(pid: i32, signal: i32) -> Result<()> {
    // SAFETY: kill takes plain numbers; `pid` is positive, so it addresses one process.
    let status = unsafe { libc::kill(pid, signal) };
    if status != 0 {
        return Err(io::Error::last_os_error())
            .with_context(|| format!("could not send signal {signal} to process {pid}"));
    }
    Ok(())
}

/// Whether there is a process `pid`, ours or not, that is more than a zombie.
pub fn exists(pid: i32) -> bool {
    // SAFETY: kill takes plain numbers; signal 0 only asks.
    let status = unsafe { libc::kill(pid, 0) };
    let listed = status == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
    listed && stat(pid).is_none_or(|stat| stat.state != 'Z')
}

/// One process, told from a later one with the same number by when it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    started: u64,
}

impl Process {
    /// Whether it is still there and more than a zombie.
    pub fn runs(&self) -> bool {
        stat(self.pid).is_some_and(|now| now.started == self.started && now.state != 'Z')
    }
}

/// The processes whose parent is `pid`.
pub fn children(pid: i32) -> Result<Vec<Process>> {
    let entries = fs::read_dir("/proc")
        .context("could not list the server's processes: this needs Linux's /proc")?;
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|child| stat(child).map(|stat| (child, stat)))
        .filter(|(_, stat)| stat.parent == pid)
        .map(|(child, stat)| Process {
            pid: child,
            started: stat.started,
        })
        .collect())
}

struct Stat {
    state: char,
    parent: i32,
    started: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Fields 3, 4 and 22 of proc(5); the name before them may itself contain blanks and brackets.
fn parse_stat(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_brackets_do_not_shift_the_fields() {
        let line = "77 (post) (gres) S 12 77 77 0 -1 4 1 0 0 0 1 2 0 0 20 0 1 0 999 1 1";
        let stat = parse_stat(line).unwrap();
        assert_eq!((stat.state, stat.parent, stat.started), ('S', 12, 999));
    }

    #[test]
    fn a_child_is_listed_and_then_gone() {
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let me = std::process::id() as i32;
        let found = children(me).unwrap();
        let found = found
            .iter()
            .find(|process| process.pid == child.id() as i32)
            .unwrap();
        assert!(found.runs());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!found.runs());
    }
}
