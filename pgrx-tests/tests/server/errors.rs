//! An error that crosses a Rust frame loses the names of constraint, column, table and schema, its
//! context and its place in the source: with the library in the way it is the same as without.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use txn_server_tests::{start, start_stock};

const SCHEMA: &str = "
    CREATE SCHEMA shop;
    CREATE DOMAIN shop.price AS int CONSTRAINT not_free CHECK (VALUE > 0);
    CREATE TABLE shop.item (id int PRIMARY KEY, code text CONSTRAINT item_code UNIQUE,
                            stock int CONSTRAINT in_stock CHECK (stock >= 0), name text NOT NULL,
                            price shop.price);
    CREATE TABLE shop.sale (id int PRIMARY KEY, item int CONSTRAINT sold REFERENCES shop.item,
                            later int CONSTRAINT later REFERENCES shop.item
                                DEFERRABLE INITIALLY DEFERRED);
    INSERT INTO shop.item VALUES (1, 'a', 1, 'pen', 1), (2, 'b', 1, 'ink', 1);
    INSERT INTO shop.sale VALUES (1, 1, 1);
    CREATE FUNCTION shop.take(wanted int) RETURNS int LANGUAGE plpgsql AS $$
    DECLARE
        left_over int;
    BEGIN
        UPDATE shop.item SET stock = stock - wanted WHERE id = 1 RETURNING stock INTO left_over;
        RETURN left_over;
    END $$;
    CREATE FUNCTION shop.rename(text) RETURNS void LANGUAGE sql
        AS $$ UPDATE shop.item SET name = $1 WHERE id = 1 $$;";

const FAILING: [&str; 14] = [
    "UPDATE shop.item SET id = 2 WHERE id = 1",
    "UPDATE shop.item SET code = 'b' WHERE id = 1",
    "UPDATE shop.item SET stock = -1 WHERE id = 1",
    "UPDATE shop.item SET name = NULL WHERE id = 1",
    "UPDATE shop.item SET price = 0 WHERE id = 1",
    "UPDATE shop.item SET id = 3 WHERE id = 1",
    "UPDATE shop.item SET stock = 1 / 0 WHERE id = 1",
    "UPDATE shop.item SET stock = 'x' WHERE id = 1",
    "UPDATE shop.sale SET item = 9 WHERE id = 1",
    "UPDATE shop.sale SET later = 9 WHERE id = 1",
    "DELETE FROM shop.item WHERE id = 1",
    "INSERT INTO shop.item VALUES (1, 'c', 1, 'cap', 1)",
    "SELECT shop.take(5)",
    "SELECT shop.rename(NULL)",
];

/// Everything that the server says of each statement's error.
fn reports(server: &Server, settings: &str) -> Result<Vec<String>> {
    let mut client = server.connect()?;
    client.batch_execute(SCHEMA)?;
    client.batch_execute(settings)?;
    let mut reports = Vec::new();
    for sql in FAILING {
        let error = client.batch_execute(sql).err();
        let error = error.with_context(|| format!("no error from {sql}"))?;
        let error = error.as_db_error().with_context(|| format!("{error}"))?;
        reports.push(format!("{sql}: {error:#?}"));
    }
    Ok(reports)
}

fn compare(settings: &str) -> Result<()> {
    let stock = reports(&start_stock(&[])?, "")?;
    let ours = reports(&start(&[])?, settings)?;
    for (stock, ours) in stock.iter().zip(&ours) {
        ensure!(
            stock == ours,
            "stock says\n{stock}\nand with the library it is\n{ours}"
        );
    }
    Ok(())
}

#[test]
fn same_fields_with_everything_off() -> Result<()> {
    compare("")
}

#[test]
fn same_fields_with_group_lock() -> Result<()> {
    compare("SET txn.group_lock = on; SET txn.hot_threshold = 0")
}
