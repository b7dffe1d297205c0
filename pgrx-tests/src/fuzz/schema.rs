//! All tables of a schedule, and what is around them.
use std::fmt::Write as _;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::functions;
use super::table::{Shape, Table};

#[derive(Clone, Debug)]
pub struct Schema {
    pub tables: Vec<Table>,
    /// What the ledger's foreign key does when the row that it refers to goes.
    pub action: &'static str,
    /// The ledger has a CHECK whose function reads the first table.
    pub ledger_check: bool,
    pub range: bool,
    /// Row 1 of the first table is hot from the beginning.
    pub warm: bool,
}

impl Schema {
    /// For schedules of validated transactions all tables are of `txn_heap`.
    pub fn draw(rng: &mut StdRng, range: bool) -> Self {
        let count = rng.random_range(1..=3);
        let tables = ['a', 'b', 'c'];
        let tables = tables.into_iter().take(count);
        Schema {
            tables: tables.map(|name| Table::draw(rng, name, range)).collect(),
            action: ["NO ACTION", "RESTRICT", "CASCADE"]
                .choose(rng)
                .expect("three"),
            ledger_check: rng.random_bool(0.4),
            range,
            warm: false,
        }
    }

    /// Whether a table's own settings have the text.
    pub fn is_labelled(&self, text: &str) -> bool {
        let labels = self.tables.iter().filter_map(|table| table.label);
        labels.into_iter().any(|label| label.contains(text))
    }

    /// No table has settings of its own.
    pub fn forget_labels(&mut self) {
        self.tables.iter_mut().for_each(|table| table.label = None);
    }

    /// The last table is one to which nothing refers, and whose updates set off nothing. Some count
    /// them in the row itself.
    pub fn set_apart(&mut self) {
        if self.tables.len() < 2 {
            let name = 'b';
            let second = self.tables.iter().map(|table| Table {
                name,
                ..table.clone()
            });
            self.tables.extend(second.collect::<Vec<_>>());
        }
        if let Some(last) = self.tables.last_mut() {
            last.shape = Shape::Plain;
            last.counted = last.rows > 2;
            (last.chained, last.statement) = (false, false);
            (last.policy, last.domain, last.check) = (false, false, false);
            (last.generated, last.label) = (false, None);
        }
    }

    /// The first table is one whose rows may be read ahead, by the page, with a row of many
    /// versions.
    pub fn crowd(&mut self) {
        if let Some(first) = self.tables.first_mut() {
            first.shape = Shape::Plain;
            first.method = "txn_heap";
            first.indexed = true;
            first.label = None;
        }
    }

    pub fn table(&self, name: char) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// In words, a line for each table.
    pub fn summary(&self) -> Vec<String> {
        let tables = self.tables.iter().map(|table| format!("{table:?}"));
        let ledger = format!(
            "ledger refers to a ON DELETE {}{}",
            self.action,
            if self.ledger_check {
                ", CHECK (whole_a())"
            } else {
                ""
            }
        );
        tables.chain([ledger]).collect()
    }

    /// Drops what was there and creates all.
    pub fn sql(&self) -> String {
        let mut sql = String::from(
            "DROP SCHEMA IF EXISTS fz CASCADE; CREATE SCHEMA fz; SET search_path = fz, public;
             GRANT USAGE ON SCHEMA fz TO fz_other;
             CREATE TABLE seen (step int, o text);
             CREATE TABLE chain (t text, n int, old bigint, new bigint);
             CREATE TABLE remote_t (tag int);
             CREATE FOREIGN TABLE remote (tag int) SERVER fz_loop OPTIONS (schema_name 'fz', table_name 'remote_t');
             CREATE TABLE noise (id serial PRIMARY KEY, m text);
             CREATE TABLE epoch (one text); INSERT INTO epoch VALUES ('x');",
        );
        if self.range {
            sql = sql.replace(" text);", " text) USING txn_heap;");
            sql = sql.replace("new bigint);", "new bigint) USING txn_heap;");
        }
        sql += functions::COMMON;
        for table in &self.tables {
            table.create(&mut sql);
            functions::of(table, &mut sql);
        }
        let first = &self.tables[0];
        let (columns, key, kinds) = first.columns();
        let check = match self.ledger_check {
            true => ", CONSTRAINT a_is_whole CHECK (whole_a())",
            false => "",
        };
        let method = first.method;
        let _ = write!(
            sql,
            "CREATE TABLE ledger (tag int, {kinds}, o text,
                FOREIGN KEY ({columns}) REFERENCES a ({key}) ON UPDATE CASCADE ON DELETE {}{check}) USING {method};
             CREATE TABLE defaulted (step int, o text DEFAULT list_a()) USING {method};
             GRANT ALL ON ALL TABLES IN SCHEMA fz TO fz_app;
             GRANT USAGE ON SCHEMA fz TO fz_app; GRANT ALL ON ALL SEQUENCES IN SCHEMA fz TO fz_app;",
            self.action
        );
        sql
    }

    /// The rows at the beginning but for row 1. `base` keeps the keys of one schedule apart from
    /// those of the one before.
    pub fn fill(&self, base: u32) -> String {
        let mut sql = String::from("TRUNCATE seen, chain, remote_t, noise, ledger, defaulted");
        for table in &self.tables {
            let _ = write!(sql, ", {}", table.name);
        }
        sql += ";";
        sql += functions::FIRST_DEFINITION;
        for table in &self.tables {
            let _ = write!(
                sql,
                "ALTER TABLE {} DROP COLUMN IF EXISTS more;",
                table.name
            );
            (2..=table.rows).for_each(|n| table.put(base, n, &mut sql));
        }
        sql
    }

    /// Row 1 of each table: it stands behind the others on its page, and behind what became of
    /// them.
    pub fn fill_first(&self, base: u32) -> String {
        let mut sql = String::new();
        self.tables
            .iter()
            .for_each(|table| table.put(base, 1, &mut sql));
        if self.warm {
            sql += "BEGIN; SET LOCAL txn.group_lock = on; SET LOCAL txn.hot_threshold = 0;
                SELECT FROM a WHERE n = 1 FOR UPDATE; COMMIT;";
        }
        sql
    }
}
