//! Combining: the holder of the ticket does the updates of waiters whose statement has the same form as its own, in one
//! version and one commit (flat combining: Hendler, Incze, Shavit, Tzafrir, SPAA 2010).
//!
//! A waiter puts its statement's form and arguments into its *parcel* and *offers* it; it keeps its place in the ticket
//! queue. The holder *adopts* some of those that wait: they leave the queue, and from then on wait for the holder's
//! transaction alone, which commits without waiting for anybody. Its commit *fulfils* them, everything else *refuses* them:
//! they queue again and update by themselves.
//!
//! Invariant (nothing is done twice or by halves): only a waiter that is offered can be adopted or withdraw, and both
//! happen under the row's lock; what the holder writes contains exactly the adopted updates that it then fulfils.

use crate::row::{Member, Row, World, load};
use crate::{MemberId, Word32, Word64};

/// Room for a statement's form, and for its arguments.
pub const FORM_BYTES: usize = 384;
pub const ARGUMENT_BYTES: usize = 256;

const NONE: u32 = 0;
const OFFERED: u32 = 1;
const ADOPTED: u32 = 2;
const FULFILLED: u32 = 3;
const REFUSED: u32 = 4;

/// What has become of a waiter's update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Nobody has taken it: it waits for the ticket.
    Open,
    /// Another transaction does it and will commit or roll back soon.
    Adopted,
    /// Committed by a transaction whose commit record ends at `durable_at`; it changed `rows` rows.
    Fulfilled { rows: u32, durable_at: u64 },
    /// Not done.
    Refused,
}

/// A statement as another session can execute it. Written by its owner while nobody may adopt it.
#[derive(Debug)]
#[repr(C)]
pub struct Parcel {
    digest: Word64,
    form_length: Word32,
    arguments_length: Word32,
    form: [Word64; FORM_BYTES / 8],
    arguments: [Word64; ARGUMENT_BYTES / 8],
}

impl Default for Parcel {
    fn default() -> Self {
        Parcel {
            digest: Word64::default(),
            form_length: Word32::default(),
            arguments_length: Word32::default(),
            form: [const { Word64::new() }; FORM_BYTES / 8],
            arguments: [const { Word64::new() }; ARGUMENT_BYTES / 8],
        }
    }
}

impl Parcel {
    /// Packs a statement. `digest` is any function of the form.
    ///
    /// # Panics
    /// If either part is longer than its room.
    pub fn pack(&self, digest: u64, form: &[u8], arguments: &[u8]) {
        assert!(form.len() <= FORM_BYTES && arguments.len() <= ARGUMENT_BYTES);
        self.digest.set(digest);
        self.form_length.set(form.len() as u32);
        self.arguments_length.set(arguments.len() as u32);
        write(&self.form, form);
        write(&self.arguments, arguments);
    }

    /// Whether the packed statement has this form.
    pub fn has_form(&self, digest: u64, form: &[u8]) -> bool {
        if self.digest.get() != digest || self.form_length.get() as usize != form.len() {
            return false;
        }
        let mut packed = [0; FORM_BYTES];
        read(&self.form, &mut packed[..form.len()]);
        packed[..form.len()] == *form
    }

    /// The packed arguments and their length.
    pub fn arguments(&self) -> ([u8; ARGUMENT_BYTES], usize) {
        let mut bytes = [0; ARGUMENT_BYTES];
        let length = (self.arguments_length.get() as usize).min(ARGUMENT_BYTES);
        read(&self.arguments, &mut bytes[..length]);
        (bytes, length)
    }
}

fn write(words: &[Word64], bytes: &[u8]) {
    for (word, chunk) in words.iter().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..chunk.len()].copy_from_slice(chunk);
        word.set(u64::from_le_bytes(whole));
    }
}

fn read(words: &[Word64], bytes: &mut [u8]) {
    for (word, chunk) in words.iter().zip(bytes.chunks_mut(8)) {
        let whole = word.get().to_le_bytes();
        chunk.copy_from_slice(&whole[..chunk.len()]);
    }
}

impl Member {
    /// lock-free: what has become of this waiter's update.
    pub fn outcome(&self) -> Outcome {
        match self.request.get() {
            ADOPTED => Outcome::Adopted,
            FULFILLED => Outcome::Fulfilled {
                rows: self.rows.get(),
                durable_at: self.durable_at.get(),
            },
            REFUSED => Outcome::Refused,
            _ => Outcome::Open,
        }
    }

    /// lock-free: the adopter's transaction has committed. The waiter may go on at once.
    pub fn fulfil(&self, rows: u32, durable_at: u64) {
        self.rows.set(rows);
        self.durable_at.set(durable_at);
        self.request.publish(FULFILLED);
    }

    /// lock-free: the adopter has not done it.
    pub fn refuse(&self) {
        self.request.publish(REFUSED);
    }

    pub(crate) fn forget_request(&self) {
        self.request.publish(NONE);
    }
}

impl Row {
    /// A queued waiter lets the holder do its update. The row's lock is held.
    pub fn offer(&self, world: World, me: MemberId) {
        let node = world.member(me);
        if node.queued.get() != 0 && node.request.get() == NONE {
            node.request.publish(OFFERED);
        }
    }

    /// The waiter takes its offer back, and keeps its place in the queue. False when it has been adopted: then the outcome
    /// is all that it can wait for. The row's lock is held.
    pub fn withdraw_offer(&self, world: World, me: MemberId) -> bool {
        let node = world.member(me);
        match node.request.get() {
            NONE => true,
            OFFERED => {
                node.forget_request();
                true
            }
            _ => false,
        }
    }

