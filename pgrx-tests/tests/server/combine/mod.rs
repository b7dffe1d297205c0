//! Combining: a session that has the ticket does the waiting updates of others. The holder is
//! stopped at a named point (a library with the feature `stop_events`), so that it is certain who
//! is done by whom.
mod blocks;
mod leaving;
mod other_triggers;
mod portals;
mod replayed;
mod returning;
mod scope;
mod triggers;

use anyhow::{Context, Result, bail, ensure};
use pgserver::Server;
use postgres::types::ToSql;
use postgres::{Client, SimpleQueryMessage};
use txn_server_tests::{
    Background, Load, Watchdog, grouped, int, physical_health, pid, sqlstate, start_hot, text,
    wait_until,
};

use crate::stage::{Prepared, Stage, crowd};

const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";

/// Nobody goes to the lock manager, where it would not be seen.
const PATIENT: [(&str, &str); 1] = [("deadlock_timeout", "10min")];

fn versions(client: &mut Client) -> Result<i64> {
    client.batch_execute("CREATE EXTENSION IF NOT EXISTS pageinspect")?;
    int(
        client,
        "SELECT count(*) FROM heap_page_items(get_raw_page('hot', 0)) WHERE lp_flags = 1",
    )
}

/// Runs `scenario` on a server of its own.
fn on_server(scenario: fn(&Server) -> Result<()>) -> Result<()> {
    let server = start_hot(1, &PATIENT)?;
    let dog = Watchdog::new(&server);
    dog.finish(scenario(&server))?;
    physical_health(&server, "hot", "id")
}

#[test]
fn waiters_share_the_holders_version() -> Result<()> {
    on_server(|server| {
        let mut stage = Stage::new(server, BUMP)?;
        let before = versions(&mut stage.control)?;
        let waiters = crowd(server, 5, BUMP)?;
        stage.wait_queued(5)?;
        stage.release()?;
        ensure!(stage.end()? == "00000");
        for waiter in waiters {
            let told = sqlstate(&waiter.end()?.1);
            ensure!(told == "00000", "a waiter was told {told}");
        }
        ensure!(stage.val()? == 6, "the value is {}", stage.val()?);
        ensure!(stage.combined()? == 5, "{} combined", stage.combined()?);
        let written = versions(&mut stage.control)? - before;
        ensure!(written == 1, "{written} versions of the row were written");
        let updates = int(&mut stage.control, "SELECT updates FROM txn.hotspots")?;
        ensure!(updates == 7, "txn.hotspots counts {updates} updates");
        let stats = "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'hot'";
        wait_until(&mut stage.control, &format!("SELECT ({stats}) = 7"))
    })
}

/// Each has arguments of its own, and conditions that are checked against what those before it have
/// left.
#[test]
fn arguments_and_conditions_are_each_ones_own() -> Result<()> {
    on_server(|server| {
        server.connect()?.batch_execute("UPDATE hot SET val = 10")?;
        let take = "UPDATE hot SET val = val - $1 WHERE id = 1 AND val >= $1";
        let mut stage = Stage::new(server, BUMP)?;
        // The holder's statement is another: the first of these does the others.
        let takers: Vec<_> = [3, 4, 5, 3]
            .into_iter()
            .map(|amount| Prepared::run(server, take, vec![amount]))
            .collect::<Result<_>>()?;
        stage.wait_queued(4)?;
        stage.release()?;
        ensure!(stage.end()? == "00000");
        let mut taken = 0;
        for (taker, amount) in takers.into_iter().zip([3, 4, 5, 3]) {
            match taker.end()?? {
                0 => {}
                1 => taken += amount,
                rows => bail!("one update changed {rows} rows"),
            }
        }
        let val = stage.val()?;
        ensure!(val == 11 - taken, "{taken} taken of 11, {val} left");
        ensure!(val < 3, "{val} left, and somebody was refused");
        ensure!(stage.combined()? == 3, "{} combined", stage.combined()?);
        Ok(())
    })
}

