//! Sessions that are struck while they wait for a standby that does not answer.
use std::sync::mpsc::{Receiver, channel};

use anyhow::{Result, ensure};
use pgserver::Server;
use postgres::error::DbError;
use postgres::{Client, NoTls};
use txn_server_tests::{
    Background, Watchdog, int, local, physical_health, sqlstate, start_hot, start_stock, until,
};

use crate::stage::Stage;

const TABLE: &str = "CREATE TABLE hot (id int PRIMARY KEY, val bigint NOT NULL);
                     INSERT INTO hot VALUES (1, 0)";
const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";
const IN_BLOCK: (&str, &str) = ("BEGIN; UPDATE hot SET val = val + 1 WHERE id = 1", "COMMIT");
const ALONE: (&str, &str) = ("", BUMP);

/// A statement that waits for the standby, and what its client is told of that.
struct Waiting {
    statement: Background,
    notices: Receiver<DbError>,
}

/// The SQLSTATE of the result, then SQLSTATE and message of each notice.
type Told = (String, Vec<(String, String)>);

impl Waiting {
    /// Runs `before` and then `sql`, in a session with group locking if the server has it.
    fn run(server: &Server, before: &str, sql: &str) -> Result<Self> {
        let (client, notices) = listening(server, before)?;
        let statement = Background::run(client, sql)?;
        Ok(Waiting { statement, notices })
    }

    /// Waits until it waits for the standby; an error if it ends.
    fn wait_until_replicating(&self, control: &mut Client) -> Result<()> {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid = ";
        until(control, "it waits for the standby", |control| {
            ensure!(!self.statement.is_finished(), "it did not wait");
            Ok(int(control, &format!("{sql}{}", self.statement.pid))? > 0)
        })
    }

    fn told(self) -> Result<Told> {
        let (client, result) = self.statement.end()?;
        drop(client);
        let notices = self.notices.iter();
        let notices = notices.map(|n| (n.code().code().to_owned(), n.message().to_owned()));
        Ok((sqlstate(&result), notices.collect()))
    }

    /// Strikes it with `function`; what it is told then.
    fn struck(self, control: &mut Client, function: &str) -> Result<Told> {
        control.query(&format!("SELECT {function}($1)"), &[&self.statement.pid])?;
        self.told()
    }
}

fn listening(server: &Server, before: &str) -> Result<(Client, Receiver<DbError>)> {
    let (tell, notices) = channel();
    let mut config = server.config("postgres", "postgres");
    config.notice_callback(move |notice| {
        // Nobody may listen any more.
        let _ = tell.send(notice);
    });
    let mut client = config.connect(NoTls)?;
    if server.options().preload {
        client.batch_execute("SET txn.group_lock = on; SET txn.hot_threshold = 0")?;
    }
    client.batch_execute(before)?;
    Ok((client, notices))
}

/// What clients of stock PostgreSQL are told when `function` strikes their wait.
fn told_by_stock(function: &str) -> Result<Told> {
    let server = start_stock(&[])?;
    server.connect()?.batch_execute(TABLE)?;
    server.set_synchronous_standbys("nobody")?;
    let mut control = local(&server)?;
    let mut told = Vec::new();
    for (before, sql) in [IN_BLOCK, ALONE] {
        let waiting = Waiting::run(&server, before, sql)?;
        waiting.wait_until_replicating(&mut control)?;
        told.push(waiting.struck(&mut control, function)?);
    }
    ensure!(told[0] == told[1] && !told[0].1.is_empty(), "{told:?}");
    Ok(told.remove(0))
}

/// A client whose transaction is committed, and whose wait for the standby is struck, gets a
/// warning, as in stock PostgreSQL. The transactions behind it get none.
fn struck_wait(function: &str) -> Result<()> {
    let stock = told_by_stock(function)?;
    // Nobody who waits for the row goes to the lock manager, where nobody would do its update.
    let server = start_hot(1, &[("deadlock_timeout", "10min")])?;
    let dog = Watchdog::new(&server);
    let followers = followers_wait_on(&server, function, &stock);
    dog.finish(followers.and_then(|()| combined_wait_on(&server, function, &stock)))
}

