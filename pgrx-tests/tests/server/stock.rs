//! Stock never falls below zero, and what is sold is what was confirmed. No client is told "sold
//! out" because of a sale that rolled back.
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use txn_server_tests::{Load, int, physical_health, start};

const STOCK: i64 = 100;

fn sell(follower_reads: &'static str) -> Result<()> {
    let server = start(&[])?;
    server.connect()?.batch_execute(&format!(
        "CREATE TABLE item (id int PRIMARY KEY, stock bigint NOT NULL CHECK (stock >= 0),
                            sold bigint NOT NULL);
         INSERT INTO item VALUES (1, {STOCK}, 0)"
    ))?;
    let told = AtomicU64::new(0);
    let wrong = AtomicU64::new(0);
    let load = Load::new(&server, 40, 60).session(move |_| {
        format!(
            "SET txn.group_lock = on; SET txn.hot_threshold = 1;
             SET txn.follower_reads = {follower_reads}"
        )
    });
    let load = load.moves("followed");
    let tally = load.run(|worker| {
        let sale = "UPDATE item SET stock = stock - 1, sold = sold + 1 \
                    WHERE id = 1 AND stock > 0 RETURNING stock";
        worker.begin()?;
        let bought = worker.query(sale, &[])?.len() as i64;
        if bought == 1 && worker.chance(30) {
            return worker.rollback();
        }
        let done = worker.commit(bought)?;
        if bought == 0 {
            told.fetch_add(1, Ordering::Relaxed);
            // Nobody brings anything back: what was sold out stays sold out.
            let left: i64 = worker.query("SELECT stock FROM item", &[])?[0].get(0);
            if left != 0 {
                wrong.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(done)
    })?;
    // 40001: one that was followed has rolled back. 40P01: a wait would have closed a cycle.
    tally.only(&["40001", "40P01"])?;
    let mut client = server.connect()?;
    let stock = int(&mut client, "SELECT stock FROM item")?;
    let sold = int(&mut client, "SELECT sold FROM item")?;
    tally.explains(sold)?;
    ensure!(
        stock + sold == STOCK,
        "{stock} left and {sold} sold of {STOCK}"
    );
    let (told, wrong) = (told.into_inner(), wrong.into_inner());
    ensure!(
        wrong == 0,
        "{wrong} of {told} were told \"sold out\" with stock left"
    );
    ensure!(
        told > 0 && stock == 0,
        "the load was too short: {stock} left, {told} told"
    );
    drop(client);
    physical_health(&server, "item", "id")
}

#[test]
fn sold_out_is_true() -> Result<()> {
    sell("wait")
}

#[test]
fn sold_out_is_true_when_followers_read_at_once() -> Result<()> {
    sell("immediate")
}
