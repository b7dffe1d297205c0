//! The tables that the operations work on.
use anyhow::Result;
use history::Workload;
use postgres::Client;

/// The tables and their keys, for the physical check; with more than one table of ranges the
/// first of them.
pub const TABLES: [(&str, &str); 3] = [("lists", "id"), ("registers", "id"), ("ranges_0", "key")];

/// Creates the tables for `transactions` of each client. Writes keep the value that they replace
/// in `prev`, because PostgreSQL 16 cannot return it otherwise.
pub fn create(client: &mut Client, workload: &Workload, transactions: u32) -> Result<()> {
    let lists = workload.lists_used(transactions);
    let registers = workload.registers;
    client.batch_execute(&format!(
        "CREATE TABLE lists (id int PRIMARY KEY, vals bigint[] NOT NULL) WITH (fillfactor = 50);
         INSERT INTO lists SELECT id, '{{}}' FROM generate_series(0, {lists}) id;
         CREATE TABLE registers (id int PRIMARY KEY, val bigint, prev bigint) WITH (fillfactor = 50);
         INSERT INTO registers SELECT id FROM generate_series(0, {registers}) id"
    ))?;
    for table in 0..workload.tables {
        client.batch_execute(&format!(
            "CREATE TABLE ranges_{table} (key bigint PRIMARY KEY, val bigint NOT NULL, prev bigint)
             WITH (fillfactor = 50)"
        ))?;
    }
    for row in workload.initial() {
        let sql = format!("INSERT INTO ranges_{} VALUES ($1, $2)", row.table);
        client.execute(&sql, &[&row.key, &(row.value as i64)])?;
    }
    Ok(())
}
