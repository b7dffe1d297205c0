//! Transactions that use nodes, in shared memory: whose process is which of them, which of them
//! wait at a node, and which of those are to fail because of a deadlock.
//!
//! Everything here is read and changed under one lock of the glue. Zeroed memory is empty.

use crate::name::{Id, Name};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Words of the text that says why.
const WORDS: usize = 128;
/// Its bytes, at most.
pub const TEXT: usize = WORDS * 8;

/// So many processes that a transaction has lost at nodes are known one by one.
pub const LOST: usize = 8;

/// The transaction of one process.
#[repr(C)]
pub struct Running {
    high: AtomicU64,
    low: AtomicU64,
    incarnation: AtomicU64,
    /// 0: the process has none.
    sequence: AtomicU64,
    begun: AtomicU64,
    pid: AtomicU64,
    /// The number of the present wait; 0: there is none.
    wait: AtomicU64,
    /// Waits of this process so far.
    waits: AtomicU64,
    /// It must not be made to fail any more.
    is_protected: AtomicU64,
    /// It has heard that it is to fail, and has not gone on since.
    is_told: AtomicU64,
    /// How many processes it has lost at nodes, and the running server and number of each.
    losses: AtomicU64,
    lost: [(AtomicU64, AtomicU64); LOST],
    /// Bytes of the text; 0: nobody wants it to fail.
    length: AtomicU64,
    text: [AtomicU64; WORDS],
}

/// A process and its transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session {
    /// The transaction.
    pub name: Name,
    /// The process, as its server knows it.
    pub pid: i32,
    /// The wait in which it is; 0: in none.
    pub wait: u64,
    /// It must not be made to fail any more.
    pub is_protected: bool,
    /// It has been told to fail, and is about to release what it has locked since some savepoint.
    pub is_told: bool,
    /// Processes at nodes that bear its name and do not act for it any more, as their connections
    /// were lost: the running server, and the number there. 0: no process.
    pub lost: [(u64, i32); LOST],
    /// There are more than that.
    pub has_lost_more: bool,
}

impl Running {
    /// The process has that transaction from now on.
    pub fn begin(&self, name: &Name, pid: i32) {
        self.end();
        let coordinator = name.id.coordinator;
        self.high.store((coordinator >> 64) as u64, Relaxed);
        self.low.store(coordinator as u64, Relaxed);
        self.incarnation.store(name.id.incarnation, Relaxed);
        self.sequence.store(name.id.sequence, Relaxed);
        self.begun.store(name.begun, Relaxed);
        self.pid.store(pid as u64, Relaxed);
    }

    /// It has none any more.
    pub fn end(&self) {
        self.wait_is_over();
        self.sequence.store(0, Relaxed);
        self.is_protected.store(0, Relaxed);
        self.goes_on();
        self.losses.store(0, Relaxed);
    }

    /// The process and its transaction; None: it has none.
    pub fn read(&self) -> Option<Session> {
        let sequence = self.sequence.load(Relaxed);
        let high = u128::from(self.high.load(Relaxed));
        (sequence != 0).then(|| Session {
            name: Name {
                id: Id {
                    coordinator: (high << 64) | u128::from(self.low.load(Relaxed)),
                    incarnation: self.incarnation.load(Relaxed),
                    sequence,
                },
                begun: self.begun.load(Relaxed),
            },
            pid: self.pid.load(Relaxed) as i32,
            wait: self.wait.load(Relaxed),
            is_protected: self.is_protected.load(Relaxed) != 0,
            is_told: self.is_told.load(Relaxed) != 0 || self.length.load(Relaxed) != 0,
            lost: self.lost(),
            has_lost_more: self.losses.load(Relaxed) > LOST as u64,
        })
    }

    fn lost(&self) -> [(u64, i32); LOST] {
        let losses = self.losses.load(Relaxed) as usize;
        std::array::from_fn(|n| match &self.lost[n] {
            (cluster, pid) if n < losses => (cluster.load(Relaxed), pid.load(Relaxed) as i32),
            _ => (0, 0),
        })
    }

    /// The connection with that process at a node was lost, and the transaction goes on with
    /// another one. What the process has locked stays locked until the node notices.
    pub fn lose(&self, cluster: u64, pid: i32) {
        let losses = self.losses.fetch_add(1, Relaxed) as usize;
        if let Some(place) = self.lost.get(losses) {
            place.0.store(cluster, Relaxed);
            place.1.store(pid as u64, Relaxed);
        }
    }

    /// The process has waited at a node for a while, in a wait that can be ended.
    pub fn begin_wait(&self) {
        self.wait_is_over();
        self.goes_on();
        self.wait
            .store(self.waits.fetch_add(1, Relaxed) + 1, Relaxed);
    }

    /// It does not wait any more: what was to end the wait is void.
    pub fn wait_is_over(&self) {
        self.wait.store(0, Relaxed);
        self.length.store(0, Relaxed);
    }

    /// From now on the transaction must not be made to fail.
    pub fn protect(&self) {
        self.is_protected.store(1, Relaxed);
        self.goes_on();
    }

    /// Why the transaction is to fail, if it is; it does from now on.
    pub fn take_refusal(&self) -> Option<String> {
        let refusal = self.refusal();
        self.is_told.store(u64::from(refusal.is_some()), Relaxed);
        refusal
    }

    /// What has failed is rolled back, and the transaction goes on with the rest.
    pub fn goes_on(&self) {
        self.is_told.store(0, Relaxed);
    }

