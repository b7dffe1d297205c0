//! Waits in the lock manager, where a grant is not heard: for a process's transaction, which may
//! leave the lane and go on.

use crate::queue::Lane;
use crate::request::{Request, RequestId};
use crate::seat::{Seat, SeatId};

impl Lane<'_> {
    /// Process `me` is going to sleep until the transaction of another one ends, or for a while:
    /// the one returned. `transaction_of` tells the number of a process's transaction. None: there
    /// is nobody to sleep for, or it may leave soon. `wakes_up` follows. Under the lane's lock.
    pub fn falls_asleep(
        &self,
        me: SeatId,
        transaction_of: impl Fn(SeatId) -> u64,
    ) -> Option<SeatId> {
        let seat = self.seat(me);
        let blocker = || self.blocker(me);
        let other = seat.watched().or_else(blocker)?;
        if self.seat(other).may_leave.get() != 0 {
            return None;
        }
        seat.sleeps_until.set(transaction_of(other));
        seat.sleeps_on.set(u64::from(other) + 1);
        self.seat(other).is_slept_on.set(1);
        Some(other)
    }

    /// Process `me` is going to declare keys, and may leave the lane soon and go on without them;
    /// or that is over.
    pub fn may_leave(&self, me: SeatId, may_leave: bool) {
        self.seat(me).may_leave.set(may_leave.into());
    }

    /// The first of the transactions that have to end before process `me` has all its keys. It
    /// waits for fewer than those behind it. Under the lane's lock.
    pub fn blocker(&self, me: SeatId) -> Option<SeatId> {
        let number_of = |seat: SeatId| self.seat(seat).number.get();
        let waits = |&id: &RequestId| !self.request(id).is_granted();
        self.requests_of(me).filter(waits).find_map(|id| {
            let others = self.others(self.request(id).item(), me);
            others
                .map(Request::seat)
                .find(|&seat| number_of(seat) < number_of(me))
        })
    }

    /// Process `me` does not sleep any more.
    pub fn wakes_up(&self, me: SeatId) {
        self.seat(me).sleeps_on.set(0);
    }

    /// Whether others still sleep until this transaction of process `me` ends, though that has left
    /// the lane. If it waited for one of them, each would wait for the other. Those that slept on
    /// an earlier transaction of the process are as good as awake.
    pub fn has_sleepers(&self, me: SeatId, transaction: u64) -> bool {
        let seat = self.seat(me);
        if seat.is_slept_on.get() == 0 {
            return false;
        }
        let sleeps = |other: &Seat| {
            other.sleeps_on.get() == u64::from(me) + 1 && other.sleeps_until.get() == transaction
        };
        let has_any = self.seats.iter().any(sleeps);
        if !has_any {
            seat.is_slept_on.set(0);
        }
        has_any
    }
}

#[cfg(test)]
mod tests {
    use crate::orders::with_lane;
    use crate::{Item, Lane, Mode};
    use keyrange::Interval;

    #[test]
    fn sleepers_are_known_until_they_wake_up() {
        let play = |lane: Lane| {
            let item = Item {
                relation: 1,
                keys: Interval::point(7),
                mode: Mode::Write,
            };
            let number = |seat| u64::from(seat) + 10;
            assert_eq!(lane.falls_asleep(1, number), None);
            (0..3).for_each(|seat| {
                lane.enter(seat, &[item], 0);
            });
            assert_eq!(
                [1, 2].map(|seat| lane.falls_asleep(seat, number)),
                [Some(0); 2]
            );
            // It goes on, and those that slept are the first to know.
            lane.leave(0, |_| ());
            assert!(lane.has_sleepers(0, 10));
            lane.wakes_up(1);
            assert!(lane.has_sleepers(0, 10));
            lane.wakes_up(2);
            assert!(!lane.has_sleepers(0, 10) && !lane.has_sleepers(1, 11));
            assert_eq!(lane.falls_asleep(2, number), Some(1));
            assert!(lane.has_sleepers(1, 11) && !lane.has_sleepers(0, 10));
            // They sleep until that transaction ends, not the process's next one.
            assert!(!lane.has_sleepers(1, 12));
            // Nobody sleeps behind one that may go on without its keys.
            lane.wakes_up(2);
            lane.may_leave(1, true);
            assert_eq!(lane.falls_asleep(2, number), None);
            lane.may_leave(1, false);
            assert_eq!(lane.falls_asleep(2, number), Some(1));
        };
        shuttle::check_random(move || with_lane(play), 1);
    }
}
