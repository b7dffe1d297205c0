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

/// Wide items, for each of which all others are looked at, that may come of cutting what is written
/// out of what is read.
const MOST_CUTS: usize = 2;

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

/// What is left of the reads where nothing is written. Both are in order, and none of either
/// overlap.
fn without(reads: &[Item], writes: &[Item]) -> Vec<Item> {
    let mut left = Vec::with_capacity(reads.len());
    let mut writes = writes.iter().peekable();
    for read in reads {
        let place = |item: &Item| (item.relation, item.keys.high());
        while writes
            .next_if(|write| place(write) < (read.relation, read.keys.low()))
            .is_some()
        {}
        // A write may reach into the next read as well: it is not used up here.
        let mut rest = Some(read.keys);
        for write in writes.clone() {
            let Some(keys) = rest else { break };
            if write.relation != read.relation || write.keys.low() > keys.high() {
                break;
            }
            let upper_end = write.keys.low().checked_sub(1);
            if let Some(before) = upper_end.and_then(|high| Interval::new(keys.low(), high)) {
                left.push(Item {
                    keys: before,
                    ..*read
                });
            }
            let lower_end = write.keys.high().checked_add(1);
            rest = lower_end.and_then(|low| Interval::new(low.max(keys.low()), keys.high()));
        }
        left.extend(rest.map(|keys| Item { keys, ..*read }));
    }
    left
}

/// Puts the items in order, each key once (to write, if it is declared for both; of wide items
/// perhaps more than that), and joins those
/// that lie nearest to each other until at most `most` are left.
///
/// # Errors
/// If so few cannot stand for so many relations.
pub fn put_in_order(items: &mut Vec<Item>, most: usize) -> Result<(), TooManyRelations> {
    sort(items);
    let overlap = |pair: &[Item]| {
        pair[0].relation == pair[1].relation && pair[0].keys.overlaps(&pair[1].keys)
    };
    if items.windows(2).any(overlap) {
        let (mut writes, mut reads): (Vec<Item>, Vec<Item>) =
            items.iter().partition(|item| item.mode == Mode::Write);
        join_overlapping(&mut writes);
        join_overlapping(&mut reads);
        let mut left = without(&reads, &writes);
        let wide = |items: &[Item]| items.iter().filter(|item| item.is_wide()).count();
        if wide(&left) <= wide(&reads) + MOST_CUTS {
            left.append(&mut writes);
            sort(&mut left);
            *items = left;
        } else {
            join_overlapping(items);
        }
    }
    let surplus = items.len().saturating_sub(most);
    if surplus == 0 {
        return Ok(());
    }
    // The places between neighbours, narrowest first.
    let mut gaps: Vec<(u128, usize)> = (1..items.len())
        .filter(|&n| items[n].relation == items[n - 1].relation)
        .map(|n| (items[n].keys.low() - items[n - 1].keys.high(), n))
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

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
    fn writes_are_cut_out_of_what_is_read() {
        let (max, read, write) = (u128::MAX, Mode::Read, Mode::Write);
        let mut items = vec![
            item(1, 0, max, read),
            item(1, 7, 7, write),
            item(1, max, max, write),
            item(2, 3, 5, read),
            item(2, 4, 9, write),
            item(2, 8, 12, read),
        ];
        assert_eq!(put_in_order(&mut items, 64), Ok(()));
        let expected = [
            item(1, 0, 6, read),
            item(1, 7, 7, write),
            item(1, 8, max - 1, read),
            item(1, max, max, write),
            item(2, 3, 3, read),
            item(2, 4, 9, write),
            item(2, 10, 12, read),
        ];
        assert_eq!(items, expected);
    }

    #[test]
    fn many_writes_in_what_is_read_have_all_of_it_written() {
        let mut items: Vec<Item> = (1..=4)
            .map(|n| item(1, n * 9, n * 9, Mode::Write))
            .collect();
        items.push(item(1, 0, 99, Mode::Read));
        assert_eq!(put_in_order(&mut items, 64), Ok(()));
        assert_eq!(items, [item(1, 0, 99, Mode::Write)]);
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
            let mut few = declared[..declared.len().min(3)].to_vec();
            prop_assert_eq!(put_in_order(&mut few, 64), Ok(()));
            for (relation, key) in (0..3).flat_map(|r| (0..60).map(move |key| (r, key))) {
                let of_all = mode_of(&declared, relation, key);
                prop_assert!(of_all <= mode_of(&items, relation, key));
                // Of few, no more is declared than was asked for.
                let of_few = mode_of(&declared[..declared.len().min(3)], relation, key);
                prop_assert_eq!(of_few, mode_of(&few, relation, key));
            }
            for (n, item) in items.iter().enumerate() {
                for other in &items[n + 1..] {
                    let is_same = item.relation == other.relation;
                    prop_assert!(!is_same || !item.keys.overlaps(&other.keys));
                }
            }
        }
    }
}
