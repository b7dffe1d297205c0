//! Accounts of mixed loads: what the committed transactions of each script must have changed in the
//! tables.

use anyhow::{Context, ensure};
use postgres::Client;

use super::scans::{INDEX_SCANS, without};

/// A query for one row of bigints that only committed transactions change, each of them by a fixed
/// number.
#[derive(Clone, Copy, Debug)]
pub struct Books {
    pub sql: &'static str,
    pub columns: &'static [&'static str],
}

impl Books {
    /// Reads the row by index and by full scans. Fails when they differ.
    pub fn read(&self, control: &mut Client) -> anyhow::Result<Vec<i64>> {
        let by_index = without(control, &["seqscan"], |control| row(control, self.sql))?;
        let by_scan = without(control, INDEX_SCANS, |control| row(control, self.sql))?;
        ensure!(
            by_index == by_scan,
            "WRONG DATA. {:?} are {by_index:?} by index and {by_scan:?} by full scans",
            self.columns
        );
        Ok(by_index)
    }

    /// What has changed in another way than the committed transactions of each script should have
    /// changed it, in words.
    /// A script's effects are what one of its transactions adds to each column.
    pub fn faults<'a>(
        &self,
        effects: impl IntoIterator<Item = &'a [i64]>,
        committed: &[u64],
        changed: &[i64],
    ) -> Vec<String> {
        let mut expected = vec![0; self.columns.len()];
        for (effects, committed) in effects.into_iter().zip(committed) {
            for (sum, effect) in expected.iter_mut().zip(effects) {
                *sum += effect * *committed as i64;
            }
        }
        let columns = self.columns.iter().zip(expected.iter().zip(changed));
        columns
            .filter(|(_, (expected, found))| expected != found)
            .map(|(column, (expected, found))| {
                format!(
                    "{column}: changed by {found}, but the transactions that were told COMMIT \
                     change it by {expected}"
                )
            })
            .collect()
    }
}

/// The bigints of a query's only row.
pub fn row(control: &mut Client, sql: &str) -> anyhow::Result<Vec<i64>> {
    let row = control
        .query_one(sql, &[])
        .with_context(|| format!("reading \"{sql}\""))?;
    Ok((0..row.len()).map(|n| row.get(n)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_update_too_few_or_too_many_is_a_fault() {
        let books = Books {
            sql: "",
            columns: &["values", "rows"],
        };
        let effects: [&[i64]; 2] = [&[2, 0], &[1, 0]];
        let faults = |changed| books.faults(effects, &[10, 3], changed);
        assert!(faults(&[23, 0]).is_empty());
        assert_eq!(faults(&[22, 0]).len(), 1);
        assert_eq!(faults(&[24, 0]).len(), 1);
        assert_eq!(faults(&[20, 1]).len(), 2);
    }
}
