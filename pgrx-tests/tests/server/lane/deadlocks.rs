//! Deadlocks of declared transactions, over rows that they have not declared.

use anyhow::{Result, ensure};
use txn_server_tests::{Background, read, sqlstate, wait_until};

use super::{bank, declare, update};

/// What each of two has before it wants what the other one has. The first has declared account 1,
/// the second account 2.
struct Meeting {
    has: [&'static str; 2],
    wants: [&'static str; 2],
}

const THIRD: &str = "UPDATE account SET val = val + 1 WHERE id = 3";
const FOURTH: &str = "UPDATE account SET val = val + 1 WHERE id = 4";

const GONE: &str = "DELETE FROM account WHERE id = 1";
const GONE_2: &str = "DELETE FROM account WHERE id = 2";
const CHECK_1: &str = "SELECT FROM account WHERE id = 1 FOR KEY SHARE";
const CHECK_2: &str = "SELECT FROM account WHERE id = 2 FOR KEY SHARE";

const MEETINGS: [Meeting; 7] = [
    Meeting {
        has: [THIRD, FOURTH],
        wants: [FOURTH, THIRD],
    },
    Meeting {
        has: [THIRD, FOURTH],
        wants: [
            "SELECT FROM account WHERE id = 4 FOR UPDATE",
            "DELETE FROM account WHERE id = 3",
        ],
    },
    // The first has kept to its declaration until then. A key share, as foreign keys' checks take
    // it, does not wait in the lane.
    Meeting {
        has: [GONE, FOURTH],
        wants: [FOURTH, CHECK_1],
    },
    Meeting {
        has: [GONE, GONE_2],
        wants: [CHECK_2, CHECK_1],
    },
    // What keeps each of them is such a lock of what it has declared.
    Meeting {
        has: [CHECK_2, CHECK_1],
        wants: [GONE, GONE_2],
    },
    // A table without a key has nothing that could be declared.
    Meeting {
        has: [
            "UPDATE note SET val = 1 WHERE id = 1",
            "UPDATE note SET val = 1 WHERE id = 2",
        ],
        wants: [
            "UPDATE note SET val = 1 WHERE id = 2",
            "UPDATE note SET val = 1 WHERE id = 1",
        ],
    },
    // A transaction that has written to such a table has gone beyond its declaration.
    Meeting {
        has: ["UPDATE note SET val = 1 WHERE id = 1", CHECK_1],
        wants: [GONE, "UPDATE note SET val = 1 WHERE id = 1"],
    },
];

/// A deadlock of two declared transactions is found after one `deadlock_timeout`, as without
/// declarations, and not after four. Only the first one looks.
#[test]
fn two_that_go_beyond_are_found_in_time() -> Result<()> {
    let server = bank(4, &[])?;
    let mut look = server.connect()?;
    look.batch_execute(
        "CREATE TABLE note (id int, val int) USING txn_heap; INSERT INTO note VALUES (1), (2)",
    )?;
    for (n, Meeting { has, wants }) in MEETINGS.iter().enumerate() {
        let mut first = server.connect()?;
        first.batch_execute("SET deadlock_timeout = '1s'; SET lock_timeout = '3900ms'; BEGIN")?;
        let mut second = server.connect()?;
        second.batch_execute("SET deadlock_timeout = '1h'; BEGIN")?;
        ensure!(read::<bool>(&mut first, &declare(&[1]))?);
        ensure!(read::<bool>(&mut second, &declare(&[2]))?);
        first.batch_execute(has[0])?;
        second.batch_execute(has[1])?;
        let second = Background::run(second, wants[1])?;
        second.wait_until_blocked(&mut look)?;
        let told = first.batch_execute(wants[0]);
        ensure!(sqlstate(&told) == "40P01", "meeting {n}: {told:?}");
        first.batch_execute("ROLLBACK")?;
        let (mut second, told) = second.end()?;
        told?;
        second.batch_execute("ROLLBACK")?;
    }
    Ok(())
}

/// Others have come each time that it has waited for those who were there. Now it insists on
/// account 1, and one of them waits for another one, who comes to wait for it.
#[test]
fn who_insists_is_not_the_victim_of_others() -> Result<()> {
    let server = bank(2, &[])?;
    let mut look = server.connect()?;
    look.batch_execute(&format!("BEGIN; {}; COMMIT", declare(&[1])))?;
    // It looks for deadlocks more often than the others.
    for _ in 0..3 {
        let mut writer = server.connect()?;
        writer.batch_execute("BEGIN")?;
        writer.batch_execute(&update(1))?;
        let mut declared = server.connect()?;
        declared.batch_execute("SET deadlock_timeout = '400ms'; BEGIN")?;
        let declared = Background::run(declared, &declare(&[1]))?;
        declared.wait_until_blocked(&mut look)?;
        for _ in 0..3 {
            let next = server.connect()?;
            let next = Background::run(next, &format!("BEGIN; {}", update(1)))?;
            next.wait_until_blocked(&mut look)?;
            writer.batch_execute("COMMIT")?;
            let pid = next.pid;
            let (client, result) = next.end()?;
            result?;
            writer = client;
            // It has seen that one.
            let (waits, writes) = (declared.pid, pid);
            wait_until(
                &mut look,
                &format!("SELECT {writes} = ANY (pg_blocking_pids({waits}))"),
            )?;
        }
        wait_until(
            &mut look,
            &format!(
                "SELECT state = 'holding' FROM txn.lane WHERE pid = {}",
                declared.pid
            ),
        )?;
        let mut other = server.connect()?;
        other.batch_execute("SET deadlock_timeout = '500ms'; BEGIN")?;
        other.batch_execute(&update(2))?;
        let other = Background::run(other, &update(1))?;
        other.wait_until_blocked(&mut look)?;
        writer.batch_execute("SET deadlock_timeout = '600ms'")?;
        let of_writer = sqlstate(&writer.batch_execute(&update(2)));
        writer.batch_execute("ROLLBACK")?;
        let (mut declared, result) = declared.end()?;
        result?;
        declared.batch_execute(&update(1))?;
        declared.batch_execute("COMMIT")?;
        let (mut other, result) = other.end()?;
        other.batch_execute("ROLLBACK")?;
        let told = [of_writer, sqlstate(&result)];
        ensure!(
            told.iter().filter(|told| *told == "40P01").count() == 1,
            "{told:?}"
        );
    }
    Ok(())
}
