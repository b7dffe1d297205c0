//! The order in which rows came and went under one key.
//!
//! A row's versions form a chain, from the insert to the removal: a *life* of the key. Which life
//! came first, and before or after which one somebody saw no row, no value tells. The times
//! suggest an order; the search may *pin* parts of it the other way round. Appends to a list that
//! nobody read afterwards are ordered in the same way.
use std::collections::HashMap;

use crate::check::edges::{Next, Unseen};
use crate::check::graph::{Edge, Graph, Kind, Why};
use crate::check::observe::{Glance, Observations};
use crate::check::report::Report;
use crate::check::store::{INITIAL, Place, Store};
use crate::check::verdict::{Class, Level, Promise};
use crate::model::{History, Object, Time};

/// `first` comes before `second` under the key `slot`; both number its lives, then its absences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pin {
    pub slot: u32,
    pub first: u32,
    pub second: u32,
}

struct Life {
    /// The transaction that put the row there; `None`: it was there from the beginning.
    begin: Option<Place>,
    /// The transaction that removed it; `None`: it stays.
    end: Option<Place>,
    began: Time,
    ended: Time,
}

impl Life {
    fn middle(&self) -> Time {
        self.began / 2 + self.ended / 2
    }
}

struct Gone {
    place: Place,
    /// A row that was put there and removed again: at READ COMMITTED a write between others. At
    /// the other levels it left nothing, and only says that there was no row.
    write: bool,
    /// The node that missed what came later.
    reader: u32,
    /// How many lives are over by then, as the times suggest.
    gap: usize,
    /// The life that the same transaction ended afterwards.
    until: Option<u32>,
}

struct Slot {
    object: Object,
    lives: Vec<Life>,
    absences: Vec<Gone>,
}

/// All keys that rows came and went under.
pub struct Slots {
    slots: Vec<Slot>,
}

impl Slot {
    fn empty(object: &Object) -> Slot {
        Slot {
            object: *object,
            lives: Vec::new(),
            absences: Vec::new(),
        }
    }
}

impl Slots {
    /// Two rows of one key that both stay, or no row where one always was, go to `report`.
    pub fn new(
        history: &History,
        promise: Promise,
        store: &Store,
        seen: &Observations,
        next: &Next,
        unseen: &Unseen,
        report: &mut Report,
    ) -> Self {
        let by_statement = promise.level == Level::ReadCommitted;
        let mut slots = Slots {
            slots: store.slots().iter().map(Slot::empty).collect(),
        };
        slots.note_lives(history, by_statement, store, seen, next);
        slots.report_forks(report);
        slots.note_absences(history, by_statement, seen, report);
        for slot in &mut slots.slots {
            let of = |gone: &Gone| (gone.gap, gone.place.transaction);
            slot.absences.sort_by_key(of);
            if !by_statement {
                slot.absences.dedup_by_key(|gone| of(gone));
            }
        }
        slots.note_unseen(history, unseen);
        slots
    }

    /// When rows of each key began and ended.
    fn note_lives(
        &mut self,
        history: &History,
        by_statement: bool,
        store: &Store,
        seen: &Observations,
        next: &Next,
    ) {
        let first_seen = first_seen(history, by_statement, seen);
        let time = |place: Option<Place>, otherwise| {
            place.map_or(otherwise, |place| commit_time(history, place))
        };
        let initial = (0..).zip(&store.versions);
        let initial = initial.filter(|(_, version)| version.writer == INITIAL);
        let initial = initial.map(|(id, _)| (id, None));
        let begun = seen.begun.iter().map(|(id, place)| (*id, Some(*place)));
        for (id, begin) in initial.chain(begun) {
            let Some(slot) = store.slot(store.version(id).object) else {
                continue;
            };
            let mut version = Some(id);
            let mut end = None;
            let mut began = time(begin, 0);
            while let Some(id) = version {
                began = began.min(*first_seen.get(&id).unwrap_or(&began));
                let Some(replaced) = next[id as usize] else {
                    break;
                };
                version = replaced.by;
                end = Some(replaced.place);
            }
            // A chain that ends with a version was not removed.
            let end = end.filter(|_| version.is_none());
            self.slots[slot as usize].lives.push(Life {
                begin,
                end,
                began,
                ended: time(end, Time::MAX),
            });
        }
    }

    /// Sorts the lives. Two rows of one key that both stay go to `report`.
    fn report_forks(&mut self, report: &mut Report) {
        for slot in &mut self.slots {
            let (object, lives) = (slot.object, &mut slot.lives);
            lives.sort_by_key(|life| (life.begin.is_some(), life.end.is_none(), life.middle()));
            // A row without an end is last. The second of two such rows, and what comes after it,
            // has found the key taken.
            let unended = lives.iter().position(|life| life.end.is_none());
            let after = unended.and_then(|place| Some((place, lives.get(place + 1)?.begin?)));
            if let Some((place, intruder)) = after {
                let owner = lives[place].begin.unwrap_or(intruder);
                let text = format!("{object} has a row that stays, and yet another one");
                report.pair(Class::Fork, owner, intruder, &text);
            }
        }
    }

