//! A process's place in the lane.

use crate::announcement::Surplus;
use crate::word::Word;

/// Index of a process in the shared arrays.
pub type SeatId = u32;

/// Where a declared transaction is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum State {
    /// It has declared nothing.
    Idle = 0,
    /// It waits for its keys, and has nothing.
    Queued = 1,
    /// It has its keys, and waits for writers that have declared nothing. Nobody waits for it but
    /// those behind it.
    Draining = 2,
    /// Its keys are its own.
    Holding = 3,
}

/// A process in the lane.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Seat {
    state: Word,
    /// Of its requests. Changed under the lane's lock.
    pub(crate) requests: Word,
    /// Its place in the order of declared transactions; larger ones are later.
    pub(crate) number: Word,
    /// Requests that have others before them. Changed under the lane's lock.
    pub(crate) ungranted: Word,
    /// The only one before it, + 1, when that is about to go; 0 if it is not, or has been said.
    pub(crate) last_before: Word,
    /// Somebody who has declared nothing waits for this one's end. Changed under the lane's lock.
    pub(crate) is_watched: Word,
    /// For whose end this process waits without having declared anything, + 1.
    pub(crate) watches: Word,
    /// In the lock manager this process waits for that one's transaction, + 1.
    pub(crate) sleeps_on: Word,
    /// The number of that transaction, among those of its process. Valid with `sleeps_on`.
    pub(crate) sleeps_until: Word,
    /// 1 if others do that, or have done it, for the transaction of this process.
    pub(crate) is_slept_on: Word,
    /// 1 if it may leave the lane soon, and go on: nobody is to sleep until its transaction ends.
    pub(crate) may_leave: Word,
    /// It holds, and waits for writers that have announced themselves before.
    pub(crate) insists: Word,
    /// Announcements of its transaction, which has declared nothing, that found no room.
    pub(crate) surplus: Surplus,
}

impl Seat {
    /// Where its transaction is.
    pub fn state(&self) -> State {
        match self.state.get() {
            0 => State::Idle,
            1 => State::Queued,
            2 => State::Draining,
            _ => State::Holding,
        }
    }

    pub(crate) fn put(&self, state: State) {
        self.state.set(state as u64);
    }

    /// Whether all its requests are granted.
    #[inline]
    pub fn is_granted(&self) -> bool {
        self.ungranted.get() == 0
    }

    /// The only transaction before it, if that is about to end: it may be worth while to stay
    /// awake. Said once.
    #[inline]
    pub fn take_last_before(&self) -> Option<SeatId> {
        let seen = self.last_before.get();
        let is_said = seen != 0 && self.last_before.exchange(seen, 0);
        is_said.then(|| (seen - 1) as SeatId)
    }

    /// Whether it still waits for somebody whom it watches.
    #[inline]
    pub fn is_watching(&self) -> bool {
        self.watches.get() != 0
    }

    /// For whose end it waits without having declared anything.
    pub fn watched(&self) -> Option<SeatId> {
        (self.watches.get() as SeatId).checked_sub(1)
    }

    /// Its place in the order of declared transactions.
    pub fn number(&self) -> u64 {
        self.number.get()
    }
}
