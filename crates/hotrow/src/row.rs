//! The shared state of a hot row and of a transaction's membership in it.

use crate::{
    Identity, KEY_COLUMNS, LABEL_BYTES, MemberId, Obstacle, Word32, Word64, found::Places,
    identity::KEY_BYTES,
};

/// Index of a hot row's slot.
pub type Slot = u32;

/// A hot row. Everything in it is read and written under the row's lock, but for the words marked
/// `lock-free`.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Row {
    // Identity; constant while the row is in use.
    /// lock-free: hash of the identity, 0 while the slot is free.
    pub(crate) hash: Word64,
    /// lock-free: next slot of the bucket, index + 1.
    pub(crate) next_in_bucket: Word32,
    pub(crate) database: Word32,
    pub(crate) relation: Word32,
    pub(crate) label_length: Word32,
    pub(crate) key: [Word64; KEY_BYTES / 8 + 1],
    pub(crate) label: [Word64; LABEL_BYTES / 8],
    /// The numbers of the key's columns, 16 bits each, 0 for none: the label has their values.
    pub(crate) columns: [Word64; KEY_COLUMNS / 4],

    // The role whose row it is in the directory (directory.rs).
    /// lock-free: the role to whose share the row counts. Written under the directory's lock.
    pub(crate) owner: Word32,
    /// lock-free: the most transactions that have waited for the row at a time. Whether the row is
    /// hot for a session of another role
    /// depends on it.
    pub(crate) earned: Word32,

    // The ticket queue (ticket.rs). Members as id + 1, 0 for none.
    /// lock-free for the cycle check.
    pub(crate) holder: Word32,
    /// lock-free, a hint: whether the holder keeps the ticket until its client sends more.
    pub(crate) away: Word32,
    pub(crate) queue_head: Word32,
    pub(crate) queue_tail: Word32,
    pub(crate) signaled: Word32,
    /// lock-free, a hint.
    pub(crate) queued: Word32,
    /// Those of them that hold something for which others may wait.
    pub(crate) holding: Word32,
    pub(crate) handovers: Word32,
    pub(crate) released_at: Word64,

    // The dependency list (chain.rs).
    pub(crate) chain_first: Word32,
    pub(crate) chain_last: Word32,
    /// lock-free: a transaction is counted before it writes on top of another one's version, until
    /// it has left the list.
    pub(crate) chain_length: Word32,
    pub(crate) group_length: Word32,
    pub(crate) group_ended: Word32,
    /// The writer whose version is offered to who has the ticket, + 1: it must not change it.
    pub(crate) tail_offered: Word32,
    /// lock-free, a hint: members of the list that are prepared (prepared.rs).
    pub(crate) prepared: Word32,

    // Trouble (mode.rs).
    pub(crate) score: Word32,
    pub(crate) backoffs: Word32,
    pub(crate) cause: Word32,
    pub(crate) backoff_until: Word64,

    /// Memberships that refer to this row; it cannot cool down while there are any.
    pub(crate) members: Word32,
    /// The transaction that last updated the row with a ticket.
    pub last_xid: Word32,
    /// The last updater would have let others follow.
    pub grouped: Word32,
    /// When the row became hot and when it last had a waiter, in microseconds.
    pub since: Word64,
    pub contended_at: Word64,
    pub counters: Counters,
    /// lock-free, a hint: how likely a foreign key's check of the row comes before an update by the
    /// same transaction (expect.rs).
    pub(crate) expected: Word32,
    /// lock-free, a hint: how long transactions take from their update to their commit, in
    /// microseconds, 0 if that is not known (brief.rs).
    pub(crate) rest: Word32,
    /// lock-free: processes that stay awake for the ticket and are in no queue (brief.rs). It is of
    /// the slot: they come and go by themselves.
    pub(crate) watching: Word32,

    // Cycles (gate.rs).
    /// lock-free: the number of its gate, 0 for none.
    pub(crate) gate: Word64,
    /// lock-free, of a gate: until when it is needed, and in which direction the last transaction
    /// took its rows.
    pub(crate) needed_until: Word64,
    pub(crate) direction: Word32,

    /// Where index scans have found the row. Last, away from what waiters look at.
    pub found: Places,
}

