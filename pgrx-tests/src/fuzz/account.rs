//! What a run's answers say: which transactions have committed, which bits they have added to which
//! rows, what each has seen.
use std::collections::{BTreeMap, BTreeSet};

use super::health::Final;
use super::observe::{self, How};
use super::run::{Event, Run};
use super::schedule::{Kind, Known, Schedule, Step};
use super::session::Answer;

/// A row of a table.
pub type Place = (char, u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// When the commit was sent, and when it was confirmed.
    Committed {
        asked: u32,
        told: u32,
    },
    Aborted,
}

/// A bit that a statement has added to a row.
#[derive(Clone, Copy, Debug)]
pub struct Effect {
    pub place: Place,
    pub bit: u32,
    pub unit: usize,
    pub event: usize,
    /// Not undone by a ROLLBACK TO.
    pub survived: bool,
}

/// A version of a row that somebody was told of.
#[derive(Clone, Copy, Debug)]
pub struct Sight {
    pub event: usize,
    pub unit: usize,
    pub place: Place,
    pub mask: i64,
    pub how: How,
    /// Sights of one group come of one snapshot; none: of no snapshot.
    pub group: Option<u32>,
    /// Its place among what the event tells.
    pub order: usize,
    /// An error has told of it.
    pub in_error: bool,
}

/// The whole account of a run.
pub struct Account<'a> {
    pub schedule: &'a Schedule,
    pub run: &'a Run,
    pub end: &'a Final,
    pub fates: Vec<Fate>,
    pub effects: Vec<Effect>,
    pub sights: Vec<Sight>,
    /// Groups with all rows of a table, by event.
    pub wholes: Vec<(usize, u32, char)>,
    /// Definitions that were used, by the steps that have made them, and the events that tell.
    pub used: Vec<(usize, usize)>,
    /// Bits of writes that have committed.
    pub good: i64,
    /// By bit.
    pub owners: BTreeMap<u32, usize>,
    /// Rows that may have gone or moved at some time.
    pub unstable: BTreeSet<Place>,
    /// By event: it was undone by a ROLLBACK TO.
    pub undone: Vec<bool>,
}

impl<'a> Account<'a> {
    pub fn new(schedule: &'a Schedule, run: &'a Run, end: &'a Final) -> Self {
        let mut account = Account {
            schedule,
            run,
            end,
            fates: vec![Fate::Aborted; schedule.modes.len()],
            effects: Vec::new(),
            sights: Vec::new(),
            wholes: Vec::new(),
            used: Vec::new(),
            good: 0,
            owners: BTreeMap::new(),
            unstable: BTreeSet::new(),
            undone: vec![false; run.events.len()],
        };
        for step in &schedule.steps {
            account.unstable.extend(&step.removes);
            account
                .owners
                .extend(step.writes.iter().map(|write| (write.bit, write.unit)));
        }
        account.undo();
        for event in 0..run.events.len() {
            account.fate(event);
            account.see(event);
            account.effect(event);
        }
        account.sum_up();
        account
    }