/// Sessions that write their numbers as literals, or execute a statement with a plan of its own for
/// each execution.
#[test]
fn literals_are_arguments() -> Result<()> {
    on_server(|server| {
        server.connect()?.batch_execute(
            "ALTER TABLE hot ADD name text DEFAULT '', ADD price numeric DEFAULT 0",
        )?;
        let mut stage = Stage::new(server, BUMP)?;
        let mut literal = Vec::new();
        for n in 1..=4 {
            let sql = format!(
                "UPDATE hot SET val = val + {n}, name = name || '{n},', price = price + {n}.50 \
                 WHERE id = 1 AND val < {}",
                100 + n
            );
            literal.push(Background::run(grouped(server)?, &sql)?);
        }
        stage.wait_queued(4)?;
        stage.release()?;
        ensure!(stage.end()? == "00000");
        for session in literal {
            let told = sqlstate(&session.end()?.1);
            ensure!(told == "00000", "told {told}");
        }
        ensure!(stage.val()? == 11, "the value is {}", stage.val()?);
        ensure!(stage.combined()? == 3, "{} combined", stage.combined()?);
        let sums = "SELECT price::text || length(name) FROM hot";
        let sums = text(&mut stage.control, sums)?;
        ensure!(sums == "12.008", "{sums}");

        // A plan for each execution has the arguments as constants.
        let mut stage = Stage::new(server, BUMP)?;
        let custom: Vec<_> = (1..=4i64)
            .map(|n| {
                let mut client = grouped(server)?;
                client.batch_execute("SET plan_cache_mode = force_custom_plan")?;
                let pid = pid(&mut client)?;
                Ok(Background::call(client, pid, move |client| {
                    let add =
                        "UPDATE hot SET val = val + $1 WHERE id = $2 RETURNING $1::bigint, val";
                    let row = client.query_one(add, &[&n, &1i32])?;
                    Ok((row.get::<_, i64>(0) == n, row.get::<_, i64>(1)))
                }))
            })
            .collect::<Result<_>>()?;
        stage.wait_queued(4)?;
        stage.release()?;
        ensure!(stage.end()? == "00000");
        for session in custom {
            let (is_own, val) = session.end()?.1?;
            ensure!(is_own && (13..=22).contains(&val), "{is_own}, {val}");
        }
        ensure!(stage.val()? == 22, "the value is {}", stage.val()?);
        ensure!(stage.combined()? == 6, "{} combined", stage.combined()?);
        Ok(())
    })
}

/// Where there are too many constants, or too long ones, the rest of them makes the difference
/// between statements.
#[test]
fn literals_that_are_many_or_long() -> Result<()> {
    on_server(|server| {
        server.connect()?.batch_execute(
            "ALTER TABLE hot ADD a text, ADD b varchar(90), ADD c text, ADD d text",
        )?;
        let long = |n: usize| "x".repeat(n);
        let long = |n| format!("a = '{0}', b = '{0}', c = '{0}', d = '{0}'", long(n));
        let many = |n: i32| (0..18).map(|k| format!(" + {}", k + n)).collect::<String>();
        for (sets, combined) in [
            ([long(55), long(55), long(55)], 2),
            ([long(80), long(80), long(80)], 2),
            (
                [many(1), many(1), many(1)].map(|sum| format!("val = val{sum}")),
                2,
            ),
            (
                [many(1), many(2), many(3)].map(|sum| format!("val = val{sum}")),
                0,
            ),
        ] {
            let mut stage = Stage::new(server, BUMP)?;
            let before = stage.combined()?;
            let mut waiting = Vec::new();
            for set in &sets {
                let sql = format!("UPDATE hot SET {set} WHERE id = 1");
                waiting.push(Background::run(grouped(server)?, &sql)?);
                stage.wait_queued(waiting.len() as i32)?;
            }
            stage.release()?;
            ensure!(stage.end()? == "00000");
            for session in waiting {
                let told = sqlstate(&session.end()?.1);
                ensure!(told == "00000", "told {told}");
            }
            let done = stage.combined()? - before;
            ensure!(done == combined, "{done} combined of {sets:?}");
        }
        // Plans of their own for each execution, with many arguments.
        let sum = (1..=12)
            .map(|n| format!(" + ${n}::bigint"))
            .collect::<String>();
        let sql = format!("UPDATE hot SET val = val{sum} WHERE id = 1");
        let mut stage = Stage::new(server, BUMP)?;
        let before = stage.combined()?;
        let waiting: Vec<_> = (1..=3)
            .map(|n: i64| {
                let mut client = grouped(server)?;
                client.batch_execute("SET plan_cache_mode = force_custom_plan")?;
                let (pid, sql) = (pid(&mut client)?, sql.clone());
                Ok(Background::call(client, pid, move |client| {
                    let arguments: Vec<&(dyn ToSql + Sync)> = vec![&n; 12];
                    client.execute(sql.as_str(), &arguments)
                }))
            })
            .collect::<Result<_>>()?;
        stage.wait_queued(3)?;
        stage.release()?;
        ensure!(stage.end()? == "00000");
        for session in waiting {
            ensure!(session.end()?.1? == 1);
        }
        let done = stage.combined()? - before;
        ensure!(done == 2, "{done} combined");
        Ok(())
    })
}

