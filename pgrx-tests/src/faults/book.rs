//! The account of a cycle: what the clients were told, compared with what the database holds.
//!
//! A transaction is known by the ids of its ledger rows. A single UPDATE leaves no row, so it adds
//! a random *mark* to a sum on the account. Each client has a *lane* of the sum's decimals to
//! itself. The marks of acknowledged updates have to be in the sum. The rest has to be a sum of
//! marks that are in doubt.
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use bytes::BytesMut;
use rand::Rng;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

/// Rows that a transaction may have: the row with number `n` of transaction `id` is `id * ROWS +
/// n`.
pub const ROWS: i64 = 8;

/// A row of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    pub id: i64,
    pub account: i32,
    pub amount: i64,
}

/// What the client knows of its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Acknowledged,
    /// Rolled back, or its COMMIT was never sent, or answered with an error.
    Failed,
    /// The connection broke in COMMIT.
    InDoubt,
}

/// A transaction as its client saw it.
#[derive(Clone, Debug)]
pub struct Entry {
    pub id: i64,
    /// One of these is in the ledger if it has committed.
    pub leaves: Vec<Vec<Row>>,
    pub mark: Option<(i32, Mark)>,
    /// It has taken a seat if it has committed.
    pub has_seat: bool,
    pub fate: Fate,
}

/// A number in a client's lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    lane: usize,
    value: u64,
}

/// A lane has 20 decimals: the sum of many marks of 15.
const LANE: usize = 20;
const LARGEST: u64 = 1_000_000_000_000_000;
/// PostgreSQL's numeric has digits of four decimals.
const DIGIT: u64 = 10_000;

impl Mark {
    pub fn draw(rng: &mut impl Rng, lane: usize) -> Self {
        Mark {
            lane,
            value: rng.random_range(1..LARGEST),
        }
    }
}

impl ToSql for Mark {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let digits = [3, 2, 1, 0].map(|place| (self.value / DIGIT.pow(place) % DIGIT) as i16);
        let weight = (self.lane * LANE / 4 + 3) as i16;
        for word in [4, weight, 0, 0].iter().chain(&digits) {
            out.extend_from_slice(&word.to_be_bytes());
        }
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::NUMERIC
    }

    to_sql_checked!();
}

/// The sum in a lane of `marks`, a numeric in decimals.
fn lane(marks: &str, lane: usize) -> u128 {
    let end = marks.len().saturating_sub(lane * LANE);
    marks[end.saturating_sub(LANE)..end].parse().unwrap_or(0)
}

/// An account as the database has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub id: i32,
    pub balance: i64,
    pub autos: i64,
    pub marks: String,
}

/// A seat of a hall: who has taken it, and its number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seat {
    pub hall: i64,
    pub number: i64,
    pub transaction: i64,
}

/// The database after a cycle, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub accounts: Vec<Account>,
    pub ledger: Vec<Row>,
    pub seats: Vec<Seat>,
}

/// What has become of those in doubt, and what is wrong.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub present_in_doubt: usize,
    pub wrong: Vec<String>,
}

/// Compares; every account began with `initial`.
pub fn judge(book: &[Entry], found: &Found, initial: i64) -> Verdict {
    let mut verdict = Verdict::default();
    rows(book, found, &mut verdict);
    seats(book, found, &mut verdict);
    marks(book, found, &mut verdict);
    for account in &found.accounts {
        let rows = found.ledger.iter().filter(|row| row.account == account.id);
        let expected = initial + account.autos + rows.map(|row| row.amount).sum::<i64>();
        if account.balance != expected {
            verdict.wrong.push(format!(
                "account {} has {}, and {expected} by its ledger",
                account.id, account.balance
            ));
        }
    }
    verdict
}

