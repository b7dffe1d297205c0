//! Requests for keys, and the lists in which they stand, in shared memory.

use crate::item::{Item, Mode};
use crate::seat::SeatId;
use crate::word::Word;
use keyrange::{Image, Interval, Relation};

/// The place of a request: that of its seat's first one, plus its number.
pub(crate) type RequestId = u32;

/// A direction in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Before,
    Behind,
}

/// One declared item of a transaction. Read and written under the lane's lock.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Request {
    relation: Word,
    low: [Word; 2],
    high: [Word; 2],
    /// From the lowest bit on: whether it is for writing, the seat, and in the upper half the queue
    /// + 1 (0 for the wide ones).
    owner: Word,
    /// Requests before this one for which it waits. Of those for its one key it counts none beyond
    /// the nearest one for writing, which waits for them itself.
    pub(crate) blockers: Word,
    /// The neighbours in its list, each + 1: the one before in the upper half.
    neighbours: Word,
}

fn halves(upper: Option<u32>, lower: Option<u32>) -> u64 {
    let half = |id: Option<u32>| id.map_or(0, |id| u64::from(id) + 1);
    half(upper) << 32 | half(lower)
}

fn upper(word: u64) -> Option<u32> {
    ((word >> 32) as u32).checked_sub(1)
}

fn lower(word: u64) -> Option<u32> {
    (word as u32).checked_sub(1)
}

fn put(words: &[Word; 2], image: Image) {
    words[0].set((image >> 64) as u64);
    words[1].set(image as u64);
}

fn get(words: &[Word; 2]) -> Image {
    u128::from(words[0].get()) << 64 | u128::from(words[1].get())
}

impl Request {
    /// A seat's request for an item, which is to stand in that queue; none for the wide ones.
    pub(crate) fn write(&self, seat: SeatId, item: &Item, queue: Option<u32>) {
        self.relation.set(item.relation);
        put(&self.low, item.keys.low());
        put(&self.high, item.keys.high());
        let writes = item.mode == Mode::Write;
        let owner = u64::from(seat) << 1 | u64::from(writes);
        self.owner.set(halves(queue, None) | owner);
        self.blockers.set(0);
    }

    pub(crate) fn seat(&self) -> SeatId {
        self.owner.get() as u32 >> 1
    }

    /// The queue in which it stands; none for the wide ones.
    pub(crate) fn queue(&self) -> Option<u32> {
        upper(self.owner.get())
    }

    /// Whether it is for all these keys of that relation, and perhaps for others.
    #[inline]
    pub(crate) fn covers(&self, relation: Relation, keys: &Interval) -> bool {
        self.relation.get() == relation
            && get(&self.low) <= keys.low()
            && keys.high() <= get(&self.high)
    }

    #[inline]
    pub(crate) fn item(&self) -> Item {
        let mode = if self.owner.get() & 1 == 0 {
            Mode::Read
        } else {
            Mode::Write
        };
        Item {
            relation: self.relation.get(),
            keys: Interval::new(get(&self.low), get(&self.high)).unwrap_or(Interval::ALL),
            mode,
        }
    }

    pub(crate) fn is_granted(&self) -> bool {
        self.blockers.get() == 0
    }
}

/// The first and the last request of a list. Changed under the lane's lock; whether it is empty can
/// be asked without.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct List {
    /// Each + 1: the first in the upper half.
    ends: Word,
}

impl List {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.get() == 0
    }

    /// Whether no other request than this one, which is in it, is in it.
    #[inline]
    pub(crate) fn is_only(&self, id: RequestId) -> bool {
        self.ends.get() == halves(Some(id), Some(id))
    }

    /// The ids from the first to the last.
    pub(crate) fn ids<'a>(&self, all: &'a [Request]) -> impl Iterator<Item = RequestId> + 'a {
        Self::from(upper(self.ends.get()), Side::Behind, all)
    }

    /// The ids on one side of a request, from its neighbour on. It may have been taken out of the
    /// list, if nothing else has changed there since.
    pub(crate) fn beyond(
        id: RequestId,
        side: Side,
        all: &[Request],
    ) -> impl Iterator<Item = RequestId> + '_ {
        Self::from(Self::next(id, side, all), side, all)
    }

    fn from(
        first: Option<RequestId>,
        side: Side,
        all: &[Request],
    ) -> impl Iterator<Item = RequestId> + '_ {
        std::iter::successors(first, move |&id| Self::next(id, side, all))
    }

    fn next(id: RequestId, side: Side, all: &[Request]) -> Option<RequestId> {
        let neighbours = all[id as usize].neighbours.get();
        match side {
            Side::Before => upper(neighbours),
            Side::Behind => lower(neighbours),
        }
    }

    /// Puts a request behind all others.
    pub(crate) fn append(&self, id: RequestId, all: &[Request]) {
        let ends = self.ends.get();
        let last = lower(ends);
        all[id as usize].neighbours.set(halves(last, None));
        if let Some(last) = last {
            let neighbours = &all[last as usize].neighbours;
            neighbours.set(halves(upper(neighbours.get()), Some(id)));
        }
        self.ends.set(halves(upper(ends).or(Some(id)), Some(id)));
    }

    /// Takes a request out.
    pub(crate) fn remove(&self, id: RequestId, all: &[Request]) {
        let neighbours = all[id as usize].neighbours.get();
        let (before, after) = (upper(neighbours), lower(neighbours));
        let ends = self.ends.get();
        let (mut first, mut last) = (upper(ends), lower(ends));
        match before {
            Some(before) => {
                let neighbours = &all[before as usize].neighbours;
                neighbours.set(halves(upper(neighbours.get()), after));
            }
            None => first = after,
        }
        match after {
            Some(after) => {
                let neighbours = &all[after as usize].neighbours;
                neighbours.set(halves(before, lower(neighbours.get())));
            }
            None => last = before,
        }
        self.ends.set(halves(first, last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_leave_a_list_from_any_place() {
        shuttle::check_random(
            || {
                let all: Vec<Request> = (0..5).map(|_| Request::default()).collect();
                for removed in 0..5 {
                    let list = List::default();
                    assert!(list.is_empty());
                    (0..5).for_each(|id| list.append(id, &all));
                    list.remove(removed, &all);
                    let left: Vec<_> = (0..5).filter(|&id| id != removed).collect();
                    assert_eq!(list.ids(&all).collect::<Vec<_>>(), left);
                    let beyond = |side| List::beyond(removed, side, &all).collect::<Vec<_>>();
                    assert_eq!(beyond(Side::Before), (0..removed).rev().collect::<Vec<_>>());
                    assert_eq!(beyond(Side::Behind), (removed + 1..5).collect::<Vec<_>>());
                    for &id in &left {
                        list.remove(id, &all);
                    }
                    assert!(list.is_empty());
                }
            },
            1,
        );
    }
}
