//! Errors of statements that have run beside a running predecessor: only what is true after its end
//! is told.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{
    Background, Watchdog, expect_followed, grouped, int, physical_health, sqlstate, start_hot,
};

/// The update that both begin with. Each meeting has a row of its own: one that was refused lets it
/// go back to waiting.
fn bump(row: usize) -> String {
    format!("UPDATE hot SET val = val + 1 WHERE id = {row}")
}

const TABLES: &str = "
    CREATE TABLE item (id int PRIMARY KEY, stock int CHECK (stock >= 0), place int UNIQUE);
    INSERT INTO item VALUES (1, 0, 10), (2, 5, 20);
    CREATE TABLE seat (id int PRIMARY KEY, note text);
    INSERT INTO seat VALUES (5, 'five');
    CREATE TABLE period (id int PRIMARY KEY, span int4range, EXCLUDE USING gist (span WITH &&));
    INSERT INTO period VALUES (1, '[1,9]')";

/// What the second one runs beside the first one, and is told. What the first one has run before,
/// and runs meanwhile.
struct Meeting {
    before: &'static str,
    statement: &'static str,
    meanwhile: &'static str,
    told: &'static str,
}

const TAKE: &str = "UPDATE item SET stock = stock - 1 WHERE id = 1";
const SIT: &str = "INSERT INTO seat VALUES (5, 'mine')";
const MOVE: &str = "UPDATE item SET place = 20 WHERE id = 1";
const PLAN: &str = "INSERT INTO period VALUES (2, '[3,4]')";
const NOTHING: &str = "SELECT";
/// A procedure's first call in a session does not follow.
const CALL_ONCE: &str = "CALL take_one(5); ROLLBACK; BEGIN";

const MEETINGS: [Meeting; 17] = [
    // Sold out, but not any more.
    Meeting {
        before: "UPDATE item SET stock = 5 WHERE id = 1",
        statement: TAKE,
        meanwhile: NOTHING,
        told: "40001",
    },
    // Sold out.
    Meeting {
        before: NOTHING,
        statement: TAKE,
        meanwhile: NOTHING,
        told: "23514",
    },
    Meeting {
        before: "UPDATE item SET stock = 5 WHERE id = 2",
        statement: TAKE,
        meanwhile: NOTHING,
        told: "23514",
    },
    // Nobody sits there any more.
    Meeting {
        before: NOTHING,
        statement: SIT,
        meanwhile: "DELETE FROM seat WHERE id = 5",
        told: "40001",
    },
    Meeting {
        before: NOTHING,
        statement: SIT,
        meanwhile: "UPDATE seat SET id = 6 WHERE id = 5",
        told: "40001",
    },
    // Somebody does.
    Meeting {
        before: NOTHING,
        statement: SIT,
        meanwhile: NOTHING,
        told: "23505",
    },
    Meeting {
        before: NOTHING,
        statement: SIT,
        meanwhile: "UPDATE seat SET note = 'moved' WHERE id = 5",
        told: "23505",
    },
    Meeting {
        before: NOTHING,
        statement: "INSERT INTO item VALUES (3, -1, 30)",
        meanwhile: NOTHING,
        told: "23514",
    },
    // An UPDATE that may take another row's value waits before it begins.
    Meeting {
        before: NOTHING,
        statement: MOVE,
        meanwhile: NOTHING,
        told: "23505",
    },
    Meeting {
        before: NOTHING,
        statement: MOVE,
        meanwhile: "UPDATE item SET place = 21 WHERE id = 2",
        told: "00000",
    },
    Meeting {
        before: NOTHING,
        statement: PLAN,
        meanwhile: NOTHING,
        told: "23P01",
    },
    Meeting {
        before: NOTHING,
        statement: PLAN,
        meanwhile: "DELETE FROM period",
        told: "40001",
    },
    // It has updated the row, and then failed.
    Meeting {
        before: NOTHING,
        statement: "UPDATE item SET stock = stock WHERE id = 1 RETURNING 1 / stock",
        meanwhile: NOTHING,
        told: "22012",
    },
    // It has waited for the last version, and fails for that.
    Meeting {
        before: "UPDATE item SET stock = 3 WHERE id = 2",
        statement: "UPDATE item SET stock = stock - 4 WHERE id = 2",
        meanwhile: NOTHING,
        told: "23514",
    },
    Meeting {
        before: "UPDATE item SET stock = 0 WHERE id = 2",
        statement: "UPDATE item SET stock = 1 / stock WHERE id = 2",
        meanwhile: NOTHING,
        told: "22012",
    },
    // A condition, and a lock.
    Meeting {
        before: "UPDATE item SET stock = 5 WHERE id = 1",
        statement: "UPDATE item SET stock = 0 WHERE id = 1 AND 10 / stock > 1",
        meanwhile: NOTHING,
        told: "40001",
    },
    Meeting {
        before: "UPDATE item SET stock = 5 WHERE id = 1",
        statement: "SELECT FROM item WHERE id = 1 AND 10 / stock > 1 FOR UPDATE",
        meanwhile: NOTHING,
        told: "40001",
    },
];

