//! What the server's log may not say.
use super::plan::{Fault, Plan, ReplicaKind};

/// With the SQLSTATE in front of each message.
pub const PREFIX: &str = "%m [%p] %e ";

/// PostgreSQL's own error, also without txn, for an UPDATE of a row that somebody has locked FOR
/// KEY SHARE. A prepared transaction that has updated the row is being rolled back. heap_update
/// takes that one for aborted as soon as the commit log says so. MultiXactIdExpand takes it for
/// running until it has left the list of those. In between ROLLBACK PREPARED waits for the
/// synchronous standby (twophase.c: RecordTransactionAbortPrepared).
const OWN: &str = "new multixact has more than one updating member";

/// Whether a message is that error, in a load that may get it.
pub fn is_postgresqls_own(message: &str, plan: &Plan) -> bool {
    plan.replica == ReplicaKind::SynchronousStandby && message.contains(OWN)
}

/// Lines that must not be there, whatever was done to the server from outside.
pub fn problems(log: &str, plan: &Plan) -> Vec<String> {
    let full = plan.has(Fault::DiskFull);
    log.lines()
        .filter(|line| is_problem(line, full) && !is_postgresqls_own(line, plan))
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
    // It comes with the line of its error.
    let is_statement = line.contains("STATEMENT:  ");
    let internal = [" XX000 ", " XX001 ", " XX002 ", "TRAP:", "panicked at"];
    let is_internal = internal.iter().any(|text| line.contains(text));
    crashed || killed || is_internal && !is_closed && !is_statement
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn postgresqls_own_error_is_one_where_no_standby_is_waited_for() {
        let line = format!("2026 [1] XX000 ERROR:  {OWN}: 0 2[7 (nokeyupd), 8 (nokeyupd)]");
        let mut plan = Plan::draw(1, 1, 4, &[]);
        for replica in [ReplicaKind::Standby, ReplicaKind::SynchronousStandby] {
            plan.replica = replica;
            let is_exempt = replica == ReplicaKind::SynchronousStandby;
            assert_eq!(problems(&line, &plan).is_empty(), is_exempt);
        }
        assert_eq!(problems("2026 [1] XX000 ERROR:  another", &plan).len(), 1);
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