/// What a row becomes hot with.
#[derive(Clone, Copy, Debug)]
pub struct Promotion<'a> {
    /// The key as text, and the numbers of its columns, 0 for none.
    pub label: &'a [u8],
    pub columns: [i16; KEY_COLUMNS],
    /// The role to whose share the row counts.
    pub owner: u32,
    /// Transactions that wait for the row.
    pub earned: u32,
    /// The present time, in microseconds.
    pub now: u64,
}

/// What the views show of a row.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Counters {
    pub updates: Word64,
    pub followed: Word64,
    pub combined: Word64,
    pub groups: Word64,
    pub cascades: Word64,
    pub handovers: Word64,
    pub handover_us: Word64,
    /// Mean time from one release of the ticket to the next, while transactions wait; 0: not known.
    pub turn_us: Word64,
    /// By the numbers of `Obstacle`.
    pub(crate) obstacles: [Word64; Obstacle::ALL.len()],
}

/// A transaction's membership in one hot row: its place in the ticket queue and in the dependency
/// list.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Member {
    /// The row's slot + 1, constant while the membership lasts. Others compare it under that row's
    /// lock.
    row: Word32,

    // Ticket queue.
    pub(crate) queue_next: Word32,
    pub(crate) queue_prev: Word32,
    pub(crate) queued: Word32,
    /// Sleeps in PostgreSQL's lock manager and would not hear a signal.
    pub(crate) in_lock_manager: Word32,
    /// Has been woken to compete for the ticket and has not answered.
    pub(crate) signaled: Word32,
    /// Has been given the ticket directly.
    pub(crate) granted: Word32,
    pub(crate) queued_at: Word64,
    /// 1 if its transaction has something for which others may wait.
    pub(crate) holds: Word32,

    // Combining (combine.rs).
    /// lock-free: what has become of the update that this waiter has left with others.
    pub(crate) request: Word32,
    pub(crate) rows: Word32,
    pub(crate) durable_at: Word64,
    /// lock-free: who does it.
    pub(crate) adopter: Word32,

    // Dependency list.
    pub(crate) chain_next: Word32,
    pub(crate) chain_prev: Word32,
    pub(crate) linked: Word32,
    pub(crate) reader: Word32,
    /// The transaction id that stands in the version: that of the subtransaction that has written
    /// it.
    pub(crate) xid: Word32,
    pub(crate) tid: Word64,
    /// Nobody may follow: the transaction has gone on to change or lock its own version.
    pub(crate) closed: Word32,
    /// lock-free: a predecessor rolled back.
    pub(crate) doomed: Word32,
    /// Wants to be woken when a predecessor leaves.
    pub(crate) waiting: Word32,
    /// lock-free: waits for its predecessor in PostgreSQL's lock manager.
    pub patient: Word32,
}

/// The last version of a row that a running transaction wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tail {
    pub member: MemberId,
    /// The transaction id that stands in the version.
    pub xid: u32,
    /// The version's address, as the glue packs it.
    pub tid: u64,
    /// False when a follower must not build on it.
    pub open: bool,
}

/// All memberships of all processes.
#[derive(Clone, Copy)]
pub struct Members<'a> {
    pub all: &'a [Member],
}

impl<'a> Members<'a> {
    #[inline]
    pub(crate) fn member(&self, id: MemberId) -> &'a Member {
        &self.all[id as usize]
    }
}

/// An optional member as it stands in shared memory.
#[inline]
pub(crate) fn load(word: &Word32) -> Option<MemberId> {
    word.get().checked_sub(1)
}

#[inline]
pub(crate) fn store(word: &Word32, member: Option<MemberId>) {
    word.set(member.map_or(0, |m| m + 1));
}

impl Row {
    /// Whether this slot now holds that row.
    pub fn is(&self, identity: &Identity) -> bool {
        self.hash.get() == identity.hash()
            && self.database.get() == identity.database
            && self.relation.get() == identity.relation
            && self
                .key
                .iter()
                .zip(identity.words())
                .all(|(have, want)| have.get() == want)
    }

