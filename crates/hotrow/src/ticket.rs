//! The ticket of a hot row: the right to be the one transaction that updates it now.
//!
//! A released ticket is free: any backend that runs may take it (*barging*). Handing it to a
//! sleeper would leave the row idle for as long as the scheduler takes to run the sleeper. A few
//! waiters are awake and compete: those that came while few were, and, when a release finds none
//! awake, one that is woken.
//!
//! The newest waiter is woken (Dice, "Malthusian Locks", EuroSys 2017): what its process works on
//! is the likeliest to be in the processors' caches still. So a few of many clients do most of the
//! work, and the others sleep, in turn: once the first of the queue has been passed over for a
//! while, it is woken instead. So it is while a waiter has something for which others may wait:
//! newcomers would have them wait, too, and may come to stand behind it at another row. Every n-th
//! release, and any wait over a bound, hands the ticket directly to the longest waiter.
//!
//! Invariant (nobody sleeps unseen): while the ticket is free and a waiter that can hear is queued,
//! one waiter is *signaled*: awake, or on its way to be, and it has not given up yet. A waiter in
//! PostgreSQL's lock manager hears nothing: it sleeps on a transaction that held the ticket, and
//! comes back by itself when that transaction ends.
//!
//! All functions want the row's lock held.

use crate::row::{Member, Members, Row, load, store};
use crate::{BackendId, MemberId, backend_of};

/// The answer to a request for the ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acquired {
    Granted,
    /// Queued, and one of the few that stay awake for a moment to take the ticket when it is
    /// released.
    Competing,
    /// Queued; sleep until woken.
    Queued,
}

/// How long waiters may be passed over.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Every n-th release goes to the longest waiter.
    pub fair_every: u32,
    /// A wait longer than this (microseconds) ends with a direct grant.
    pub longest_wait: u64,
    /// The newest waiter is woken until the first one has waited for so long (microseconds).
    pub newest_first: u64,
    /// The transaction has something for which others may wait: nobody is woken before it that came
    /// later.
    pub holds: bool,
    /// Waiters that may be awake at a time to compete for the ticket.
    pub competitors: u32,
}

/// Whether the holder keeps the ticket while its client thinks: no, it does now, it has done so.
/// When it is back one waiter is awake, an arrival if nobody else is.
const HERE: u32 = 0;
const AWAY: u32 = 1;
const BACK: u32 = 2;

impl Row {
    /// Takes the ticket when it is free. Does not queue.
    pub fn try_acquire(&self, me: MemberId) -> bool {
        if self.holder.get() != 0 {
            return false;
        }
        self.grant(me);
        true
    }

    /// Takes the ticket or joins the queue's end.
    pub fn acquire(
        &self,
        members: Members,
        me: MemberId,
        patience: Patience,
        now: u64,
    ) -> Acquired {
        self.members.add(1);
        self.enqueue(members, me, patience, now)
    }

    /// As `acquire`, for a member that has been in the queue before.
    pub fn enqueue(
        &self,
        members: Members,
        me: MemberId,
        patience: Patience,
        now: u64,
    ) -> Acquired {
        let node = members.member(me);
        if node.queued.get() != 0 {
            return Acquired::Queued;
        }
        node.forget_request();
        if self.try_acquire(me) {
            return Acquired::Granted;
        }
        node.queued_at.set(now);
        node.in_lock_manager.set(0);
        node.signaled.set(0);
        node.granted.set(0);
        let last = load(&self.queue_tail);
        node.queue_next.set(0);
        store(&node.queue_prev, last);
        match last {
            Some(last) => store(&members.member(last).queue_next, Some(me)),
            None => store(&self.queue_head, Some(me)),
        }
        store(&self.queue_tail, Some(me));
        node.queued.set(1);
        node.holds.set(u32::from(patience.holds));
        self.holding.add(node.holds.get());
        self.earned.raise(self.queued.add(1) + 1);
        self.contended_at.set(now);
        let competitors = match self.away.get() {
            HERE => patience.competitors,
            BACK => patience.competitors.min(1),
            _ => 0,
        };
        if self.signaled.get() < competitors {
            node.signaled.set(1);
            self.signaled.add(1);
            return Acquired::Competing;
        }
        Acquired::Queued
    }

