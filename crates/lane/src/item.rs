//! What a transaction declares: keys of relations, to read or to write.

use keyrange::{Interval, Relation};

/// What a declared key is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mode {
    /// Others may read it at the same time.
    Read,
    Write,
}

/// Keys of one relation. More than one image makes the item *wide*.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item {
    pub relation: Relation,
    pub keys: Interval,
    pub mode: Mode,
}

impl Item {
    /// Whether two transactions that have declared these wait for each other.
    #[inline]
    pub fn conflicts(&self, other: &Item) -> bool {
        self.relation == other.relation
            && (self.mode == Mode::Write || other.mode == Mode::Write)
            && self.keys.overlaps(&other.keys)
    }

    #[inline]
    pub fn is_wide(&self) -> bool {
        self.keys.low() != self.keys.high()
    }

    fn joined(&self, other: &Item) -> Item {
        Item {
            relation: self.relation,
            keys: self.keys.hull(&other.keys),
            mode: self.mode.max(other.mode),
        }
    }
}

/// More relations were declared than a transaction may have items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManyRelations;

fn sort(items: &mut [Item]) {
    items.sort_unstable_by_key(|item| (item.relation, item.keys.low()));
}

/// Of items in order, joins those that have keys in common.
fn join_overlapping(items: &mut Vec<Item>) {
    items.dedup_by(|next, item| {
        let is_same = item.relation == next.relation && item.keys.overlaps(&next.keys);
        if is_same {
            *item = item.joined(next);
        }
        is_same
    });
}

/// Puts the items in order, and joins those of one mode that have keys in common. A read of what is
/// written as a whole goes.
fn tidy(items: &mut Vec<Item>) {
    sort(items);
    let overlap = |pair: &[Item]| {
        pair[0].relation == pair[1].relation && pair[0].keys.overlaps(&pair[1].keys)
    };
    if !items.windows(2).any(overlap) {
        return;
    }
    let (mut writes, mut reads): (Vec<Item>, Vec<Item>) =
        items.iter().partition(|item| item.mode == Mode::Write);
    join_overlapping(&mut writes);
    join_overlapping(&mut reads);
    // The writes are apart and in order: the last one that begins no later is the only one that can
    // cover a read.
    let place = |item: &Item| (item.relation, item.keys.low());
    reads.retain(|read| {
        let behind = writes.partition_point(|write| place(write) <= place(read));
        let write = behind.checked_sub(1).map(|last| writes[last]);
        !write.is_some_and(|write| write.relation == read.relation && write.keys.covers(&read.keys))
    });
    writes.append(&mut reads);
    sort(&mut writes);
    *items = writes;
}

/// Puts the items in order, each key once for each mode at most. Joins those that lie nearest to
/// each other until at most `most` are left. A write within a wide read stays by itself: others may
/// still read the rest.
///
/// # Errors
/// If so few cannot stand for so many relations.
pub fn put_in_order(items: &mut Vec<Item>, most: usize) -> Result<(), TooManyRelations> {
    tidy(items);
    let surplus = items.len().saturating_sub(most);
    if surplus == 0 {
        return Ok(());
    }
    let gap = |one: &Item, next: &Item| next.keys.low().saturating_sub(one.keys.high());
    // The places between neighbours, narrowest first.
    let mut gaps: Vec<(u128, usize)> = (1..items.len())
        .filter(|&n| items[n].relation == items[n - 1].relation)
        .map(|n| (gap(&items[n - 1], &items[n]), n))
        .collect();
    if gaps.len() < surplus {
        return Err(TooManyRelations);
    }
    gaps.sort_unstable();
    gaps.truncate(surplus);
    let mut joins = vec![false; items.len()];
    gaps.iter().for_each(|&(_, n)| joins[n] = true);
    let mut n = 0;
    items.dedup_by(|next, item| {
        n += 1;
        if joins[n] {
            *item = item.joined(next);
        }
        joins[n]
    });
    tidy(items);
    Ok(())
}