/// No row becomes hot but those that are.
fn begin(server: &Server, statements: &[&str]) -> Result<Client> {
    let mut client = grouped(server)?;
    client.batch_execute("SET txn.hot_threshold = 1000; BEGIN")?;
    for statement in statements {
        client.batch_execute(statement)?;
    }
    Ok(client)
}

#[test]
fn what_the_snapshot_shows_is_not_the_reason() -> Result<()> {
    let server = start_hot(MEETINGS.len() as u32, &[("deadlock_timeout", "10min")])?;
    let dog = Watchdog::new(&server);
    let mut control = server.connect()?;
    control.batch_execute(TABLES)?;
    for (row, meeting) in (1..).zip(&MEETINGS) {
        grouped(&server)?.batch_execute(&bump(row))?;
        meet(&server, &mut control, row, meeting)
            .with_context(|| format!("{}; {}", meeting.before, meeting.statement))?;
        control.batch_execute("DROP TABLE item, seat, period")?;
        control.batch_execute(TABLES)?;
    }
    drop(control);
    dog.finish(physical_health(&server, "hot", "id"))
}

fn meet(server: &Server, control: &mut Client, row: usize, meeting: &Meeting) -> Result<()> {
    let before = int(control, "SELECT followed FROM txn.stats")?;
    let mut first = begin(server, &[meeting.before, &bump(row)])?;
    let second = begin(server, &[&bump(row), "SAVEPOINT s"])?;
    expect_followed(control, before + 1)?;
    let second = Background::run(second, meeting.statement)?;
    second.wait_until_blocked(control)?;
    first.batch_execute(meeting.meanwhile)?;
    first.batch_execute("COMMIT")?;
    let (mut second, result) = second.end()?;
    let told = sqlstate(&result);
    ensure!(told == meeting.told, "told {told}, not {}", meeting.told);
    second.batch_execute("ROLLBACK TO s")?;
    // A transaction that was refused stays refused.
    let end = sqlstate(&second.batch_execute("COMMIT"));
    let expected = match meeting.told {
        "40001" => "40001",
        _ => "00000",
    };
    ensure!(end == expected, "COMMIT was told {end}");
    Ok(())
}

/// What a transaction does instead of what was refused would come of an error that is not true.
#[test]
fn who_catches_the_refusal_commits_nothing() -> Result<()> {
    let server = start_hot(
        5,
        &[
            ("deadlock_timeout", "10min"),
            ("max_prepared_transactions", "2"),
        ],
    )?;
    let dog = Watchdog::new(&server);
    let mut control = server.connect()?;
    control.batch_execute(TABLES)?;
    control.batch_execute(
        "CREATE TABLE soldout (by int);
         CREATE PROCEDURE take_one(hot_row int) LANGUAGE plpgsql AS $$
         BEGIN
             UPDATE hot SET val = val + 1 WHERE id = hot_row;
             BEGIN
                 UPDATE item SET stock = stock - 1 WHERE id = 1;
             EXCEPTION WHEN OTHERS THEN
                 INSERT INTO soldout VALUES (1);
             END;
         END $$",
    )?;
    let note = "INSERT INTO soldout VALUES (2)";
    let ways: [(&str, &[&str]); 5] = [
        (TAKE, &["ROLLBACK TO s", note]),
        (TAKE, &["ROLLBACK TO s", "SELECT"]),
        (TAKE, &["ROLLBACK TO s", "PREPARE TRANSACTION 'p'"]),
        ("CALL take_one(4)", &[]),
        (
            "SELECT id FROM item WHERE id = 1 AND stock > 3 FOR UPDATE",
            &["ROLLBACK TO s", "COMMIT"],
        ),
    ];
    for (row, (statement, after)) in (1..).zip(ways) {
        grouped(&server)?.batch_execute(&bump(row))?;
        let followed = int(&mut control, "SELECT followed FROM txn.stats")?;
        let sell = "UPDATE item SET stock = 5 WHERE id = 1";
        let mut first = begin(&server, &[sell, &bump(row)])?;
        let mut second = begin(&server, &[])?;
        match after {
            [] => second.batch_execute(CALL_ONCE)?,
            _ => second.batch_execute(&format!("SAVEPOINT s; {}", bump(row)))?,
        }
        let second = Background::run(second, statement)?;
        expect_followed(&mut control, followed + 1)?;
        second.wait_until_blocked(&mut control)?;
        first.batch_execute("COMMIT")?;
        let (mut second, result) = second.end()?;
        let mut told = vec![sqlstate(&result)];
        for command in after {
            told.push(sqlstate(&second.batch_execute(command)));
        }
        ensure!(
            told.last().is_some_and(|last| last == "40001"),
            "{statement}; {after:?}: {told:?}"
        );
        second.batch_execute("ROLLBACK")?;
        control.batch_execute("UPDATE item SET stock = 0 WHERE id = 1")?;
    }
    ensure!(int(&mut control, "SELECT count(*) FROM soldout")? == 0);
    drop(control);
    dog.finish(physical_health(&server, "hot", "id"))
}

