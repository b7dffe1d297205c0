//! Writers that have declared nothing say which keys they are going to write to. Transactions that
//! have declared these keys wait for the writers before they begin.

use crate::announcement::Announced;
use crate::fault::{Fault, planted};
use crate::heat::Heat;
use crate::item::{Item, hash};
use crate::seat::{Seat, SeatId};
use crate::word::Word;
use keyrange::{Interval, Relation};

/// Transactions that a stripe has room for; in a model others go without.
const PLACES: usize = if cfg!(test) { 1 } else { 6 };
/// Bits of a place for the transaction's id; those above are of the relation.
const ID_BITS: u32 = 48;

/// The writers of the keys whose hash leads here.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Stripe {
    writers: [Word; PLACES],
    /// Announcements that found no room, ever.
    overflows: Word,
    pub(crate) heat: Heat,
}

/// What is known of the notes at the seats.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Notes {
    /// Notes taken, ever.
    taken: Word,
    /// None of the first so many is to be found any more.
    gone: Word,
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
    /// None if there is no room.
    fn announce(&self, writer: u64, is_running: impl Fn(u64) -> bool) -> Option<Announced> {
        if self.has(writer) {
            return Some(Announced::Before);
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
                    return Some(Announced::Now);
                }
            }
        }
        None
    }

    fn take_back(&self, writer: u64) -> bool {
        self.writers.iter().any(|place| place.exchange(writer, 0))
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

/// All stripes, and what has no room there.
#[derive(Clone, Copy)]
pub(crate) struct Stripes<'a> {
    pub(crate) all: &'a [Stripe],
    pub(crate) seats: &'a [Seat],
    pub(crate) notes: &'a Notes,
}

impl<'a> Stripes<'a> {
    /// The number of the stripe of one key; for more keys that of the whole relation.
    fn number_of(self, relation: Relation, keys: &Interval) -> usize {
        let keys = if keys.low() == keys.high() {
            *keys
        } else {
            Interval::point(u128::MAX)
        };
        hash(relation, &keys) as usize & (self.all.len() - 1)
    }

    /// The stripe of these keys.
    pub(crate) fn stripe_of(self, relation: Relation, keys: &Interval) -> &'a Stripe {
        &self.all[self.number_of(relation, keys)]
    }

    /// The transaction of process `me` is going to write to these keys. Whether there was room is
    /// told to `surplus`.
    pub(crate) fn announce(
        self,
        (me, id): (SeatId, u64),
        relation: Relation,
        keys: &Interval,
        is_running: impl Fn(u64) -> bool,
        surplus: impl FnOnce(),
    ) -> Announced {
        let number = self.number_of(relation, keys);
        let stripe = &self.all[number];
        let placed = stripe.announce(packed(id, relation), is_running);
        placed.unwrap_or_else(|| {
            // First the note: who sees that there are any looks at all of them.
            let announced = self.seats[me as usize].surplus.announce(id, bit_of(number));
            if announced == Announced::Now || stripe.overflows.get() == 0 {
                stripe.overflows.add(1);
                self.notes.taken.add(1);
                surplus();
            }
            announced
        })
    }

    /// Whether a transaction that runs may have a note.
    pub(crate) fn may_have_notes(self) -> bool {
        self.notes.taken.get() != self.notes.gone.get()
    }

    /// Whether a note has ever been taken of the stripe of these keys.
    pub(crate) fn has_overflowed(self, item: &Item) -> bool {
        self.stripe_of(item.relation, &item.keys).overflows.get() != 0
    }

    /// If no transaction runs that has a note, the seats need not be looked at until there is one
    /// more.
    pub(crate) fn forget_notes(self, is_running: impl Fn(u64) -> bool) {
        // Counted before the look, and after the note is taken: one that is not seen here is not
        // counted here.
        let taken = self.notes.taken.get();
        let mut noted = self.seats.iter().filter_map(|seat| seat.surplus.any());
        if planted(Fault::NoteForgotten) || !noted.any(is_running) {
            self.notes.gone.set(taken);
        }
    }

    /// It has not written, and waits.
    pub(crate) fn take_back(self, (me, id): (SeatId, u64), relation: Relation, keys: &Interval) {
        let number = self.number_of(relation, keys);
        if !self.all[number].take_back(packed(id, relation)) {
            self.seats[me as usize]
                .surplus
                .take_back(id, bit_of(number));
        }
    }

    /// Whether the transaction has announced a write that may be to one of these keys.
    pub(crate) fn has(self, id: u64, relation: Relation, keys: &Interval) -> bool {
        self.writers(relation, keys).any(|writer| writer == id)
    }

    /// The transactions that have announced writes that may be to one of these keys, running or
    /// not.
    pub(crate) fn writers(
        self,
        relation: Relation,
        keys: &Interval,
    ) -> impl Iterator<Item = u64> + use<'a> {
        let is_one = keys.low() == keys.high();
        let first = self.number_of(relation, keys);
        let there = if is_one {
            first..first + 1
        } else {
            0..self.all.len()
        };
        let whole = is_one.then(|| self.number_of(relation, &Interval::ALL));
        there.chain(whole).flat_map(move |number| {
            let stripe = &self.all[number];
            let has_notes = stripe.overflows.get() != 0 && self.may_have_notes();
            let seats: &'a [Seat] = if has_notes { self.seats } else { &[] };
            let surplus = seats
                .iter()
                .filter_map(move |seat| seat.surplus.id(bit_of(number)));
            stripe.ids(relation).chain(surplus)
        })
    }
}

/// The bit of that stripe.
fn bit_of(number: usize) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[derive(Default)]
    struct Shared {
        all: [Stripe; 1],
        seats: [Seat; 2],
        notes: Notes,
    }

    impl Shared {
        fn stripes(&self) -> Stripes<'_> {
            Stripes {
                all: &self.all,
                seats: &self.seats,
                notes: &self.notes,
            }
        }

        fn announce(&self, writer: (SeatId, u64)) {
            let keys = Interval::point(7);
            self.stripes().announce(writer, 1, &keys, |_| true, || ());
        }

        fn finds(&self, id: u64) -> bool {
            self.stripes().has(id, 1, &Interval::point(7))
        }
    }

    /// Of two transactions one has no place. However its note meets those who look at all seats, it
    /// is found afterwards.
    #[test]
    fn a_note_of_one_that_runs_is_not_forgotten() {
        let body = || {
            let shared = Arc::new(Shared::default());
            shared.announce((0, 1));
            let noting = {
                let shared = shared.clone();
                shuttle::thread::spawn(move || {
                    shared.announce((1, 2));
                    shared.finds(2)
                })
            };
            shared.stripes().forget_notes(|id| id == 2);
            assert!(noting.join().unwrap());
            assert!(shared.finds(2));
        };
        shuttle::check_random(body, 5000);
    }

    #[test]
    fn notes_of_those_that_have_ended_are_forgotten_until_the_next() {
        let body = || {
            let shared = Shared::default();
            (1..=2).for_each(|id| shared.announce((id as SeatId - 1, id)));
            assert!(shared.stripes().may_have_notes() && shared.finds(2));
            shared.stripes().forget_notes(|id| id == 2);
            assert!(shared.finds(2));
            shared.stripes().forget_notes(|_| false);
            assert!(!shared.stripes().may_have_notes() && !shared.finds(2));
            shared.announce((1, 3));
            assert!(shared.finds(3));
        };
        shuttle::check_random(body, 1);
    }
}