    /// Ends the wait that was read: its transaction is to fail. False if it is over, or has been
    /// told before.
    pub fn refuse(&self, session: &Session, why: &str) -> bool {
        let is_it = self.read().as_ref() == Some(session);
        if !is_it || session.wait == 0 || session.is_protected || self.refusal().is_some() {
            return false;
        }
        let mut end = why.len().min(TEXT);
        while !why.is_char_boundary(end) {
            end -= 1;
        }
        for (word, bytes) in self.text.iter().zip(why.as_bytes()[..end].chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(whole), Relaxed);
        }
        self.length.store(end as u64, Relaxed);
        true
    }

    /// Why the transaction is to fail, if it is.
    pub fn refusal(&self) -> Option<String> {
        let length = self.length.load(Relaxed) as usize;
        let words = self.text.iter().take(length.div_ceil(8));
        let mut bytes: Vec<u8> = words
            .flat_map(|word| word.load(Relaxed).to_le_bytes())
            .collect();
        bytes.truncate(length);
        (length > 0).then(|| String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Running {
        let zero = || AtomicU64::new(0);
        Running {
            high: zero(),
            low: zero(),
            incarnation: zero(),
            sequence: zero(),
            begun: zero(),
            pid: zero(),
            wait: zero(),
            waits: zero(),
            is_protected: zero(),
            is_told: zero(),
            losses: zero(),
            lost: std::array::from_fn(|_| (zero(), zero())),
            length: zero(),
            text: std::array::from_fn(|_| zero()),
        }
    }

    fn name(sequence: u64) -> Name {
        Name {
            id: Id {
                coordinator: 7 << 64 | 9,
                incarnation: 3,
                sequence,
            },
            begun: 11,
        }
    }

    #[test]
    fn a_transaction_is_read_as_it_was_written() {
        let one = empty();
        assert_eq!(one.read(), None);
        one.begin(&name(5), 77);
        let read = one.read().unwrap();
        assert_eq!((read.name, read.pid, read.wait), (name(5), 77, 0));
        one.end();
        assert_eq!(one.read(), None);
    }

    #[test]
    fn a_long_wait_is_ended_once() {
        let one = empty();
        one.begin(&name(5), 77);
        let running = one.read().unwrap();
        assert!(!one.refuse(&running, "why"));
        one.begin_wait();
        assert!(!one.refuse(&running, "why"));
        let waiting = one.read().unwrap();
        assert!(one.refuse(&waiting, "the reason why"));
        assert!(!one.refuse(&waiting, "another reason"));
        assert_eq!(one.refusal().as_deref(), Some("the reason why"));
        one.wait_is_over();
        assert_eq!(one.refusal(), None);
    }

    /// It gives way from when it is told until it goes on; not at all if it did not hear of it.
    #[test]
    fn a_transaction_that_is_told_gives_way() {
        let is_told = |one: &Running| one.read().unwrap().is_told;
        let goes_on: [fn(&Running); 3] = [Running::begin_wait, Running::goes_on, Running::protect];
        for goes_on in goes_on {
            let one = empty();
            one.begin(&name(5), 77);
            one.begin_wait();
            assert!(one.take_refusal().is_none() && !is_told(&one));
            assert!(one.refuse(&one.read().unwrap(), "why") && is_told(&one));
            one.wait_is_over();
            assert!(!is_told(&one), "the answer came first");
            one.begin_wait();
            assert!(one.refuse(&one.read().unwrap(), "why"));
            assert_eq!(one.take_refusal().as_deref(), Some("why"));
            one.wait_is_over();
            assert!(is_told(&one));
            goes_on(&one);
            assert!(!is_told(&one));
        }
    }

    /// Neither the next wait nor the next transaction of the session.
    #[test]
    fn no_other_wait_is_ended() {
        let one = empty();
        one.begin(&name(5), 77);
        one.begin_wait();
        let waiting = one.read().unwrap();
        one.begin_wait();
        assert!(!one.refuse(&waiting, "why"));
        one.begin(&name(6), 77);
        one.begin_wait();
        assert!(!one.refuse(&waiting, "why"));
        assert_eq!(one.refusal(), None);
    }

    #[test]
    fn a_transaction_that_is_protected_does_not_fail() {
        let one = empty();
        one.begin(&name(5), 77);
        one.begin_wait();
        let before = one.read().unwrap();
        one.protect();
        assert!(!one.refuse(&before, "why"));
        assert!(!one.refuse(&one.read().unwrap(), "why"));
        one.begin(&name(6), 77);
        one.begin_wait();
        assert!(one.refuse(&one.read().unwrap(), "why"));
    }

    #[test]
    fn processes_are_lost_with_the_transaction() {
        let one = empty();
        one.begin(&name(5), 77);
        assert_eq!(one.read().unwrap().lost, [(0, 0); LOST]);
        one.lose(3, 41);
        one.lose(4, 42);
        assert_eq!(one.read().unwrap().lost[..3], [(3, 41), (4, 42), (0, 0)]);
        (0..LOST).for_each(|_| one.lose(5, 43));
        let read = one.read().unwrap();
        assert!(read.has_lost_more && read.lost[LOST - 1] == (5, 43));
        one.begin(&name(6), 77);
        let read = one.read().unwrap();
        assert!(!read.has_lost_more && read.lost == [(0, 0); LOST]);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let one = empty();
        one.begin(&name(5), 77);
        one.begin_wait();
        let why = format!("x{}", "é".repeat(TEXT));
        assert!(one.refuse(&one.read().unwrap(), &why));
        let told = one.refusal().unwrap();
        assert_eq!(told.len(), TEXT - 1);
        assert!(why.starts_with(&told));
    }
}
