//! Triggers and constraints on the hot row: what they note of it is an unbroken chain of versions.
use anyhow::{Result, ensure};
use pgserver::Server;
use txn_server_tests::{int, physical_health, start_hot};

use super::{BUMP, Mix, either, none, one_of};

const NOTE: &str = "
    CREATE TABLE note (old bigint NOT NULL, new bigint NOT NULL);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO note VALUES (OLD.val, NEW.val);
        RETURN NEW;
    END $$;";

fn start(sql: &str) -> Result<Server> {
    let server = start_hot(2, &[])?;
    server.connect()?.batch_execute(&format!("{NOTE}{sql}"))?;
    Ok(server)
}

/// The notes lead from the first value to the last by one way.
fn chain(server: &Server) -> Result<()> {
    let mut client = server.connect()?;
    let val = int(&mut client, "SELECT val FROM hot WHERE id = 1")?;
    let last = int(&mut client, "SELECT max(new) FROM note")?;
    ensure!(val == last, "the value is {val}, the last note {last}");
    drop(client);
    none(server, "SELECT count(*) - count(DISTINCT old) FROM note")?;
    none(server, "SELECT count(*) - count(DISTINCT new) FROM note")?;
    none(
        server,
        "SELECT count(*) FROM note n WHERE old <> 0 AND NOT EXISTS \
         (SELECT FROM note WHERE new = n.old)",
    )?;
    physical_health(server, "hot", "id")
}

#[test]
fn after_row_trigger() -> Result<()> {
    let server =
        start("CREATE TRIGGER note AFTER UPDATE ON hot FOR EACH ROW EXECUTE FUNCTION note()")?;
    Mix::new(&server).run(|worker| {
        one_of(
            worker,
            &[
                BUMP,
                "UPDATE hot SET val = val + 3 - 2 WHERE id = 1 RETURNING val",
                "UPDATE hot SET val = val + 1 WHERE id = 1 AND val >= 0",
            ],
        )
    })?;
    chain(&server)
}

#[test]
fn before_row_trigger_that_notes() -> Result<()> {
    let server =
        start("CREATE TRIGGER note BEFORE UPDATE ON hot FOR EACH ROW EXECUTE FUNCTION note()")?;
    Mix::new(&server).run(|worker| either(worker, BUMP))?;
    chain(&server)
}

/// The first trigger changes the row or refuses it, the second notes it.
#[test]
fn before_row_trigger_that_changes_and_refuses() -> Result<()> {
    let server = start(
        "ALTER TABLE hot ADD COLUMN skip boolean NOT NULL DEFAULT false;
         CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF NEW.skip THEN
                 RETURN NULL;
             END IF;
             NEW.val := OLD.val + 1;
             RETURN NEW;
         END $$;
         CREATE TRIGGER change BEFORE UPDATE ON hot FOR EACH ROW EXECUTE FUNCTION change();
         CREATE TRIGGER note AFTER UPDATE ON hot FOR EACH ROW EXECUTE FUNCTION note()",
    )?;
    Mix::new(&server).run(|worker| {
        one_of(
            worker,
            &[
                "UPDATE hot SET val = 7 WHERE id = 1",
                "UPDATE hot SET val = val + 5 WHERE id = 1 RETURNING val",
                "UPDATE hot SET skip = true WHERE id = 1",
            ],
        )
    })?;
    chain(&server)
}

#[test]
fn statement_trigger_with_transition_tables() -> Result<()> {
    let server = start(
        "CREATE FUNCTION note_all() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             INSERT INTO note SELECT o.val, n.val FROM old_rows o JOIN new_rows n USING (id);
             RETURN NULL;
         END $$;
         CREATE TRIGGER note AFTER UPDATE ON hot
             REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
             FOR EACH STATEMENT EXECUTE FUNCTION note_all()",
    )?;
    Mix::new(&server).run(|worker| either(worker, BUMP))?;
    chain(&server)
}

#[test]
fn deferred_constraint_trigger() -> Result<()> {
    let server = start(
        "CREATE CONSTRAINT TRIGGER note AFTER UPDATE ON hot DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION note()",
    )?;
    // Nobody follows where a trigger can be put off.
    Mix::new(&server)
        .in_turn()
        .run(|worker| either(worker, BUMP))?;
    chain(&server)
}

#[test]
fn trigger_with_a_condition_on_some_columns() -> Result<()> {
    let server = start(
        "CREATE TRIGGER note AFTER UPDATE OF val ON hot FOR EACH ROW
             WHEN (OLD.val IS DISTINCT FROM NEW.val) EXECUTE FUNCTION note()",
    )?;
    Mix::new(&server).run(|worker| either(worker, BUMP))?;
    chain(&server)
}

/// The trigger of the hot row updates another one. A follower may overtake its predecessor on the
/// way there.
#[test]
fn trigger_that_updates_a_second_hot_row() -> Result<()> {
    let server = start(
        "CREATE FUNCTION second() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             UPDATE hot SET val = val + 1 WHERE id = 2;
             RETURN NULL;
         END $$;
         CREATE TRIGGER second AFTER UPDATE ON hot FOR EACH ROW WHEN (NEW.id = 1)
             EXECUTE FUNCTION second()",
    )?;
    Mix::new(&server)
        .value("SELECT val FROM hot WHERE id = 1")
        // 40P01: it meets its predecessor at the second row; who has followed it tries again.
        .allow(&["40001", "40P01"])
        .run(|worker| either(worker, BUMP))?;
    none(&server, "SELECT count(DISTINCT val) - 1 FROM hot")?;
    physical_health(&server, "hot", "id")
}

#[test]
fn generated_column() -> Result<()> {
    let server =
        start("ALTER TABLE hot ADD COLUMN twice bigint GENERATED ALWAYS AS (val * 2) STORED")?;
    Mix::new(&server).run(|worker| either(worker, BUMP))?;
    none(&server, "SELECT count(*) FROM hot WHERE twice <> 2 * val")?;
    physical_health(&server, "hot", "id")
}

/// Every tenth value is refused to a careful session, so that another has to step over it.
#[test]
fn check_that_rejects() -> Result<()> {
    let server = start(
        "ALTER TABLE hot ADD COLUMN careful boolean NOT NULL DEFAULT false;
         ALTER TABLE hot ADD CHECK (NOT careful OR val % 10 <> 0)",
    )?;
    Mix::new(&server)
        .plain("UPDATE hot SET val = val + 1, careful = false WHERE id = 1")
        .allow(&["23514"])
        .run(|worker| {
            either(
                worker,
                "UPDATE hot SET val = val + 1, careful = true WHERE id = 1",
            )
        })?;
    none(
        &server,
        "SELECT count(*) FROM hot WHERE careful AND val % 10 = 0",
    )?;
    physical_health(&server, "hot", "id")
}

#[test]
fn row_security() -> Result<()> {
    let server = start(
        "CREATE ROLE teller LOGIN;
         GRANT SELECT, UPDATE ON hot TO teller;
         ALTER TABLE hot ENABLE ROW LEVEL SECURITY;
         CREATE POLICY own ON hot TO teller USING (id = 1) WITH CHECK (val >= 0)",
    )?;
    Mix::new(&server).run(|worker| {
        worker.simple("SET ROLE teller")?;
        let rows = one_of(worker, &[BUMP, "UPDATE hot SET val = val + 1"]);
        if rows.is_ok() {
            worker.simple("RESET ROLE")?;
        }
        rows
    })?;
    physical_health(&server, "hot", "id")
}
