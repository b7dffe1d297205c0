//! Queues of requests by key.
//!
//! All requests of a transaction are appended at once, under the lane's lock. So any two
//! transactions have the same order in all queues: waits form no cycle. A request is granted once
//! no conflicting one before it is left.

use crate::announcement::Announced;
use crate::fault::{Fault, planted};
use crate::heat::WAIT;
use crate::item::{Item, Mode, hash};
use crate::request::{List, Request, RequestId, Side};
use crate::seat::{Seat, SeatId, State};
use crate::stripe::{Notes, Stripe, Stripes};
use crate::word::Word;
use keyrange::{Interval, Relation};

/// What there is one of.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Head {
    /// Numbers given to transactions so far.
    numbers: Word,
    /// Requests for more than one key.
    wide: List,
    notes: Notes,
}

/// The shared memory of the lane. `requests` has as many for each seat as a transaction may
/// declare; the numbers of `queues` and `stripes` are powers of two.
#[derive(Clone, Copy, Debug)]
pub struct Lane<'a> {
    pub head: &'a Head,
    pub seats: &'a [Seat],
    pub requests: &'a [Request],
    pub queues: &'a [List],
    pub stripes: &'a [Stripe],
}

impl<'a> Lane<'a> {
    /// Items that a transaction may declare.
    pub fn most_items(&self) -> usize {
        self.requests.len() / self.seats.len()
    }

