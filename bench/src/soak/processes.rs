//! Memory and CPU time of a server's processes, as Linux's /proc tells them.

use std::fs;
use std::io::ErrorKind;
use std::ops::AddAssign;

use anyhow::{Context, Result, bail};
use pgserver::{Process, children};
use serde::Serialize;

/// Memory of one process or of several together, in kB. What n processes share counts as an n-th of
/// each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// All of it: Linux's "proportional set size".
    pub pss_kb: u64,
    /// Of that, private memory: heap and stack.
    pub private_kb: u64,
    /// Of that, shared memory: buffers, and the tables of server and extension.
    pub shared_kb: u64,
}

impl AddAssign for Memory {
    fn add_assign(&mut self, other: Self) {
        self.pss_kb += other.pss_kb;
        self.private_kb += other.private_kb;
        self.shared_kb += other.shared_kb;
    }
}

impl Memory {
    /// Of the process `pid`; None when it has ended.
    pub fn of(pid: i32) -> Result<Option<Self>> {
        let path = format!("/proc/{pid}/smaps_rollup");
        match fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text)
                .map(Some)
                .with_context(|| format!("could not understand {path}")),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("could not read {path}")),
        }
    }

    fn parse(text: &str) -> Result<Self> {
        let field = |name: &str| -> Result<u64> {
            let value = text.lines().find_map(|line| line.strip_prefix(name));
            let value = value.and_then(|value| value.trim().strip_suffix("kB"));
            let value = value.with_context(|| format!("it has no {name}"))?;
            Ok(value.trim().parse()?)
        };
        Ok(Self {
            pss_kb: field("Pss:")?,
            private_kb: field("Pss_Anon:")?,
            shared_kb: field("Pss_Shmem:")?,
        })
    }
}

/// The file of a process that has ended is not there, or has none while it ends.
fn is_gone(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// The processes of the server whose postmaster is `postmaster`, itself among them.
pub fn of_server(postmaster: i32) -> Result<Vec<i32>> {
    let children = children(postmaster)?;
    let children = children.iter().map(|Process { pid, .. }| *pid);
    Ok(std::iter::once(postmaster).chain(children).collect())
}

/// CPU time in seconds of the server whose postmaster is `postmaster`: of all its processes, those
/// that have ended included.
pub fn cpu_seconds(postmaster: i32) -> Result<f64> {
    const TRIES: usize = 100;
    for _ in 0..TRIES {
        let before = Ticks::of(postmaster)?.context("the postmaster has ended")?;
        let mut sum = before.own + before.ended;
        for child in children(postmaster)? {
            sum += Ticks::of(child.pid)?.map_or(0, |ticks| ticks.own);
        }
        // A child that has ended in between may be in the sum twice, or not at all.
        let after = Ticks::of(postmaster)?.context("the postmaster has ended")?;
        if after.ended == before.ended {
            return Ok(sum as f64 / ticks_per_second());
        }
    }
    bail!("processes of the server end too fast to add up their CPU time");
}

/// CPU time of a process, user and system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    own: u64,
    /// Of its children that have ended, and theirs.
    ended: u64,
}

impl Ticks {
    /// None when the process has ended.
    fn of(pid: i32) -> Result<Option<Self>> {
        let path = format!("/proc/{pid}/stat");
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(
                Self::parse(&text).with_context(|| format!("could not understand {path}"))?,
            )),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("could not read {path}")),
        }
    }

    /// Fields 14 to 17 of proc(5); the name before them may itself contain blanks and brackets.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
        let mut next = || fields.next()?.parse::<u64>().ok();
        Some(Self {
            own: next()? + next()?,
            ended: next()? + next()?,
        })
    }
}

fn ticks_per_second() -> f64 {
    // SAFETY: asks for a number.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_rollup() {
        let text = "55d0-7ffd ---p 00000000 00:00 0    [rollup]
Rss:               24052 kB
Pss:                8417 kB
Pss_Dirty:          3000 kB
Pss_Anon:           2101 kB
Pss_File:           1316 kB
Pss_Shmem:          5000 kB
";
        let memory = Memory::parse(text).unwrap();
        let expected = Memory {
            pss_kb: 8417,
            private_kb: 2101,
            shared_kb: 5000,
        };
        assert_eq!(memory, expected);
        assert!(Memory::parse("Pss: 1 kB\n").is_err());
    }

    #[test]
    fn ticks_of_a_process_whose_name_has_brackets() {
        let line = "77 (post) (gres) S 12 77 77 0 -1 4 1 0 0 0 1 2 30 40 20 0 1 0 999 1 1";
        assert_eq!(Ticks::parse(line), Some(Ticks { own: 3, ended: 70 }));
    }

    #[test]
    fn the_cpu_time_of_a_child_that_has_ended_stays() {
        let me = std::process::id() as i32;
        let before = cpu_seconds(me).unwrap();
        let status = std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done"])
            .status()
            .unwrap();
        assert!(status.success());
        assert!(cpu_seconds(me).unwrap() > before);
    }

    #[test]
    fn a_process_that_is_gone_has_no_memory() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        child.wait().unwrap();
        assert_eq!(Memory::of(pid).unwrap(), None);
        assert!(
            Memory::of(std::process::id() as i32)
                .unwrap()
                .unwrap()
                .private_kb
                > 0
        );
    }
}
