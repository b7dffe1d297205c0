//! Rules about the definitions that statements have used.
use super::super::account::{Fate, bits};
use super::super::grammar::FROM_EPOCH;
use super::super::session::Answer;
use super::Judge;

impl Judge<'_> {
    /// A statement uses its own transaction's definitions and those that have committed. Those of
    /// transactions that had ended, or whose writes its own transaction had seen, are there.
    pub fn definitions(&mut self) {
        let account = self.account;
        let made: Vec<usize> = (0..account.run.events.len())
            .filter(|number| account.step(*number).defines)
            .filter(|number| matches!(account.event(*number).answer, Some(Answer::Done { .. })))
            .collect();
        for (used, event) in &account.used {
            let unit = account.step(*event).unit;
            let maker = made.iter().find(|made| account.step(**made).id == *used);
            let is_there = maker.is_some_and(|maker| {
                let of = account.step(*maker).unit;
                of == unit || account.is_committed(of) && !account.undone[*maker]
            });
            if *used != 0 && !is_there {
                let text = format!("the definition of step {used} was used, never committed");
                self.finding("dirty definition", Some(*event), text);
                continue;
            }
            let since = maker.map_or(0, |maker| account.event(*maker).got);
            let older = made
                .iter()
                .find(|made| account.event(**made).got > since && self.must_use(**made, *event));
            if let Some(newer) = older {
                let newer = account.step(*newer).id;
                let text = format!("the definition of step {used} was used, not of {newer}");
                self.finding("old definition", Some(*event), text);
            }
        }
    }

    /// Whether the definition that the event `made` has made was there for the statement of the
    /// other. Who replaces one waits for who has replaced it before.
    fn must_use(&self, made: usize, event: usize) -> bool {
        let account = self.account;
        let (maker, unit) = (account.step(made).unit, account.step(event).unit);
        if maker == unit {
            return made < event && !self.undone_before(made, event);
        }
        let Fate::Committed { told, .. } = account.fates[maker] else {
            return false;
        };
        if account.undone[made] {
            return false;
        }
        let heard = self.heard(event);
        let mode = account.schedule.mode(unit);
        let may_be_refused = mode.asks_again && !account.is_committed(unit);
        let has_seen = |heard: usize| {
            let mut seen = account.sights.iter().filter(|sight| {
                sight.unit == unit
                    && sight.event < heard
                    && account.event(sight.event).answer.is_some()
            });
            seen.any(|sight| bits(sight.mask & account.good).any(|bit| account.owner(bit) == maker))
        };
        told < account.event(heard).sent || !mode.immediate && !may_be_refused && has_seen(heard)
    }

    /// The event in which the session of this one has heard of changed definitions for the last
    /// time for sure: its transaction's first, or the first that read `epoch`.
    fn heard(&self, event: usize) -> usize {
        let account = self.account;
        let unit = account.step(event).unit;
        let of_unit = || (0..=event).filter(move |other| account.step(*other).unit == unit);
        let mut reads = of_unit().filter(|other| account.step(*other).sql.contains(FROM_EPOCH));
        let read = reads.next();
        read.or_else(|| of_unit().next()).unwrap_or(event)
    }
}
