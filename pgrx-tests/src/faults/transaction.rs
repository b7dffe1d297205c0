//! The transactions of the load: what each sends, and what is to be found if it commits.
use std::time::Duration;

use rand::Rng;
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;
use rand::rngs::SmallRng;

use super::book::{Mark, ROWS, Row};
use super::kind::Kind;
use super::plan::Plan;

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
    /// Reads as `Read` does, in a transaction that may yet be refused: what it was told is not
    /// noted.
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
    commits: bool,
    mark: Option<(i32, Mark)>,
    /// Rows that it may leave, one of the lists; its rows if there is none.
    leaves: Option<Vec<Vec<Row>>>,
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
    let one = account(rng, plan);
    let amount = rng.random_range(2..100);
    let mut draft = Draft {
        id,
        steps: Vec::new(),
        rows: Vec::new(),
        next: 0,
        commits: true,
        mark: None,
        leaves: None,
    };
    let in_block = !matches!(kind, Kind::Auto | Kind::Read | Kind::Function);
    match kind {
        Kind::Seat | Kind::Audit => VALIDATED.iter().for_each(|sql| draft.sql(*sql)),
        _ if in_block => draft.sql("BEGIN"),
        _ => {}
    }
    match kind {
        Kind::Auto => draft.auto(one, Mark::draw(rng, client)),
        Kind::Transfer | Kind::SavepointRolledBack | Kind::Declared => {
            draft.two(
                kind,
                [one, account(rng, plan)],
                amount,
                rng.random_bool(0.5),
            );
        }
        Kind::Function => draft.function(one, amount, rng.random_bool(0.3)),
        Kind::Prepared => draft.prepared(one, amount, rng.random_bool(0.7)),
        Kind::Seat => draft.seat(one, rng.random_range(0..HALLS)),
        kind => draft.plain(kind, one, amount),
    }
    if in_block && draft.commits && kind != Kind::Prepared {
        draft.sql("COMMIT");
    }
    draft.disturbed(kind, rng, plan)
}

fn account(rng: &mut SmallRng, plan: &Plan) -> i32 {
    match rng.random_bool(0.7) {
        true => 1,
        false => rng.random_range(1..=plan.accounts),
    }
}

impl Draft {
    fn auto(&mut self, one: i32, drawn: Mark) {
        self.steps.push(Step::Auto(one, drawn));
        self.mark = Some((one, drawn));
    }

    /// Those that have nothing of their own to draw.
    fn plain(&mut self, kind: Kind, one: i32, amount: i64) {
        match kind {
            Kind::Read => self.steps.push(Step::Read),
            Kind::SavepointReleased => {
                self.sql("SAVEPOINT s");
                self.spend(one, amount);
                self.sql("RELEASE s");
            }
            Kind::Twice => {
                self.spend(one, amount);
                self.spend(one, amount);
            }
            Kind::ForUpdate => {
                self.sql(format!(
                    "SELECT balance FROM account WHERE id = {one} FOR UPDATE"
                ));
                self.spend(one, amount);
            }
            Kind::Audit => {
                self.steps.push(Step::Audit);
                self.sql("COMMIT");
            }
            Kind::Rollback => {
                self.waste(one, amount);
                self.sql("ROLLBACK");
            }
            Kind::StatementError => {
                self.waste(one, amount);
                self.sql("SELECT 1 / 0");
                self.sql("COMMIT");
            }
            _ => self.spend(one, amount),
        }
        self.commits = !matches!(
            kind,
            Kind::Read | Kind::Audit | Kind::Rollback | Kind::StatementError
        );
    }

    /// Those of two accounts, which may be one.
    fn two(&mut self, kind: Kind, [one, other]: [i32; 2], amount: i64, is_more: bool) {
        match kind {
            Kind::SavepointRolledBack => {
                if is_more {
                    self.spend(one, amount);
                }
                self.sql("SAVEPOINT s");
                self.waste(one, 1000);
                self.sql("ROLLBACK TO s");
                self.spend(other, amount);
                return;
            }
            Kind::Declared => self.sql(format!(
                "SELECT txn.declare(ARRAY['account({one})', 'account({other})'])"
            )),
            _ => {}
        }
        self.spend(one, -amount);
        self.spend(other, amount);
    }

    fn function(&mut self, one: i32, amount: i64, fails: bool) {
        let (first, second) = (self.row(one, amount), self.row(one, 1));
        self.sql(format!(
            "SELECT spend({}, {one}, {amount}, {fails})",
            first.id
        ));
        // A conflict in the block is caught like any error.
        let caught = vec![second];
        self.leaves = Some(match fails {
            true => vec![caught],
            false => vec![vec![first], caught],
        });
    }

    fn prepared(&mut self, one: i32, amount: i64, commits: bool) {
        self.spend(one, amount);
        self.commits = commits;
        let whether = if commits { 'c' } else { 'r' };
        self.sql(format!("PREPARE TRANSACTION '{whether}-{}'", self.id));
    }

    fn seat(&mut self, one: i32, hall: i64) {
        let (first, last) = (hall << HALL_BITS, (hall + 1) << HALL_BITS);
        self.sql(format!(
            "INSERT INTO seat SELECT {}, count(*) + 1 FROM seat \
             WHERE id >= {first} AND id < {last}",
            first + self.id
        ));
        let row = self.row(one, 0);
        self.insert(&row);
        self.rows.push(row);
    }

    /// The transaction, perhaps with a timeout, a nap, or a connection that breaks.
    fn disturbed(self, kind: Kind, rng: &mut SmallRng, plan: &Plan) -> Transaction {
        let steps = self.steps.len();
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
            steps: self.steps,
            commits: self.commits,
            leaves: self.leaves.unwrap_or_else(|| vec![self.rows]),
            mark: self.mark,
            timeout,
            nap,
            cut,
        }
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
