//! Rows that have been met in a cycle have a gate: who takes one of them waits until the
//! transaction before has both.
use anyhow::{Context, Result, bail, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{
    Background, Load, Watchdog, grouped, int, physical_health, sqlstate, start_hot, text,
};

const ONE: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";
const TWO: &str = "UPDATE hot SET val = val + 1 WHERE id = 2";
/// Fails if it has to wait.
const NO_WAIT: &str = "SET txn.hot_wait_timeout = '200ms'";

struct Scene {
    server: Server,
    control: Client,
}

impl Scene {
    fn start() -> Result<Scene> {
        let server = start_hot(3, &[("deadlock_timeout", "10min")])?;
        let control = server.connect()?;
        Ok(Scene { server, control })
    }

    fn begin(&self) -> Result<Client> {
        let mut client = grouped(&self.server)?;
        client.batch_execute("BEGIN")?;
        Ok(client)
    }

    /// Two transactions close a cycle, and roll back.
    fn circle(&self) -> Result<()> {
        let (mut a, mut b) = (self.begin()?, self.begin()?);
        a.batch_execute(ONE)?;
        b.batch_execute(TWO)?;
        a.batch_execute(TWO)?;
        let told = sqlstate(&b.batch_execute(ONE));
        ensure!(told == "40P01", "{told}");
        a.batch_execute("ROLLBACK")?;
        Ok(())
    }

    /// One that has updated row 1, with the gate, and one that wants row 2 and waits for the gate.
    /// (If the machine stands still for too long the gate has gone away meanwhile.)
    fn met(&mut self, before: &str) -> Result<(Client, Background<()>)> {
        for _ in 0..20 {
            self.circle()?;
            let (mut a, mut b) = (self.begin()?, self.begin()?);
            b.batch_execute(before)?;
            a.batch_execute(ONE)?;
            let b = Background::run(b, TWO)?;
            if b.wait_until_blocked(&mut self.control).is_ok()
                && text(&mut self.control, "SELECT reason FROM txn.waits")
                    .is_ok_and(|r| r == "gate")
            {
                return Ok((a, b));
            }
            a.batch_execute("ROLLBACK")?;
            let (mut b, _) = b.end()?;
            b.batch_execute("ROLLBACK")?;
        }
        bail!("nobody waits for the gate")
    }

    fn finish<const N: usize>(
        mut self,
        dog: Watchdog,
        clients: [Client; N],
        sums: [i64; 2],
    ) -> Result<()> {
        drop(clients);
        for (id, sum) in (1..).zip(sums) {
            let val = int(
                &mut self.control,
                &format!("SELECT val FROM hot WHERE id = {id}"),
            )?;
            ensure!(val == sum, "row {id}: {val}");
        }
        drop(self.control);
        dog.finish(physical_health(&self.server, "hot", "id"))
    }
}

/// They take both of their rows in one order, and nobody is refused.
#[test]
fn both_directions() -> Result<()> {
    let mut scene = Scene::start()?;
    let dog = Watchdog::new(&scene.server);
    let (mut a, b) = scene.met("")?;
    a.batch_execute(TWO)?;
    let (mut b, told) = b.end()?;
    told?;
    b.batch_execute(ONE).context("the other direction")?;
    let commit = Background::run(b, "COMMIT")?;
    commit.wait_until_blocked(&mut scene.control)?;
    a.batch_execute("COMMIT")?;
    let (b, told) = commit.end()?;
    told?;
    scene.finish(dog, [a, b], [2, 2])
}

/// A transaction that has the gate may be idle: the others go on after a second.
#[test]
fn an_idle_transaction_is_passed() -> Result<()> {
    let mut scene = Scene::start()?;
    let dog = Watchdog::new(&scene.server);
    let (mut a, b) = scene.met("")?;
    let (mut b, told) = b.end()?;
    told?;
    b.batch_execute(ONE)?;
    a.batch_execute("COMMIT")?;
    b.batch_execute("COMMIT")?;
    scene.finish(dog, [a, b], [2, 1])
}

/// A rollback gives it back.
#[test]
fn a_rollback_opens_it() -> Result<()> {
    let mut scene = Scene::start()?;
    let dog = Watchdog::new(&scene.server);
    for end in ["ROLLBACK", "COMMIT"] {
        let (mut a, b) = scene.met("")?;
        a.batch_execute(end)?;
        let (mut b, told) = b.end()?;
        told?;
        b.batch_execute("COMMIT")?;
    }
    scene.finish(dog, [], [1, 2])
}

/// A statement that is cancelled while it waits for the gate leaves nothing behind.
#[test]
fn cancelled() -> Result<()> {
    let mut scene = Scene::start()?;
    let dog = Watchdog::new(&scene.server);
    for (setting, expected) in [
        ("SET LOCAL statement_timeout = '100ms'", "57014"),
        ("SET LOCAL lock_timeout = '100ms'", "55P03"),
        ("SET LOCAL txn.hot_wait_timeout = '100ms'", "55P03"),
    ] {
        let (mut a, b) = scene.met(setting)?;
        let (mut b, told) = b.end()?;
        let told = sqlstate(&told);
        ensure!(told == expected, "{told} after {setting}");
        b.batch_execute("ROLLBACK")?;
        a.batch_execute(TWO)?;
        a.batch_execute("COMMIT")?;
        let b = Background::run(b, TWO)?;
        b.end()?.1?;
    }
    scene.finish(dog, [], [3, 6])
}

/// A single statement takes one row, and a statement that comes to no row has none.
#[test]
fn who_takes_one_row_only() -> Result<()> {
    let mut scene = Scene::start()?;
    let dog = Watchdog::new(&scene.server);
    let (mut a, b) = scene.met("")?;
    let mut alone = grouped(&scene.server)?;
    alone.batch_execute(NO_WAIT)?;
    alone.batch_execute(TWO)?;
    a.batch_execute("ROLLBACK")?;
    let (mut b, told) = b.end()?;
    told?;
    b.batch_execute("ROLLBACK")?;
    scene.circle()?;
    a.batch_execute("BEGIN")?;
    a.batch_execute("UPDATE hot SET val = val + 1 WHERE id = 1 AND val < 0")?;
    alone.batch_execute("BEGIN")?;
    alone.batch_execute(TWO)?;
    a.batch_execute("COMMIT")?;
    alone.batch_execute("COMMIT")?;
    scene.finish(dog, [a, b, alone], [0, 2])
}

/// The gate is no row: no view shows it.
#[test]
fn it_is_no_row() -> Result<()> {
    let mut scene = Scene::start()?;
    let dog = Watchdog::new(&scene.server);
    let (mut a, b) = scene.met("")?;
    let hot = int(&mut scene.control, "SELECT count(*) FROM txn.hotspots")?;
    ensure!(hot == 2, "{hot}");
    let waits = "SELECT format('%s %s %s', relation, key, blocked_by IS NOT NULL) FROM txn.waits";
    let waits = text(&mut scene.control, waits)?;
    ensure!(waits == "hot 2 t", "{waits}");
    a.batch_execute("ROLLBACK")?;
    let (mut b, told) = b.end()?;
    told?;
    b.batch_execute("ROLLBACK")?;
    scene.finish(dog, [a, b], [0, 0])
}

/// Cycles are refused at once: nobody waits until the deadlock detector looks, which it does after
/// ten minutes here. Groups are small, so that some wait for a row's transactions with its ticket
/// in hand, while one of those waits for the ticket.
#[test]
fn no_circle_waits_for_the_detector() -> Result<()> {
    let server = start_hot(2, &[("deadlock_timeout", "10min")])?;
    let mut before = 0;
    for shape in [
        &["UPDATE hot SET val = val + 1 WHERE id = $1"][..],
        &[
            "SELECT FROM hot WHERE id = $1 FOR UPDATE",
            "UPDATE hot SET val = val + 1 WHERE id = $1",
        ],
        &["INSERT INTO hot VALUES ($1, 0) ON CONFLICT (id) DO UPDATE SET val = hot.val + 1"],
    ] {
        let tally = Load::new(&server, 48, 20)
            .session(|_| {
                "SET txn.group_lock = on; SET txn.hot_threshold = 1; SET txn.group_size = 2"
                    .to_owned()
            })
            .run(|worker| {
                let rows = if worker.chance(50) { [1, 2] } else { [2, 1] };
                worker.begin()?;
                for row in rows {
                    for statement in shape {
                        worker.execute(statement, &[&row])?;
                    }
                }
                worker.commit(2)
            })?;
        tally.only(&["40001", "40P01"]).context(shape[0])?;
        let sum = int(&mut server.connect()?, "SELECT sum(val) FROM hot")?;
        tally.explains(sum - before).context(shape[0])?;
        before = sum;
    }
    physical_health(&server, "hot", "id")
}