fn rows(book: &[Entry], found: &Found, verdict: &mut Verdict) {
    let mut left: BTreeMap<i64, Vec<Row>> = BTreeMap::new();
    for row in &found.ledger {
        left.entry(row.id / ROWS).or_default().push(row.clone());
    }
    for entry in book.iter().filter(|entry| entry.mark.is_none()) {
        let mut there = left.remove(&entry.id).unwrap_or_default();
        there.sort();
        let whole = entry.leaves.contains(&there);
        let right = match entry.fate {
            Fate::Acknowledged => whole,
            Fate::Failed => there.is_empty(),
            Fate::InDoubt => whole || there.is_empty(),
        };
        if !right {
            verdict.wrong.push(format!(
                "transaction {} ({:?}) has left {there:?} of {:?}",
                entry.id, entry.fate, entry.leaves
            ));
        } else if entry.fate == Fate::InDoubt && !there.is_empty() {
            verdict.present_in_doubt += 1;
        }
    }
    for (id, rows) in left {
        verdict
            .wrong
            .push(format!("nobody has sent transaction {id}: {rows:?}"));
    }
}

/// A transaction that takes a seat has counted those before: in a serial order each hall's numbers
/// are 1, 2, 3 ... The seat was taken together with the row of the ledger.
fn seats(book: &[Entry], found: &Found, verdict: &mut Verdict) {
    let mut taken: BTreeMap<i64, usize> = BTreeMap::new();
    let mut last = (0, 0);
    for seat in &found.seats {
        *taken.entry(seat.transaction).or_default() += 1;
        let before = if last.0 == seat.hall { last.1 } else { 0 };
        if seat.number != before + 1 {
            verdict.wrong.push(format!(
                "transaction {} has taken seat {} of hall {} after seat {before}",
                seat.transaction, seat.number, seat.hall
            ));
        }
        last = (seat.hall, seat.number);
    }
    let filed: BTreeSet<i64> = found.ledger.iter().map(|row| row.id / ROWS).collect();
    for entry in book.iter().filter(|entry| entry.has_seat) {
        let seats = taken.remove(&entry.id).unwrap_or(0);
        if seats != usize::from(filed.contains(&entry.id)) {
            verdict.wrong.push(format!(
                "transaction {} ({:?}) has {seats} seats",
                entry.id, entry.fate
            ));
        }
    }
    for transaction in taken.keys() {
        verdict
            .wrong
            .push(format!("transaction {transaction} wanted no seat"));
    }
}

fn marks(book: &[Entry], found: &Found, verdict: &mut Verdict) {
    for account in &found.accounts {
        let mut lanes: BTreeMap<usize, (u128, usize, Vec<u64>)> = BTreeMap::new();
        for entry in book {
            let Some((_, mark)) = entry.mark.filter(|(id, _)| *id == account.id) else {
                continue;
            };
            let (sum, count, doubts) = lanes.entry(mark.lane).or_default();
            match entry.fate {
                Fate::Acknowledged => {
                    *sum += u128::from(mark.value);
                    *count += 1;
                }
                Fate::Failed => {}
                Fate::InDoubt => doubts.push(mark.value),
            }
        }
        let used = lanes.keys().max().map_or(0, |last| (last + 1) * LANE);
        let mut updates = 0;
        for (number, (sum, count, mut doubts)) in lanes {
            let there = lane(&account.marks, number);
            doubts.sort_unstable_by(|a, b| b.cmp(a));
            let present = there
                .checked_sub(sum)
                .and_then(|rest| subset(&doubts, rest));
            match present {
                Some(present) => {
                    verdict.present_in_doubt += present;
                    updates += count + present;
                }
                None => verdict.wrong.push(format!(
                    "account {}, client {number}: {count} updates acknowledged, marks {sum}; \
                     there are marks {there}, which those in doubt do not explain: {doubts:?}",
                    account.id
                )),
            }
        }
        if updates as i64 != account.autos {
            verdict.wrong.push(format!(
                "account {} counts {} single updates, {updates} by their marks",
                account.id, account.autos
            ));
        }
        if account.marks.len() > used.max(1) {
            verdict
                .wrong
                .push(format!("account {} has marks of nobody", account.id));
        }
    }
}

