//! Deadlocks of declared transactions, over rows that they have not declared.

use anyhow::{Result, ensure};
use txn_server_tests::{Background, read, sqlstate};

use super::{bank, declare};

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