/// The second hot row has been offered: what it is refused for is true.
#[test]
fn what_was_offered_is_the_last_one() -> Result<()> {
    let server = start_hot(2, &[("deadlock_timeout", "10min")])?;
    let dog = Watchdog::new(&server);
    let mut control = server.connect()?;
    control.batch_execute(
        "UPDATE hot SET val = 9; ALTER TABLE hot ADD CONSTRAINT enough CHECK (val >= 0)",
    )?;
    let second_row = "UPDATE hot SET val = val WHERE id = 2";
    grouped(&server)?.batch_execute(&bump(1))?;
    grouped(&server)?.batch_execute(second_row)?;
    let mut first = begin(&server, &[&bump(1), "UPDATE hot SET val = 1 WHERE id = 2"])?;
    let second = begin(&server, &[&bump(1)])?;
    let take = "UPDATE hot SET val = val - 5 WHERE id = 2";
    let second = Background::run(second, take)?;
    second.wait_until_blocked(&mut control)?;
    first.batch_execute("COMMIT")?;
    let (mut second, result) = second.end()?;
    let told = sqlstate(&result);
    ensure!(told == "23514", "{told}");
    second.batch_execute("ROLLBACK")?;
    drop((first, second, control));
    dog.finish(physical_health(&server, "hot", "id"))
}

/// The statement that follows inserts another row, too. An index says that this one is there twice,
/// which is not so when the predecessor has ended.
#[test]
fn what_an_index_says_to_the_statement_that_follows() -> Result<()> {
    let server = start_hot(5, &[("deadlock_timeout", "10min")])?;
    let dog = Watchdog::new(&server);
    let mut control = server.connect()?;
    control
        .batch_execute("ALTER TABLE hot ADD code int UNIQUE; INSERT INTO hot VALUES (901, 0, 5)")?;
    for (row, meanwhile) in [
        (1, "DELETE FROM hot WHERE id = 901"),
        (2, "UPDATE hot SET code = 7 WHERE id = 901"),
    ] {
        control.batch_execute(
            "INSERT INTO hot VALUES (901, 0, 5) ON CONFLICT (id) DO UPDATE SET code = 5",
        )?;
        grouped(&server)?.batch_execute(&bump(row))?;
        let mut first = begin(&server, &[&bump(row)])?;
        let upsert = format!(
            "INSERT INTO hot VALUES ({row}, 1, {row}), (90{row}2, 1, 5)
             ON CONFLICT (id) DO UPDATE SET val = hot.val + excluded.val"
        );
        let second = Background::run(begin(&server, &[])?, &upsert)?;
        second.wait_until_blocked(&mut control)?;
        first.batch_execute(meanwhile)?;
        first.batch_execute("COMMIT")?;
        let (mut second, result) = second.end()?;
        let told = sqlstate(&result);
        ensure!(told == "40001", "{meanwhile}: told {told}");
        second.batch_execute("ROLLBACK; BEGIN")?;
        second.batch_execute(&upsert)?;
        second.batch_execute("ROLLBACK")?;
    }
    // It is there still, and says so at once.
    control.batch_execute(
        "INSERT INTO hot VALUES (901, 0, 5) ON CONFLICT (id) DO UPDATE SET code = 5;
         CREATE TABLE log (id int PRIMARY KEY);
         INSERT INTO log VALUES (1);
         CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql
             AS $$ BEGIN INSERT INTO log VALUES (NEW.code); RETURN NEW; END $$;
         CREATE TRIGGER log BEFORE UPDATE OF code ON hot FOR EACH ROW EXECUTE FUNCTION log()",
    )?;
    for (row, statement) in [
        (
            3,
            "INSERT INTO hot VALUES (3, 1, 3), (9032, 1, 5)
             ON CONFLICT (id) DO UPDATE SET val = hot.val + excluded.val",
        ),
        (
            4,
            "MERGE INTO hot USING (VALUES (4, 4), (9042, 5)) new (id, code) ON hot.id = new.id
             WHEN MATCHED THEN UPDATE SET val = val + 1
             WHEN NOT MATCHED THEN INSERT VALUES (new.id, 1, new.code)",
        ),
        (5, "UPDATE hot SET val = val + 1, code = 1 WHERE id = 5"),
    ] {
        grouped(&server)?.batch_execute(&bump(row))?;
        let mut first = begin(&server, &[&bump(row)])?;
        let second = Background::run(begin(&server, &[])?, statement)?;
        second.wait_until_blocked(&mut control)?;
        first.batch_execute("COMMIT")?;
        let (mut second, result) = second.end()?;
        let told = sqlstate(&result);
        ensure!(told == "23505", "{statement}: told {told}");
        second.batch_execute("ROLLBACK")?;
    }
    drop(control);
    dog.finish(physical_health(&server, "hot", "id"))
}