    pub fn step(&self, event: usize) -> &'a Step {
        &self.schedule.steps[self.run.events[event].step]
    }

    pub fn event(&self, event: usize) -> &'a Event {
        &self.run.events[event]
    }

    pub fn is_committed(&self, unit: usize) -> bool {
        matches!(self.fates.get(unit), Some(Fate::Committed { .. }))
    }

    pub fn owner(&self, bit: u32) -> usize {
        self.owners.get(&bit).copied().unwrap_or(usize::MAX)
    }

    /// All bits of the transaction's writes, whatever became of them.
    pub fn own(&self, unit: usize) -> i64 {
        let own = self.owners.iter().filter(|(_, owner)| **owner == unit);
        own.fold(0, |mask, (bit, _)| mask | 1 << bit)
    }

    /// The bits that committed transactions have added to the row.
    pub fn committed(&self, place: Place) -> impl Iterator<Item = &Effect> {
        self.effects.iter().filter(move |effect| {
            effect.place == place && effect.survived && self.is_committed(effect.unit)
        })
    }

    pub fn is_stable(&self, place: Place) -> bool {
        !self.unstable.contains(&place)
    }

    /// Rows that are there at the beginning and never go.
    pub fn permanent(&self, table: char) -> impl Iterator<Item = u32> {
        let rows = self
            .schedule
            .schema
            .table(table)
            .map_or(0, |table| table.rows);
        (1..=rows).filter(move |n| self.is_stable((table, *n)))
    }

    /// Marks the events of savepoints that were rolled back.
    fn undo(&mut self) {
        let mut since: BTreeMap<usize, Option<usize>> = BTreeMap::new();
        for number in 0..self.run.events.len() {
            let step = self.step(number);
            let done = self
                .event(number)
                .answer
                .as_ref()
                .is_some_and(Answer::is_done);
            match step.kind {
                Kind::Begin => {
                    since.insert(step.session, None);
                }
                Kind::Savepoint if done => {
                    since.insert(step.session, Some(number));
                }
                Kind::RollbackTo if done => {
                    if let Some(Some(since)) = since.get(&step.session) {
                        for undone in *since..number {
                            if self.step(undone).session == step.session {
                                self.undone[undone] = true;
                            }
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn fate(&mut self, number: usize) {
        let (step, event) = (self.step(number), self.event(number));
        let Some(answer) = &event.answer else {
            return;
        };
        let committed = Fate::Committed {
            asked: event.sent,
            told: event.got,
        };
        let ends = matches!(step.kind, Kind::Commit | Kind::Whole | Kind::CommitPrepared);
        if ends && event.instead.is_none() && answer.is_done() {
            self.fates[step.unit] = committed;
        }
        for (unit, keeps) in &step.parts {
            let wrote = step.writes.iter().filter(|write| write.unit == *unit);
            // A procedure that fails later tells nothing of what it has committed before.
            let is_there = answer.is_done()
                || wrote.into_iter().any(|write| {
                    let row = write.n.and_then(|n| self.end.rows.get(&(write.table, n)));
                    row.is_some_and(|value| value >> write.bit & 1 == 1)
                });
            if *keeps && is_there {
                self.fates[*unit] = match answer.is_done() {
                    true => committed,
                    false => Fate::Committed {
                        asked: event.sent,
                        told: u32::MAX,
                    },
                };
            }
        }
    }

    fn see(&mut self, number: usize) {
        let (step, event) = (self.step(number), self.event(number));
        let (told, in_error) = match &event.answer {
            Some(Answer::Done { rows, .. }) => {
                (observe::read(rows.iter().map(String::as_str)), false)
            }
            Some(Answer::Failed { message, .. }) => match message.strip_prefix("obs ") {
                Some(obs) => (observe::read([obs]), true),
                None => return,
            },
            _ => return,
        };
        for (order, item) in told.items.iter().enumerate() {
            let outside = item.group == 0;
            let of_snapshot = item.how == How::Read && (!outside || step.snapshot);
            let how = match item.how {
                How::Read if !of_snapshot => How::Loose,
                how => how,
            };
            self.sights.push(Sight {
                event: number,
                unit: step.unit,
                place: (item.table, item.n),
                mask: item.value,
                how,
                group: of_snapshot.then_some(item.group),
                order,
                in_error,
            });
        }
        let whole = told
            .whole
            .iter()
            .map(|(group, table)| (number, *group, *table));
        self.wholes.extend(whole);
        let used = told.definitions.iter().map(|step| (*step, number));
        self.used.extend(used);
        if !in_error {
            self.wholes
                .extend(step.whole.iter().map(|table| (number, 0, *table)));
        }
    }

    fn effect(&mut self, number: usize) {
        let step = self.step(number);
        let done = matches!(&self.event(number).answer, Some(Answer::Done { .. }));
        let count = match &self.event(number).answer {
            Some(Answer::Done { count, .. }) => *count,
            _ => 0,
        };
        let survived = !self.undone[number];
        for write in &step.writes {
            let bit = write.bit;
            let places: BTreeSet<Place> = match write.known {
                Known::Told => self
                    .sights
                    .iter()
                    .filter(|sight| {
                        sight.event == number && matches!(sight.how, How::Wrote | How::WroteBefore)
                    })
                    .filter(|sight| sight.mask >> bit & 1 == 1)
                    .map(|sight| sight.place)
                    .collect(),
                Known::Counted if count > 0 => write.n.iter().map(|n| (write.table, *n)).collect(),
                // The parts of a procedure that failed: `fate` knows.
                Known::Certain if done || !step.parts.is_empty() => {
                    write.n.iter().map(|n| (write.table, *n)).collect()
                }
                _ => BTreeSet::new(),
            };
            self.effects.extend(places.into_iter().map(|place| Effect {
                place,
                bit,
                unit: write.unit,
                event: number,
                survived,
            }));
        }
    }

    fn sum_up(&mut self) {
        let good = self
            .effects
            .iter()
            .filter(|effect| effect.survived && self.is_committed(effect.unit));
        self.good = good.fold(0, |mask, effect| mask | 1 << effect.bit);
    }
}

/// The bits of a value.
pub fn bits(mask: i64) -> impl Iterator<Item = u32> {
    (0..63).filter(move |bit| mask >> bit & 1 == 1)
}
