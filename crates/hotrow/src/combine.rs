//! Combining: the holder of the ticket does the updates of waiters whose statement has the form of
//! its own. It makes one version and one commit of them. (Flat combining: Hendler, Incze, Shavit,
//! Tzafrir, SPAA 2010.)
//!
//! A waiter puts its statement's form and arguments into its *request* and *offers* it; it keeps
//! its place in the ticket queue. The holder *adopts* some of those that wait: they leave the
//! queue, and from then on wait for the holder's transaction alone. Before it commits it *seals*
//! them, its commit *fulfils* them, and everything else *refuses* them: they queue again and update
//! by themselves. Until it is sealed, a waiter that is cancelled *abandons* the holder. The holder
//! has the waiter's update in its new version, and so must not commit any more.
//!
//! Invariant (nothing is done twice or by halves): a holder commits only with all that it has
//! adopted sealed, and only a sealed update is fulfilled. An adoption has a number, so that a
//! holder cannot take the next one of the same waiter for its own.

use crate::row::{Member, Members, Row, load};
use crate::{MemberId, Word32, Word64};

/// Room for a statement's form, for its arguments, and for the row that it returns.
pub const FORM_BYTES: usize = 512;
pub const ARGUMENT_BYTES: usize = 256;
pub const RESULT_BYTES: usize = 256;

const NONE: u32 = 0;
const OFFERED: u32 = 1;
const ADOPTED: u32 = 2;
const SEALED: u32 = 3;
const FULFILLED: u32 = 4;
const REFUSED: u32 = 5;
/// The lower bits of a request are its state, the others count the offers of this member.
const STATE: u32 = 7;

/// A waiter whose update a holder has taken over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Adoption {
    pub member: MemberId,
    offer: u32,
}

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

/// A statement as another session can execute it. Written by its owner while nobody may adopt it,
/// and what it returns by its adopter while it is sealed.
#[derive(Debug)]
#[repr(C)]
pub struct CombineRequest {
    digest: Word64,
    form_length: Word32,
    arguments_length: Word32,
    form: [Word64; FORM_BYTES / 8],
    arguments: [Word64; ARGUMENT_BYTES / 8],
    result_length: Word32,
    result: [Word64; RESULT_BYTES / 8],
}

impl Default for CombineRequest {
    fn default() -> Self {
        CombineRequest {
            digest: Word64::default(),
            form_length: Word32::default(),
            arguments_length: Word32::default(),
            form: [const { Word64::new() }; FORM_BYTES / 8],
            arguments: [const { Word64::new() }; ARGUMENT_BYTES / 8],
            result_length: Word32::default(),
            result: [const { Word64::new() }; RESULT_BYTES / 8],
        }
    }
}

impl CombineRequest {
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

    /// The adopter of the sealed statement tells what it returns.
    ///
    /// # Panics
    /// If it is longer than its room.
    pub fn put_result(&self, bytes: &[u8]) {
        assert!(bytes.len() <= RESULT_BYTES);
        self.result_length.set(bytes.len() as u32);
        write(&self.result, bytes);
    }

    /// What the fulfilled statement returns, and its length.
    pub fn result(&self) -> ([u8; RESULT_BYTES], usize) {
        let mut bytes = [0; RESULT_BYTES];
        let length = (self.result_length.get() as usize).min(RESULT_BYTES);
        read(&self.result, &mut bytes[..length]);
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
        match self.request.get() & STATE {
            ADOPTED | SEALED => Outcome::Adopted,
            FULFILLED => Outcome::Fulfilled {
                rows: self.rows.get(),
                durable_at: self.durable_at.get(),
            },
            REFUSED => Outcome::Refused,
            _ => Outcome::Open,
        }
    }

    /// lock-free: who does the adopted update.
    pub fn adopter(&self) -> Option<MemberId> {
        load(&self.adopter)
    }

    /// lock-free: the waiter goes its own way, and its adopter fails. False when it is too late.
    pub fn abandon(&self) -> bool {
        let offer = self.request.get() & !STATE;
        self.request.exchange(offer | ADOPTED, offer | NONE).is_ok()
    }

    /// lock-free: its adopter is about to commit, and is going to write the outcome here.
    pub fn is_sealed(&self) -> bool {
        self.request.get() & STATE == SEALED
    }

    pub(crate) fn forget_request(&self) {
        self.request.publish(self.request.get() & !STATE);
    }
}

