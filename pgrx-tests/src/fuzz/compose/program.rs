//! What one session of a schedule does: its settings, its transactions, their savepoints, and how
//! each ends.
use rand::Rng;
use rand::seq::IndexedRandom;

use super::super::draw::{At, Draw};
use super::super::grammar;
use super::super::schedule::{Kind, Mode, Step};
use super::super::table::Table;
use super::DECLARES;

/// Among a hundred modes of transactions, the last that follows others.
const FOLLOWS: u32 = 71;

impl Draw<'_> {
    /// What one session does.
    pub fn program(&mut self, session: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        let choice = self.choice();
        for _ in 0..self.rng.random_range(1..=3) {
            let (mode, settings) = self.mode(&choice);
            let unit = self.unit(mode);
            let mut set = self.step(session, unit, Kind::Outside);
            set.sql = settings;
            steps.push(set);
            if mode.other_role {
                for _ in 0..self.rng.random_range(1..=3) {
                    let mut look = self.step(session, usize::MAX, Kind::Outside);
                    look.sql = grammar::views(self);
                    steps.push(look);
                }
                continue;
            }
            self.transaction(session, unit, mode, &mut steps);
        }
        steps
    }

    fn transaction(&mut self, session: usize, unit: usize, mode: Mode, steps: &mut Vec<Step>) {
        let alone = match mode.validated {
            true => self.theme.alone.min(0.2),
            false => self.theme.alone,
        };
        let alone = self.chance(alone);
        let at = At {
            session,
            unit,
            mode,
            alone,
        };
        if alone {
            let drawn = (0..20).find_map(|_| self.production(at).filter(|steps| steps.len() == 1));
            steps.extend(drawn.into_iter().flatten());
            return;
        }
        let mut begin = self.step(session, unit, Kind::Begin);
        begin.sql = "BEGIN".to_owned();
        steps.push(begin);
        if self.chance(0.25) {
            steps.extend(self.declaration(at));
        }
        if self.chance(self.theme.first) {
            self.first = true;
            let production = *self.one(&grammar::FIRST);
            steps.extend(production(self, at).into_iter().flatten());
            self.first = false;
        }
        let mut savepoint = false;
        for _ in 0..self.rng.random_range(1..=4) {
            match self.rng.random_range(0..100) {
                0..8 if !savepoint => {
                    savepoint = true;
                    steps.push(self.simple(at, Kind::Savepoint, "SAVEPOINT s"));
                }
                0..20 if savepoint => {
                    steps.push(self.simple(at, Kind::RollbackTo, "ROLLBACK TO s"));
                }
                _ => {}
            }
            if let Some(drawn) = self.production(at) {
                steps.extend(drawn);
            }
        }
        if savepoint && self.chance(0.6) {
            steps.push(self.simple(at, Kind::RollbackTo, "ROLLBACK TO s"));
            if self.chance(0.5)
                && let Some(drawn) = self.production(at)
            {
                steps.extend(drawn);
            }
        }
        self.end(at, steps);
    }

    fn end(&mut self, at: At, steps: &mut Vec<Step>) {
        if self.rng.random_range(0..100) < self.theme.rollbacks {
            steps.push(self.simple(at, Kind::Rollback, "ROLLBACK"));
            return;
        }
        match self.rng.random_range(0..100) {
            0..5 if !at.mode.validated => {
                let name = format!("fz{}", at.unit);
                steps.push(self.simple(
                    at,
                    Kind::Prepare,
                    &format!("PREPARE TRANSACTION '{name}'"),
                ));
                steps.push(match self.chance(0.7) {
                    true => self.simple(
                        at,
                        Kind::CommitPrepared,
                        &format!("COMMIT PREPARED '{name}'"),
                    ),
                    false => self.simple(
                        at,
                        Kind::RollbackPrepared,
                        &format!("ROLLBACK PREPARED '{name}'"),
                    ),
                });
            }
            _ => steps.push(self.simple(at, Kind::Commit, "COMMIT")),
        }
    }

    /// Declares some rows of tables of `txn_heap`, whatever the transaction is going to do.
    fn declaration(&mut self, at: At) -> Option<Step> {
        let ours = |table: &&Table| table.method == "txn_heap";
        let tables: Vec<Table> = self.schema.tables.iter().filter(ours).cloned().collect();
        let mut lists = [Vec::new(), Vec::new()];
        for _ in 0..self.rng.random_range(1..=3) {
            let table = tables.choose(&mut self.rng)?;
            let (name, n) = (table.name, self.row(table));
            let item = match self.chance(0.05) {
                true => format!("'{name}(*)'"),
                false => format!("'{name}' || ROW({})::text", table.key(self.base, n)),
            };
            lists[usize::from(self.chance(0.3))].push(item);
        }
        let arrays = lists.map(|items| format!("ARRAY[{}]::text[]", items.join(", ")));
        let mut step = self.simple(
            at,
            Kind::Statement,
            &format!("{DECLARES}({})", arrays.join(", ")),
        );
        // Of a role without rights; at SERIALIZABLE.
        step.errors = vec!["42501", "0A000"];
        Some(step)
    }

    fn production(&mut self, at: At) -> Option<Vec<Step>> {
        let drawn = self
            .mix
            .choose_weighted(&mut self.rng, |(weight, _)| *weight);
        let production = drawn.ok()?.1;
        production(self, at)
    }

    /// When a session takes the keys that it declares, and whether it takes those of transactions
    /// that were refused.
    fn choice(&mut self) -> Vec<&'static str> {
        let mut set = Vec::new();
        if self.chance(0.2) {
            set.push("SET txn.reschedule = on");
        }
        if self.chance(0.2) {
            set.push("SET txn.lane = auto");
            set.push(match self.rng.random_range(0..3) {
                0 => "SET txn.lane_threshold = 0",
                1 => "SET txn.lane_threshold = 1",
                _ => "SET txn.lane_threshold = 4",
            });
        }
        set
    }

    /// Settings of the next transaction, as they are and as SQL.
    fn mode(&mut self, choice: &[&'static str]) -> (Mode, String) {
        let mut mode = Mode {
            on: self.schema.is_labelled("mode="),
            immediate: self.schema.is_labelled("immediate"),
            asks_again: self.schema.is_labelled("mode=group"),
            ..Mode::default()
        };
        let mut set = vec!["RESET ROLE", "RESET ALL"];
        set.extend(choice);
        if self.chance(0.05) {
            mode.is_strict = true;
            set.push("SET txn.lane_beyond = error");
        }
        let kind = match self.chance(self.theme.follows) {
            true => FOLLOWS,
            false => self.rng.random_range(0..100),
        };
        if self.schema.range && kind < 60 {
            mode.on = true;
            mode.one_snapshot = true;
            mode.validated = true;
            set.push("SET default_transaction_isolation = 'repeatable read'");
            set.push("SET txn.range_occ = on");
        } else if kind <= FOLLOWS {
            mode.on = true;
            self.follow(&mut mode, &mut set);
            if self.chance(0.2) {
                mode.one_snapshot = true;
                mode.immediate = false;
                set.push("SET default_transaction_isolation = 'repeatable read'");
            }
        } else if kind < 78 {
            mode.on = true;
            set.push("SET txn.queue_lock = on");
            set.push("SET txn.hot_threshold = 0");
        } else if kind < 82 {
            mode.one_snapshot = true;
            set.push("SET default_transaction_isolation = 'repeatable read'");
        } else if kind < 88 {
            mode.other_role = true;
            set.push("SET ROLE fz_other");
        }
        if !mode.other_role && self.chance(0.1) {
            mode.app_role = true;
            set.push("SET ROLE fz_app");
        }
        self.plan(&mut set);
        (mode, set.join("; "))
    }

    /// The settings of a transaction that follows others on hot rows.
    fn follow(&mut self, mode: &mut Mode, set: &mut Vec<&'static str>) {
        set.push("SET txn.group_lock = on");
        set.push(if self.chance(0.95) {
            "SET txn.hot_threshold = 0"
        } else {
            "SET txn.hot_threshold = 1"
        });
        if self.chance(0.25) {
            mode.immediate = true;
            set.push("SET txn.follower_reads = immediate");
        } else if self.chance(0.5) {
            mode.asks_again = true;
            set.push("SET txn.follower_reads_backoff = 0");
        } else {
            set.push("SET txn.follower_reads = wait");
        }
        if self.chance(0.1) {
            set.push("SET txn.early_visibility = off");
        }
        if self.chance(0.15) {
            set.push("SET txn.combine_updates = off");
        }
        if self.chance(0.1) {
            set.push("SET txn.group_size = 2");
        }
    }

    /// The settings of the planner.
    fn plan(&mut self, set: &mut Vec<&'static str>) {
        let scan = match self.chance(self.theme.by_index) {
            true => 0,
            false => self.rng.random_range(0..10),
        };
        match scan {
            0..5 => set.push("SET enable_seqscan = off; SET enable_bitmapscan = off"),
            5..7 => set.push("SET enable_indexscan = off; SET enable_bitmapscan = off"),
            _ => {}
        }
        if self.chance(self.theme.generic) {
            set.push("SET plan_cache_mode = force_generic_plan");
        }
    }
}