    /// Whether anybody has declared anything since the server started.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.head.numbers.get() != 0
    }

    /// From now on writers announce themselves, though nobody may have entered yet.
    pub fn use_it(&self) {
        if !self.is_used() {
            self.head.numbers.add(1);
        }
    }

    /// A transaction was refused, or waits, because of these keys. Whoever declares several keys of
    /// the relation may be in its way, too.
    pub fn warm(&self, item: &Item, weight: u64, second: u64) {
        let stripe_of = |keys: &Interval| self.stripes().stripe_of(item.relation, keys);
        stripe_of(&item.keys).heat.add(weight, second);
        if !item.is_wide() {
            stripe_of(&Interval::ALL).heat.add(weight, second);
        }
    }

    /// Whether of late transactions have waited or were refused because of these keys that often.
    pub fn is_hot(&self, item: &Item, threshold: u64, second: u64) -> bool {
        let stripe = self.stripes().stripe_of(item.relation, &item.keys);
        stripe.heat.is_hot(threshold, second)
    }

    pub fn seat(&self, id: SeatId) -> &'a Seat {
        &self.seats[id as usize]
    }

    pub(crate) fn stripes(&self) -> Stripes<'a> {
        Stripes {
            all: self.stripes,
            seats: self.seats,
            notes: &self.head.notes,
        }
    }

    pub(crate) fn request(&self, id: RequestId) -> &'a Request {
        &self.requests[id as usize]
    }

    /// The ids of a seat's requests.
    pub(crate) fn requests_of(&self, seat: SeatId) -> std::ops::Range<RequestId> {
        let first = seat * self.most_items() as u32;
        first..first + self.seat(seat).requests.get() as u32
    }

    /// What a transaction has declared, and whether each item is granted. Under the lane's lock,
    /// but for the process's own.
    pub fn declared(self, seat: SeatId) -> impl Iterator<Item = (Item, bool)> + use<'a> {
        let requests = self.requests_of(seat).map(move |id| self.request(id));
        requests.map(|request| (request.item(), request.is_granted()))
    }

    /// The number of the queue for an item; none for the wide ones.
    fn number_of(&self, item: &Item) -> Option<u32> {
        let at = || hash(item.relation, &item.keys) as usize & (self.queues.len() - 1);
        (!item.is_wide()).then(|| at() as u32)
    }

    fn queue(&self, number: Option<u32>) -> &'a List {
        number.map_or(&self.head.wide, |at| &self.queues[at as usize])
    }

    pub(crate) fn queue_of(&self, item: &Item) -> &'a List {
        self.queue(self.number_of(item))
    }

    /// Whether a request has nobody with it in its queue, and no wide one is anywhere: then it
    /// conflicts with none.
    fn is_alone(&self, id: RequestId) -> bool {
        let number = self.request(id).queue();
        number.is_some() && self.head.wide.is_empty() && self.queue(number).is_only(id)
    }

    /// The requests that may conflict with one for this item though their keys are not the same:
    /// the wide ones; for a wide item all.
    fn beside(self, item: Item) -> impl Iterator<Item = RequestId> + use<'a> {
        let is_wide = item.is_wide();
        let seats = 0..self.seats.len() as SeatId;
        let all = is_wide.then(|| seats.flat_map(move |seat| self.requests_of(seat)));
        let wide = (!is_wide).then(|| self.head.wide.ids(self.requests));
        all.into_iter().flatten().chain(wide.into_iter().flatten())
    }

    /// The requests of others that conflict with this item.
    pub(crate) fn others(
        self,
        item: Item,
        me: SeatId,
    ) -> impl Iterator<Item = &'a Request> + use<'a> {
        let queue = (!item.is_wide()).then(|| self.queue_of(&item).ids(self.requests));
        queue
            .into_iter()
            .flatten()
            .chain(self.beside(item))
            .map(move |id| self.request(id))
            .filter(move |request| request.seat() != me && request.item().conflicts(&item))
    }

    /// Calls `each` with the requests of others on that side of this one that count it among their
    /// blockers, or that it counts. Of those for its one key these end with the nearest one for
    /// writing: those beyond wait for that one, or it for them. This request may have left its
    /// queue, if nobody else has since.
    #[inline]
    fn each_conflict(&self, id: RequestId, side: Side, mut each: impl FnMut(RequestId)) {
        let item = self.request(id).item();
        if !item.is_wide() {
            for id in List::beyond(id, side, self.requests) {
                let other = self.request(id).item();
                if other.relation != item.relation || other.keys != item.keys {
                    continue;
                }
                if other.conflicts(&item) {
                    each(id);
                }
                if other.mode == Mode::Write {
                    break;
                }
            }
        }
        self.each_beside(id, side, each);
    }

    /// Those of them that may be for other keys.
    #[inline]
    fn each_beside(&self, id: RequestId, side: Side, each: impl FnMut(RequestId)) {
        let item = self.request(id).item();
        if !item.is_wide() && self.head.wide.is_empty() {
            return;
        }
        let me = self.request(id).seat();
        let number = self.seat(me).number.get();
        let is_one = |&id: &RequestId| {
            let other = self.request(id);
            let is_before = self.seat(other.seat()).number.get() < number;
            other.seat() != me
                && is_before == (side == Side::Before)
                && other.item().conflicts(&item)
        };
        self.beside(item).filter(is_one).for_each(each);
    }

    /// Process `me` declares these, which are in order (`put_in_order`) and not more than
    /// `most_items`. Returns how many of them have to wait, which makes their stripes hotter. Under
    /// the lane's lock.
    pub fn enter(&self, me: SeatId, items: &[Item], second: u64) -> u64 {
        let seat = self.seat(me);
        seat.put(State::Queued);
        seat.number.set(self.head.numbers.add(1) + 1);
        seat.last_before.set(0);
        let first = me * self.most_items() as u32;
        let mut ungranted = 0;
        for (n, item) in items.iter().enumerate() {
            let id = first + n as u32;
            let request = self.request(id);
            let number = self.number_of(item);
            request.write(me, item, number);
            self.queue(number).append(id, self.requests);
            let blockers = self.blockers(id);
            request.blockers.set(blockers);
            if blockers > 0 {
                ungranted += 1;
                self.warm(item, WAIT, second);
            }
            seat.requests.set(n as u64 + 1);
        }
        seat.ungranted.set(ungranted);
        ungranted
    }

    /// How many requests of others before this one it waits for.
    fn blockers(&self, id: RequestId) -> u64 {
        if self.is_alone(id) {
            return 0;
        }
        let mut blockers = 0u64;
        self.each_conflict(id, Side::Before, |other| {
            let passes = planted(Fault::ReaderPassesWriter)
                && self.request(id).item().mode == Mode::Read
                && !self.request(other).is_granted();
            blockers += u64::from(!passes);
        });
        blockers.saturating_sub(u64::from(planted(Fault::GrantedTwice)))
    }

    /// The transaction of process `me` has ended, or gives up: `wake` is called for those that have
    /// all their keys now, and for those that have watched it. Under the lane's lock.
    pub fn leave(&self, me: SeatId, mut wake: impl FnMut(SeatId)) {
        let seat = self.seat(me);
        if seat.state() == State::Idle {
            return;
        }
        for id in self.requests_of(me) {
            let request = self.request(id);
            let is_alone = self.is_alone(id);
            // One after the other: `uncover` goes on from the place that the request had.
            self.queue(request.queue()).remove(id, self.requests);
            if !is_alone && !planted(Fault::LeavesSleepers) {
                self.uncover(id, &mut wake);
            }
        }
        seat.requests.set(0);
        seat.ungranted.set(0);
        seat.put(State::Idle);
        self.release_watchers(me, wake);
    }

    /// That request has left its queue: those that have counted it count one less, or anew.
    fn uncover(&self, gone: RequestId, wake: &mut impl FnMut(SeatId)) {
        // Those behind a writer that waits have not counted what it waits for.
        let item = self.request(gone).item();
        let is_gap = item.mode == Mode::Write
            && !self.request(gone).is_granted()
            && !planted(Fault::GapBehindWriter);
        self.each_conflict(gone, Side::Behind, |behind| {
            let request = self.request(behind);
            let before = request.blockers.get();
            let left = match is_gap && request.queue().is_some() && !item.is_wide() {
                true => self.blockers(behind),
                false => before.saturating_sub(1),
            };
            request.blockers.set(left);
            let seat = self.seat(request.seat());
            if before > 0 && left == 0 && seat.ungranted.sub(1) == 1 {
                wake(request.seat());
            }
        });
    }

    /// The transaction of process `me` is about to end: `wake` is called for those that have all
    /// their keys when it has gone, so that they are awake by then. Returns how many requests are
    /// behind its own, or `most` if there are more. Under the lane's lock.
    pub fn about_to_leave(&self, me: SeatId, most: usize, mut wake: impl FnMut(SeatId)) -> usize {
        let mut behind = 0;
        for id in self.requests_of(me).filter(|&id| !self.is_alone(id)) {
            self.each_conflict(id, Side::Behind, |next| {
                let request = self.request(next);
                let seat = self.seat(request.seat());
                let is_next = request.blockers.get() == 1 && seat.ungranted.get() == 1;
                if is_next && seat.last_before.exchange(0, me as u64 + 1) {
                    wake(request.seat());
                }
            });
            if behind < most {
                behind += self.count_behind(id, most - behind);
            }
        }
        behind
    }

    /// How many requests of others behind this one conflict with it, however far away; `most` if
    /// there are more.
    fn count_behind(&self, id: RequestId, most: usize) -> usize {
        let item = self.request(id).item();
        let mut behind = 0;
        if !item.is_wide() {
            let conflicts = |&id: &RequestId| self.request(id).item().conflicts(&item);
            let for_key = List::beyond(id, Side::Behind, self.requests).filter(conflicts);
            behind = for_key.take(most).count();
        }
        self.each_beside(id, Side::Behind, |_| behind += 1);
        behind.min(most)
    }

    /// Process `me` has all its keys: from now on writers that have declared nothing wait for it.
    /// It looks for those that run already next.
    pub fn hold(&self, me: SeatId) {
        self.seat(me).insists.set(0);
        self.seat(me).put(State::Holding);
    }

    /// Holds for the last time: it waits for those who have announced themselves before, and no
    /// more for others. They do not wait for it.
    pub fn insist(&self, me: SeatId) {
        self.seat(me).insists.set(1);
        self.seat(me).put(State::Holding);
    }

    /// Process `me` is going to wait for a writer that has declared nothing: `wake` is called for
    /// those that have watched it, which must not wait for it meanwhile. Under the lane's lock.
    pub fn drain(&self, me: SeatId, wake: impl FnMut(SeatId)) {
        self.seat(me).put(State::Draining);
        if !planted(Fault::DrainingWakesNobody) {
            self.release_watchers(me, wake);
        }
    }

    fn release_watchers(&self, me: SeatId, mut wake: impl FnMut(SeatId)) {
        if self.seat(me).is_watched.get() == 0 {
            return;
        }
        self.seat(me).is_watched.set(0);
        for (id, seat) in self.seats.iter().enumerate() {
            if seat.watches.get() == u64::from(me) + 1 {
                seat.watches.set(0);
                wake(id as SeatId);
            }
        }
    }

    /// Whether there may be a holder in the way of a write to these keys. Without the lock.
    #[inline]
    pub fn may_be_held(&self, relation: Relation, keys: &Interval) -> bool {
        if !self.head.wide.is_empty() {
            return true;
        }
        if keys.low() != keys.high() {
            return self.queues.iter().any(|queue| !queue.is_empty());
        }
        let at = hash(relation, keys) as usize & (self.queues.len() - 1);
        !self.queues[at].is_empty()
    }

    /// Whether others than `me` have declared to write to these keys, granted or queued. Under the
    /// lane's lock.
    pub fn is_wanted_by_others(&self, me: SeatId, relation: Relation, keys: Interval) -> bool {
        let read = Item {
            relation,
            keys,
            mode: Mode::Read,
        };
        self.others(read, me).next().is_some()
    }

    /// What process `me` has to do before it writes to these keys, or locks them so that others
    /// cannot write (the mode of `wanted`). Its transaction `id` has declared nothing. It has
    /// announced the keys, for this write or before. Under the lane's lock.
    pub fn look(&self, me: SeatId, id: u64, wanted: Item, announced: Announced) -> Look {
        let holders = || {
            self.others(wanted, me)
                .filter(|request| self.seat(request.seat()).state() == State::Holding)
        };
        let insists = |request: &&Request| self.seat(request.seat()).insists.get() != 0;
        let is_new = announced == Announced::Now && !planted(Fault::PlaceKept);
        let takes_back = is_new && holders().any(|request| insists(&request));
        if takes_back {
            let (relation, keys) = (wanted.relation, &wanted.keys);
            self.stripes().take_back((me, id), relation, keys);
        }
        // A holder that insists waits for those that have announced themselves.
        let is_in_the_way =
            |request: &&Request| !insists(request) || !self.has_touched(request.seat(), id);
        let Some(request) = holders().find(is_in_the_way) else {
            return if takes_back { Look::Again } else { Look::Free };
        };
        let holder = request.seat();
        self.seat(holder).is_watched.set(1);
        self.seat(me).watches.set(u64::from(holder) + 1);
        Look::Wait {
            mode: request.item().mode,
            is_taken_back: takes_back,
        }
    }

    /// The transaction takes an announcement back, as it does not write to these keys. Under the
    /// lane's lock.
    pub fn take_back(&self, writer: (SeatId, u64), relation: Relation, keys: &Interval) {
        self.stripes().take_back(writer, relation, keys);
    }

    /// Whether the transaction has announced a write to what that seat has declared.
    fn has_touched(&self, seat: SeatId, id: u64) -> bool {
        self.requests_of(seat).any(|request| {
            let item = self.request(request).item();
            self.stripes().has(id, item.relation, &item.keys)
        })
    }

    /// Process `me` does not wait for a holder any more.
    pub fn stop_watching(&self, me: SeatId) {
        self.seat(me).watches.set(0);
    }

    /// For what process `me` has declared these keys, if it has.
    pub fn declared_for(&self, me: SeatId, relation: Relation, keys: &Interval) -> Option<Mode> {
        let requests = self.requests_of(me).map(|id| self.request(id));
        let there = requests.filter(|request| request.covers(relation, keys));
        there.map(|request| request.item().mode).max()
    }

    /// The transactions that have declared nothing, run, and may have written to the keys that
    /// process `me` has declared: into `found`, each once.
    pub fn writers_in_the_way(
        &self,
        me: SeatId,
        own: u64,
        is_running: impl Fn(u64) -> bool,
        found: &mut Vec<u64>,
    ) {
        found.clear();
        let stripes = self.stripes();
        for request in self.requests_of(me) {
            let item = self.request(request).item();
            for id in stripes.writers(item.relation, &item.keys) {
                if id != own && !found.contains(&id) && is_running(id) {
                    found.push(id);
                }
            }
        }
        let mut items = self.declared(me).map(|(item, _)| item);
        if stripes.may_have_notes() && items.any(|item| stripes.has_overflowed(&item)) {
            stripes.forget_notes(is_running);
        }
    }

    /// Whether that one still stands in the way.
    pub fn is_in_the_way(&self, me: SeatId, id: u64) -> bool {
        self.has_touched(me, id)
    }

    /// The transaction of that process, which has declared nothing, is going to write to these
    /// keys. Before it looks for holders. `surplus` is called if there was no room in the stripe.
    pub fn announce(
        &self,
        writer: (SeatId, u64),
        relation: Relation,
        keys: &Interval,
        is_running: impl Fn(u64) -> bool,
        surplus: impl FnOnce(),
    ) -> Announced {
        self.stripes()
            .announce(writer, relation, keys, is_running, surplus)
    }
}

/// What an undeclared writer has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// It may write.
    Free,
    /// It announces itself again, which is no new announcement then, and looks once more.
    Again,
    /// It waits for one that has declared the key so. It is woken when it need not wait any
    /// more; then it announces itself and looks again.
    Wait {
        mode: Mode,
        /// Its announcement is taken back already: the holder insists.
        is_taken_back: bool,
    },
}