    /// The hash of its identity.
    pub fn mark(&self) -> u64 {
        self.hash.get()
    }

    /// Whether the slot holds a row at all.
    pub fn is_used(&self) -> bool {
        self.hash.get() != 0
    }

    pub fn database(&self) -> u32 {
        self.database.get()
    }

    pub fn relation(&self) -> u32 {
        self.relation.get()
    }

    /// The key as text, cut to what is kept.
    pub fn label(&self) -> ([u8; LABEL_BYTES], usize) {
        let mut text = [0; LABEL_BYTES];
        for (to, from) in text.as_chunks_mut::<8>().0.iter_mut().zip(&self.label) {
            *to = from.get().to_le_bytes();
        }
        (text, (self.label_length.get() as usize).min(LABEL_BYTES))
    }

    /// The numbers of the key's columns.
    pub fn columns(&self) -> [i16; KEY_COLUMNS] {
        let mut numbers = [0; KEY_COLUMNS];
        for (four, word) in numbers.as_chunks_mut::<4>().0.iter_mut().zip(&self.columns) {
            for (n, number) in four.iter_mut().enumerate() {
                *number = (word.get() >> (16 * n)) as i16;
            }
        }
        numbers
    }

    /// lock-free: the role to whose share the row counts.
    pub fn owner(&self) -> u32 {
        self.owner.get()
    }

    /// lock-free: whether the row is hot for a session of that role, for which rows become hot when
    /// so many transactions wait. What one
    /// role makes hot with less is not so for others.
    #[inline]
    pub fn is_hot_for(&self, role: u32, threshold: u32) -> bool {
        self.owner.get() == role || self.earned.get() >= threshold
    }

    /// Transactions that wait for the ticket.
    pub fn waiting(&self) -> u32 {
        self.queued.get()
    }

    /// Transactions in the dependency list.
    pub fn listed(&self) -> u32 {
        self.chain_length.get()
    }

    /// Transactions that have the row in hand: those in the list, and the one with the ticket.
    pub fn running(&self) -> u32 {
        self.chain_length
            .get()
            .max(u32::from(self.holder.get() != 0))
    }

    /// lock-free, a hint: whether any transaction of the dependency list is prepared.
    #[inline]
    pub fn has_prepared(&self) -> bool {
        self.prepared.get() != 0
    }

    /// Nobody refers to the row.
    pub fn is_idle(&self) -> bool {
        self.members.get() == 0
    }

    /// lock-free: counts one.
    pub fn note_obstacle(&self, obstacle: Obstacle) {
        self.counters.obstacles[obstacle as usize].add(1);
    }

    /// Those that have been met, with how often; the most frequent comes first.
    pub fn obstacles(&self) -> impl Iterator<Item = (Obstacle, u64)> {
        let mut counts = Obstacle::ALL
            .map(|obstacle| (obstacle, self.counters.obstacles[obstacle as usize].get()));
        counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        counts.into_iter().take_while(|&(_, count)| count > 0)
    }

    /// Makes this free slot the row `identity`. The caller holds the row's lock.
    pub(crate) fn claim(&self, identity: &Identity, promotion: &Promotion) {
        let (label, now) = (promotion.label, promotion.now);
        let fresh = Row::default();
        for (word, value) in self.key.iter().zip(identity.words()) {
            word.set(value);
        }
        let length = label.len().min(LABEL_BYTES);
        let mut text = [0; LABEL_BYTES];
        text[..length].copy_from_slice(&label[..length]);
        for (word, chunk) in self.label.iter().zip(text.as_chunks::<8>().0) {
            word.set(u64::from_le_bytes(*chunk));
        }
        self.label_length.set(length as u32);
        let (columns, _) = promotion.columns.as_chunks::<4>();
        for (word, four) in self.columns.iter().zip(columns) {
            let bits = |(n, &number): (usize, &i16)| u64::from(number as u16) << (16 * n);
            word.set(four.iter().enumerate().map(bits).sum());
        }
        self.owner.set(promotion.owner);
        self.earned.set(promotion.earned);
        self.database.set(identity.database);
        self.relation.set(identity.relation);
        for (mine, zero) in self.state().into_iter().zip(fresh.state()) {
            mine.set(zero.get());
        }
        for (mine, zero) in self.times().into_iter().zip(fresh.times()) {
            mine.set(zero.get());
        }
        self.counters
            .obstacles
            .iter()
            .for_each(|count| count.set(0));
        self.found.forget();
        if promotion.earned == 0 {
            self.expect_update();
        }
        self.since.set(now);
        self.contended_at.set(now);
        self.hash.publish(identity.hash());
    }