fn followers_wait_on(server: &Server, function: &str, stock: &Told) -> Result<()> {
    let mut control = local(server)?;
    server.set_synchronous_standbys("nobody")?;
    // The second follows the first while that still runs.
    let mut sessions = Vec::new();
    for _ in 0..2 {
        sessions.push(listening(server, IN_BLOCK.0)?);
    }
    ensure!(int(&mut control, "SELECT followed FROM txn.stats")? == 1);
    let mut waiting = Vec::new();
    for (client, notices) in sessions {
        let statement = Background::run(client, IN_BLOCK.1)?;
        waiting.push(Waiting { statement, notices });
    }
    for (before, sql) in [IN_BLOCK, ALONE, ALONE] {
        for waiting in &waiting {
            waiting.wait_until_replicating(&mut control)?;
        }
        waiting.push(Waiting::run(server, before, sql)?);
    }
    let reader = Waiting::run(server, "", "SELECT val FROM hot WHERE id = 1")?;
    waiting.push(reader);
    for struck in [0, 2, 2, 2] {
        for waiting in &waiting {
            waiting.wait_until_replicating(&mut control)?;
        }
        let told = waiting.remove(struck).struck(&mut control, function)?;
        ensure!(told == *stock, "{told:?} instead of {stock:?}");
    }
    others_wait_on(server, &mut control, waiting)?;
    let val = int(&mut control, "SELECT val FROM hot WHERE id = 1")?;
    ensure!(val == 5, "the value is {val}");
    drop(control);
    physical_health(server, "hot", "id")
}

/// One of those whose updates the holder of the row has done, then the holder itself.
fn combined_wait_on(server: &Server, function: &str, stock: &Told) -> Result<()> {
    let mut stage = Stage::new(server, BUMP)?;
    let before = (stage.val()?, stage.combined()?);
    let adopted: Vec<_> = (0..3)
        .map(|_| Waiting::run(server, "", BUMP))
        .collect::<Result<_>>()?;
    stage.wait_queued(3)?;
    server.set_synchronous_standbys("nobody")?;
    stage.release()?;
    let mut adopted = adopted;
    for waiting in &adopted {
        waiting.wait_until_replicating(&mut stage.control)?;
    }
    let told = adopted.remove(1).struck(&mut stage.control, function)?;
    ensure!(told == *stock, "{told:?} instead of {stock:?}");
    let holder = stage.holder_pid();
    let strike = format!("SELECT {function}($1)");
    stage.control.query(&strike, &[&holder])?;
    let end = stage.end()?;
    ensure!(end == stock.0, "the holder was told {end}");
    let mut control = local(server)?;
    others_wait_on(server, &mut control, adopted)?;
    let after = (stage.val()?, stage.combined()?);
    ensure!(
        after == (before.0 + 4, before.1 + 3),
        "{before:?} became {after:?}"
    );
    drop((stage, control));
    physical_health(server, "hot", "id")
}

/// They have not been told anything; when no standby is asked for any more, they hear of success
/// alone.
fn others_wait_on(server: &Server, control: &mut Client, others: Vec<Waiting>) -> Result<()> {
    for waiting in &others {
        waiting.wait_until_replicating(control)?;
    }
    server.set_synchronous_standbys("")?;
    for waiting in others {
        let told = waiting.told()?;
        ensure!(told == ("00000".to_owned(), vec![]), "{told:?}");
    }
    Ok(())
}

#[test]
fn a_cancelled_standby_wait_is_a_warning() -> Result<()> {
    struck_wait("pg_cancel_backend")
}

#[test]
fn a_session_terminated_in_its_standby_wait_has_committed() -> Result<()> {
    struck_wait("pg_terminate_backend")
}