    /// Which gap each absence that was seen is in. No row where one always was goes to `report`.
    fn note_absences(
        &mut self,
        history: &History,
        by_statement: bool,
        seen: &Observations,
        report: &mut Report,
    ) {
        let mut ended: HashMap<(u32, u32), usize> = HashMap::new();
        for (number, slot) in (0..).zip(&self.slots) {
            let ends = slot.lives.iter().enumerate();
            let ends = ends.filter_map(|(place, life)| Some((life.end?.transaction, place)));
            ended.extend(ends.map(|(transaction, place)| ((number, transaction), place)));
        }
        for absence in &seen.absences {
            if by_statement && absence.kind == Glance::Miss {
                continue;
            }
            let place = absence.place;
            let transaction = &history.transactions[place.transaction as usize];
            let time = match absence.kind {
                Glance::Write if by_statement => transaction.completed,
                _ if by_statement => transaction.events[place.op as usize].invoked,
                _ => transaction.events[0].invoked,
            };
            let slot = &mut self.slots[absence.slot as usize];
            let first = usize::from(slot.lives.first().is_some_and(|life| life.begin.is_none()));
            let stays = slot.lives.last().is_some_and(|life| life.end.is_none());
            let until = ended.get(&(absence.slot, place.transaction)).copied();
            let last = until.unwrap_or(slot.lives.len() - usize::from(stays));
            if first > last {
                let object = slot.object;
                let text = format!("no row of {object}, which had one all the time");
                report.single(Class::Malformed, place, &text);
                continue;
            }
            let over = slot.lives.partition_point(|life| life.middle() < time);
            slot.absences.push(Gone {
                place,
                write: by_statement && absence.kind == Glance::Write,
                reader: place.transaction,
                gap: over.clamp(first, last),
                until: until.map(|life| life as u32),
            });
        }
    }

    /// Writes of lists that nobody has read: each is there for no time.
    fn note_unseen(&mut self, history: &History, unseen: &Unseen) {
        for (list, places) in unseen.iter().filter(|(_, places)| places.len() > 1) {
            let mut slot = Slot::empty(&Object::List(*list));
            slot.lives = places
                .iter()
                .map(|place| Life {
                    begin: Some(*place),
                    end: Some(*place),
                    began: commit_time(history, *place),
                    ended: commit_time(history, *place),
                })
                .collect();
            slot.lives.sort_by_key(Life::middle);
            self.slots.push(slot);
        }
    }

    /// Gives the absences their nodes.
    pub fn place(&mut self, graph: &mut Graph) {
        for slot in &mut self.slots {
            for gone in slot.absences.iter_mut().filter(|gone| !gone.write) {
                gone.reader = graph.nodes.reader(gone.place);
            }
        }
    }

    /// The key or list that a slot is.
    pub fn object(&self, slot: u32) -> Object {
        self.slots[slot as usize].object
    }

    /// Whether `second` could also come before `first`, for all that is known of the key alone.
    pub fn can_swap(&self, pin: Pin) -> bool {
        let slot = &self.slots[pin.slot as usize];
        let life = |item: u32| slot.lives.get(item as usize);
        let there_at_first = life(pin.first).is_some_and(|life| life.begin.is_none());
        let stays = life(pin.second).is_some_and(|life| life.end.is_none());
        let fixed = slot.fixed().any(|fixed| fixed == (pin.first, pin.second));
        !there_at_first && !stays && !fixed
    }

    /// Whether the times suggest this order of the two.
    pub fn suggests(&self, pin: Pin) -> bool {
        let slot = &self.slots[pin.slot as usize];
        let lives = slot.lives.len();
        let gap = |item: u32| slot.absences[item as usize - lives].gap;
        let (first, second) = (pin.first, pin.second);
        match (first < lives as u32, second < lives as u32) {
            (true, false) => (first as usize) < gap(second),
            (false, true) => gap(first) <= second as usize,
            _ => first < second,
        }
    }

    /// The dependencies in the order that the times suggest.
    pub fn suggested(&self) -> Vec<Edge> {
        let mut edges = Vec::new();
        for (number, slot) in (0..).zip(&self.slots) {
            slot.edges(number, &slot.suggestion(), &mut edges);
        }
        edges
    }

    /// Adds the dependencies of one key with `pins`, those of other keys among them. The error is
    /// those pins of the key that cannot all be.
    pub fn pinned(&self, number: u32, pins: &[Pin], edges: &mut Vec<Edge>) -> Result<(), Vec<Pin>> {
        let slot = &self.slots[number as usize];
        let own = pins.iter().filter(|pin| pin.slot == number);
        let order = slot.with_pins(own.map(|pin| (pin.first, pin.second)).collect());
        let pin = |(first, second)| Pin {
            slot: number,
            first,
            second,
        };
        let order = order.map_err(|pairs| pairs.into_iter().map(pin).collect::<Vec<_>>())?;
        slot.edges(number, &order, edges);
        Ok(())
    }
}