    fn state(&self) -> [&Word32; 22] {
        [
            &self.expected,
            &self.rest,
            &self.holder,
            &self.queue_head,
            &self.queue_tail,
            &self.signaled,
            &self.queued,
            &self.holding,
            &self.away,
            &self.handovers,
            &self.chain_first,
            &self.chain_last,
            &self.chain_length,
            &self.group_length,
            &self.group_ended,
            &self.prepared,
            &self.score,
            &self.backoffs,
            &self.cause,
            &self.last_xid,
            &self.grouped,
            &self.direction,
        ]
    }

    fn times(&self) -> [&Word64; 12] {
        let c = &self.counters;
        [
            &self.released_at,
            &self.backoff_until,
            &self.gate,
            &self.needed_until,
            &c.updates,
            &c.followed,
            &c.combined,
            &c.groups,
            &c.cascades,
            &c.handovers,
            &c.handover_us,
            &c.turn_us,
        ]
    }
}

impl Member {
    /// The membership that begins now is in that row.
    pub fn begin(&self, slot: Slot) {
        self.row.set(slot + 1);
    }

    /// The row that it is in, or was in last.
    pub(crate) fn slot(&self) -> Option<Slot> {
        load(&self.row)
    }

    /// Whether it is in that row.
    pub(crate) fn is_of(&self, slot: Slot) -> bool {
        self.row.get() == slot + 1
    }

    /// lock-free: a predecessor on this row rolled back.
    pub fn is_doomed(&self) -> bool {
        self.doomed.get() != 0
    }

    /// The transaction id with which it stands in the list, or stood there last.
    pub fn xid(&self) -> u32 {
        self.xid.get()
    }

    /// Whether the present ticket was given directly to this waiter.
    pub fn was_granted(&self) -> bool {
        self.granted.get() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_row_is_itself_and_no_other() {
        let row = Row::default();
        let one = Identity::new(1, 2, b"one");
        let columns = [1, 2, -3, 4, 1600, 0, 0, 0];
        row.claim(
            &one,
            &Promotion {
                label: b"one",
                columns,
                owner: 10,
                earned: 3,
                now: 7,
            },
        );
        assert!(row.is(&one));
        assert!(!row.is(&Identity::new(1, 2, b"two")));
        let (text, length) = row.label();
        assert_eq!(&text[..length], b"one");
        assert_eq!(row.columns(), columns);
    }

    #[test]
    fn a_row_is_hot_for_its_owner_and_for_whom_enough_have_waited() {
        let row = Row::default();
        row.claim(
            &Identity::new(1, 2, b"one"),
            &Promotion {
                label: b"",
                columns: [0; KEY_COLUMNS],
                owner: 10,
                earned: 3,
                now: 7,
            },
        );
        assert!(row.is_hot_for(10, 1000));
        assert!(row.is_hot_for(11, 3));
        assert!(!row.is_hot_for(11, 4));
    }

    #[test]
    fn the_most_frequent_comes_first_and_what_was_not_met_is_left_out() {
        let row = Row::default();
        row.note_obstacle(Obstacle::Page);
        for _ in 0..3 {
            row.note_obstacle(Obstacle::Subtransaction);
        }
        let met: Vec<_> = row.obstacles().collect();
        assert_eq!(met, [(Obstacle::Subtransaction, 3), (Obstacle::Page, 1)]);
    }
}
