//! The table of the demo.

use crate::geo::workload::{Schema, Table};

pub static SCHEMA: Schema = Schema {
    name: "the demo",
    tables: &[Table {
        name: "account",
        columns: "id int NOT NULL, balance bigint NOT NULL, locked timestamptz",
        key: "id",
        width: |sizes| sizes.rows,
    }],
    fill: NODE,
    books: "SELECT sum(balance)::bigint FROM account",
    columns: &["balance"],
    held: ("account", "id"),
};

/// Rows `0` to `:rows - 1`, counted from `:node * :rows`. The trigger runs when the row is locked.
const NODE: &str = "
    CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL, locked timestamptz);
    INSERT INTO account SELECT :node * :rows + k, 100, NULL FROM generate_series(0, :rows - 1) k;
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN NEW.locked = clock_timestamp(); RETURN NEW; END $$;
    CREATE TRIGGER note BEFORE UPDATE ON account FOR EACH ROW EXECUTE FUNCTION note();
    VACUUM ANALYZE account";
