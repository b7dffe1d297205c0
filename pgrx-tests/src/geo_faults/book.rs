//! The judge: what the clients were told against what the coordinator and the nodes have.
use std::collections::BTreeSet;

use anyhow::Result;
use postgres::Client;

use super::transaction::{Entry, Fate};
use crate::geo::{Cluster, NODE_SUM};
use crate::int;

/// The numbers that transactions have left.
#[derive(Default)]
pub struct Found {
    pub ledger: BTreeSet<i64>,
    pub traces: Vec<BTreeSet<i64>>,
    pub sum: i64,
}

impl Found {
    pub fn look(cluster: &Cluster) -> Result<Self> {
        let mut found = Found {
            ledger: numbers(&mut cluster.session()?, "ledger")?,
            ..Found::default()
        };
        for node in &cluster.nodes {
            let mut client = node.connect()?;
            found.traces.push(numbers(&mut client, "trace")?);
            found.sum += int(&mut client, "SELECT sum(balance) FROM account")?;
        }
        Ok(found)
    }

    /// Whether a transaction is at each place where it might be, and was to be.
    fn places(&self, entry: &Entry) -> (Vec<bool>, bool) {
        let mut wanted = Vec::new();
        let mut has_strayed = !entry.in_ledger && self.ledger.contains(&entry.number);
        if entry.in_ledger {
            wanted.push(self.ledger.contains(&entry.number));
        }
        for (node, trace) in self.traces.iter().enumerate() {
            let is_there = trace.contains(&entry.number);
            match entry.nodes.contains(&node) {
                true => wanted.push(is_there),
                false => has_strayed |= is_there,
            }
        }
        (wanted, has_strayed)
    }
}

fn numbers(client: &mut Client, table: &str) -> Result<BTreeSet<i64>> {
    let rows = client.query(&format!("SELECT number FROM {table}"), &[])?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

#[derive(Debug, Default)]
pub struct Verdict {
    pub wrong: Vec<String>,
    /// Of those in doubt, the ones that are there.
    pub present_in_doubt: usize,
}

/// Compares all of it.
pub fn judge(book: &[Entry], found: &Found) -> Verdict {
    let mut verdict = Verdict::default();
    let mut known = BTreeSet::new();
    for entry in book {
        known.insert(entry.number);
        let (wanted, has_strayed) = found.places(entry);
        let everywhere = wanted.iter().all(|is_there| *is_there);
        let nowhere = wanted.iter().all(|is_there| !is_there);
        let what = match entry.fate {
            _ if has_strayed => "is where it was not written",
            _ if !everywhere && !nowhere => "is torn",
            Fate::Acknowledged if nowhere => "was acknowledged and is lost",
            Fate::Refused if everywhere => "was refused and is there",
            _ => {
                verdict.present_in_doubt += usize::from(everywhere && entry.fate == Fate::InDoubt);
                continue;
            }
        };
        verdict.wrong.push(format!(
            "transaction {} {what} ({:?}; ledger and nodes: {wanted:?}): {}",
            entry.number, entry.fate, entry.sql
        ));
    }
    let all = found.traces.iter().chain([&found.ledger]).flatten();
    let strange: BTreeSet<_> = all.filter(|number| !known.contains(number)).collect();
    if !strange.is_empty() {
        let strange: Vec<_> = strange.into_iter().take(9).collect();
        let wrong = format!("nobody has written {strange:?}, or it was undone");
        verdict.wrong.push(wrong);
    }
    let right = NODE_SUM * found.traces.len() as i64;
    if found.sum != right {
        let wrong = format!("the balances are {} in all, not {right}", found.sum);
        verdict.wrong.push(wrong);
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(fate: Fate) -> Entry {
        Entry {
            number: 5,
            nodes: BTreeSet::from([0, 1]),
            in_ledger: true,
            fate,
            sql: String::new(),
        }
    }

    fn found(ledger: bool, nodes: [bool; 3]) -> Found {
        let set = |is_there: bool| is_there.then_some(5).into_iter().collect();
        Found {
            ledger: set(ledger),
            traces: nodes.map(set).into(),
            sum: 3 * NODE_SUM,
        }
    }

    fn wrongs(fate: Fate, found: &Found) -> usize {
        judge(&[entry(fate)], found).wrong.len()
    }

    #[test]
    fn everywhere_or_nowhere_as_told() {
        let (all, none) = (
            found(true, [true, true, false]),
            found(false, [false, false, false]),
        );
        for (fate, there, away) in [
            (Fate::Acknowledged, 0, 1),
            (Fate::Refused, 1, 0),
            (Fate::InDoubt, 0, 0),
        ] {
            assert_eq!(wrongs(fate, &all), there, "{fate:?}");
            assert_eq!(wrongs(fate, &none), away, "{fate:?}");
        }
    }

    #[test]
    fn torn_strayed_and_unknown_ones_are_found() {
        for torn in [
            found(true, [true, false, false]),
            found(false, [true, true, false]),
            found(true, [true, true, true]),
        ] {
            assert_eq!(wrongs(Fate::InDoubt, &torn), 1);
        }
        assert_eq!(judge(&[], &found(true, [false; 3])).wrong.len(), 1);
        let mut poor = found(true, [true, true, false]);
        poor.sum -= 1;
        assert_eq!(wrongs(Fate::Acknowledged, &poor), 1);
    }
}