    /// The holder takes over up to `most` of the offered updates that suit it, longest waiters first. They leave the queue.
    /// The row's lock is held.
    pub fn adopt(
        &self,
        world: World,
        most: usize,
        suits: impl Fn(MemberId) -> bool,
        mut adopted: impl FnMut(MemberId),
    ) {
        let mut rest = most;
        let mut at = load(&self.queue_head);
        while let Some(id) = at {
            let node = world.member(id);
            at = load(&node.queue_next);
            if rest == 0 {
                return;
            }
            if node.request.get() == OFFERED && node.deaf.get() == 0 && suits(id) {
                self.answer(world, id);
                self.unqueue(world, id);
                node.request.publish(ADOPTED);
                adopted(id);
                rest -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Acquired, MEMBERS, Patience};

    const PATIENCE: Patience = Patience {
        fair_every: 1000,
        longest_wait: u64::MAX,
        competitors: 1,
    };

    fn member(actor: u32) -> MemberId {
        actor * MEMBERS as u32
    }

    /// A row whose ticket is held by the first of `actors`; the others wait and have offered their updates.
    fn crowd(actors: u32) -> (Row, Vec<Member>) {
        let row = Row::default();
        let members: Vec<_> = (0..actors * MEMBERS as u32)
            .map(|_| Member::default())
            .collect();
        let w = World { members: &members };
        assert_eq!(row.acquire(w, member(0), PATIENCE, 0), Acquired::Granted);
        for actor in 1..actors {
            assert_ne!(
                row.acquire(w, member(actor), PATIENCE, 0),
                Acquired::Granted
            );
            row.offer(w, member(actor));
        }
        (row, members)
    }

    fn adopt(row: &Row, w: World, most: usize, suits: impl Fn(MemberId) -> bool) -> Vec<MemberId> {
        let mut adopted = Vec::new();
        row.adopt(w, most, suits, |id| adopted.push(id));
        adopted
    }

    #[test]
    fn the_longest_waiters_that_suit_are_adopted_and_leave_the_queue() {
        let (row, members) = crowd(5);
        let w = World { members: &members };
        let adopted = adopt(&row, w, 2, |id| id != member(2));
        assert_eq!(adopted, [member(1), member(3)]);
        assert_eq!(row.waiting(), 2);
        assert_eq!(members[member(1) as usize].outcome(), Outcome::Adopted);
        assert_eq!(members[member(2) as usize].outcome(), Outcome::Open);
        members[member(1) as usize].fulfil(1, 77);
        members[member(3) as usize].refuse();
        assert_eq!(
            members[member(1) as usize].outcome(),
            Outcome::Fulfilled {
                rows: 1,
                durable_at: 77
            }
        );
        assert_eq!(members[member(3) as usize].outcome(), Outcome::Refused);
    }

    #[test]
    fn a_competitor_that_is_adopted_leaves_its_place_to_another() {
        let (row, members) = crowd(3);
        let w = World { members: &members };
        assert_eq!(adopt(&row, w, 1, |_| true), [member(1)]);
        assert_eq!(
            row.release(w, member(0), PATIENCE, 0),
            Some(2),
            "nobody else is awake"
        );
    }

    #[test]
    fn who_has_withdrawn_is_not_adopted_and_who_is_adopted_cannot_withdraw() {
        let (row, members) = crowd(3);
        let w = World { members: &members };
        assert!(row.withdraw_offer(w, member(1)));
        assert_eq!(adopt(&row, w, 9, |_| true), [member(2)]);
        assert!(!row.withdraw_offer(w, member(2)));
        row.offer(w, member(1));
        assert_eq!(adopt(&row, w, 9, |_| true), [member(1)]);
    }

    #[test]
    fn who_gets_the_ticket_has_no_offer_any_more() {
        let (row, members) = crowd(3);
        let w = World { members: &members };
        row.release(w, member(0), PATIENCE, 0);
        assert!(row.compete(w, member(1)));
        row.offer(w, member(1));
        assert_eq!(adopt(&row, w, 9, |_| true), [member(2)]);
    }

    #[test]
    fn the_refused_queue_again() {
        let (row, members) = crowd(2);
        let w = World { members: &members };
        adopt(&row, w, 9, |_| true);
        members[member(1) as usize].refuse();
        assert_eq!(row.enqueue(w, member(1), PATIENCE, 0), Acquired::Competing);
        assert_eq!(members[member(1) as usize].outcome(), Outcome::Open);
        assert_eq!(row.waiting(), 1);
    }

    #[test]
    fn the_deaf_are_not_adopted() {
        let (row, members) = crowd(2);
        let w = World { members: &members };
        assert!(row.go_deaf(w, member(1)));
        assert!(adopt(&row, w, 9, |_| true).is_empty());
    }

    #[test]
    fn a_parcel_has_its_form_and_its_arguments() {
        let parcel = Parcel::default();
        parcel.pack(5, b"form of a statement", b"arguments");
        assert!(parcel.has_form(5, b"form of a statement"));
        assert!(!parcel.has_form(5, b"form of b statement"));
        assert!(!parcel.has_form(5, b"form of a statemen"));
        assert!(!parcel.has_form(6, b"form of a statement"));
        let (bytes, length) = parcel.arguments();
        assert_eq!(&bytes[..length], b"arguments");
    }
}
