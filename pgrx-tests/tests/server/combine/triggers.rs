//! BEFORE triggers that only set columns: the holder does what those of the waiters would do.

use anyhow::{Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{
    Background, Load, Watchdog, Worker, grouped, int, physical_health, pid, sqlstate, start_hot,
    text,
};

use crate::stage::Stage;

use super::returning::rows;
use super::{BUMP, on_server};

/// Two columns for triggers, and a row in which a session's triggers fire for the first time.
pub(super) const COLUMNS: &str = "INSERT INTO hot VALUES (2, 0); \
     ALTER TABLE hot ADD at timestamptz, ADD version bigint DEFAULT 0";

pub(super) const BUMP_RETURNING: &str =
    "UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING val, version";

/// A trigger of the table with that body of its function.
pub(super) fn trigger(name: &str, body: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN {body} END $$; \
         CREATE TRIGGER {name} BEFORE UPDATE ON hot FOR EACH ROW EXECUTE FUNCTION {name}()"
    )
}

/// Sessions in which the triggers have fired.
pub(super) fn known(server: &Server, sessions: usize) -> Result<Vec<Client>> {
    (0..sessions)
        .map(|_| {
            let mut client = grouped(server)?;
            client.batch_execute("UPDATE hot SET val = val + 1 WHERE id = 2")?;
            Ok(client)
        })
        .collect()
}

/// What the sessions were told, and their rows with "|" between columns.
pub(super) struct Told {
    pub codes: Vec<String>,
    pub rows: Vec<String>,
    pub combined: i64,
}

type Waiting = Vec<Background<Vec<String>>>;

/// Lets the sessions wait for the row, one after the other.
pub(super) fn queue(stage: &mut Stage, sessions: Vec<Client>, sql: &str) -> Result<Waiting> {
    let first = int(
        &mut stage.control,
        "SELECT coalesce(sum(waiting), 0)::bigint FROM txn.hotspots",
    )?;
    let mut waiting = Vec::new();
    for (mut client, n) in sessions.into_iter().zip(first as i32 + 1..) {
        let (pid, sql) = (pid(&mut client)?, sql.to_owned());
        let session = Background::call(client, pid, move |client| rows(client, &sql));
        stage.wait_queued(n)?;
        // Nor is it awake any more: it does not take a free ticket before its turn.
        session.wait_until_blocked(&mut stage.control)?;
        waiting.push(session);
    }
    Ok(waiting)
}

/// Lets the holder go on, and the sessions end.
pub(super) fn finish(stage: &mut Stage, waiting: Waiting) -> Result<Told> {
    let before = stage.combined()?;
    stage.release()?;
    ensure!(stage.end()? == "00000");
    let told = ended(stage, waiting)?;
    Ok(Told {
        combined: told.combined - before,
        ..told
    })
}

/// What came of the sessions, and how many updates have been combined since the server's start.
pub(super) fn ended(stage: &mut Stage, waiting: Waiting) -> Result<Told> {
    let (mut codes, mut rows) = (Vec::new(), Vec::new());
    for session in waiting {
        let (_, told) = session.end()?;
        codes.push(sqlstate(&told));
        rows.extend(told.unwrap_or_default());
    }
    codes.sort();
    rows.sort();
    let combined = stage.combined()?;
    Ok(Told {
        codes,
        rows,
        combined,
    })
}

/// Sessions wait for the row with that statement behind a session with another one.
pub(super) fn told(server: &Server, sessions: Vec<Client>, sql: &str) -> Result<Told> {
    let mut stage = Stage::new(server, BUMP)?;
    let waiting = queue(&mut stage, sessions, sql)?;
    finish(&mut stage, waiting)
}

/// The first of the sessions does the updates of all others; returns their rows.
pub(super) fn all_combined(
    server: &Server,
    sessions: Vec<Client>,
    sql: &str,
) -> Result<Vec<String>> {
    let others = sessions.len() as i64 - 1;
    let told = told(server, sessions, sql)?;
    ensure!(
        told.codes.iter().all(|code| code == "00000"),
        "{:?}",
        told.codes
    );
    ensure!(told.combined == others, "{} combined", told.combined);
    Ok(told.rows)
}

