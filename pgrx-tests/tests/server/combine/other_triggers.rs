//! BEFORE triggers that may do more than set columns, or that sessions do not have in common: not
//! combined, and still right.

use anyhow::{Result, ensure};
use txn_server_tests::{Load, grouped, int, physical_health, start_hot};

use crate::stage::Stage;

use super::triggers::{
    BUMP_RETURNING, COLUMNS, all_combined, ended, finish, known, queue, told, trigger,
};
use super::{BUMP, on_server};

const COUNT: &str = "NEW.version := OLD.version + 1; RETURN NEW;";

/// Bodies that are not on the list, and what they leave in `version` of the three that waited.
const BODIES: [(&str, [i64; 3]); 18] = [
    ("RAISE DEBUG 'x'; NEW.version := 7; RETURN NEW;", [7; 3]),
    (
        "SELECT count(*) INTO NEW.version FROM other; RETURN NEW;",
        [2; 3],
    ),
    ("PERFORM 1; NEW.version := 7; RETURN NEW;", [7; 3]),
    (
        "NEW.version := (SELECT count(*) FROM other); RETURN NEW;",
        [2; 3],
    ),
    (
        "INSERT INTO other VALUES (1); NEW.version := 7; RETURN NEW;",
        [7; 3],
    ),
    ("NEW.version := random() * 0 + 7; RETURN NEW;", [7; 3]),
    (
        "NEW.version := nextval('numbers') * 0 + 7; RETURN NEW;",
        [7; 3],
    ),
    ("NEW.version := seven(NEW.val); RETURN NEW;", [7; 3]),
    (
        "IF TG_NAME = 'body' THEN NEW.version := 7; END IF; RETURN NEW;",
        [7; 3],
    ),
    (
        "NEW.list := OLD.list || 1::bigint; NEW.version := 7; RETURN NEW;",
        [7; 3],
    ),
    ("NEW.few := 7; NEW.version := NEW.few; RETURN NEW;", [7; 3]),
    (
        "IF NEW.val - NEW.val + 1 THEN NEW.version := 7; END IF; RETURN NEW;",
        [7; 3],
    ),
    (
        "OLD.version := 7; NEW.version := OLD.version; RETURN NEW;",
        [7; 3],
    ),
    ("NEW.version := 7; RETURN ROW(NEW.*);", [7; 3]),
    ("NEW := NEW; NEW.version := 7; RETURN NEW;", [7; 3]),
    ("NEW.id := OLD.id; NEW.version := 7; RETURN NEW;", [7; 3]),
    (
        "NEW.indexed := NEW.val; NEW.version := 7; RETURN NEW;",
        [7; 3],
    ),
    ("NEW.parent := 1; NEW.version := 7; RETURN NEW;", [7; 3]),
];

const TABLES: &str = "CREATE TABLE other (n int PRIMARY KEY); INSERT INTO other VALUES (-1), (-2); \
     ALTER TABLE other DROP CONSTRAINT other_pkey; \
     CREATE SEQUENCE numbers; CREATE DOMAIN few AS bigint CHECK (VALUE < 10); \
     CREATE TABLE parents (id int PRIMARY KEY); INSERT INTO parents VALUES (1); \
     CREATE FUNCTION seven(bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT \
       AS 'BEGIN RETURN 7; END'; \
     ALTER TABLE hot ADD list bigint[] DEFAULT '{}', ADD few few, ADD indexed bigint, \
       ADD parent int REFERENCES parents; \
     CREATE INDEX ON hot (indexed)";

#[test]
fn bodies_that_do_more_are_not_combined() -> Result<()> {
    on_server(|server| {
        server
            .connect()?
            .batch_execute(&format!("{COLUMNS}; {TABLES}"))?;
        for (body, versions) in BODIES {
            let ddl = trigger("body", body);
            server.connect()?.batch_execute(&ddl)?;
            let before = int(&mut server.connect()?, "SELECT val FROM hot WHERE id = 1")?;
            let told = told(server, known(server, 3)?, BUMP_RETURNING)?;
            ensure!(told.codes == ["00000"; 3], "{body}: {:?}", told.codes);
            let mut expected: Vec<_> = (2..)
                .zip(versions)
                .map(|(n, version)| format!("{}|{version}", before + n))
                .collect();
            expected.sort();
            ensure!(told.rows == expected, "{body}: {:?}", told.rows);
            ensure!(told.combined == 0, "{} combined: {body}", told.combined);
            server
                .connect()?
                .batch_execute("DROP TRIGGER body ON hot; DROP FUNCTION body()")?;
        }
        Ok(())
    })
}

