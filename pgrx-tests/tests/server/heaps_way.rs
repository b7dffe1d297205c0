//! Cycles that close while a transaction is on its way to a row. It is held there at a named point
//! of the code (a library with the feature `stop_events`). The last one in the cycle sees it.
//! Nobody waits until the deadlock detector looks, which it does after ten minutes here.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{
    Background, Watchdog, grouped, int, physical_health, sqlstate, start_hot, wait_until,
};

const ONE: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";
const TWO: &str = "UPDATE hot SET val = val + 1 WHERE id = 2";

struct Scene {
    server: Server,
    control: Client,
}

impl Scene {
    fn start() -> Result<Scene> {
        let server = start_hot(2, &[("deadlock_timeout", "10min")])?;
        let control = server.connect()?;
        Ok(Scene { server, control })
    }

    /// A session in a transaction, for which a row is hot when so many wait for it.
    fn begin(&self, threshold: u32) -> Result<Client> {
        let mut client = grouped(&self.server)?;
        client.batch_execute(&format!("SET txn.hot_threshold = {threshold}; BEGIN"))?;
        Ok(client)
    }

    /// From here on sessions are held at that point if they want it.
    fn hold_at(&mut self, point: &str) -> Result<()> {
        let lock = format!("SELECT pg_advisory_lock(hashtext('txn.{point}'))");
        self.control.batch_execute(&lock)?;
        Ok(())
    }

    /// The statement of a session that is held at that point now.
    fn held(
        &mut self,
        mut client: Client,
        point: &str,
        sql: &'static str,
    ) -> Result<Background<()>> {
        client.batch_execute(&format!("SET txn.stop_at = '{point}'"))?;
        let held = Background::run(client, sql)?;
        self.is_held(&held)?;
        Ok(held)
    }

    fn is_held(&mut self, session: &Background<()>) -> Result<()> {
        session.wait_until_stopped(&mut self.control)
    }

    fn waiting(&mut self, client: Client, sql: &'static str) -> Result<Background<()>> {
        let waiting = Background::run(client, sql)?;
        waiting.wait_until_blocked(&mut self.control)?;
        Ok(waiting)
    }

    fn release(&mut self) -> Result<()> {
        self.control
            .batch_execute("SELECT pg_advisory_unlock_all()")?;
        Ok(())
    }

    /// Cancels the statement of a session that is held.
    fn cancel(&mut self, held: Background<()>) -> Result<()> {
        self.control
            .execute("SELECT pg_cancel_backend($1)", &[&held.pid])?;
        let (_, told) = held.end()?;
        let told = sqlstate(&told);
        ensure!(told == "57014", "the cancelled session is told {told}");
        Ok(())
    }

    /// T, which is held, gives way to X: that one is refused, and H and T go on.
    fn gives_way(&mut self, t: Background<()>, x: Background<()>, h: Background<()>) -> Result<()> {
        self.release()?;
        let (mut x, told) = x.end()?;
        let told = sqlstate(&told);
        ensure!(told == "40P01", "X is told {told}");
        x.batch_execute("ROLLBACK")?;
        for (who, session) in [("H", h), ("T", t)] {
            let (mut client, told) = session.end()?;
            told.context(who)?;
            client.batch_execute("COMMIT")?;
        }
        Ok(())
    }

    fn finish(mut self, dog: Watchdog, sum: i64) -> Result<()> {
        let found = int(&mut self.control, "SELECT sum(val) FROM hot")?;
        ensure!(found == sum, "the sum is {found}");
        drop(self.control);
        dog.finish(physical_health(&self.server, "hot", "id"))
    }
}

/// W has row 2 and comes to row 1, which is free. V takes it before W does, and wants row 2.
fn taken_before(statement: &'static str) -> Result<()> {
    let mut scene = Scene::start()?;
    let dog = Watchdog::new(&scene.server);
    let (mut w, mut v) = (scene.begin(100)?, scene.begin(100)?);
    w.batch_execute(TWO)?;
    scene.hold_at("heaps_way")?;
    let w = scene.held(w, "heaps_way", statement)?;
    v.batch_execute(ONE)?;
    let v = scene.waiting(v, TWO)?;
    scene.release()?;
    let (mut w, told) = w.end()?;
    let told = sqlstate(&told);
    ensure!(told == "40P01", "W is told {told}: {statement}");
    w.batch_execute("ROLLBACK")?;
    let (mut v, told) = v.end()?;
    told.context("V")?;
    v.batch_execute("COMMIT")?;
    drop((v, w));
    scene.finish(dog, 2)
}

