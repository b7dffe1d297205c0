//! What has to have the same rows as the server in the end: a standby, or what a logical slot has
//! told.
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use pgserver::{Server, Standby};
use postgres::Client;

use super::book::{Account, Found, Row, Seat};
use super::client::INITIAL;
use super::plan::{Plan, ReplicaKind};
use super::transaction::HALL_BITS;

/// The standby and the slot.
const NAME: &str = "copy";
/// Changes that are asked for at once.
const CHANGES: i32 = 5000;
/// How often: each time all WAL since some checkpoint is read again.
const PAUSE: Duration = Duration::from_millis(500);

/// What a cycle's server is compared with.
pub enum Replica {
    None,
    Slot(Told),
    Standby(Box<Standby>),
}

/// The rows as the slot has told of them.
pub struct Told {
    accounts: BTreeMap<i32, Account>,
    ledger: BTreeMap<i64, Row>,
    seats: BTreeMap<i64, Seat>,
    asked: Instant,
}

impl Replica {
    /// Made when the tables are, before the load.
    pub fn make(server: &Server, client: &mut Client, plan: &Plan) -> Result<Self> {
        Ok(match plan.replica {
            ReplicaKind::None => Replica::None,
            ReplicaKind::Slot => {
                let make = "SELECT pg_create_logical_replication_slot($1, 'test_decoding')";
                client.execute(make, &[&NAME])?;
                Replica::Slot(Told::new(plan))
            }
            ReplicaKind::Standby | ReplicaKind::SynchronousStandby => {
                let standby = Standby::attach(server, NAME, Duration::ZERO)?;
                if plan.replica == ReplicaKind::SynchronousStandby {
                    server.set_synchronous_standbys(NAME)?;
                }
                Replica::Standby(Box::new(standby))
            }
        })
    }

    /// Asks the slot for what is new, from time to time. An error says nothing: the server may be
    /// going down.
    pub fn look(&mut self, client: &mut Client) {
        if let Replica::Slot(told) = self
            && told.asked.elapsed() > PAUSE
        {
            let _ = told.ask(client);
            told.asked = Instant::now();
        }
    }

    /// The end: it has to have what was `found` in the server. Takes it away from the server.
    pub fn compare(self, server: &Server, client: &mut Client, found: &Found) -> Result<()> {
        let (what, copied) = match self {
            Replica::None => return Ok(()),
            Replica::Slot(mut told) => {
                while told.ask(client)? > 0 {}
                client.execute("SELECT pg_drop_replication_slot($1)", &[&NAME])?;
                ("the slot has told", told.found())
            }
            Replica::Standby(standby) => {
                standby.wait_until_caught_up(server)?;
                let copied = look(&mut standby.server().connect()?)?;
                server.set_synchronous_standbys("")?;
                ("the standby has", copied)
            }
        };
        differ(&copied.accounts, &found.accounts)
            .or(differ(&copied.ledger, &found.ledger))
            .or(differ(&copied.seats, &found.seats))
            .map_or(Ok(()), |difference| bail!("{what} {difference}"))
    }
}

/// The first difference between what was copied and what was found, both in order.
fn differ<T: PartialEq + Debug>(copied: &[T], found: &[T]) -> Option<String> {
    let most = copied.len().max(found.len());
    let first = (0..most).find(|&n| copied.get(n) != found.get(n))?;
    Some(format!(
        "{:?} of {}, but the server {:?} of {}",
        copied.get(first),
        copied.len(),
        found.get(first),
        found.len()
    ))
}

impl Told {
    fn new(plan: &Plan) -> Self {
        let account = |id| Account {
            id,
            balance: INITIAL,
            autos: 0,
            marks: "0".to_owned(),
        };
        Told {
            accounts: (1..=plan.accounts).map(|id| (id, account(id))).collect(),
            ledger: BTreeMap::new(),
            seats: BTreeMap::new(),
            asked: Instant::now(),
        }
    }

    /// Takes what is new, and tells the slot only then: after a crash it may tell something again,
    /// in the same order. The number of changes.
    fn ask(&mut self, client: &mut Client) -> Result<usize> {
        let new = "SELECT lsn::text, data FROM pg_logical_slot_peek_changes($1, NULL, $2)";
        let changes = client.query(new, &[&NAME, &CHANGES])?;
        for change in &changes {
            let data: &str = change.get(1);
            self.apply(data).with_context(|| data.to_owned())?;
        }
        if let Some(last) = changes.last() {
            let last: &str = last.get(0);
            client.execute(
                "SELECT pg_replication_slot_advance($1, $2::text::pg_lsn)",
                &[&NAME, &last],
            )?;
        }
        Ok(changes.len())
    }