impl Members<'_> {
    /// lock-free: whether the waiter has not abandoned its adopter so far.
    pub fn is_adopted(&self, adoption: Adoption) -> bool {
        self.member(adoption.member).request.get() == adoption.offer | ADOPTED
    }

    /// lock-free: the adopter is about to commit. False when the waiter has abandoned it.
    pub fn seal(&self, adoption: Adoption) -> bool {
        self.turn(adoption, ADOPTED, SEALED)
    }

    /// lock-free: the adopter's transaction has committed. The waiter may go on at once.
    pub fn fulfil(&self, adoption: Adoption, rows: u32, durable_at: u64) {
        let node = self.member(adoption.member);
        node.rows.set(rows);
        node.durable_at.set(durable_at);
        self.turn(adoption, SEALED, FULFILLED);
    }

    /// lock-free: the adopter has not done it. False when the waiter has abandoned it.
    pub fn refuse(&self, adoption: Adoption) -> bool {
        self.turn(adoption, ADOPTED, REFUSED) || self.turn(adoption, SEALED, REFUSED)
    }

    fn turn(&self, adoption: Adoption, from: u32, to: u32) -> bool {
        let offer = adoption.offer;
        let request = &self.member(adoption.member).request;
        request.exchange(offer | from, offer | to).is_ok()
    }
}

impl Row {
    /// A queued waiter lets the holder do its update. The row's lock is held.
    pub fn offer(&self, members: Members, me: MemberId) {
        let node = members.member(me);
        let request = node.request.get();
        if node.queued.get() != 0 && request & STATE == NONE {
            node.request
                .publish(request.wrapping_add(STATE + 1) | OFFERED);
        }
    }

    /// The waiter takes its offer back, and keeps its place in the queue. False when it has been
    /// adopted: then the outcome is all that it can wait for. The row's lock is held.
    pub fn withdraw_offer(&self, members: Members, me: MemberId) -> bool {
        let node = members.member(me);
        match node.request.get() & STATE {
            NONE => true,
            OFFERED => {
                node.forget_request();
                true
            }
            _ => false,
        }
    }