#[test]
fn a_row_is_taken_before_an_update() -> Result<()> {
    taken_before(ONE)
}

#[test]
fn a_row_is_taken_before_a_delete() -> Result<()> {
    taken_before("DELETE FROM hot WHERE id = 1")
}

#[test]
fn a_row_is_taken_before_a_lock() -> Result<()> {
    taken_before("SELECT FROM hot WHERE id = 1 FOR UPDATE")
}

#[test]
fn a_row_is_taken_before_a_lock_that_others_share() -> Result<()> {
    taken_before("SELECT FROM hot WHERE id = 1 FOR SHARE")
}

#[test]
fn a_row_is_taken_before_an_upsert() -> Result<()> {
    taken_before("INSERT INTO hot VALUES (1, 0) ON CONFLICT (id) DO UPDATE SET val = hot.val + 1")
}

#[test]
fn a_row_is_taken_before_an_update_of_all_columns() -> Result<()> {
    taken_before("UPDATE hot SET id = id, val = val + 1 WHERE id = 1")
}

/// T has the ticket of row 1 and nothing else. It comes to wait for H, which has the row in heap's
/// way. H waits for X, which waits for the ticket: T gives way.
#[test]
fn who_has_only_the_ticket_gives_way() -> Result<()> {
    let mut scene = Scene::start()?;
    let dog = Watchdog::new(&scene.server);
    let (mut h, mut x, t) = (scene.begin(100)?, scene.begin(1)?, scene.begin(1)?);
    h.batch_execute(ONE)?;
    x.batch_execute(TWO)?;
    scene.hold_at("heaps_way")?;
    let t = scene.held(t, "heaps_way", ONE)?;
    let x = scene.waiting(x, ONE)?;
    let h = scene.waiting(h, TWO)?;
    scene.gives_way(t, x, h)?;
    scene.finish(dog, 3)
}

/// T has the gate of rows 1 and 2 as well, for which nobody waits: it gives the ticket.
#[test]
fn who_has_a_gate_and_a_ticket_gives_the_ticket() -> Result<()> {
    const SHARE: [&str; 2] = [
        "SELECT FROM hot WHERE id = 1 FOR SHARE",
        "SELECT FROM hot WHERE id = 2 FOR SHARE",
    ];
    let mut scene = Scene::start()?;
    let dog = Watchdog::new(&scene.server);
    let (mut h, mut x, t) = (scene.begin(0)?, scene.begin(0)?, scene.begin(0)?);
    h.batch_execute(ONE)?;
    x.batch_execute(TWO)?;
    h.batch_execute(TWO)?;
    let told = sqlstate(&x.batch_execute(ONE));
    ensure!(told == "40P01", "the first cycle: {told}");
    x.batch_execute("ROLLBACK; BEGIN")?;
    h.batch_execute("ROLLBACK; BEGIN")?;
    h.batch_execute(SHARE[0])?;
    x.batch_execute(SHARE[1])?;
    scene.hold_at("heaps_way")?;
    let t = scene.held(t, "heaps_way", ONE)?;
    let x = scene.waiting(x, ONE)?;
    let h = scene.waiting(h, TWO)?;
    scene.gives_way(t, x, h)?;
    scene.finish(dog, 2)
}