    /// Takes the ticket without queueing, for a caller that can do without.
    pub fn acquire_now(&self, me: MemberId) -> bool {
        let granted = self.try_acquire(me);
        if granted {
            self.members.add(1);
        }
        granted
    }

    /// An awake waiter tries its luck: has it the ticket? Otherwise it keeps its place, and goes on
    /// competing.
    pub fn compete(&self, members: Members, me: MemberId) -> bool {
        let node = members.member(me);
        node.in_lock_manager.set(0);
        if load(&self.holder) == Some(me) {
            return true;
        }
        if self.holder.get() != 0 || node.queued.get() == 0 {
            return false;
        }
        self.answer(members, me);
        self.unqueue(members, me);
        node.forget_request();
        self.grant(me);
        true
    }

    /// As `compete`. If the ticket is not to be had, the waiter is going to sleep.
    pub fn retry(&self, members: Members, me: MemberId) -> Acquired {
        if self.compete(members, me) {
            return Acquired::Granted;
        }
        self.answer(members, me);
        Acquired::Queued
    }

    /// The waiter goes to sleep where signals do not reach it. If it was signaled, another one is.
    /// Returns false, and changes nothing, when the ticket is free or already granted to it.
    pub fn enter_lock_manager(&self, members: Members, me: MemberId) -> bool {
        if load(&self.holder) == Some(me) || self.holder.get() == 0 {
            return false;
        }
        members.member(me).in_lock_manager.set(1);
        self.answer(members, me);
        true
    }

    /// lock-free: whether the ticket looks free, or granted to `me`.
    pub fn looks_takeable(&self, me: MemberId) -> bool {
        let holder = self.holder.get();
        holder == 0 || holder == me + 1
    }

    /// The holder keeps the ticket until its client sends more: nobody stays awake for it.
    pub fn go_away(&self, me: MemberId) {
        if load(&self.holder) == Some(me) {
            self.away.publish(AWAY);
        }
    }

    /// The holder runs again and releases the ticket soon. Returns the process to wake, if any, so
    /// that it is awake by then.
    pub fn come_back(
        &self,
        members: Members,
        me: MemberId,
        patience: Patience,
        now: u64,
    ) -> Option<BackendId> {
        if load(&self.holder) != Some(me) || !self.is_away() {
            return None;
        }
        self.away.publish(BACK);
        let first = self.first_hearing(members)?;
        let next = match self.is_due(members, first, patience, now) {
            true => first,
            false => self.next(members, first, patience, now),
        };
        self.signal(members, next)
    }

    /// lock-free: whether it is not worth while to stay awake for the ticket.
    pub fn is_away(&self) -> bool {
        self.away.get() == AWAY
    }

    /// Gives the ticket back. Returns the process to wake, if any.
    pub fn release(
        &self,
        members: Members,
        me: MemberId,
        patience: Patience,
        now: u64,
    ) -> Option<BackendId> {
        if load(&self.holder) != Some(me) {
            return None;
        }
        self.take_back_tail();
        self.holder.publish(0);
        self.away.publish(HERE);
        let first = self.first_hearing(members)?;
        self.note_turn(now);
        self.released_at.set(now);
        let is_due = self.is_due(members, first, patience, now);
        self.handovers.add(1);
        if is_due {
            self.answer(members, first);
            self.unqueue(members, first);
            self.grant(first);
            members.member(first).forget_request();
            members.member(first).granted.set(1);
            return Some(backend_of(first));
        }
        self.signal(members, self.next(members, first, patience, now))
    }

    /// Leaves the queue without the ticket, or its adopter, or gives the ticket back if it was
    /// granted meanwhile. For cancel, error and exit. Returns the process to wake, if any.
    pub fn leave(
        &self,
        members: Members,
        me: MemberId,
        patience: Patience,
        now: u64,
    ) -> Option<BackendId> {
        if load(&self.holder) == Some(me) {
            return self.release(members, me, patience, now);
        }
        if members.member(me).queued.get() == 0 {
            members.member(me).abandon();
            return None;
        }
        self.unqueue(members, me);
        members.member(me).forget_request();
        let was_signaled = self.answer(members, me);
        if !was_signaled || self.holder.get() != 0 {
            return None;
        }
        let first = self.first_hearing(members)?;
        self.signal(members, self.next(members, first, patience, now))
    }