/// Where one key is found: in the queues and in the stripes, by the lowest bits. A product carries
/// upwards only, so that upper bits are brought down before each: columns may have any place in the
/// image.
#[inline]
pub(crate) fn hash(relation: Relation, keys: &Interval) -> u64 {
    let low = keys.low();
    let folded = (low as u64).rotate_left(23) ^ (low >> 64) as u64 ^ relation.rotate_left(32);
    let mixed = (folded ^ folded >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Neighbouring keys of an integer column are found in different places, as far as there are
    /// any.
    #[test]
    fn neighbours_are_apart() {
        for shift in [0, 31, 62, 63, 64, 95, 110] {
            let image = |key: u128| (key + 5000) << shift;
            let of = |key| hash(16_384, &Interval::new(image(key), image(key)).unwrap());
            let places = |bits: u32| {
                let all: std::collections::BTreeSet<u64> =
                    (0..512).map(|key| of(key) & ((1 << bits) - 1)).collect();
                all.len()
            };
            // Of 512 balls in 2^n boxes.
            assert!(places(9) > 290, "{shift}: {}", places(9));
            assert!(places(13) > 480, "{shift}: {}", places(13));
            assert!(places(16) > 500, "{shift}: {}", places(16));
        }
    }

    fn item(relation: Relation, low: u128, high: u128, mode: Mode) -> Item {
        let keys = Interval::new(low, high).unwrap();
        Item {
            relation,
            keys,
            mode,
        }
    }

    #[test]
    fn a_key_that_is_declared_for_both_is_declared_for_writing() {
        let mut items = vec![
            item(1, 7, 7, Mode::Read),
            item(1, 3, 3, Mode::Read),
            item(1, 7, 7, Mode::Write),
        ];
        assert_eq!(put_in_order(&mut items, 64), Ok(()));
        assert_eq!(
            items,
            [item(1, 3, 3, Mode::Read), item(1, 7, 7, Mode::Write)]
        );
    }

    #[test]
    fn a_write_within_what_is_read_leaves_the_rest_to_readers() {
        let (read, write) = (Mode::Read, Mode::Write);
        let mut items = vec![
            item(1, 0, 99, read),
            item(1, 7, 7, write),
            item(1, 90, 120, read),
            item(2, 4, 4, read),
            item(2, 3, 5, write),
        ];
        assert_eq!(put_in_order(&mut items, 64), Ok(()));
        let expected = [
            item(1, 0, 120, read),
            item(1, 7, 7, write),
            item(2, 3, 5, write),
        ];
        assert_eq!(items, expected);
    }

    #[test]
    fn the_nearest_are_joined() {
        let mut items: Vec<Item> = [1, 2, 100, 200, 203]
            .map(|key| item(1, key, key, Mode::Read))
            .to_vec();
        items[4].mode = Mode::Write;
        assert_eq!(put_in_order(&mut items, 3), Ok(()));
        let expected = [
            item(1, 1, 2, Mode::Read),
            item(1, 100, 100, Mode::Read),
            item(1, 200, 203, Mode::Write),
        ];
        assert_eq!(items, expected);
    }

    #[test]
    fn relations_are_not_joined() {
        let mut items: Vec<Item> = (1..=3).map(|r| item(r, 1, 1, Mode::Read)).collect();
        assert_eq!(put_in_order(&mut items, 2), Err(TooManyRelations));
    }

    proptest! {
        #[test]
        fn all_that_was_declared_is_covered(
            keys in vec((0_u64..3, 0_u128..50, 0_u128..4, any::<bool>()), 1..40),
            most in 3_usize..20,
        ) {
            let declared: Vec<Item> = keys
                .iter()
                .map(|&(relation, low, more, writes)| {
                    let mode = if writes { Mode::Write } else { Mode::Read };
                    item(relation, low, low + more, mode)
                })
                .collect();
            let mut items = declared.clone();
            prop_assert_eq!(put_in_order(&mut items, most), Ok(()));
            prop_assert!(items.len() <= most);
            let mode_of = |items: &[Item], relation, key| {
                let here = |item: &&Item| {
                    item.relation == relation && item.keys.overlaps(&Interval::point(key))
                };
                items.iter().filter(here).map(|item| item.mode).max()
            };
            let mut apart = declared.clone();
            prop_assert_eq!(put_in_order(&mut apart, usize::MAX), Ok(()));
            for (relation, key) in (0..3).flat_map(|r| (0..60).map(move |key| (r, key))) {
                let of_all = mode_of(&declared, relation, key);
                prop_assert!(of_all <= mode_of(&items, relation, key));
                prop_assert_eq!(of_all, mode_of(&apart, relation, key));
            }
            for (n, item) in items.iter().enumerate() {
                for other in &items[n + 1..] {
                    let is_same = item.relation == other.relation;
                    let is_same = is_same && item.mode == other.mode;
                    prop_assert!(!is_same || !item.keys.overlaps(&other.keys));
                }
            }
        }
    }
}