/// T is handed out the version of L, which waits for X, which waits for the ticket. T would keep
/// that to its commit, and wait there for L: it gives way, too.
#[test]
fn who_would_keep_the_ticket_gives_way() -> Result<()> {
    const LOCK_ONE: &str = "SELECT FROM hot WHERE id = 1 FOR UPDATE";
    let mut scene = Scene::start()?;
    let dog = Watchdog::new(&scene.server);
    let (mut l, s) = (scene.begin(0)?, scene.begin(0)?);
    let (mut x, mut t) = (scene.begin(0)?, scene.begin(0)?);
    l.batch_execute(ONE)?;
    x.batch_execute("SELECT FROM hot WHERE id = 2 FOR UPDATE")?;
    scene.hold_at("ticket_taken")?;
    let s = scene.held(s, "ticket_taken", ONE)?;
    scene.hold_at("ticket_given")?;
    t.batch_execute("SET txn.stop_at = 'ticket_given'")?;
    let t = scene.waiting(t, LOCK_ONE)?;
    scene.cancel(s)?;
    scene.is_held(&t)?;
    let x = scene.waiting(x, ONE)?;
    let l = scene.waiting(l, TWO)?;
    scene.release()?;
    let (mut x, told) = x.end()?;
    let told = sqlstate(&told);
    ensure!(told == "40P01", "X is told {told}");
    x.batch_execute("ROLLBACK")?;
    let (mut l, told) = l.end()?;
    told.context("L")?;
    let (t, told) = t.end()?;
    told.context("T")?;
    let t_commits = Background::run(t, "COMMIT")?;
    l.batch_execute("COMMIT")?;
    let (t, told) = t_commits.end()?;
    told.context("T's commit")?;
    drop((l, x, t));
    scene.finish(dog, 2)
}

/// H has locked row 1 in a savepoint, and W waits for it. H rolls back to the savepoint and comes
/// to row 2, which W has. W has not said yet that it waits no more: that is no cycle.
#[test]
fn a_savepoint_rolled_back_is_no_cycle() -> Result<()> {
    let mut scene = Scene::start()?;
    let dog = Watchdog::new(&scene.server);
    let (mut h, mut w) = (scene.begin(100)?, scene.begin(100)?);
    w.batch_execute(TWO)?;
    h.batch_execute("SAVEPOINT s")?;
    h.batch_execute(ONE)?;
    scene.hold_at("holder_ended")?;
    w.batch_execute("SET txn.stop_at = 'holder_ended'")?;
    let w = Background::run(w, ONE)?;
    wait_until(&mut scene.control, &awaits_transaction(&w))?;
    h.batch_execute("ROLLBACK TO s")?;
    scene.is_held(&w)?;
    let h = scene.waiting(h, TWO)?;
    scene.release()?;
    for (who, session) in [("W", w), ("H", h)] {
        let (mut client, told) = session.end()?;
        told.context(who)?;
        client.batch_execute("COMMIT")?;
    }
    scene.finish(dog, 3)
}

/// Whether that session waits for the end of a transaction.
fn awaits_transaction(session: &Background<()>) -> String {
    format!(
        "SELECT count(*) > 0 FROM pg_locks
         WHERE pid = {} AND locktype = 'transactionid' AND NOT granted",
        session.pid
    )
}

/// H has locked row 1 in a savepoint that it has released, within another one. W waits for H's end
/// then, also after a rollback to the outer savepoint. So H closes a cycle when it comes to row 2.
fn released(waits_before: bool) -> Result<()> {
    let mut scene = Scene::start()?;
    let dog = Watchdog::new(&scene.server);
    let (mut h, mut w) = (scene.begin(100)?, scene.begin(100)?);
    w.batch_execute(TWO)?;
    for statement in ["SAVEPOINT outside", "SAVEPOINT inside", ONE] {
        h.batch_execute(statement)?;
    }
    let w = if waits_before {
        let w = scene.waiting(w, ONE)?;
        h.batch_execute("RELEASE inside")?;
        w
    } else {
        h.batch_execute("RELEASE inside")?;
        scene.waiting(w, ONE)?
    };
    let awaits_h = format!(
        "SELECT count(*) > 0 FROM pg_locks AS awaited JOIN pg_stat_activity AS h
         ON h.backend_xid = awaited.transactionid WHERE awaited.pid = {} AND NOT granted",
        w.pid
    );
    wait_until(&mut scene.control, &awaits_h)?;
    h.batch_execute("ROLLBACK TO outside")?;
    let told = sqlstate(&h.batch_execute(TWO));
    ensure!(told == "40P01", "H is told {told}");
    h.batch_execute("ROLLBACK")?;
    let (mut w, told) = w.end()?;
    told.context("W")?;
    w.batch_execute("COMMIT")?;
    drop((h, w));
    scene.finish(dog, 2)
}

#[test]
fn a_savepoint_released_before_the_wait_is_a_cycle() -> Result<()> {
    released(false)
}

#[test]
fn a_savepoint_released_in_the_wait_is_a_cycle() -> Result<()> {
    released(true)
}