/// What is done, how it is undone, and how many of three updates are combined in between.
fn declarations() -> Vec<(String, String, i64)> {
    let declared = |how: &str, block: &str| {
        format!(
            "CREATE OR REPLACE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql {how} \
             AS $$ {block} $$"
        )
    };
    let block = format!("BEGIN {COUNT} END");
    let plain = declared("", &block);
    let with_variable = format!("DECLARE n bigint := 1; {block}");
    let catching = format!("BEGIN {COUNT} EXCEPTION WHEN OTHERS THEN RETURN NEW; END");
    let mut all: Vec<_> = [
        ("SECURITY DEFINER", &block, 0),
        ("SET work_mem = '1MB'", &block, 0),
        ("", &with_variable, 0),
        ("", &catching, 0),
        ("STABLE", &block, 2),
    ]
    .into_iter()
    .map(|(how, block, combined)| (declared(how, block), plain.clone(), combined))
    .collect();
    for what in [
        "AFTER UPDATE ON hot FOR EACH ROW",
        "AFTER UPDATE ON hot",
        "BEFORE UPDATE ON hot",
    ] {
        all.push((
            format!("CREATE TRIGGER beside {what} EXECUTE FUNCTION note()"),
            "DROP TRIGGER beside ON hot".to_owned(),
            0,
        ));
    }
    all
}

/// What the function is declared with, blocks that catch errors or have variables, and other
/// triggers beside it.
#[test]
fn other_functions_and_triggers_are_not_combined() -> Result<()> {
    on_server(|server| {
        let note = "CREATE TABLE log (n int); CREATE FUNCTION note() RETURNS trigger \
                    LANGUAGE plpgsql AS 'BEGIN INSERT INTO log VALUES (1); RETURN NULL; END'";
        let touch = trigger("touch", COUNT);
        server
            .connect()?
            .batch_execute(&format!("{COLUMNS}; {note}; {touch}"))?;
        let mut version = 0;
        for (ddl, undo, combined) in declarations() {
            server.connect()?.batch_execute(&ddl)?;
            let told = told(server, known(server, 3)?, BUMP_RETURNING)?;
            version += 5;
            ensure!(told.codes == ["00000"; 3], "{ddl}: {:?}", told.codes);
            let sql = "SELECT version FROM hot WHERE id = 1";
            let now = int(&mut server.connect()?, sql)?;
            ensure!(now == version, "{now} instead of {version} after {ddl}");
            ensure!(
                told.combined == combined,
                "{} combined: {ddl}",
                told.combined
            );
            server.connect()?.batch_execute(&undo)?;
        }
        Ok(())
    })
}

/// RETURN OLD keeps the row as it was, RETURN NULL does not update it.
#[test]
fn what_is_returned_is_kept() -> Result<()> {
    on_server(|server| {
        server.connect()?.batch_execute(COLUMNS)?;
        let mut stage = Stage::new(server, BUMP)?;
        stage.release()?;
        ensure!(stage.end()? == "00000");
        for (returned, expected) in [("OLD", vec!["1|0"; 3]), ("NULL", Vec::new())] {
            let body = format!("NEW.version := OLD.version + 1; RETURN {returned};");
            server.connect()?.batch_execute(&trigger("body", &body))?;
            let sessions = known(server, 3)?;
            let mut first = grouped(server)?;
            first.batch_execute("BEGIN; SELECT FROM hot WHERE id = 1 FOR UPDATE")?;
            let waiting = queue(&mut stage, sessions, BUMP_RETURNING)?;
            first.batch_execute("COMMIT")?;
            let told = ended(&mut stage, waiting)?;
            ensure!(told.codes == ["00000"; 3], "{:?}", told.codes);
            ensure!(told.rows == expected, "{:?}", told.rows);
            ensure!(told.combined == 0, "{} combined", told.combined);
            server
                .connect()?
                .batch_execute("DROP TRIGGER body ON hot")?;
        }
        Ok(())
    })
}

