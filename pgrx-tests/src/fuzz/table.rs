//! A table of a schedule, drawn from its seed. Every table keeps `n`, the number of the row, and
//! `val`, a set of bits: each write adds one bit that no other write of the schedule adds, so a
//! value says which writes it was built on.
use std::fmt::Write as _;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// The type of the primary key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Int,
    Bigint,
    Text,
    Numeric,
    Uuid,
    Timestamptz,
    /// (int, text)
    Composite,
}

impl Key {
    const ALL: [Key; 7] = [
        Key::Int,
        Key::Bigint,
        Key::Text,
        Key::Numeric,
        Key::Uuid,
        Key::Timestamptz,
        Key::Composite,
    ];

    pub fn type_name(self) -> &'static str {
        match self {
            Key::Int | Key::Composite => "int",
            Key::Bigint => "bigint",
            Key::Text => "text",
            Key::Numeric => "numeric",
            Key::Uuid => "uuid",
            Key::Timestamptz => "timestamptz",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Plain,
    /// By hash of the key, in two.
    Partitioned,
    /// With a child table that has no rows.
    Inherited,
}

/// What a table has besides its columns.
#[derive(Clone, Debug)]
pub struct Table {
    pub name: char,
    pub key: Key,
    pub shape: Shape,
    pub method: &'static str,
    /// Rows 1 to `rows` are there at the beginning.
    pub rows: u32,
    /// BEFORE UPDATE row trigger that counts.
    pub counted: bool,
    /// AFTER UPDATE row trigger that notes old and new value.
    pub chained: bool,
    /// AFTER UPDATE statement trigger with a transition table.
    pub statement: bool,
    /// Row security: others than the owner see row 1 only.
    pub policy: bool,
    /// Others than the owner may read `val` only.
    pub column_rights: bool,
    pub domain: bool,
    pub generated: bool,
    /// An index on `ix`, which churn changes.
    pub indexed: bool,
    /// An index on an expression.
    pub expression: bool,
    /// A CHECK constraint with a function.
    pub check: bool,
    pub fillfactor: u32,
    /// Settings of its own, whatever a session's are.
    pub label: Option<&'static str>,
}

/// What a table may have for settings of its own.
const LABELS: [&str; 6] = [
    "mode=group, hot_threshold=0",
    "mode=group, hot_threshold=0, group_size=2",
    "mode=group, hot_threshold=0, follower_reads=immediate",
    "mode=queue, hot_threshold=0",
    "mode=off",
    "hot_threshold=1",
];

impl Table {
    pub fn draw(rng: &mut StdRng, name: char, range: bool) -> Self {
        let shape = match rng.random_range(0..10) {
            0 => Shape::Partitioned,
            1 => Shape::Inherited,
            _ => Shape::Plain,
        };
        let is_heap = !range && rng.random_bool(0.55);
        let key = *match rng.random_bool(0.4) {
            true => &Key::Int,
            false => Key::ALL.choose(rng).expect("seven"),
        };
        Table {
            name,
            key,
            shape,
            method: if is_heap { "heap" } else { "txn_heap" },
            rows: rng.random_range(2..=4),
            counted: rng.random_bool(0.2),
            chained: rng.random_bool(0.2),
            statement: rng.random_bool(0.1),
            policy: key == Key::Text && rng.random_bool(0.6),
            column_rights: rng.random_bool(0.3),
            domain: rng.random_bool(0.1),
            generated: rng.random_bool(0.1),
            indexed: shape == Shape::Plain && rng.random_bool(0.4),
            expression: rng.random_bool(0.1),
            check: rng.random_bool(0.15),
            fillfactor: if rng.random_bool(0.7) { 100 } else { 40 },
            label: match rng.random_bool(0.15) {
                true => LABELS.choose(rng).copied(),
                false => None,
            },
        }
    }

    pub fn put(&self, base: u32, n: u32, sql: &mut String) {
        let (name, columns) = (self.name, self.key_columns());
        let _ = write!(
            sql,
            "INSERT INTO {name} (n, {columns}) VALUES ({n}, {});",
            self.key(base, n)
        );
    }

    pub fn is_plain(&self) -> bool {
        self.shape == Shape::Plain
    }

    pub fn key_columns(&self) -> &'static str {
        match self.key {
            Key::Composite => "k, k2",
            _ => "k",
        }
    }

    /// The key of row `n`, as the values of its columns.
    pub fn key(&self, base: u32, n: u32) -> String {
        let id = u64::from(base) + u64::from(n);
        match self.key {
            Key::Int => format!("{id}"),
            Key::Bigint => format!("{}", id * 10_000_000_000),
            // A secret: roles without the right to read it must never be shown it.
            Key::Text => format!("'secret-{id:06}'::text"),
            Key::Numeric => format!("{id}.5"),
            Key::Uuid => format!("'018f3c2a-7b1c-7000-8000-{id:012}'::uuid"),
            Key::Timestamptz => {
                format!("'2026-01-01 00:00:00+00'::timestamptz + '{id} minutes'::interval")
            }
            Key::Composite => format!("{}, 'k{id}'::text", id % 2),
        }
    }

    /// The condition that names row `n`, with the table's alias `of`.
    pub fn is(&self, of: &str, base: u32, n: u32) -> String {
        let key = self.key(base, n);
        match key.split_once(", ").filter(|_| self.key == Key::Composite) {
            Some((k, k2)) => format!("{of}.k = {k} AND {of}.k2 = {k2}"),
            None => format!("{of}.k = {key}"),
        }
    }