/// The commonest trigger of all: when the row was last updated.
#[test]
fn a_touched_row_has_the_time_of_its_last_session() -> Result<()> {
    on_server(|server| {
        let touch = trigger("touch", "NEW.at := now(); RETURN NEW;");
        server
            .connect()?
            .batch_execute(&format!("{COLUMNS}; {touch}"))?;
        let sessions = known(server, 4)?;
        let mut stage = Stage::new(server, BUMP)?;
        let sql = "UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING at";
        let waiting = queue(&mut stage, sessions, sql)?;
        let mut expected = Vec::new();
        for session in &waiting {
            let sql = format!(
                "SELECT xact_start::text FROM pg_stat_activity WHERE pid = {}",
                session.pid
            );
            expected.push(text(&mut stage.control, &sql)?);
        }
        expected.sort();
        let told = finish(&mut stage, waiting)?;
        ensure!(told.codes == ["00000"; 4], "{:?}", told.codes);
        ensure!(
            told.rows == expected,
            "{:?} instead of {expected:?}",
            told.rows
        );
        ensure!(told.combined == 3, "{} combined", told.combined);
        let at = text(&mut stage.control, "SELECT at::text FROM hot WHERE id = 1")?;
        ensure!(expected.contains(&at), "{at} is nobody's time");
        ensure!(stage.val()? == 5, "the value is {}", stage.val()?);
        Ok(())
    })
}

/// Each sees the row as the one before has left it, and OLD as it was before the update.
#[test]
fn several_fire_in_the_order_of_their_names() -> Result<()> {
    on_server(|server| {
        let later = trigger(
            "b",
            "NEW.sum := NEW.version * 1000 + OLD.version; RETURN NEW;",
        );
        let first = trigger(
            "a",
            "NEW.version := OLD.version + 1; NEW.version := NEW.version + 1; RETURN NEW;",
        );
        server.connect()?.batch_execute(&format!(
            "{COLUMNS}; ALTER TABLE hot ADD sum bigint; {later}; {first}"
        ))?;
        let sql = format!("{BUMP_RETURNING}, sum");
        let rows = all_combined(server, known(server, 4)?, &sql)?;
        // Before them are the session that makes the row hot, and the one with another statement.
        ensure!(
            rows == ["2|6|6004", "3|8|8006", "4|10|10008", "5|12|12010"],
            "{rows:?}"
        );
        Ok(())
    })
}

/// IF is known as far as its branches have been taken in the session.
#[test]
fn branches_and_conditions_are_each_updates_own() -> Result<()> {
    on_server(|server| {
        let branches = trigger(
            "branches",
            "IF NEW.val IS DISTINCT FROM OLD.val AND NEW.val % 3 = 0 THEN \
               NEW.version := OLD.version + 1; \
             ELSIF NEW.val % 3 = 1 THEN NEW.version := OLD.version + 10; \
             ELSE NEW.version := OLD.version + 100; IF NEW.val > 4 THEN RETURN NEW; END IF; \
             END IF; \
             NEW.name := NEW.name || '.'; RETURN NEW;",
        );
        server.connect()?.batch_execute(&format!(
            "{COLUMNS}; ALTER TABLE hot ADD name text DEFAULT ''; {branches}"
        ))?;
        let mut sessions = known(server, 4)?;
        for session in &mut sessions {
            for _ in 0..6 {
                session.batch_execute("UPDATE hot SET val = val + 1 WHERE id = 2")?;
            }
        }
        let rows = all_combined(server, sessions, &format!("{BUMP_RETURNING}, name"))?;
        // Before them come two updates to 0 and 1.
        ensure!(
            rows == ["2|210|...", "3|211|....", "4|221|.....", "5|321|....."],
            "{rows:?}"
        );
        Ok(())
    })
}

