//! What the server's log may not say.
use super::plan::{Fault, Plan};

/// With the SQLSTATE in front of each message.
pub const PREFIX: &str = "%m [%p] %e ";

/// Lines that must not be there, whatever was done to the server from outside.
pub fn problems(log: &str, plan: &Plan) -> Vec<String> {
    let full = plan.has(Fault::DiskFull);
    log.lines()
        .filter(|line| is_problem(line, full))
        .take(20)
        .map(|line| format!("the log says: {line}"))
        .collect()
}

/// A crash or an internal error that nobody has caused from outside.
pub fn is_problem(line: &str, disk_was_full: bool) -> bool {
    let crashed = line.contains("PANIC:") && !(disk_was_full && line.contains(" 53100 "));
    let killed = line
        .split_once("was terminated by signal ")
        .is_some_and(|(_, signal)| {
            !(signal.starts_with("9:") || disk_was_full && signal.starts_with("6:"))
        });
    // An immediate stop (postgres.c: quickdie) tells a session's client of it, although the session
    // may be about to end, and have closed the connection.
    let is_closed = line.ends_with("LOG:  could not send data to client: Bad file descriptor");
    let internal = [" XX000 ", " XX001 ", " XX002 ", "TRAP:", "panicked at"];
    crashed || killed || !is_closed && internal.iter().any(|text| line.contains(text))
}

#[cfg(test)]
mod tests {
    use super::is_problem;

    #[test]
    fn crashes_of_its_own_are_problems() {
        for line in [
            "2026 [1] XX000 ERROR:  cannot happen",
            "2026 [1] 00000 LOG:  server process (PID 7) was terminated by signal 11: Segmentation",
            "2026 [1] 58030 PANIC:  could not",
            "thread 'main' panicked at src/x.rs",
        ] {
            assert!(is_problem(line, false), "{line}");
        }
    }

    #[test]
    fn faults_from_outside_are_not() {
        let killed =
            "2026 [1] 00000 LOG:  server process (PID 7) was terminated by signal 9: Killed";
        let deadlock = "2026 [1] 40P01 ERROR:  deadlock detected";
        let full = "2026 [1] 53100 PANIC:  could not write to file: No space left on device";
        let closed = "2026 [1] XX000 LOG:  could not send data to client: Bad file descriptor";
        assert!(!is_problem(killed, false));
        assert!(!is_problem(closed, false));
        assert!(!is_problem(deadlock, false));
        assert!(!is_problem(full, true) && is_problem(full, false));
    }
}