/// How many of `marks`, sorted with the largest first, make up `rest`; `None` if no choice does.
fn subset(marks: &[u64], rest: u128) -> Option<usize> {
    if rest == 0 {
        return Some(0);
    }
    let all: u128 = marks.iter().map(|mark| u128::from(*mark)).sum();
    let (first, others) = marks.split_first().filter(|_| all >= rest)?;
    let with = rest.checked_sub(u128::from(*first));
    with.and_then(|rest| subset(others, rest))
        .map(|count| count + 1)
        .or_else(|| subset(others, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INITIAL: i64 = 100;

    fn row(id: i64, account: i32, amount: i64) -> Row {
        Row {
            id,
            account,
            amount,
        }
    }

    fn transfer(id: i64, fate: Fate) -> Entry {
        Entry {
            id,
            leaves: vec![vec![row(id * ROWS, 1, -5), row(id * ROWS + 1, 2, 5)]],
            mark: None,
            has_seat: false,
            fate,
        }
    }

    fn auto(lane: usize, value: u64, fate: Fate) -> Entry {
        Entry {
            id: 0,
            leaves: vec![vec![]],
            mark: Some((1, Mark { lane, value })),
            has_seat: false,
            fate,
        }
    }

    fn account(id: i32, balance: i64, autos: i64, marks: &str) -> Account {
        Account {
            id,
            balance,
            autos,
            marks: marks.to_owned(),
        }
    }

    /// Transaction 1 acknowledged, 2 failed, 3 in doubt; updates of the clients 0 and 1.
    fn book() -> Vec<Entry> {
        vec![
            transfer(1, Fate::Acknowledged),
            transfer(2, Fate::Failed),
            transfer(3, Fate::InDoubt),
            auto(0, 70, Fate::Acknowledged),
            auto(0, 5, Fate::Failed),
            auto(1, 9, Fate::Acknowledged),
            auto(1, 300, Fate::InDoubt),
            auto(1, 40, Fate::InDoubt),
        ]
    }

    /// Nothing in doubt is there.
    fn found() -> Found {
        Found {
            accounts: vec![
                account(1, INITIAL - 5 + 2, 2, "900000000000000000070"),
                account(2, INITIAL + 5, 0, "0"),
            ],
            ledger: vec![row(8, 1, -5), row(9, 2, 5)],
            seats: vec![],
        }
    }

    /// Two transactions that have taken a seat each, numbered so.
    fn seated(numbers: [i64; 2]) -> Vec<String> {
        let entry = |id| Entry {
            id,
            leaves: vec![vec![row(id * ROWS, 1, 0)]],
            mark: None,
            has_seat: true,
            fate: Fate::Acknowledged,
        };
        let seat = |(number, transaction)| Seat {
            hall: 1,
            number,
            transaction,
        };
        let found = Found {
            accounts: vec![account(1, INITIAL, 0, "0")],
            ledger: vec![row(8, 1, 0), row(16, 1, 0)],
            seats: numbers.into_iter().zip([1, 2]).map(seat).collect(),
        };
        judge(&[entry(1), entry(2)], &found, INITIAL).wrong
    }

    #[test]
    fn a_seat_taken_twice_is_seen() {
        assert_eq!(seated([1, 2]), Vec::<String>::new());
        assert!(
            seated([1, 1])[0].contains("transaction 2 has taken seat 1 of hall 1 after seat 1")
        );
        assert!(seated([2, 3])[0].contains("after seat 0"));
    }

    #[test]
    fn a_seat_apart_from_its_ledger_is_seen() {
        let mut found = found();
        found.seats.push(Seat {
            hall: 0,
            number: 1,
            transaction: 1,
        });
        assert!(wrong(&found).contains("transaction 1 wanted no seat"));
    }

    fn wrong(found: &Found) -> String {
        judge(&book(), found, INITIAL).wrong.join("\n")
    }

    #[test]
    fn what_was_told_is_right() {
        assert_eq!(judge(&book(), &found(), INITIAL), Verdict::default());
    }

    #[test]
    fn what_is_in_doubt_may_be_there_as_a_whole() {
        let mut found = found();
        found.ledger.extend([row(24, 1, -5), row(25, 2, 5)]);
        found.accounts[0] = account(1, INITIAL - 10 + 3, 3, "4900000000000000000070");
        found.accounts[1].balance += 5;
        let verdict = judge(&book(), &found, INITIAL);
        assert_eq!((verdict.present_in_doubt, verdict.wrong), (2, vec![]));
    }

    #[test]
    fn a_lost_acknowledged_transaction_is_seen() {
        let mut found = found();
        found.ledger.clear();
        found.accounts[0].balance += 5;
        found.accounts[1].balance -= 5;
        assert!(wrong(&found).contains("transaction 1 (Acknowledged)"));
    }

    #[test]
    fn a_doubled_row_is_seen() {
        let mut found = found();
        found.ledger.push(row(9, 2, 5));
        found.accounts[1].balance += 5;
        assert!(wrong(&found).contains("transaction 1 (Acknowledged)"));
    }

    #[test]
    fn half_a_transaction_is_seen() {
        let mut found = found();
        found.ledger.push(row(24, 1, -5));
        found.accounts[0].balance -= 5;
        assert!(wrong(&found).contains("transaction 3 (InDoubt)"));
    }

    #[test]
    fn a_failed_transaction_that_is_there_is_seen() {
        let mut found = found();
        found.ledger.extend([row(16, 1, -5), row(17, 2, 5)]);
        found.accounts[0].balance -= 5;
        found.accounts[1].balance += 5;
        assert!(wrong(&found).contains("transaction 2 (Failed)"));
    }

    #[test]
    fn a_transaction_of_nobody_is_seen() {
        let mut found = found();
        found.ledger.push(row(800, 2, 0));
        assert!(wrong(&found).contains("nobody has sent transaction 100"));
    }

    #[test]
    fn a_balance_apart_from_its_ledger_is_seen() {
        let mut found = found();
        found.accounts[1].balance += 1;
        assert!(wrong(&found).contains("account 2 has 106, and 105 by its ledger"));
    }

    #[test]
    fn a_single_update_lost_doubled_or_failed_and_there_is_seen() {
        for (autos, marks) in [
            (1, "900000000000000000000"),
            (3, "900000000000000000140"),
            (3, "900000000000000000075"),
            (3, "900000000000000000071"),
        ] {
            let mut found = found();
            found.accounts[0] = account(1, INITIAL - 5 + autos, autos, marks);
            assert!(wrong(&found).contains("account 1, client 0"), "{marks}");
        }
    }

    #[test]
    fn a_mark_without_its_count_is_seen() {
        let mut found = found();
        found.accounts[0].autos = 3;
        found.accounts[0].balance += 1;
        assert!(wrong(&found).contains("counts 3 single updates, 2 by their marks"));
    }

    #[test]
    fn marks_of_nobody_are_seen() {
        let mut found = found();
        found.accounts[1].marks = "1".repeat(21);
        assert!(wrong(&found).contains("account 2 has marks of nobody"));
    }

    #[test]
    fn a_mark_is_a_numeric_in_its_lane() {
        let mut out = BytesMut::new();
        let mark = Mark {
            lane: 2,
            value: 123_4567_8901,
        };
        assert!(mark.to_sql(&Type::NUMERIC, &mut out).is_ok());
        let words: Vec<i16> = out
            .chunks(2)
            .map(|word| i16::from_be_bytes([word[0], word[1]]))
            .collect();
        assert_eq!(words, [4, 13, 0, 0, 0, 123, 4567, 8901]);
    }
}