/// A function that is replaced while sessions wait: they run the new one, and none runs the old one
/// for another.
#[test]
fn a_replaced_function_is_in_force_at_once() -> Result<()> {
    on_server(|server| {
        let touch = trigger("touch", COUNT);
        server
            .connect()?
            .batch_execute(&format!("{COLUMNS}; {touch}"))?;
        let old = known(server, 3)?;
        let mut stage = Stage::new(server, BUMP)?;
        let mut waiting = queue(&mut stage, old, BUMP_RETURNING)?;
        server.connect()?.batch_execute(
            "CREATE OR REPLACE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN NEW.version := OLD.version + 100; RETURN NEW; END'",
        )?;
        waiting.extend(queue(&mut stage, known(server, 3)?, BUMP_RETURNING)?);
        let told = finish(&mut stage, waiting)?;
        ensure!(told.codes == ["00000"; 6], "{:?}", told.codes);
        // The holder's has fired before.
        let expected: Vec<_> = (1..=6)
            .map(|n| format!("{}|{}", n + 1, 2 + n * 100))
            .collect();
        ensure!(told.rows == expected, "{:?}", told.rows);
        ensure!(told.combined == 2, "{} combined", told.combined);
        Ok(())
    })
}

/// A function that is replaced before they come, of which they hear with their statement.
#[test]
fn sessions_hear_of_a_replaced_function() -> Result<()> {
    on_server(|server| {
        let touch = trigger("touch", COUNT);
        server
            .connect()?
            .batch_execute(&format!("{COLUMNS}; {touch}"))?;
        let sessions = known(server, 3)?;
        let mut stage = Stage::new(server, BUMP)?;
        server.connect()?.batch_execute(
            "CREATE OR REPLACE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN NEW.version := OLD.version + 100; RETURN NEW; END'",
        )?;
        let waiting = queue(&mut stage, sessions, BUMP_RETURNING)?;
        let told = finish(&mut stage, waiting)?;
        ensure!(told.codes == ["00000"; 3], "{:?}", told.codes);
        ensure!(told.rows == ["2|102", "3|202", "4|302"], "{:?}", told.rows);
        ensure!(told.combined == 0, "{} combined", told.combined);
        Ok(())
    })
}

/// A column's type that has changed since the assignment was planned: PL/pgSQL casts once more.
#[test]
fn a_changed_column_is_cast_to() -> Result<()> {
    on_server(|server| {
        let touch = trigger(
            "touch",
            "NEW.price := NEW.val + 0.125; NEW.version := OLD.version + 1; RETURN NEW;",
        );
        server.connect()?.batch_execute(&format!(
            "{COLUMNS}; ALTER TABLE hot ADD price numeric(10, 2); {touch}"
        ))?;
        let sessions = known(server, 3)?;
        server
            .connect()?
            .batch_execute("ALTER TABLE hot ALTER price TYPE numeric(10, 1)")?;
        let sql = "UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING price, version";
        let told = told(server, sessions, sql)?;
        ensure!(told.codes == ["00000"; 3], "{:?}", told.codes);
        ensure!(told.rows == ["2.1|3", "3.1|4", "4.1|5"], "{:?}", told.rows);
        ensure!(told.combined == 0, "{} combined", told.combined);
        Ok(())
    })
}

/// A function that may come to its end without RETURN.
#[test]
fn a_function_without_an_end_is_an_error() -> Result<()> {
    on_server(|server| {
        let touch = trigger(
            "touch",
            "NEW.version := OLD.version + 1; IF NEW.val < 4 OR NEW.id = 2 THEN RETURN NEW; END IF;",
        );
        server
            .connect()?
            .batch_execute(&format!("{COLUMNS}; {touch}"))?;
        let told = told(server, known(server, 4)?, BUMP_RETURNING)?;
        let codes = ["00000", "00000", "2F005", "2F005"];
        ensure!(told.codes == codes, "{:?}", told.codes);
        ensure!(told.rows == ["2|3", "3|4"], "{:?}", told.rows);
        ensure!(told.combined == 0, "{} combined", told.combined);
        Ok(())
    })
}

