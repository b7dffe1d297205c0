//! Every account's balance is the sum of its ledger, and the ledger has every confirmed row.
use anyhow::{Result, ensure};
use pgserver::Server;
use txn_server_tests::{Load, Tally, int, physical_health, start};

/// 40001: one that was followed has rolled back. 40P01: a wait would have closed a cycle.
const RETRY: [&str; 2] = ["40001", "40P01"];
const UPDATE: &str = "UPDATE account SET balance = balance + $2 WHERE id = $1";
const INSERT: &str = "INSERT INTO ledger (account, amount) VALUES ($1, $2)";

fn setup() -> Result<Server> {
    let server = start(&[])?;
    server.connect()?.batch_execute(
        "CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL);
         CREATE TABLE ledger (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                              account int NOT NULL REFERENCES account, amount bigint NOT NULL);
         CREATE INDEX ON ledger (account);
         INSERT INTO account SELECT id, 0 FROM generate_series(1, 3) id",
    )?;
    Ok(server)
}

fn compare(server: &Server, tally: &Tally) -> Result<()> {
    tally.only(&RETRY)?;
    let mut client = server.connect()?;
    tally.explains(int(&mut client, "SELECT count(*) FROM ledger")?)?;
    let differ = "SELECT count(*) FROM account a WHERE balance <> \
                  (SELECT coalesce(sum(amount), 0) FROM ledger WHERE account = a.id)";
    ensure!(
        int(&mut client, differ)? == 0,
        "a balance is not the sum of its ledger"
    );
    drop(client);
    physical_health(server, "account", "id")?;
    physical_health(server, "ledger", "id")
}

/// The number of the next MultiXact.
fn multixacts(server: &Server) -> Result<i64> {
    let mut client = server.connect()?;
    client.batch_execute("CHECKPOINT")?;
    let next = "SELECT next_multixact_id::text::bigint FROM pg_control_checkpoint()";
    int(&mut client, next)
}

/// A transaction that has updated the account needs no lock for the foreign key: there is not one
/// MultiXact.
#[test]
fn update_then_insert_with_a_foreign_key() -> Result<()> {
    let server = setup()?;
    let before = multixacts(&server)?;
    let tally = Load::new(&server, 64, 40).grouped().run(|worker| {
        let account = if worker.chance(80) { 1 } else { 2 };
        let amount = worker.attempt as i64;
        worker.begin()?;
        worker.execute(UPDATE, &[&account, &amount])?;
        worker.execute(INSERT, &[&account, &amount])?;
        if worker.chance(5) {
            return worker.rollback();
        }
        worker.commit(1)
    })?;
    let followed = int(&mut server.connect()?, "SELECT followed FROM txn.stats")?;
    ensure!(followed > 0, "nobody followed");
    let made = multixacts(&server)? - before;
    ensure!(made == 0, "{made} MultiXacts");
    compare(&server, &tally)
}

/// The insert's key share is on the row before its own update asks for it, so nobody queues.
#[test]
fn insert_then_update() -> Result<()> {
    let server = setup()?;
    let load = Load::new(&server, 64, 40)
        .session(|_| "SET txn.group_lock = on; SET txn.hot_threshold = 1".to_owned());
    let tally = load.run(|worker| {
        let amount = worker.attempt as i64;
        worker.begin()?;
        worker.execute(INSERT, &[&1, &amount])?;
        worker.execute(UPDATE, &[&1, &amount])?;
        if worker.chance(5) {
            return worker.rollback();
        }
        worker.commit(1)
    })?;
    compare(&server, &tally)
}

/// A trigger writes the ledger, and a key-share lock of strangers comes and goes.
#[test]
fn ledger_by_trigger_next_to_key_share() -> Result<()> {
    let server = setup()?;
    server.connect()?.batch_execute(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             INSERT INTO ledger (account, amount) VALUES (NEW.id, NEW.balance - OLD.balance);
             RETURN NULL;
         END $$;
         CREATE TRIGGER note AFTER UPDATE ON account FOR EACH ROW EXECUTE FUNCTION note()",
    )?;
    let tally = Load::new(&server, 48, 40).grouped().run(|worker| {
        worker.begin()?;
        if worker.number % 8 == 0 {
            worker.query("SELECT id FROM account WHERE id = 1 FOR KEY SHARE", &[])?;
            return worker.commit(0);
        }
        worker.execute(UPDATE, &[&1, &7i64])?;
        if worker.chance(5) {
            return worker.rollback();
        }
        worker.commit(1)
    })?;
    compare(&server, &tally)
}