/// What a trigger for both does for INSERT need not be known.
#[test]
fn branches_of_insert_do_not_count() -> Result<()> {
    on_server(|server| {
        let filled = trigger(
            "filled",
            "IF TG_OP = 'INSERT' THEN NEW.version := (SELECT 1000); \
             ELSIF TG_OP <> 'UPDATE' THEN RAISE EXCEPTION 'neither'; \
             ELSE NEW.version := OLD.version + 1; END IF; \
             IF TG_OP = 'UPDATE' THEN NEW.at := now(); \
             ELSIF NEW.id = 7 THEN RETURN NULL; ELSE NEW.at := (SELECT now()); END IF; \
             RETURN NEW;",
        );
        server.connect()?.batch_execute(&format!(
            "{COLUMNS}; {filled}; DROP TRIGGER filled ON hot; \
             CREATE TRIGGER filled BEFORE INSERT OR UPDATE ON hot FOR EACH ROW \
               EXECUTE FUNCTION filled(); \
             INSERT INTO hot VALUES (3, 0)"
        ))?;
        let rows = all_combined(server, known(server, 3)?, BUMP_RETURNING)?;
        ensure!(rows == ["2|3", "3|4", "4|5"], "{rows:?}");
        let inserted = "SELECT version FROM hot WHERE id = 3";
        ensure!(int(&mut server.connect()?, inserted)? == 1000);
        Ok(())
    })
}

/// WHEN and UPDATE OF say for which updates a trigger fires.
#[test]
fn triggers_that_do_not_fire_do_not_count() -> Result<()> {
    on_server(|server| {
        let touch = trigger("touch", "NEW.version := OLD.version + 1; RETURN NEW;");
        server.connect()?.batch_execute(&format!(
            "{COLUMNS}; {touch}; DROP TRIGGER touch ON hot; \
             CREATE TRIGGER touch BEFORE UPDATE ON hot FOR EACH ROW \
               WHEN (OLD.val % 2 = 0 AND NEW.val > 1) EXECUTE FUNCTION touch(); \
             CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql AS \
               'BEGIN RAISE EXCEPTION ''never''; END'; \
             CREATE TRIGGER never BEFORE UPDATE OF at ON hot FOR EACH ROW \
               EXECUTE FUNCTION never(); \
             CREATE TRIGGER off BEFORE UPDATE ON hot FOR EACH ROW EXECUTE FUNCTION never(); \
             ALTER TABLE hot DISABLE TRIGGER off; \
             CREATE TRIGGER deleted BEFORE DELETE OR INSERT ON hot FOR EACH ROW \
               EXECUTE FUNCTION never()"
        ))?;
        let mut sessions = known(server, 4)?;
        for session in &mut sessions {
            session.batch_execute(
                "UPDATE hot SET val = 2 WHERE id = 2; UPDATE hot SET val = 3 WHERE id = 2",
            )?;
        }
        let rows = all_combined(server, sessions, BUMP_RETURNING)?;
        ensure!(rows == ["2|0", "3|1", "4|1", "5|2"], "{rows:?}");
        Ok(())
    })
}

/// Assigned values become those of the column's type, with its length.
#[test]
fn values_are_cast_as_in_an_assignment() -> Result<()> {
    on_server(|server| {
        let casts = trigger(
            "casts",
            "NEW.price := NEW.val * 1.005; NEW.name := NEW.val; NEW.code := 'x'; \
             NEW.nothing := NULL; NEW.small := NEW.val + 0.6; NEW.at := NULL; RETURN NEW;",
        );
        server.connect()?.batch_execute(&format!(
            "{COLUMNS}; ALTER TABLE hot ADD price numeric(10, 2), ADD name varchar(2), \
             ADD code char(3), ADD nothing varchar(5) DEFAULT 'a', ADD small int2; {casts}"
        ))?;
        let sql = "UPDATE hot SET val = val + 1 WHERE id = 1 \
                   RETURNING price, name, code, nothing, small, at";
        let rows = all_combined(server, known(server, 3)?, sql)?;
        ensure!(
            rows == [
                "2.01|2|x  |null|3|null",
                "3.02|3|x  |null|4|null",
                "4.02|4|x  |null|5|null"
            ],
            "{rows:?}"
        );
        // What does not fit is an error of those to whom it happens.
        let more = "UPDATE hot SET val = val + 32 WHERE id = 1 RETURNING name";
        let told = told(server, known(server, 4)?, more)?;
        let codes = ["00000", "00000", "22001", "22001"];
        ensure!(told.codes == codes, "{:?}", told.codes);
        ensure!(told.rows == ["37", "69"], "{:?}", told.rows);
        ensure!(told.combined == 1, "{} combined", told.combined);
        Ok(())
    })
}