/// Sessions in which other functions are in force do not do each other's updates.
#[test]
fn sessions_that_know_another_function_are_not_combined() -> Result<()> {
    on_server(|server| {
        let touch = trigger("touch", "NEW.version := OLD.version + abs(1); RETURN NEW;");
        server.connect()?.batch_execute(&format!(
            "{COLUMNS}; {touch}; CREATE SCHEMA mine; \
             CREATE FUNCTION mine.abs(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1000'"
        ))?;
        // The path is set after the triggers have fired.
        let mut mine = known(server, 2)?;
        for session in &mut mine {
            session.batch_execute("SET search_path = mine, pg_catalog, public")?;
        }
        let mut stage = Stage::new(server, BUMP)?;
        let mut waiting = queue(&mut stage, mine, BUMP_RETURNING)?;
        waiting.extend(queue(&mut stage, known(server, 3)?, BUMP_RETURNING)?);
        let told = finish(&mut stage, waiting)?;
        ensure!(told.codes == ["00000"; 5], "{:?}", told.codes);
        let expected = ["2|1002", "3|2002", "4|2003", "5|2004", "6|2005"];
        ensure!(told.rows == expected, "{:?}", told.rows);
        ensure!(told.combined == 2, "{} combined", told.combined);
        Ok(())
    })
}

/// Settings of the session that decide whether a trigger fires, or who takes note of it.
#[test]
fn settings_of_sessions_decide_what_fires() -> Result<()> {
    on_server(|server| {
        let touch = trigger("touch", COUNT);
        server
            .connect()?
            .batch_execute(&format!("{COLUMNS}; {touch}"))?;
        let mut sessions = Vec::new();
        for (count, setting) in [
            (2, "SET session_replication_role = replica"),
            (3, "SET session_replication_role = origin"),
            (2, "SET track_functions = 'pl'"),
        ] {
            for mut session in known(server, count)? {
                session.batch_execute(setting)?;
                sessions.push(session);
            }
        }
        let told = told(server, sessions, BUMP_RETURNING)?;
        ensure!(told.codes == ["00000"; 7], "{:?}", told.codes);
        let expected = ["2|2", "3|2", "4|3", "5|4", "6|5", "7|6", "8|7"];
        ensure!(told.rows == expected, "{:?}", told.rows);
        ensure!(told.combined == 3, "{} combined", told.combined);
        let calls = "SELECT sum(calls)::bigint FROM pg_stat_user_functions";
        txn_server_tests::wait_until(&mut server.connect()?, &format!("SELECT ({calls}) = 2"))?;

        // Triggers for replicas fire for these, and for nobody else.
        server
            .connect()?
            .batch_execute("ALTER TABLE hot ENABLE REPLICA TRIGGER touch")?;
        let replicas = || {
            let mut replicas = Vec::new();
            for _ in 0..3 {
                let mut session = grouped(server)?;
                session.batch_execute(
                    "SET session_replication_role = replica; \
                     UPDATE hot SET val = val WHERE id = 2",
                )?;
                replicas.push(session);
            }
            anyhow::Ok(replicas)
        };
        let rows = all_combined(server, replicas()?, BUMP_RETURNING)?;
        ensure!(rows == ["10|8", "11|9", "12|10"], "{rows:?}");
        let rows = all_combined(server, known(server, 3)?, BUMP_RETURNING)?;
        ensure!(rows == ["14|10", "15|10", "16|10"], "{rows:?}");
        Ok(())
    })
}

/// A role that may not call a trigger's operators gets the error that it would get alone.
#[test]
fn rights_are_asked_as_in_the_sessions_own_call() -> Result<()> {
    on_server(|server| {
        let touch = trigger("touch", "NEW.version := abs(OLD.version) + 1; RETURN NEW;");
        server.connect()?.batch_execute(&format!(
            "{COLUMNS}; {touch}; CREATE ROLE clerk; GRANT SELECT, UPDATE ON hot TO clerk; \
             REVOKE EXECUTE ON FUNCTION pg_catalog.abs(bigint) FROM public"
        ))?;
        let mut sessions = known(server, 3)?;
        sessions[1].batch_execute("SET ROLE clerk")?;
        let told = told(server, sessions, BUMP_RETURNING)?;
        ensure!(
            told.codes == ["00000", "00000", "42501"],
            "{:?}",
            told.codes
        );
        ensure!(told.rows == ["2|3", "3|4"], "{:?}", told.rows);
        ensure!(told.combined == 1, "{} combined", told.combined);
        Ok(())
    })
}

