//! Writers that have declared nothing say what they are going to write to, so that those who have
//! declared it wait for them before they begin.

use crate::fault::{Fault, planted};
use crate::queue::hash;
use crate::word::Word;
use keyrange::{Interval, Relation};

/// Transactions that a stripe has room for.
const PLACES: usize = 6;
/// Bits of a place for the transaction's id; those above are of the relation.
const ID_BITS: u32 = 48;

/// The writers of the keys whose hash leads here.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Stripe {
    writers: [Word; PLACES],
    /// Writers that found no room, ever.
    overflows: Word,
    reserved: Word,
}

/// What came of an announcement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Announced {
    /// The transaction had a place there before.
    Before,
    /// It has taken one.
    Now,
    /// There is no room: who declares the key does not learn of the writer.
    NoRoom,
}

/// A transaction and a relation as they stand in a place.
fn packed(id: u64, relation: Relation) -> u64 {
    let mixed = relation.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> ID_BITS) << ID_BITS | (id & ((1 << ID_BITS) - 1))
}

fn id_of(place: u64) -> u64 {
    place & ((1 << ID_BITS) - 1)
}

impl Stripe {
    fn announce(&self, writer: u64, is_running: impl Fn(u64) -> bool) -> Announced {
        if self.writers.iter().any(|place| place.get() == writer) {
            return Announced::Before;
        }
        for place in &self.writers {
            loop {
                let other = place.get();
                let is_taken = other != 0
                    && is_running(id_of(other))
                    && !planted(Fault::RunningWriterDisplaced);
                if is_taken {
                    break;
                }
                if place.exchange(other, writer) {
                    return Announced::Now;
                }
            }
        }
        self.overflows.add(1);
        Announced::NoRoom
    }

    fn take_back(&self, writer: u64) {
        for place in &self.writers {
            place.exchange(writer, 0);
        }
    }

    fn has(&self, writer: u64) -> bool {
        self.writers.iter().any(|place| place.get() == writer)
    }

    /// The transactions that have announced a write to the relation, running or not.
    fn ids(&self, relation: Relation) -> impl Iterator<Item = u64> + '_ {
        let writers = self.writers.iter().map(Word::get);
        writers
            .filter(move |&place| place != 0 && place == packed(id_of(place), relation))
            .map(id_of)
    }
}

/// All stripes.
#[derive(Clone, Copy)]
pub(crate) struct Stripes<'a>(pub(crate) &'a [Stripe]);

impl<'a> Stripes<'a> {
    /// The stripe of one key; for more keys that of the whole relation.
    fn of(self, relation: Relation, keys: &Interval) -> &'a Stripe {
        let keys = if keys.low() == keys.high() {
            *keys
        } else {
            Interval::point(u128::MAX)
        };
        &self.0[hash(relation, &keys) as usize & (self.0.len() - 1)]
    }

    /// The transaction is going to write to these keys.
    pub(crate) fn announce(
        self,
        id: u64,
        relation: Relation,
        keys: &Interval,
        is_running: impl Fn(u64) -> bool,
    ) -> Announced {
        self.of(relation, keys)
            .announce(packed(id, relation), is_running)
    }

    /// It has not written, and waits.
    pub(crate) fn take_back(self, id: u64, relation: Relation, keys: &Interval) {
        self.of(relation, keys).take_back(packed(id, relation));
    }

    /// Whether the transaction has announced a write that may be to one of these keys.
    pub(crate) fn has(self, id: u64, relation: Relation, keys: &Interval) -> bool {
        let writer = packed(id, relation);
        self.those_of(relation, keys)
            .any(|stripe| stripe.has(writer))
    }

    /// The transactions that have announced writes that may be to one of these keys, running or
    /// not.
    pub(crate) fn writers(
        self,
        relation: Relation,
        keys: &Interval,
    ) -> impl Iterator<Item = u64> + use<'a> {
        self.those_of(relation, keys)
            .flat_map(move |stripe| stripe.ids(relation))
    }

    /// The stripes in which writers of one of these keys stand.
    fn those_of(
        self,
        relation: Relation,
        keys: &Interval,
    ) -> impl Iterator<Item = &'a Stripe> + use<'a> {
        let is_one = keys.low() == keys.high();
        let there = if is_one {
            std::slice::from_ref(self.of(relation, keys))
        } else {
            self.0
        };
        let whole = is_one.then(|| self.of(relation, &Interval::ALL));
        there.iter().chain(whole)
    }
}
