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
    let head = Head::default();
    let seats: Vec<_> = (0..SEATS).map(|_| Seat::default()).collect();
    let requests: Vec<_> = (0..SEATS as usize * ITEMS)
        .map(|_| Request::default())
        .collect();
    let queues: Vec<_> = (0..2).map(|_| List::default()).collect();
    let stripes = [Stripe::default()];
    let lane = Lane {
        head: &head,
        seats: &seats,
        requests: &requests,
        queues: &queues,
        stripes: &stripes,
    };
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
        let mut waiting = 0;
        for (place, (seat, items)) in order.iter().enumerate() {
            let before = order[..place].iter().flat_map(|(_, items)| items.iter());
            let waits = before
                .clone()
                .any(|one| items.iter().any(|item| item.conflicts(one)));
            waiting += u64::from(waits);
            assert_eq!(lane.seat(*seat).is_granted(), !waits, "{order:?}");
            assert_eq!(
                woken.contains(seat),
                waited.contains(seat) && !waits,
                "{order:?}"
            );
            assert_eq!(lane.blocker(*seat).is_some(), waits);
        }
        let behind = order
            .first()
            .map(|(seat, _)| lane.about_to_leave(*seat, |_| ()));
        assert!(behind.is_none_or(|behind| behind == 0 || behind == waiting));
    }
}

proptest! {
    #[test]
    fn who_has_its_keys_is_who_has_nobody_before_it(
        steps in vec((0..SEATS, items()), 1..60)
    ) {
        shuttle::check_random(move || check(&steps), 1);
    }
}
