//! The transactions of the load: what each sends, and what is to be found if it commits.
use std::time::Duration;

use rand::Rng;
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;
use rand::rngs::SmallRng;

use super::book::{Mark, ROWS, Row};
use super::plan::Plan;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A single UPDATE, which may be combined with others.
    Auto,
    Block,
    Transfer,
    SavepointRolledBack,
    SavepointReleased,
    /// A function whose exception block may fail and go on.
    Function,
    /// The same row twice.
    Twice,
    ForUpdate,
    Prepared,
    Rollback,
    StatementError,
    Read,
    /// Validated: takes the next seat of a hall, whose number is that of the seats it has counted.
    Seat,
    /// Validated: a reader.
    Audit,
    /// Declares two accounts, and changes them.
    Declared,
}

impl Kind {
    pub const ALL: [Kind; 15] = [
        Kind::Auto,
        Kind::Block,
        Kind::Transfer,
        Kind::SavepointRolledBack,
        Kind::SavepointReleased,
        Kind::Function,
        Kind::Twice,
        Kind::ForUpdate,
        Kind::Prepared,
        Kind::Rollback,
        Kind::StatementError,
        Kind::Read,
        Kind::Seat,
        Kind::Audit,
        Kind::Declared,
    ];

    /// Whether it changes nothing.
    pub fn is_reader(self) -> bool {
        matches!(self, Kind::Read | Kind::Audit)
    }
}

pub const SCHEMA: &str = "
    DROP TABLE IF EXISTS ledger, account, seat;
    CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL, autos bigint NOT NULL,
                          marks numeric NOT NULL) WITH (fillfactor = 50);
    CREATE TABLE ledger (id bigint PRIMARY KEY, account int NOT NULL, amount bigint NOT NULL);
    CREATE INDEX ON ledger (account);
    CREATE TABLE seat (id bigint PRIMARY KEY, number bigint NOT NULL);
    CREATE OR REPLACE FUNCTION spend(entry bigint, whose int, much bigint, fails boolean)
    RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        BEGIN
            UPDATE account SET balance = balance + much WHERE id = whose;
            INSERT INTO ledger VALUES (entry, whose, much);
            IF fails THEN
                RAISE EXCEPTION 'fails';
            END IF;
        EXCEPTION WHEN OTHERS THEN
            UPDATE account SET balance = balance + 1 WHERE id = whose;
            INSERT INTO ledger VALUES (entry + 1, whose, 1);
        END;
    END $$";

/// The statement of `Kind::Auto`.
pub const AUTO: &str =
    "UPDATE account SET balance = balance + 1, autos = autos + 1, marks = marks + $2 WHERE id = $1";

/// Everything a reader compares, at one instant.
pub const READ: &str = "
    SELECT (SELECT sum(balance)::bigint FROM account), (SELECT sum(autos)::bigint FROM account),
           count(*), coalesce(sum(amount), 0)::bigint,
           (SELECT count(*) FROM (SELECT count(*) <> max(number) AS wrong FROM seat
                                  GROUP BY id >> 40) hall WHERE wrong)
    FROM ledger";

/// Halls, and how the id of a seat is made: the hall's number above, the transaction's below.
const HALLS: i64 = 2;
pub const HALL_BITS: u32 = 40;

/// What validated transactions begin with. The table is small, so they are told to use its index.
const VALIDATED: [&str; 3] = [
    "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "SET LOCAL txn.range_occ = on",
    "SET LOCAL enable_seqscan = off",
];

