//! Rules about what the database holds at the end: the tables, the ledger, the foreign table, and
//! what functions and triggers have noted.
use std::collections::{BTreeMap, BTreeSet};

use super::super::account::Place;
use super::super::observe;
use super::super::schedule::Log;
use super::super::session::Answer;
use super::{Finding, Judge, show};

impl Judge<'_> {
    /// The tables hold what committed transactions have written, and nothing else.
    pub fn outcome(&mut self) {
        let account = self.account;
        let mut places: BTreeSet<Place> =
            account.effects.iter().map(|effect| effect.place).collect();
        places.extend(account.end.rows.keys());
        for table in &account.schedule.schema.tables {
            places.extend((1..=table.rows).map(|n| (table.name, n)));
        }
        for place in places {
            let there = account.end.rows.get(&place);
            let expected = account
                .committed(place)
                .fold(0i64, |mask, effect| mask | 1 << effect.bit);
            if !account.is_stable(place) {
                let stray = there.map_or(0, |value| value & !account.good);
                if stray != 0 {
                    self.finding(
                        "outcome",
                        None,
                        format!("{} has {stray}, never committed", show(place, stray)),
                    );
                }
                continue;
            }
            let permanent = account.permanent(place.0).any(|n| n == place.1);
            if there.is_none() && permanent {
                self.finding("outcome", None, format!("{}:{} is gone", place.0, place.1));
            } else if there.copied().unwrap_or(0) != expected {
                let text = format!(
                    "{}, but {expected} was committed",
                    show(place, there.copied().unwrap_or(0))
                );
                self.finding("outcome", None, text);
            }
        }
    }

    pub fn logs(&mut self) {
        let account = self.account;
        let mut expected: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
        for number in 0..account.run.events.len() {
            let step = account.step(number);
            let done = matches!(&account.event(number).answer, Some(Answer::Done { .. }));
            if let Some(log) = step.log
                && done
                && !account.undone[number]
                && account.is_committed(step.unit)
            {
                expected
                    .entry(log.table())
                    .or_default()
                    .insert(step.id as i64);
            }
        }
        let cascades = account.schedule.schema.action == "CASCADE" && !account.unstable.is_empty();
        for log in Log::ALL {
            let there = account
                .end
                .logs
                .get(log.table())
                .cloned()
                .unwrap_or_default();
            let unique: BTreeSet<i64> = there.iter().copied().collect();
            let expected = expected.remove(log.table()).unwrap_or_default();
            let missing =
                expected.difference(&unique).count() > 0 && !(cascades && log == Log::Ledger);
            if missing || there.len() != unique.len() || unique.difference(&expected).count() > 0 {
                let text = format!(
                    "{} has the rows of steps {there:?}, but {expected:?} have committed",
                    log.table()
                );
                self.finding(
                    if log == Log::Remote {
                        "remote rows"
                    } else {
                        "log"
                    },
                    None,
                    text,
                );
            }
        }
    }

    /// What was written down of what was seen, and has committed.
    pub fn notes(&mut self) {
        let account = self.account;
        for (step, text) in &account.end.seen {
            let told = observe::read([text.as_str()]);
            let mut finding = |rule, text| {
                self.findings.push(Finding {
                    rule,
                    text,
                    step: *step,
                });
            };
            let mut shown: BTreeSet<(u32, Place)> = BTreeSet::new();
            for item in &told.items {
                let dirty = item.value & !account.good;
                if dirty != 0 {
                    finding(
                        "dirty note",
                        format!("{text} was noted, and {dirty} was never committed"),
                    );
                }
                let place = (item.table, item.n);
                if item.group > 0 && !shown.insert((item.group, place)) && account.is_stable(place)
                {
                    finding("row twice", format!("{text} was noted"));
                }
            }
            for (group, table) in &told.whole {
                for n in account.permanent(*table) {
                    if !shown.contains(&(*group, (*table, n))) {
                        finding(
                            "row missing",
                            format!("{text} was noted, without {table}:{n}"),
                        );
                    }
                }
            }
        }
    }

    /// The notes of triggers are an unbroken chain from the first value to the last.
    pub fn chains(&mut self) {
        let account = self.account;
        for table in account
            .schedule
            .schema
            .tables
            .iter()
            .filter(|table| table.chained)
        {
            for n in account.permanent(table.name).collect::<Vec<_>>() {
                let place = (table.name, n);
                let mut links: Vec<(i64, i64)> = account
                    .end
                    .chain
                    .iter()
                    .filter(|link| (link.0, link.1) == place)
                    .map(|link| (link.2, link.3))
                    .collect();
                links.sort_by_key(|(_, new)| new.count_ones());
                let mut at = 0;
                for (old, new) in &links {
                    if *old != at {
                        self.finding("chain", None, format!("row {}:{n}: {links:?}", table.name));
                        break;
                    }
                    at = *new;
                }
            }
        }
    }
}