/// A generic plan is used again: its constants stay in it.
#[test]
fn generic_plans_stay_as_they_are() -> Result<()> {
    on_server(|server| {
        let mut client = grouped(server)?;
        client.batch_execute(
            "SET plan_cache_mode = force_generic_plan; \
             UPDATE hot SET val = val WHERE id = 1; \
             PREPARE seven AS UPDATE hot SET val = val + 7 WHERE id = 1 RETURNING val * 10",
        )?;
        for n in 1..=3 {
            let ten = client.simple_query("EXECUTE seven")?;
            let Some(SimpleQueryMessage::Row(row)) =
                ten.iter().find(|m| matches!(m, SimpleQueryMessage::Row(_)))
            else {
                bail!("no row was returned");
            };
            ensure!(row.get(0) == Some(format!("{}", 70 * n).as_str()));
        }
        let mut stage = Stage::new(server, BUMP)?;
        let amount = Prepared::run(server, "UPDATE hot SET val = val + 7 WHERE id = 1", vec![])?;
        stage.wait_queued(1)?;
        stage.release()?;
        ensure!(stage.end()? == "00000" && amount.end()?? == 1);
        ensure!(stage.val()? == 29, "the value is {}", stage.val()?);
        Ok(())
    })
}

/// An error belongs to the session whose arguments made it.
#[test]
fn errors_are_each_ones_own() -> Result<()> {
    on_server(|server| {
        server.connect()?.batch_execute(
            "UPDATE hot SET val = 100; ALTER TABLE hot ADD CONSTRAINT solvent CHECK (val >= 0)",
        )?;
        let divide = "UPDATE hot SET val = val / $1 - $2 WHERE id = 1";
        let mut stage = Stage::new(server, BUMP)?;
        let first = Prepared::run(server, divide, vec![1, 1])?;
        stage.wait_queued(1)?;
        let by_zero = Prepared::run(server, divide, vec![0, 1])?;
        stage.wait_queued(2)?;
        let too_much = Prepared::run(server, divide, vec![1, 1000])?;
        stage.wait_queued(3)?;
        let last = Prepared::run(server, divide, vec![2, 0])?;
        stage.wait_queued(4)?;
        stage.release()?;
        ensure!(stage.end()? == "00000");
        ensure!(first.end()?? == 1 && last.end()?? == 1);
        let told = sqlstate(&by_zero.end()?);
        ensure!(told == "22012", "who divided by zero was told {told}");
        let error = too_much.end()?.err().context("nobody may overdraw")?;
        let error = error.as_db_error().context("an error of the server")?;
        ensure!(error.code().code() == "23514" && error.constraint() == Some("solvent"));
        // They are executed in any order: 101 / 1 - 1, / 2 - 0, or the other way round.
        ensure!(
            [49, 50].contains(&stage.val()?),
            "the value is {}",
            stage.val()?
        );
        ensure!(stage.combined()? >= 1, "{} combined", stage.combined()?);
        Ok(())
    })
}

/// Many sessions, with and without a place in each other's transactions; what each is told adds up.
#[test]
fn a_crowd_with_arguments_of_its_own() -> Result<()> {
    let server = start_hot(1, &[])?;
    let tally = Load::new(&server, 48, 100)
        .session(|number| {
            let off = [
                "",
                "; SET txn.combine_updates = off",
                "; SET txn.early_visibility = off",
            ];
            let off = off[if number % 8 == 0 {
                1 + number / 8 % 2
            } else {
                0
            }];
            format!(
                "SET txn.group_lock = on; SET txn.hot_threshold = 1; \
                 SET plan_cache_mode = force_generic_plan{off}"
            )
        })
        .run(|worker| {
            let amount = 1 + (worker.attempt % 7) as i64;
            worker.committing(amount, |worker| {
                worker.execute("UPDATE hot SET val = val + $1 WHERE id = 1", &[&amount])
            })
        })?;
    tally.only(&[])?;
    let mut client = server.connect()?;
    tally.explains(int(&mut client, "SELECT val FROM hot")?)?;
    drop(client);
    physical_health(&server, "hot", "id")
}