    /// Parameters of a function for a key, and the condition with them.
    pub fn parameters(&self) -> (String, &'static str) {
        let kind = self.key.type_name();
        match self.key {
            Key::Composite => (format!("pk {kind}, pk2 text"), "k = pk AND k2 = pk2"),
            _ => (format!("pk {kind}"), "k = pk"),
        }
    }

    /// Column names of a foreign key to it, those referred to, and their definitions.
    pub fn columns(&self) -> (&'static str, &'static str, String) {
        let kind = self.key.type_name();
        match self.key {
            Key::Composite => ("r, r2", "k, k2", format!("r {kind}, r2 text")),
            _ => ("r", "k", format!("r {kind}")),
        }
    }

    pub fn create(&self, sql: &mut String) {
        let name = self.name;
        if self.domain {
            let _ = write!(
                sql,
                "CREATE DOMAIN dom_{name} AS bigint CHECK (is_fine(VALUE));"
            );
        }
        self.create_table(sql);
        self.create_children(sql);
        if let Some(label) = self.label {
            let _ = write!(sql, "SECURITY LABEL FOR txn ON TABLE {name} IS '{label}';");
        }
        if self.indexed {
            let _ = write!(sql, "CREATE INDEX ON {name} (ix);");
        }
        if self.expression {
            let _ = write!(sql, "CREATE INDEX ON {name} (shown(w));");
        }
        let _ = write!(sql, "CREATE VIEW v{name} AS SELECT * FROM {name};");
        self.create_triggers(sql);
        self.create_rights(sql);
    }

    fn create_table(&self, sql: &mut String) {
        let name = self.name;
        let val = match self.domain {
            true => format!("dom_{name}"),
            false => "bigint".to_owned(),
        };
        let second = match self.key {
            Key::Composite => "k2 text,",
            _ => "",
        };
        let generated = match self.generated {
            true => ", g bigint GENERATED ALWAYS AS (val * 2) STORED",
            false => "",
        };
        let check = match self.check {
            true => ", CONSTRAINT fine CHECK (is_fine(val))",
            false => "",
        };
        let (suffix, method) = match self.shape {
            Shape::Partitioned => (" PARTITION BY HASH (k)", String::new()),
            _ => ("", format!("USING {}", self.method)),
        };
        let fill = match self.shape {
            Shape::Partitioned => String::new(),
            _ => format!(
                "WITH (fillfactor = {}, autovacuum_enabled = off)",
                self.fillfactor
            ),
        };
        let _ = write!(
            sql,
            "CREATE TABLE {name} (n int NOT NULL, k {kind}, {second} val {val} NOT NULL DEFAULT 0, cnt int NOT NULL DEFAULT 0,
                w text NOT NULL DEFAULT '', ix int NOT NULL DEFAULT 0, tenant name NOT NULL DEFAULT 'other'{generated},
                PRIMARY KEY ({columns}), CONSTRAINT not_bad CHECK (w <> 'bad'){check}){suffix} {method} {fill};",
            kind = self.key.type_name(),
            columns = self.key_columns(),
        );
    }

    /// Its partitions, or the table that inherits from it.
    fn create_children(&self, sql: &mut String) {
        let name = self.name;
        match self.shape {
            Shape::Plain => {}
            Shape::Partitioned => {
                for part in 0..2 {
                    let _ = write!(
                        sql,
                        "CREATE TABLE {name}_{part} PARTITION OF {name} FOR VALUES WITH (MODULUS 2, REMAINDER {part}) USING {};",
                        self.method
                    );
                }
            }
            Shape::Inherited => {
                let _ = write!(
                    sql,
                    "CREATE TABLE {name}_child () INHERITS ({name}) USING {};",
                    self.method
                );
            }
        }
    }

    /// What others than the owner may read.
    fn create_rights(&self, sql: &mut String) {
        let name = self.name;
        if self.column_rights {
            let _ = write!(sql, "GRANT SELECT (val, n) ON {name} TO fz_other;");
        } else if self.policy {
            let _ = write!(sql, "GRANT SELECT ON {name} TO fz_other;");
        }
        if self.policy {
            let _ = write!(
                sql,
                "ALTER TABLE {name} ENABLE ROW LEVEL SECURITY;
                 CREATE POLICY own ON {name} TO fz_other USING (false);
                 CREATE POLICY app ON {name} TO fz_app USING (is_fine(val));"
            );
        }
    }

    fn create_triggers(&self, sql: &mut String) {
        let name = self.name;
        if self.counted {
            let _ = write!(
                sql,
                "CREATE TRIGGER counted BEFORE UPDATE ON {name} FOR EACH ROW EXECUTE FUNCTION tr_count();"
            );
        }
        if self.chained {
            let _ = write!(
                sql,
                "CREATE TRIGGER chained AFTER UPDATE ON {name} FOR EACH ROW WHEN (old.val <> new.val)
                    EXECUTE FUNCTION tr_chain('{name}');"
            );
        }
        if self.statement && self.shape != Shape::Inherited {
            let _ = write!(
                sql,
                "CREATE TRIGGER stated AFTER UPDATE ON {name} REFERENCING NEW TABLE AS news FOR EACH STATEMENT
                    EXECUTE FUNCTION tr_statement('{name}');"
            );
        }
    }
}