const PROCEDURES: &str = "
    CREATE TABLE sold (val bigint);
    CREATE PROCEDURE sell(hot_row int, fails bool) LANGUAGE plpgsql AS $$
    DECLARE again bool;
    BEGIN
        LOOP
            again := false;
            BEGIN
                IF fails THEN
                    fails := false;
                    RAISE serialization_failure;
                END IF;
                UPDATE hot SET val = val + 1 WHERE id = hot_row;
                UPDATE item SET stock = stock - 1 WHERE id = 1;
            EXCEPTION WHEN serialization_failure THEN
                again := true;
            END;
            IF again THEN
                ROLLBACK;
            ELSE
                COMMIT;
                EXIT;
            END IF;
        END LOOP;
    END $$;
    CREATE PROCEDURE tell(hot_row int) LANGUAGE plpgsql AS $$
    DECLARE told bigint;
    BEGIN
        BEGIN
            UPDATE hot SET val = val + 1 WHERE id = hot_row RETURNING val INTO told;
            DELETE FROM seat;
        EXCEPTION WHEN serialization_failure THEN
        END;
        ROLLBACK;
        INSERT INTO sold VALUES (told);
    END $$;
    UPDATE item SET stock = 9 WHERE id = 1";

/// A procedure that tries again by itself, and is refused the first time. It rolls back what was
/// refused, but does not keep a value that was never committed.
#[test]
fn a_procedure_that_tries_again() -> Result<()> {
    let server = start_hot(3, &[("deadlock_timeout", "10min")])?;
    let dog = Watchdog::new(&server);
    let mut control = server.connect()?;
    control.batch_execute(TABLES)?;
    control.batch_execute(PROCEDURES)?;
    // What it evaluates has been evaluated once.
    let mut second = grouped(&server)?;
    second.batch_execute("SET txn.hot_threshold = 1000")?;
    second.batch_execute("CALL sell(3, true)")?;
    control.batch_execute("UPDATE item SET stock = 0 WHERE id = 1")?;
    grouped(&server)?.batch_execute(&bump(1))?;
    let sell = "UPDATE item SET stock = 5 WHERE id = 1";
    let mut first = begin(&server, &[sell, &bump(1)])?;
    let second = Background::run(second, "CALL sell(1, false)")?;
    second.wait_until_blocked(&mut control)?;
    first.batch_execute("COMMIT")?;
    let (mut second, result) = second.end()?;
    result?;
    drop(first);
    ensure!(int(&mut control, "SELECT stock::bigint FROM item WHERE id = 1")? == 4);

    grouped(&server)?.batch_execute(&bump(2))?;
    let mut first = begin(&server, &["UPDATE hot SET val = 100 WHERE id = 2"])?;
    second.batch_execute("CALL tell(3)")?;
    control.batch_execute("TRUNCATE sold")?;
    let second = Background::run(second, "CALL tell(2)")?;
    second.wait_until_blocked(&mut control)?;
    first.batch_execute("ROLLBACK")?;
    let told = second.end()?.1;
    let sold = int(&mut control, "SELECT count(*) FROM sold WHERE val > 100")?;
    ensure!(sold == 0 && sqlstate(&told) == "40001", "{sold}: {told:?}");
    drop((first, control));
    dog.finish(physical_health(&server, "hot", "id"))
}

/// The lock of a predecessor is none that the statement finds missing.
#[test]
fn a_table_that_a_predecessor_has_locked() -> Result<()> {
    let server = start_hot(1, &[("deadlock_timeout", "10min")])?;
    let mut control = server.connect()?;
    control.batch_execute(TABLES)?;
    grouped(&server)?.batch_execute(&bump(1))?;
    let mut first = begin(&server, &["LOCK TABLE seat IN EXCLUSIVE MODE", &bump(1)])?;
    let second = begin(&server, &[&bump(1)])?;
    let second = Background::run(second, "LOCK TABLE seat IN EXCLUSIVE MODE NOWAIT")?;
    second.wait_until_blocked(&mut control)?;
    first.batch_execute("COMMIT")?;
    second.end()?.1?;
    Ok(())
}