    /// The holder takes over up to `most` of the offered updates that suit it, longest waiters
    /// first. They leave the queue. The row's lock is held.
    pub fn adopt(
        &self,
        members: Members,
        most: usize,
        suits: impl Fn(MemberId) -> bool,
        mut adopted: impl FnMut(Adoption),
    ) {
        let mut rest = most;
        let mut at = load(&self.queue_head);
        while let Some(id) = at {
            let node = members.member(id);
            at = load(&node.queue_next);
            if rest == 0 {
                return;
            }
            let request = node.request.get();
            if request & STATE == OFFERED && node.in_lock_manager.get() == 0 && suits(id) {
                self.answer(members, id);
                self.unqueue(members, id);
                let offer = request & !STATE;
                node.adopter.set(self.holder.get());
                node.request.publish(offer | ADOPTED);
                adopted(Adoption { member: id, offer });
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
        newest_first: 0,
        holds: false,
        competitors: 1,
    };

    fn member(backend: u32) -> MemberId {
        backend * MEMBERS as u32
    }

    /// A row whose ticket is held by the first of `backends`. The others wait and have offered
    /// their updates.
    fn crowd(backends: u32) -> (Row, Vec<Member>) {
        let row = Row::default();
        let members: Vec<_> = (0..backends * MEMBERS as u32)
            .map(|_| Member::default())
            .collect();
        let w = Members { all: &members };
        assert_eq!(row.acquire(w, member(0), PATIENCE, 0), Acquired::Granted);
        for backend in 1..backends {
            assert_ne!(
                row.acquire(w, member(backend), PATIENCE, 0),
                Acquired::Granted
            );
            row.offer(w, member(backend));
        }
        (row, members)
    }

    fn adopt(
        row: &Row,
        w: Members,
        most: usize,
        suits: impl Fn(MemberId) -> bool,
    ) -> Vec<Adoption> {
        let mut adopted = Vec::new();
        row.adopt(w, most, suits, |adoption| adopted.push(adoption));
        adopted
    }

    fn members_of(adopted: &[Adoption]) -> Vec<MemberId> {
        adopted.iter().map(|a| a.member).collect()
    }

    #[test]
    fn the_longest_waiters_that_suit_are_adopted_and_leave_the_queue() {
        let (row, members) = crowd(5);
        let w = Members { all: &members };
        let adopted = adopt(&row, w, 2, |id| id != member(2));
        assert_eq!(members_of(&adopted), [member(1), member(3)]);
        assert_eq!(row.waiting(), 2);
        assert_eq!(members[member(1) as usize].outcome(), Outcome::Adopted);
        assert_eq!(members[member(1) as usize].adopter(), Some(member(0)));
        assert_eq!(members[member(2) as usize].outcome(), Outcome::Open);
        assert!(w.seal(adopted[0]) && w.seal(adopted[1]));
        w.fulfil(adopted[0], 1, 77);
        assert!(w.refuse(adopted[1]));
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
        let w = Members { all: &members };
        assert_eq!(members_of(&adopt(&row, w, 1, |_| true)), [member(1)]);
        assert_eq!(
            row.release(w, member(0), PATIENCE, 0),
            Some(2),
            "nobody else is awake"
        );
    }

    #[test]
    fn who_has_withdrawn_is_not_adopted_and_who_is_adopted_cannot_withdraw() {
        let (row, members) = crowd(3);
        let w = Members { all: &members };
        assert!(row.withdraw_offer(w, member(1)));
        assert_eq!(members_of(&adopt(&row, w, 9, |_| true)), [member(2)]);
        assert!(!row.withdraw_offer(w, member(2)));
        row.offer(w, member(1));
        assert_eq!(members_of(&adopt(&row, w, 9, |_| true)), [member(1)]);
    }

    #[test]
    fn who_is_adopted_may_abandon_until_it_is_sealed() {
        let (row, members) = crowd(3);
        let w = Members { all: &members };
        let adopted = adopt(&row, w, 9, |_| true);
        let own = |backend| &members[member(backend) as usize];
        assert!(own(1).abandon());
        assert!(!w.is_adopted(adopted[0]) && w.is_adopted(adopted[1]));
        assert!(!w.seal(adopted[0]));
        assert!(w.seal(adopted[1]));
        assert!(!own(2).abandon());
        row.enqueue(w, member(1), PATIENCE, 0);
        row.offer(w, member(1));
        let again = adopt(&row, w, 9, |_| true);
        assert!(!w.refuse(adopted[0]), "that one is over");
        assert_eq!(own(1).outcome(), Outcome::Adopted);
        assert!(w.refuse(again[0]));
    }

    #[test]
    fn who_gets_the_ticket_has_no_offer_any_more() {
        let (row, members) = crowd(3);
        let w = Members { all: &members };
        row.release(w, member(0), PATIENCE, 0);
        assert!(row.compete(w, member(1)));
        row.offer(w, member(1));
        assert_eq!(members_of(&adopt(&row, w, 9, |_| true)), [member(2)]);
    }

    #[test]
    fn the_refused_queue_again() {
        let (row, members) = crowd(2);
        let w = Members { all: &members };
        let adopted = adopt(&row, w, 9, |_| true);
        assert!(w.refuse(adopted[0]));
        assert_eq!(row.enqueue(w, member(1), PATIENCE, 0), Acquired::Competing);
        assert_eq!(members[member(1) as usize].outcome(), Outcome::Open);
        assert_eq!(row.waiting(), 1);
    }

    #[test]
    fn who_ends_while_adopted_abandons_its_adopter() {
        let (row, members) = crowd(2);
        let w = Members { all: &members };
        let adopted = adopt(&row, w, 9, |_| true);
        assert_eq!(row.leave(w, member(1), PATIENCE, 0), None);
        assert!(!w.seal(adopted[0]));
    }

    #[test]
    fn who_is_in_the_lock_manager_is_not_adopted() {
        let (row, members) = crowd(2);
        let w = Members { all: &members };
        assert!(row.enter_lock_manager(w, member(1)));
        assert!(adopt(&row, w, 9, |_| true).is_empty());
    }

    #[test]
    fn a_request_has_its_form_and_its_arguments() {
        let request = CombineRequest::default();
        request.pack(5, b"form of a statement", b"arguments");
        assert!(request.has_form(5, b"form of a statement"));
        assert!(!request.has_form(5, b"form of b statement"));
        assert!(!request.has_form(5, b"form of a statemen"));
        assert!(!request.has_form(6, b"form of a statement"));
        let (bytes, length) = request.arguments();
        assert_eq!(&bytes[..length], b"arguments");
        request.put_result(b"a returned row");
        let (bytes, length) = request.result();
        assert_eq!(&bytes[..length], b"a returned row");
    }
}