/// The executor has locked the row for the holder's triggers. Nobody else may have.
#[test]
fn a_row_that_others_share_is_not_combined() -> Result<()> {
    on_server(|server| {
        let touch = trigger("touch", COUNT);
        server
            .connect()?
            .batch_execute(&format!("{COLUMNS}; {touch}"))?;
        let mut sharing = server.connect()?;
        let sessions = known(server, 3)?;
        let mut stage = Stage::new(server, BUMP)?;
        let waiting = queue(&mut stage, sessions, BUMP_RETURNING)?;
        sharing.batch_execute("BEGIN; SELECT FROM hot WHERE id = 1 FOR KEY SHARE")?;
        let told = finish(&mut stage, waiting)?;
        sharing.batch_execute("COMMIT")?;
        ensure!(told.codes == ["00000"; 3], "{:?}", told.codes);
        ensure!(told.rows == ["2|3", "3|4", "4|5"], "{:?}", told.rows);
        ensure!(told.combined == 0, "{} combined", told.combined);
        Ok(())
    })
}

/// A trigger with constants that have memory of their own, in two columns and a branch.
const TEXTS: &str = "
    NEW.one := 'one, as long as it is short';
    IF NEW.val + 1000000000.5::numeric > 1000000000.25::numeric THEN
        NEW.two := 'two, of the same length too';
    END IF;
    RETURN NEW;";

const WRONG: &str = "SELECT count(*) FROM hot WHERE id = 1 AND val > 0 AND
    (one, two) IS DISTINCT FROM ('one, as long as it is short', 'two, of the same length too')";

/// What makes PostgreSQL forget the plans of a trigger's expressions, though no function changes.
const CHURN: [&str; 4] = [
    "CREATE SCHEMA IF NOT EXISTS churned",
    "GRANT USAGE ON SCHEMA churned TO public",
    "CREATE OPERATOR ===== (FUNCTION = int4eq, LEFTARG = int, RIGHTARG = int)",
    "DROP OPERATOR ===== (int, int); DROP SCHEMA churned",
];

/// Sessions wait while plans are forgotten: nobody does their updates with what the plans had.
#[test]
fn plans_are_forgotten_while_sessions_wait() -> Result<()> {
    on_server(|server| {
        let touch = trigger("touch", TEXTS);
        let mut control = server.connect()?;
        control.batch_execute(&format!(
            "{COLUMNS}; ALTER TABLE hot ADD one text, ADD two text; {touch}"
        ))?;
        for change in CHURN {
            let sessions = known(server, 3)?;
            let mut stage = Stage::new(server, BUMP)?;
            let returning = format!("{BUMP} RETURNING one");
            let waiting = queue(&mut stage, sessions, &returning)?;
            control.batch_execute(change)?;
            let told = finish(&mut stage, waiting)?;
            ensure!(told.codes == ["00000"; 3], "{change}: {:?}", told.codes);
            ensure!(told.combined == 0, "{change}: {} combined", told.combined);
            ensure!(
                told.rows == ["one, as long as it is short"; 3],
                "{change}: {:?}",
                told.rows
            );
            ensure!(int(&mut control, WRONG)? == 0, "{change}");
        }
        Ok(())
    })
}

/// Under load the server goes on, and no row has anything else.
#[test]
fn plans_are_forgotten_all_the_time() -> Result<()> {
    let server = start_hot(1, &[])?;
    let touch = trigger("touch", TEXTS);
    server.connect()?.batch_execute(&format!(
        "ALTER TABLE hot ADD one text, ADD two text; {touch}"
    ))?;
    let mut control = server.connect()?;
    let load = Load::endless(&server, 12).grouped().moves("combined");
    let tally = load.run_disturbed(
        |worker| worker.committing(1, |worker| worker.simple(BUMP)),
        |running| {
            for change in CHURN.iter().cycle().take(600) {
                control.batch_execute(change)?;
                ensure!(int(&mut control, WRONG)? == 0, "after {change}");
                if running.over() {
                    break;
                }
            }
            Ok(())
        },
    )?;
    tally.only(&[])?;
    tally.explains(int(&mut control, "SELECT val FROM hot")?)?;
    drop(control);
    physical_health(&server, "hot", "id")
}
