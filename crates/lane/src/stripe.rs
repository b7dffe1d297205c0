//! Writers that have declared nothing say what they are going to write to, so that those who have
//! declared it wait for them before they begin.

use crate::fault::{Fault, planted};
use crate::queue::hash;
use crate::word::Word;
use keyrange::{Interval, Relation};

/// Transactions that a stripe has room for.
const PLACES: usize = 2;

/// The writers of the keys whose hash leads here.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Stripe {
    writers: [Word; PLACES],
    /// Writers that found no room, ever.
    overflows: Word,
    reserved: Word,
}

impl Stripe {
    fn announce(&self, id: u64, is_running: impl Fn(u64) -> bool) -> bool {
        if self.writers.iter().any(|place| place.get() == id) {
            return true;
        }
        for place in &self.writers {
            loop {
                let writer = place.get();
                let is_taken =
                    writer != 0 && is_running(writer) && !planted(Fault::RunningWriterDisplaced);
                if is_taken {
                    break;
                }
                if place.exchange(writer, id) {
                    return true;
                }
            }
        }
        self.overflows.add(1);
        false
    }

    fn writer(&self, is_running: &impl Fn(u64) -> bool) -> Option<u64> {
        let writers = self.writers.iter().map(Word::get);
        writers.filter(|&id| id != 0).find(|&id| is_running(id))
    }
}

/// All stripes.
#[derive(Clone, Copy)]
pub(crate) struct Stripes<'a> {
    /// Of those who write to more keys than one at once, or to keys that are not known.
    pub(crate) anywhere: &'a Stripe,
    pub(crate) by_key: &'a [Stripe],
}

impl<'a> Stripes<'a> {
    /// The stripe of one key.
    fn of(&self, relation: Relation, keys: &Interval) -> Option<&'a Stripe> {
        let is_one = keys.low() == keys.high();
        is_one.then(|| &self.by_key[hash(relation, keys) as usize & (self.by_key.len() - 1)])
    }

    pub(crate) fn announce(
        &self,
        id: u64,
        relation: Relation,
        keys: &Interval,
        is_running: impl Fn(u64) -> bool,
    ) -> bool {
        let stripe = self.of(relation, keys).unwrap_or(self.anywhere);
        stripe.announce(id, is_running)
    }

    /// A writer that runs and may have written to one of these keys.
    pub(crate) fn writer_of(
        &self,
        relation: Relation,
        keys: &Interval,
        is_running: &impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let there = match self.of(relation, keys) {
            Some(stripe) => std::slice::from_ref(stripe),
            None => self.by_key,
        };
        let mut all = std::iter::once(self.anywhere).chain(there);
        all.find_map(|stripe| stripe.writer(is_running))
    }
}