/// What a client sends in one go.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Sql(String),
    Auto(i32, Mark),
    Read,
    /// The same, in a transaction that may yet be refused: nobody is told that it was so.
    Audit,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Transaction {
    pub kind: Kind,
    pub steps: Vec<Step>,
    /// Its last step may commit it.
    pub commits: bool,
    /// The rows that it leaves in the ledger; any one of these.
    pub leaves: Vec<Vec<Row>>,
    pub mark: Option<(i32, Mark)>,
    /// A setting for its time, in ms.
    pub timeout: Option<(&'static str, u64)>,
    /// Thinking before a step.
    pub nap: Option<(usize, Duration)>,
    /// Breaking off, so long after sending a step.
    pub cut: Option<(usize, Duration)>,
}

const TIMEOUTS: [&str; 4] = [
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "txn.hot_wait_timeout",
];

/// Writes a transaction down.
struct Draft {
    id: i64,
    steps: Vec<Step>,
    rows: Vec<Row>,
    next: i64,
}

impl Draft {
    fn sql(&mut self, sql: impl Into<String>) {
        self.steps.push(Step::Sql(sql.into()));
    }

    fn row(&mut self, account: i32, amount: i64) -> Row {
        let id = self.id * ROWS + self.next;
        self.next += 1;
        Row {
            id,
            account,
            amount,
        }
    }

    fn update(&mut self, account: i32, amount: i64) {
        self.sql(format!(
            "UPDATE account SET balance = balance + ({amount}) WHERE id = {account}"
        ));
    }

    fn insert(&mut self, row: &Row) {
        self.sql(format!(
            "INSERT INTO ledger VALUES ({}, {}, {})",
            row.id, row.account, row.amount
        ));
    }

    /// A change that stays.
    fn spend(&mut self, account: i32, amount: i64) {
        self.update(account, amount);
        let row = self.row(account, amount);
        self.insert(&row);
        self.rows.push(row);
    }

    /// A change that is undone.
    fn waste(&mut self, account: i32, amount: i64) {
        self.update(account, amount);
        let row = self.row(account, amount);
        self.insert(&row);
    }
}

/// Transaction `id` of client `client`.
pub fn draw(rng: &mut SmallRng, plan: &Plan, client: usize, id: i64) -> Transaction {
    let kind = match WeightedIndex::new(&plan.weights) {
        Ok(weights) => Kind::ALL[weights.sample(rng)],
        Err(_) => Kind::Block,
    };
    let account = |rng: &mut SmallRng| match rng.random_bool(0.7) {
        true => 1,
        false => rng.random_range(1..=plan.accounts),
    };
    let one = account(rng);
    let amount = rng.random_range(2..100);
    let mut draft = Draft {
        id,
        steps: Vec::new(),
        rows: Vec::new(),
        next: 0,
    };
    let mut commits = true;
    let mut mark = None;
    let mut leaves = None;
    let in_block = !matches!(kind, Kind::Auto | Kind::Read | Kind::Function);
    match kind {
        Kind::Seat | Kind::Audit => VALIDATED.iter().for_each(|sql| draft.sql(*sql)),
        _ if in_block => draft.sql("BEGIN"),
        _ => {}
    }
    match kind {
        Kind::Auto => {
            let drawn = Mark::draw(rng, client);
            draft.steps.push(Step::Auto(one, drawn));
            mark = Some((one, drawn));
        }
        Kind::Read => {
            draft.steps.push(Step::Read);
            commits = false;
        }
        Kind::Block => draft.spend(one, amount),
        Kind::Transfer => {
            draft.spend(one, -amount);
            draft.spend(account(rng), amount);
        }
        Kind::SavepointRolledBack => {
            if rng.random_bool(0.5) {
                draft.spend(one, amount);
            }
            draft.sql("SAVEPOINT s");
            draft.waste(one, 1000);
            draft.sql("ROLLBACK TO s");
            draft.spend(account(rng), amount);
        }
        Kind::SavepointReleased => {
            draft.sql("SAVEPOINT s");
            draft.spend(one, amount);
            draft.sql("RELEASE s");
        }
        Kind::Function => {
            let fails = rng.random_bool(0.3);
            let (first, second) = (draft.row(one, amount), draft.row(one, 1));
            draft.sql(format!(
                "SELECT spend({}, {one}, {amount}, {fails})",
                first.id
            ));
            // A conflict in the block is caught like any error.
            let caught = vec![second];
            leaves = Some(if fails {
                vec![caught]
            } else {
                vec![vec![first], caught]
            });
        }
        Kind::Twice => {
            draft.spend(one, amount);
            draft.spend(one, amount);
        }
        Kind::ForUpdate => {
            draft.sql(format!(
                "SELECT balance FROM account WHERE id = {one} FOR UPDATE"
            ));
            draft.spend(one, amount);
        }
        Kind::Prepared => {
            draft.spend(one, amount);
            commits = rng.random_bool(0.7);
            let whether = if commits { 'c' } else { 'r' };
            draft.sql(format!("PREPARE TRANSACTION '{whether}-{id}'"));
        }
        Kind::Seat => {
            let hall = rng.random_range(0..HALLS);
            let (first, last) = (hall << HALL_BITS, (hall + 1) << HALL_BITS);
            draft.sql(format!(
                "INSERT INTO seat SELECT {}, count(*) + 1 FROM seat \
                 WHERE id >= {first} AND id < {last}",
                first + id
            ));
            let row = draft.row(one, 0);
            draft.insert(&row);
            draft.rows.push(row);
        }
        Kind::Declared => {
            let other = account(rng);
            draft.sql(format!(
                "SELECT txn.declare(ARRAY['account({one})', 'account({other})'])"
            ));
            draft.spend(one, -amount);
            draft.spend(other, amount);
        }
        Kind::Audit => {
            draft.steps.push(Step::Audit);
            draft.sql("COMMIT");
            commits = false;
        }
        Kind::Rollback => {
            draft.waste(one, amount);
            draft.sql("ROLLBACK");
            commits = false;
        }
        Kind::StatementError => {
            draft.waste(one, amount);
            draft.sql("SELECT 1 / 0");
            draft.sql("COMMIT");
            commits = false;
        }
    }
    if in_block && commits && kind != Kind::Prepared {
        draft.sql("COMMIT");
    }
    let steps = draft.steps.len();
    let timeout = (rng.random_range(0..1000) < plan.timeouts).then(|| {
        (
            TIMEOUTS[rng.random_range(0..TIMEOUTS.len())],
            rng.random_range(1..30),
        )
    });
    let nap = match timeout {
        Some((setting, ms)) if setting == TIMEOUTS[2] => Some(2 * ms),
        _ => rng.random_bool(0.03).then(|| rng.random_range(1..10)),
    };
    let nap = nap.map(|ms| (steps - 1, Duration::from_millis(ms)));
    let cut = (rng.random_range(0..1000) < plan.cuts).then(|| {
        let step = match rng.random_bool(0.5) {
            true => steps - 1,
            false => rng.random_range(0..steps),
        };
        (step, Duration::from_micros(rng.random_range(0..5000)))
    });
    Transaction {
        kind,
        steps: draft.steps,
        commits,
        leaves: leaves.unwrap_or_else(|| vec![draft.rows]),
        mark,
        timeout,
        nap,
        cut,
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Fault, rng};
    use super::*;

    fn some() -> Vec<Transaction> {
        let kinds = Fault::ALL.map(|(fault, _)| fault);
        (0..50)
            .flat_map(|cycle| {
                let plan = Plan::draw(5, cycle, 8, &kinds);
                let mut rng = rng(5, cycle, 1);
                (0..50)
                    .map(|id| draw(&mut rng, &plan, 1, id))
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    #[test]
    fn the_same_numbers_give_the_same_transactions() {
        assert_eq!(some(), some());
    }

    #[test]
    fn every_kind_comes_and_leaves_only_rows_of_its_own() {
        let all = some();
        for kind in Kind::ALL {
            assert!(all.iter().any(|one| one.kind == kind), "{kind:?}");
        }
        for (n, one) in all.iter().enumerate() {
            let id = n as i64 % 50;
            let rows = one.leaves.iter().flatten();
            assert!(rows.clone().all(|row| row.id / ROWS == id), "{one:?}");
            let changes = !one.kind.is_reader() && one.kind != Kind::Auto && one.commits;
            assert_eq!(changes, one.commits && rows.count() > 0, "{one:?}");
        }
    }
}