    /// A waiter has got the ticket at `now`: how long the row was idle in between.
    pub fn note_handover(&self, now: u64) {
        let idle = now.saturating_sub(self.released_at.get());
        self.counters.handovers.add(1);
        self.counters.handover_us.add(idle);
        self.contended_at.set(now);
    }

    /// The transaction ends its membership: it has neither ticket nor place in the queue nor in the
    /// list.
    pub fn part(&self) {
        self.members.sub(1);
    }

    /// lock-free: whether somebody waits for the ticket who has what others may wait for.
    pub fn has_holders_waiting(&self) -> bool {
        self.holding.get() > 0
    }

    /// The membership that has the ticket.
    pub fn holder(&self) -> Option<MemberId> {
        load(&self.holder)
    }

    fn grant(&self, me: MemberId) {
        store(&self.holder, Some(me));
    }

    /// Whether the next release hands the ticket to the longest waiter.
    fn is_due(&self, members: Members, first: MemberId, patience: Patience, now: u64) -> bool {
        (self.handovers.get() + 1).is_multiple_of(patience.fair_every)
            || waited(members, first, now) > patience.longest_wait
    }

    /// Whom to wake: the newest, or the first if that one is not to be passed over.
    fn next(&self, members: Members, first: MemberId, patience: Patience, now: u64) -> MemberId {
        if self.holding.get() > 0 || waited(members, first, now) >= patience.newest_first {
            return first;
        }
        self.last_hearing(members).unwrap_or(first)
    }

    /// Wakes that waiter, unless somebody is awake.
    fn signal(&self, members: Members, next: MemberId) -> Option<BackendId> {
        if self.signaled.get() > 0 {
            return None;
        }
        members.member(next).signaled.set(1);
        self.signaled.add(1);
        Some(backend_of(next))
    }

    /// A signaled waiter has answered, or will not any more. Returns whether it was signaled.
    pub(crate) fn answer(&self, members: Members, me: MemberId) -> bool {
        let node = members.member(me);
        let was = node.signaled.get() != 0;
        if was {
            node.signaled.set(0);
            self.signaled.sub(1);
        }
        was
    }

    fn first_hearing(&self, members: Members) -> Option<MemberId> {
        hearing(members, load(&self.queue_head), |node| {
            load(&node.queue_next)
        })
    }

    fn last_hearing(&self, members: Members) -> Option<MemberId> {
        hearing(members, load(&self.queue_tail), |node| {
            load(&node.queue_prev)
        })
    }

    pub(crate) fn unqueue(&self, members: Members, me: MemberId) {
        let node = members.member(me);
        if node.queued.get() == 0 {
            return;
        }
        let (prev, next) = (load(&node.queue_prev), load(&node.queue_next));
        match prev {
            Some(prev) => store(&members.member(prev).queue_next, next),
            None => store(&self.queue_head, next),
        }
        match next {
            Some(next) => store(&members.member(next).queue_prev, prev),
            None => store(&self.queue_tail, prev),
        }
        node.queued.set(0);
        node.in_lock_manager.set(0);
        self.queued.sub(1);
        self.holding.sub(node.holds.get());
    }
}

/// How long it has waited, in microseconds.
fn waited(members: Members, waiter: MemberId, now: u64) -> u64 {
    now.saturating_sub(members.member(waiter).queued_at.get())
}

/// The next waiter from there on that does not sleep in the lock manager.
fn hearing(
    members: Members,
    mut at: Option<MemberId>,
    next: impl Fn(&Member) -> Option<MemberId>,
) -> Option<MemberId> {
    while let Some(id) = at {
        let node = members.member(id);
        if node.in_lock_manager.get() == 0 {
            return Some(id);
        }
        at = next(node);
    }
    None
}

#[cfg(test)]
mod tests;