/// An error in a trigger ends the update of that session, and constraints are checked after it.
#[test]
fn errors_are_each_ones_own() -> Result<()> {
    on_server(|server| {
        let count = trigger(
            "counted",
            "NEW.version := OLD.version + 1; NEW.small := OLD.small + 1::int2; RETURN NEW;",
        );
        server.connect()?.batch_execute(&format!(
            "{COLUMNS}; ALTER TABLE hot ADD small int2 DEFAULT 32763, ADD CHECK (version < 7); \
             UPDATE hot SET small = 0 WHERE id = 2; {count}"
        ))?;
        let overflow = told(server, known(server, 4)?, BUMP_RETURNING)?;
        ensure!(
            overflow.codes == ["00000", "00000", "22003", "22003"],
            "{:?}",
            overflow.codes
        );
        ensure!(overflow.rows == ["2|3", "3|4"], "{:?}", overflow.rows);
        server.connect()?.batch_execute(
            "ALTER TABLE hot DISABLE TRIGGER USER; \
                            UPDATE hot SET small = 0, version = 0; \
                            ALTER TABLE hot ENABLE TRIGGER USER",
        )?;
        let check = told(server, known(server, 6)?, BUMP_RETURNING)?;
        let codes = ["00000", "00000", "00000", "00000", "23514", "23514"];
        ensure!(check.codes == codes, "{:?}", check.codes);
        ensure!(check.combined == 3, "{} combined", check.combined);
        Ok(())
    })
}

/// An index that summarizes pages learns of the last value that a trigger has set.
#[test]
fn indexes_that_summarize_what_triggers_set() -> Result<()> {
    on_server(|server| {
        let count = trigger("counted", "NEW.version := OLD.version + 1; RETURN NEW;");
        server.connect()?.batch_execute(&format!(
            "{COLUMNS}; {count}; CREATE INDEX by_version ON hot USING brin (version); \
             SELECT brin_summarize_new_values('by_version')"
        ))?;
        let others = told(server, known(server, 4)?, BUMP_RETURNING)?;
        ensure!(others.codes == ["00000"; 4], "{:?}", others.codes);
        let found = "SELECT count(*) FROM hot WHERE version = 6";
        let mut client = server.connect()?;
        client.batch_execute("SET enable_seqscan = off")?;
        ensure!(int(&mut client, found)? == 1);
        // Without RETURNING the executor tells the index by itself.
        let told = told(server, known(server, 4)?, BUMP)?;
        ensure!(told.codes == ["00000"; 4], "{:?}", told.codes);
        ensure!(told.combined == 3, "{} combined", told.combined);
        let found = "SELECT count(*) FROM hot WHERE version = 12";
        ensure!(int(&mut client, found)? == 1);
        Ok(())
    })
}

/// Sessions whose rows have a version: none is lost, and none is given twice.
#[test]
fn a_crowd_of_versions() -> Result<()> {
    let server = start_hot(1, &[])?;
    let dog = Watchdog::new(&server);
    let versioned = trigger(
        "versioned",
        "NEW.version := OLD.version + 1; NEW.at := now(); RETURN NEW;",
    );
    let ddl = "ALTER TABLE hot ADD at timestamptz, ADD version bigint DEFAULT 0";
    server
        .connect()?
        .batch_execute(&format!("{ddl}; {versioned}"))?;
    let result = Load::new(&server, 48, 100)
        .grouped()
        .moves("combined")
        .run(move |worker| {
            let bump = |worker: &mut Worker| worker.simple(BUMP);
            if worker.chance(10) {
                worker.begin()?;
                bump(worker)?;
                worker.commit(1)
            } else {
                worker.committing(1, bump)
            }
        });
    let tally = dog.finish(result)?;
    tally.only(&["40001"])?;
    let mut control = server.connect()?;
    let val = int(&mut control, "SELECT val FROM hot")?;
    let version = int(&mut control, "SELECT version FROM hot")?;
    ensure!(
        val == version,
        "{val} updates have fired {version} triggers"
    );
    tally.explains(val)?;
    drop(control);
    physical_health(&server, "hot", "id")
}
