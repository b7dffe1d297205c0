//! Rules about what sessions were told: by rows that they have read, and by errors.
use std::collections::{BTreeMap, BTreeSet};

use super::super::account::{Fate, Place, Sight, bits};
use super::super::observe::How;
use super::super::schedule::Kind;
use super::super::session::Answer;
use super::{Judge, show};

impl Judge<'_> {
    /// Nobody who has committed has seen what has not; plain reads and errors never show it.
    pub fn sights(&mut self) {
        let account = self.account;
        for sight in &account.sights {
            let mode = account.schedule.mode(sight.unit);
            let is_answer = sight.in_error || sight.group.is_some() || !mode.on;
            if !is_answer && !account.is_committed(sight.unit) {
                continue;
            }
            let dirty = sight.mask & !account.good & !account.own(sight.unit);
            if dirty != 0 {
                let what = if sight.in_error {
                    "an error tells"
                } else {
                    "somebody was told"
                };
                let text = format!(
                    "{what} of {}, and {dirty} was never committed",
                    show(sight.place, sight.mask)
                );
                self.finding(
                    if sight.in_error {
                        "dirty error"
                    } else {
                        "dirty read"
                    },
                    Some(sight.event),
                    text,
                );
            }
            let Some(_) = sight.group else {
                continue;
            };
            for bit in bits(sight.mask & account.good & !account.own(sight.unit)) {
                if let Fate::Committed { asked, .. } = account.fates[account.owner(bit)]
                    && asked > account.event(sight.event).got
                {
                    let text = format!(
                        "{} before anybody asked for the commit of {}",
                        show(sight.place, sight.mask),
                        1i64 << bit
                    );
                    self.finding("early read", Some(sight.event), text);
                }
            }
        }
    }

    /// What one snapshot shows: each row once, all rows, transactions as wholes, and everything
    /// that was acknowledged before.
    pub fn groups(&mut self) {
        let account = self.account;
        let mut groups: BTreeMap<(usize, u32), Vec<&Sight>> = BTreeMap::new();
        for sight in &account.sights {
            if let Some(group) = sight.group {
                groups.entry((sight.event, group)).or_default().push(sight);
            }
        }
        for (event, group, _) in &account.wholes {
            groups.entry((*event, *group)).or_default();
        }
        for ((event, group), sights) in groups {
            let mut shown: BTreeMap<Place, i64> = BTreeMap::new();
            for sight in &sights {
                if let Some(before) = shown.insert(sight.place, sight.mask)
                    && account.is_stable(sight.place)
                {
                    let text = format!(
                        "{} and {}",
                        show(sight.place, before),
                        show(sight.place, sight.mask)
                    );
                    self.finding("row twice", Some(event), text);
                }
            }
            let wholes = account.wholes.iter();
            let wholes = wholes.filter(|whole| (whole.0, whole.1) == (event, group));
            for (_, _, table) in wholes {
                for n in account.permanent(*table) {
                    if !shown.contains_key(&(*table, n)) {
                        self.finding(
                            "row missing",
                            Some(event),
                            format!("{table}:{n} is not shown"),
                        );
                    }
                }
                // A row that is not shown has no bits.
                for effect in account
                    .effects
                    .iter()
                    .filter(|effect| effect.place.0 == *table)
                {
                    shown.entry(effect.place).or_insert(0);
                }
            }
            shown.retain(|place, _| account.is_stable(*place));
            self.whole_transactions(event, &shown);
            self.fresh(event, &shown);
        }
    }

    fn whole_transactions(&mut self, event: usize, shown: &BTreeMap<Place, i64>) {
        let account = self.account;
        let unit = account.step(event).unit;
        let seen = shown.values().fold(0, |all, mask| all | mask) & account.good;
        let writers: BTreeSet<usize> = bits(seen)
            .map(|bit| account.owner(bit))
            .filter(|owner| *owner != unit)
            .collect();
        for (place, mask) in shown {
            for effect in account
                .committed(*place)
                .filter(|effect| writers.contains(&effect.unit))
            {
                if mask >> effect.bit & 1 == 0 {
                    let text = format!(
                        "{} without {}, though another row shows that its transaction has committed",
                        show(*place, *mask),
                        1i64 << effect.bit
                    );
                    self.finding("torn snapshot", Some(event), text);
                }
            }
        }
    }

    /// When the snapshot of the event can have been taken at the earliest.
    fn snapshot_of(&self, event: usize) -> u32 {
        let account = self.account;
        let step = account.step(event);
        if !account.schedule.mode(step.unit).one_snapshot {
            return account.event(event).sent;
        }
        let first = (0..event).find(|earlier| {
            let earlier = account.step(*earlier);
            earlier.unit == step.unit && matches!(earlier.kind, Kind::Statement | Kind::Whole)
        });
        account.event(first.unwrap_or(event)).sent
    }

    fn fresh(&mut self, event: usize, shown: &BTreeMap<Place, i64>) {
        let account = self.account;
        let unit = account.step(event).unit;
        let moment = self.snapshot_of(event);
        for (place, mask) in shown {
            for effect in account
                .committed(*place)
                .filter(|effect| effect.unit != unit)
            {
                if let Fate::Committed { told, .. } = account.fates[effect.unit]
                    && told < moment
                    && mask >> effect.bit & 1 == 0
                {
                    let text = format!(
                        "{} without {}, acknowledged before",
                        show(*place, *mask),
                        1i64 << effect.bit
                    );
                    self.finding("stale read", Some(event), text);
                }
            }
        }
    }

    /// A transaction sees what it has written.
    pub fn own_writes(&mut self) {
        let account = self.account;
        for sight in account.sights.iter().filter(|sight| sight.how != How::Old) {
            if !account.is_stable(sight.place) {
                continue;
            }
            let before = account.effects.iter().filter(|effect| {
                effect.unit == sight.unit
                    && effect.place == sight.place
                    && effect.event < sight.event
                    && !self.undone_before(effect.event, sight.event)
            });
            let same = account.sights.iter().filter(|earlier| {
                earlier.event == sight.event
                    && earlier.how == How::WroteBefore
                    && earlier.order < sight.order
                    && earlier.place == sight.place
            });
            let expected = before.fold(0i64, |mask, effect| mask | 1 << effect.bit)
                | same.fold(0i64, |mask, earlier| {
                    mask | earlier.mask & account.own(sight.unit)
                });
            if expected & !sight.mask != 0 {
                let text = format!(
                    "{} without its own {}",
                    show(sight.place, sight.mask),
                    expected & !sight.mask
                );
                self.finding("own write", Some(sight.event), text);
            }
        }
    }

    /// Whether a ROLLBACK TO has undone the event before the later one began.
    pub(super) fn undone_before(&self, event: usize, later: usize) -> bool {
        let account = self.account;
        account.undone[event]
            && (event..later).any(|between| {
                let step = account.step(between);
                step.kind == Kind::RollbackTo && step.session == account.step(event).session
            })
    }

    /// What a session has seen, its later snapshots show, with all that its writer has done.
    pub fn goes_on(&mut self) {
        let account = self.account;
        for later in account.sights.iter().filter(|sight| sight.group.is_some()) {
            let mode = account.schedule.mode(later.unit);
            if mode.immediate || mode.one_snapshot || !account.is_stable(later.place) {
                continue;
            }
            if mode.asks_again && !account.is_committed(later.unit) {
                continue;
            }
            let session = account.step(later.event).session;
            let seen = account.sights.iter().filter(|sight| {
                let earlier =
                    sight.event < later.event && account.step(sight.event).session == session;
                let same = sight.event == later.event
                    && sight.how == How::WroteBefore
                    && sight.order < later.order;
                (earlier && (sight.unit == later.unit || account.is_committed(sight.unit))) || same
            });
            let seen = seen.fold(0, |mask, sight| mask | sight.mask) & account.good;
            let writers: BTreeSet<usize> = bits(seen)
                .map(|bit| account.owner(bit))
                .filter(|owner| *owner != later.unit)
                .collect();
            for effect in account
                .committed(later.place)
                .filter(|effect| writers.contains(&effect.unit))
            {
                if later.mask >> effect.bit & 1 == 0 {
                    let text = format!(
                        "{} without {}, whose transaction this session has seen",
                        show(later.place, later.mask),
                        1i64 << effect.bit
                    );
                    self.finding("went back", Some(later.event), text);
                }
            }
        }
    }

    /// What a transaction with one snapshot reads is of one moment.
    pub fn stays(&mut self) {
        let account = self.account;
        let mut first: BTreeMap<(usize, Place), (usize, i64)> = BTreeMap::new();
        for sight in account.sights.iter().filter(|sight| sight.how == How::Read) {
            let is_one = account.schedule.mode(sight.unit).one_snapshot;
            if !is_one || sight.group.is_none() || !account.is_stable(sight.place) {
                continue;
            }
            let of_others = sight.mask & !account.own(sight.unit);
            let (event, before) = *first
                .entry((sight.unit, sight.place))
                .or_insert((sight.event, of_others));
            if before != of_others {
                let text = format!(
                    "{}, though the same snapshot has shown {} in step {event}",
                    show(sight.place, of_others),
                    show(sight.place, before)
                );
                self.finding("moved snapshot", Some(sight.event), text);
            }
        }
    }

    /// A statement asks for a row by what other transactions have written. It finds the row if
    /// these were acknowledged before it, or its own transaction had met them.
    pub fn misses(&mut self) {
        let account = self.account;
        for event in 0..account.run.events.len() {
            let step = account.step(event);
            let mode = account.schedule.mode(step.unit);
            let is_none = matches!(
                &account.event(event).answer,
                Some(Answer::Done { count: 0, .. })
            );
            let Some((table, n, bit)) = step.needs.filter(|_| is_none) else {
                continue;
            };
            let hides = mode.app_role || mode.other_role || mode.one_snapshot || mode.immediate;
            if hides || !account.is_committed(step.unit) || !account.is_stable((table, n)) {
                continue;
            }
            let mut effects = account.committed((table, n));
            let Some(effect) = effects.find(|effect| effect.bit == bit && effect.unit != step.unit)
            else {
                continue;
            };
            let acknowledged = matches!(account.fates[effect.unit],
                Fate::Committed { told, .. } if told < account.event(event).sent);
            if acknowledged || self.had_met(step.unit, effect.unit, event) {
                let text = format!(
                    "{table}:{n} is not found by {}, whose transaction had ended",
                    1i64 << bit
                );
                self.finding("missed row", Some(event), text);
            }
        }
    }

    /// Whether a transaction has seen or updated, before that event, what the other one has
    /// written: so the other one had ended by then.
    fn had_met(&self, unit: usize, other: usize, event: usize) -> bool {
        let account = self.account;
        let mut sights = account.sights.iter();
        let seen = sights.any(|sight| {
            sight.event < event
                && sight.unit == unit
                && bits(sight.mask & account.good).any(|bit| account.owner(bit) == other)
        });
        let mut own = account.effects.iter();
        seen || own.any(|own| {
            own.event < event
                && own.unit == unit
                && account.is_stable(own.place)
                && account.committed(own.place).any(|effect| {
                    effect.unit == other
                        && account.event(effect.event).got < account.event(own.event).sent
                })
        })
    }

    /// The versions of a row follow each other.
    pub fn versions(&mut self) {
        let account = self.account;
        let mut versions: BTreeMap<Place, BTreeMap<i64, usize>> = BTreeMap::new();
        for sight in account
            .sights
            .iter()
            .filter(|sight| account.is_committed(sight.unit))
        {
            if account.is_stable(sight.place) {
                let mask = sight.mask & account.good;
                versions
                    .entry(sight.place)
                    .or_default()
                    .entry(mask)
                    .or_insert(sight.event);
            }
        }
        for (place, masks) in versions {
            let mut masks: Vec<(i64, usize)> = masks.into_iter().collect();
            masks.sort_by_key(|(mask, _)| mask.count_ones());
            for pair in masks.windows(2) {
                let ((older, _), (newer, event)) = (pair[0], pair[1]);
                if older & !newer != 0 {
                    let text = format!("{} and {}", show(place, older), show(place, newer));
                    self.finding("forked row", Some(event), text);
                }
            }
        }
    }
}