/// About when that transaction has committed: after its last operation, and before it was told.
fn commit_time(history: &History, place: Place) -> Time {
    let transaction = &history.transactions[place.transaction as usize];
    let last = transaction.events.last();
    let last = last.map_or(transaction.invoked, |event| event.completed);
    last / 2 + transaction.completed / 2
}

/// By when each version was there that was read or replaced.
fn first_seen(history: &History, by_statement: bool, seen: &Observations) -> HashMap<u32, Time> {
    let reads = seen.reads.iter().map(|read| (read.version, read.place));
    let replaced = seen.replaced.iter().map(|one| (one.version, one.place));
    let mut first = HashMap::new();
    for (version, place) in reads.chain(replaced) {
        let events = &history.transactions[place.transaction as usize].events;
        // Without a snapshot for each statement the first one has taken it.
        let op = if by_statement { place.op as usize } else { 0 };
        let time = first.entry(version).or_insert(Time::MAX);
        *time = events[op].completed.min(*time);
    }
    first
}

impl Slot {
    fn suggestion(&self) -> Vec<u32> {
        let lives = self.lives.len();
        let mut order = Vec::with_capacity(lives + self.absences.len());
        let mut absences = self.absences.iter().zip(lives as u32..).peekable();
        for life in 0..=lives {
            while let Some((_, item)) = absences.next_if(|(gone, _)| gone.gap <= life) {
                order.push(item);
            }
            if life < lives {
                order.push(life as u32);
            }
        }
        order
    }

    /// Absences before the life that their transaction ended.
    fn fixed(&self) -> impl Iterator<Item = (u32, u32)> {
        let absences = self.absences.iter().zip(self.lives.len() as u32..);
        absences.filter_map(|(gone, item)| Some((item, gone.until?)))
    }

    /// The suggested order, changed as little as the pins allow; or some pins that go round in a
    /// circle.
    fn with_pins(&self, own: Vec<(u32, u32)>) -> Result<Vec<u32>, Vec<(u32, u32)>> {
        let mut pins = own.clone();
        pins.extend(self.fixed());
        let mut rest = self.suggestion();
        let mut order = Vec::with_capacity(rest.len());
        while let Some(&start) = rest.first() {
            let free = |item: &u32| pins.iter().all(|(_, second)| second != item);
            let Some(place) = rest.iter().position(free) else {
                let mut circle = circle(&pins, start);
                circle.retain(|pin| own.contains(pin));
                return Err(circle);
            };
            let item = rest.remove(place);
            pins.retain(|(first, _)| *first != item);
            order.push(item);
        }
        Ok(order)
    }

    fn edges(&self, slot: u32, order: &[u32], edges: &mut Vec<Edge>) {
        let mut add = |from: u32, to: u32, kind, first, second| {
            if from != to {
                let why = Why::Order {
                    slot,
                    first,
                    second,
                };
                edges.push(Edge {
                    from,
                    to,
                    kind,
                    why,
                });
            }
        };
        let mut over: Option<(u32, u32)> = None;
        let mut waiting: Vec<(&Gone, u32)> = Vec::new();
        for &item in order {
            let Some(life) = self.lives.get(item as usize) else {
                let gone = &self.absences[item as usize - self.lives.len()];
                waiting.push((gone, item));
                if let Some((end, before)) = over {
                    let transaction = gone.place.transaction;
                    let kind = if gone.write { Kind::Write } else { Kind::Read };
                    add(end, transaction, kind, before, item);
                    if gone.reader != transaction {
                        add(end, gone.reader, kind, before, item);
                    }
                }
                continue;
            };
            if let Some(begin) = life.begin {
                let begin = begin.transaction;
                if let Some((end, before)) = over {
                    add(end, begin, Kind::Write, before, item);
                }
                for (gone, before) in waiting.drain(..) {
                    let kind = match gone.write {
                        true => Kind::Write,
                        false => Kind::AntiPredicate,
                    };
                    add(gone.reader, begin, kind, before, item);
                }
            }
            over = life.end.map(|end| (end.transaction, item));
        }
    }
}

/// A circle of `pins`, found from `start` backwards, where each item has one that is before it.
fn circle(pins: &[(u32, u32)], start: u32) -> Vec<(u32, u32)> {
    let mut path: Vec<(u32, u32)> = Vec::new();
    let mut item = start;
    loop {
        if let Some(place) = path.iter().position(|(_, second)| *second == item) {
            return path.split_off(place);
        }
        let Some(pin) = pins.iter().find(|(_, second)| *second == item) else {
            return path;
        };
        path.push(*pin);
        item = pin.0;
    }
}
