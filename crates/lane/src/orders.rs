//! Random orders of entering and leaving, beside the definition of who has its keys: whoever has
//! none before it that it is in conflict with.

use crate::{Head, Item, Lane, List, Mode, Request, Seat, SeatId, Stripe};
use keyrange::Interval;
use proptest::collection::vec;
use proptest::prelude::*;

const SEATS: u32 = 8;
const ITEMS: usize = 4;

/// Keys of two relations, few enough to meet; some items have several.
fn items() -> impl Strategy<Value = Vec<Item>> {
    let item =
        (0..2u64, 0..4u128, 0..12u128, any::<bool>()).prop_map(|(relation, low, more, writes)| {
            let high = low + more.saturating_sub(9);
            Item {
                relation,
                keys: Interval::new(low, high).unwrap(),
                mode: if writes { Mode::Write } else { Mode::Read },
            }
        });
    vec(item, 1..=ITEMS).prop_filter_map("too many relations", |mut items| {
        crate::put_in_order(&mut items, ITEMS).ok()?;
        Some(items)
    })
}

/// In each step the transaction of a seat enters, or leaves if it is in the lane.
fn check(steps: &[(SeatId, Vec<Item>)]) {
    with_lane(|lane| check_steps(lane, steps));
}

/// A lane of `SEATS` processes, with nobody in it.
pub fn with_lane(body: impl FnOnce(Lane)) {
    let head = Head::default();
    let seats: Vec<_> = (0..SEATS).map(|_| Seat::default()).collect();
    let requests: Vec<_> = (0..SEATS as usize * ITEMS)
        .map(|_| Request::default())
        .collect();
    let queues: Vec<_> = (0..2).map(|_| List::default()).collect();
    let stripes = [Stripe::default()];
    body(Lane {
        head: &head,
        seats: &seats,
        requests: &requests,
        queues: &queues,
        stripes: &stripes,
    });
}

fn check_steps(lane: Lane, steps: &[(SeatId, Vec<Item>)]) {
    let mut order: Vec<(SeatId, &[Item])> = Vec::new();
    for (seat, items) in steps {
        let mut woken = Vec::new();
        let waited: Vec<_> = order
            .iter()
            .map(|&(seat, _)| seat)
            .filter(|&other| !lane.seat(other).is_granted())
            .collect();
        match order.iter().position(|(other, _)| other == seat) {
            Some(place) => {
                order.remove(place);
                lane.leave(*seat, |other| woken.push(other));
            }
            None => {
                order.push((*seat, items));
                lane.enter(*seat, items, 0);
            }
        }
        for (place, (seat, items)) in order.iter().enumerate() {
            let conflicts = |(_, others): &&(SeatId, &[Item])| {
                let mut others = others.iter();
                others.any(|one| items.iter().any(|item| item.conflicts(one)))
            };
            let before: Vec<SeatId> = order[..place]
                .iter()
                .filter(conflicts)
                .map(|&(seat, _)| seat)
                .collect();
            let waits = !before.is_empty();
            assert_eq!(lane.seat(*seat).is_granted(), !waits, "{order:?}");
            assert_eq!(
                woken.contains(seat),
                waited.contains(seat) && !waits,
                "{order:?}"
            );
            // Not always the first: its requests are looked at in their order.
            assert_eq!(
                lane.blocker(*seat).is_some_and(|one| before.contains(&one)),
                waits
            );
        }
        check_end(lane, &order);
    }
}

/// What the first transaction is told, and who is woken, as it is about to end.
fn check_end(lane: Lane, order: &[(SeatId, &[Item])]) {
    let Some(((first, items), others)) = order.split_first() else {
        return;
    };
    let conflicts = |one: &Item| items.iter().filter(|item| item.conflicts(one)).count();
    let behind: usize = others
        .iter()
        .flat_map(|(_, items)| items.iter())
        .map(conflicts)
        .sum();
    let mut woken = Vec::new();
    let told = lane.about_to_leave(*first, 3, |seat| woken.push(seat));
    assert_eq!(told, behind.min(3), "{order:?}");
    for seat in woken {
        let place = order.iter().position(|(other, _)| *other == seat).unwrap();
        let (_, own) = order[place];
        let waits_for = |(_, others): &(SeatId, &[Item])| {
            others
                .iter()
                .any(|one| own.iter().any(|item| item.conflicts(one)))
        };
        assert!(!order[1..place].iter().any(waits_for), "{order:?}");
        assert!(waits_for(&order[0]));
        // Said once; it is asked again in the next step.
        assert_eq!(lane.seat(seat).take_last_before(), Some(*first));
        assert_eq!(lane.seat(seat).take_last_before(), None);
    }
}

/// The holder of a key is whom all wait for in the lock manager, however many there are.
#[test]
fn the_blocker_is_the_holder() {
    shuttle::check_random(
        || {
            let write = |key| Item {
                relation: 1,
                keys: Interval::point(key),
                mode: Mode::Write,
            };
            with_lane(|lane| {
                for seat in 0..SEATS {
                    lane.enter(seat, &[write(5)], 0);
                }
                for seat in 1..SEATS {
                    assert_eq!(lane.blocker(seat), Some(0));
                }
                let mut woken = Vec::new();
                assert_eq!(lane.about_to_leave(0, 4, |seat| woken.push(seat)), 4);
                assert_eq!(woken, [1]);
            });
        },
        1,
    );
}

proptest! {
    #[test]
    fn who_has_its_keys_is_who_has_nobody_before_it(
        steps in vec((0..SEATS, items()), 1..60)
    ) {
        shuttle::check_random(move || check(&steps), 1);
    }
}