    /// A line of test_decoding: `table public.account: UPDATE: id[integer]:1 balance[bigint]:2 ...`
    fn apply(&mut self, data: &str) -> Result<()> {
        let Some((table, change)) = data
            .strip_prefix("table public.")
            .and_then(|rest| rest.split_once(": "))
        else {
            return Ok(());
        };
        let (_, columns) = change.split_once(": ").context("no columns")?;
        let columns: BTreeMap<&str, &str> = columns
            .split(' ')
            .filter_map(|column| {
                let (name, value) = column.split_once("]:")?;
                Some((name.split('[').next()?, value))
            })
            .collect();
        let text = |name| columns.get(name).copied().context("a column is missing");
        let number = |name| Ok::<i64, anyhow::Error>(text(name)?.parse()?);
        let id = number("id")?;
        match table {
            "account" => {
                let account = Account {
                    id: id as i32,
                    balance: number("balance")?,
                    autos: number("autos")?,
                    marks: text("marks")?.to_owned(),
                };
                self.accounts.insert(account.id, account);
            }
            "ledger" => {
                let row = Row {
                    id,
                    account: number("account")? as i32,
                    amount: number("amount")?,
                };
                self.ledger.insert(id, row);
            }
            "seat" => {
                self.seats.insert(id, seat(id, number("number")?));
            }
            _ => bail!("no table of ours"),
        }
        Ok(())
    }

    fn found(self) -> Found {
        let mut seats: Vec<Seat> = self.seats.into_values().collect();
        seats.sort();
        Found {
            accounts: self.accounts.into_values().collect(),
            ledger: self.ledger.into_values().collect(),
            seats,
        }
    }
}

fn seat(id: i64, number: i64) -> Seat {
    Seat {
        hall: id >> HALL_BITS,
        number,
        transaction: id & ((1 << HALL_BITS) - 1),
    }
}

/// What a server has, read in full.
pub fn look(client: &mut Client) -> Result<Found> {
    client.batch_execute("SET enable_indexscan = off; SET enable_bitmapscan = off")?;
    let accounts = "SELECT id, balance, autos, marks::text FROM account ORDER BY id";
    let ledger = "SELECT id, account, amount FROM ledger ORDER BY id";
    let seats = client.query("SELECT id, number FROM seat", &[])?;
    let mut found = Found {
        accounts: client
            .query(accounts, &[])?
            .iter()
            .map(|row| Account {
                id: row.get(0),
                balance: row.get(1),
                autos: row.get(2),
                marks: row.get(3),
            })
            .collect(),
        ledger: client
            .query(ledger, &[])?
            .iter()
            .map(|row| Row {
                id: row.get(0),
                account: row.get(1),
                amount: row.get(2),
            })
            .collect(),
        seats: seats
            .iter()
            .map(|row| seat(row.get(0), row.get(1)))
            .collect(),
    };
    found.seats.sort();
    ensure!(!found.accounts.is_empty(), "the accounts are gone");
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::plan::Fault;
    use super::*;

    #[test]
    fn the_last_that_is_told_of_a_row_stands() -> Result<()> {
        let plan = Plan::draw(1, 1, 4, &[Fault::Cut]);
        let mut told = Told::new(&plan);
        for line in [
            "BEGIN 7",
            "table public.account: UPDATE: id[integer]:1 balance[bigint]:9 autos[bigint]:1 marks[numeric]:33",
            "table public.ledger: INSERT: id[bigint]:8 account[integer]:1 amount[bigint]:-5",
            "table public.seat: INSERT: id[bigint]:1099511627777 number[bigint]:4",
            "COMMIT 7",
            "table public.account: UPDATE: id[integer]:1 balance[bigint]:10 autos[bigint]:2 marks[numeric]:44",
        ] {
            told.apply(line)?;
        }
        let found = told.found();
        let first = &found.accounts[0];
        assert_eq!(
            (first.balance, first.autos, first.marks.as_str()),
            (10, 2, "44")
        );
        assert_eq!(found.ledger[0].amount, -5);
        let seat = &found.seats[0];
        assert_eq!((seat.hall, seat.number, seat.transaction), (1, 4, 1));
        Ok(())
    }
}
