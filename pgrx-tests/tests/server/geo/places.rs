//! What looks for deadlocks see of long queues.
use anyhow::{Context, Result, ensure};
use geo::{HERE, Id, Look, Name, Waits};
use postgres::SimpleQueryMessage::Row;
use txn_server_tests::{Background, start_stock};

/// Each of 64 in a queue waits for all before it. The query gives a row for each, and its name.
#[test]
fn a_queue_takes_as_many_rows_as_it_is_long() -> Result<()> {
    const QUEUE: usize = 64;
    let server = start_stock(&[("deadlock_timeout", "1h")])?;
    let mut control = server.connect()?;
    control.batch_execute("CREATE TABLE row (id int); INSERT INTO row VALUES (1)")?;
    let update = "UPDATE row SET id = id";
    let session = |number: usize| {
        let id = Id {
            coordinator: 5,
            incarnation: 1,
            sequence: number as u64 + 1,
        };
        let name = Name { id, begun: 77 };
        let mut client = server.connect()?;
        client.batch_execute(&format!("SET application_name = '{name}'; BEGIN"))?;
        anyhow::Ok((client, id))
    };
    let (mut holder, _) = session(QUEUE)?;
    holder.batch_execute(update)?;
    let mut queue = Vec::new();
    for number in 0..QUEUE {
        let (client, _) = session(number)?;
        let waiting = Background::run(client, update)?;
        waiting.wait_until_blocked(&mut control)?;
        queue.push(waiting);
    }
    let rows = control.simple_query(geo::WAITS)?;
    let rows = rows.iter().filter_map(|row| match row {
        Row(row) => Some(
            (0..row.len())
                .map(|n| row.get(n).map(str::to_owned))
                .collect(),
        ),
        _ => None,
    });
    let rows: Vec<Vec<Option<String>>> = rows.collect();
    ensure!(rows.len() <= 2 * QUEUE + 2, "{} rows", rows.len());
    let waits = Waits::of_rows(rows);
    ensure!(waits.waits.len() == QUEUE && waits.names.len() == QUEUE + 1);
    ensure!(waits.left_out == 0);
    let mut look = Look::default();
    look.add(HERE, &waits, &[]);
    // Who is first waits for the holder, and each of the others for one before it at least.
    ensure!(look.edges.len() >= QUEUE && look.begun.len() == QUEUE + 1);
    holder.batch_execute("ROLLBACK")?;
    for waiting in queue {
        let (mut client, told) = waiting.end()?;
        told.context("an update in the queue")?;
        client.batch_execute("ROLLBACK")?;
    }
    Ok(())
}
