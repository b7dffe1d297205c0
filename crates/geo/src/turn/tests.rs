//! The line by itself, and random schedules of those that stand in it: nobody is left standing.

use super::*;
use crate::fault::plant;
use crate::records::tests::{NOW, id, records};
use crate::records::{REPORT_US, RecordId};
use std::collections::BTreeSet;

/// A record of a node to which it is 100 ms and back, and takes so long there.
fn wanted(all: &Records, key: &str, local: u64) -> Wanted {
    let one = id(key);
    assert!(all.begin(&one, NOW));
    all.measured(&[one.hash()], local, NOW);
    all.end(one.hash(), true, NOW);
    Wanted {
        hash: one.hash(),
        round_trip: Some(100_000),
    }
}

#[test]
fn a_contended_record_is_for_a_few_at_a_time() {
    let all = records();
    let slow = wanted(&all, "slow", 80_000);
    let fast = wanted(&all, "fast", 20_000);
    for _ in 0..AT_ONCE {
        assert_eq!(all.crowded(&[fast, slow], 3, NOW), None);
        assert!(all.begin(&id("slow"), NOW) && all.begin(&id("fast"), NOW));
    }
    assert_eq!(all.crowded(&[fast, slow], 3, NOW), Some(slow.hash));
    assert_eq!(all.crowded(&[fast], 3, NOW), None, "nobody waits there");
    let unknown = Wanted {
        round_trip: None,
        ..slow
    };
    assert_eq!(all.crowded(&[unknown], 3, NOW), None);
    all.reported(slow.hash, 3, 5, NOW);
    assert_eq!(all.crowded(&[slow], 3, NOW), None, "a queue of its node's");
    let later = NOW + REPORT_US + 1;
    assert_eq!(all.crowded(&[slow], 3, later), Some(slow.hash));
    all.end(slow.hash, true, later);
    assert_eq!(all.crowded(&[slow], 3, later), None);
}

#[test]
fn a_near_record_is_contended_when_it_takes_long() {
    let all = records();
    let near = |key, local| Wanted {
        round_trip: Some(100),
        ..wanted(&all, key, local)
    };
    for (key, local, is_crowded) in [("disk", 9_000, false), ("queue", 11_000, true)] {
        let one = near(key, local);
        for _ in 0..AT_ONCE {
            assert!(all.begin(&id(key), NOW));
        }
        assert_eq!(all.crowded(&[one], 3, NOW).is_some(), is_crowded, "{key}");
    }
}

#[test]
fn nobody_overtakes_in_line() {
    let all = records();
    let slow = wanted(&all, "slow", 80_000);
    assert!(all.line().stand(3, slow.hash));
    assert_eq!(all.line().first(slow.hash), Some(3));
    assert_eq!(all.crowded(&[slow], 4, NOW), Some(slow.hash));
    assert_eq!(all.crowded(&[slow], 3, NOW), None);
    assert_eq!(all.all(5, NOW)[0].in_line, 1);
    assert_eq!(all.line().leave(3), Some(slow.hash));
    assert_eq!(all.crowded(&[slow], 4, NOW), None);
}

/// Sessions, each of which has some transactions.
const SESSIONS: usize = 9;
const TRANSACTIONS: usize = 4;
const KEYS: [&str; 3] = ["a", "b", "c"];

/// What a session is doing.
#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    Idle,
    /// It stands in line; `true`: it has been woken.
    Stands(bool),
    AtWork,
}

/// xorshift64*: numbers below `end`.
struct Draws(u64);

impl Draws {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }
}

/// A schedule: each step is one session's, under the lock of the records.
struct Schedule {
    all: Box<Records>,
    draws: Draws,
    wanted: Vec<(RecordId, Wanted)>,
    states: Vec<State>,
    /// The records of each session's transaction.
    own: Vec<BTreeSet<usize>>,
    left: Vec<usize>,
    /// Those that are to be woken, which takes a while.
    wakes: Vec<usize>,
}

impl Schedule {
    fn new(seed: u64) -> Schedule {
        let all = records();
        let wanted = KEYS.map(|key| (id(key), wanted(&all, key, 80_000)));
        Schedule {
            all,
            draws: Draws(seed * 2 + 1),
            wanted: wanted.to_vec(),
            states: vec![State::Idle; SESSIONS],
            own: vec![BTreeSet::new(); SESSIONS],
            left: vec![TRANSACTIONS; SESSIONS],
            wakes: Vec::new(),
        }
    }

    fn look(&mut self, session: usize, is_patient: bool) {
        let wanted: Vec<_> = self.own[session].iter().map(|&n| self.wanted[n]).collect();
        let records: Vec<Wanted> = wanted.iter().map(|one| one.1).collect();
        let enter = |all: &Records| {
            for (id, _) in &wanted {
                assert!(all.begin(id, NOW));
            }
        };
        let turn = self
            .all
            .take_turn(&records, session as u32, NOW, is_patient, enter);
        self.states[session] = match turn.stands {
            true => State::Stands(false),
            false => State::AtWork,
        };
        self.note(turn.wake);
    }

    fn note(&mut self, wake: Vec<u32>) {
        self.wakes.extend(wake.into_iter().map(|one| one as usize));
    }

    /// What the session does next; false: it can do nothing.
    fn step(&mut self, session: usize) -> bool {
        match self.states[session] {
            State::Idle if self.left[session] == 0 => return false,
            State::Idle => {
                self.left[session] -= 1;
                let count = 1 + self.draws.below(2);
                self.own[session] = (0..count).map(|_| self.draws.below(KEYS.len())).collect();
                self.look(session, true);
            }
            // One in sixteen is cancelled, and one has stood for too long.
            State::Stands(is_woken) => match (self.draws.below(16), is_woken) {
                (0, true) => {
                    let wake = self.all.leave_line(session as u32);
                    self.note(wake);
                    self.states[session] = State::Idle;
                }
                (1, true) => self.look(session, false),
                (_, true) => self.look(session, true),
                (_, false) => return false,
            },
            State::AtWork => {
                let own = &self.own[session];
                let hashes: Vec<u64> = own.iter().map(|&n| self.wanted[n].1.hash).collect();
                let wake = self.all.end_all(&hashes, true, NOW);
                self.note(wake);
                self.states[session] = State::Idle;
            }
        }
        true
    }

    /// Whether all come to their end.
    fn ends(mut self) -> bool {
        let mut idle = 0;
        while idle < 20 * SESSIONS {
            idle += 1;
            if !self.wakes.is_empty() && self.draws.below(3) == 0 {
                let next = self.draws.below(self.wakes.len());
                let session = self.wakes.swap_remove(next);
                if let State::Stands(is_woken) = &mut self.states[session] {
                    *is_woken = true;
                }
                idle = 0;
            }
            let session = self.draws.below(SESSIONS);
            if self.step(session) {
                idle = 0;
            }
        }
        let ended = |one: &State| *one == State::Idle;
        self.states.iter().all(ended) && self.left.iter().all(|&left| left == 0)
    }
}

/// The number of schedules in which somebody is left standing.
fn left_standing(fault: Option<Fault>) -> usize {
    plant(fault.as_slice());
    let count = (0..3000)
        .filter(|&seed| !Schedule::new(seed).ends())
        .count();
    plant(&[]);
    count
}

#[test]
fn nobody_is_left_standing() {
    assert_eq!(left_standing(None), 0);
}

#[test]
fn each_wake_up_is_needed() {
    use Fault::*;
    for fault in [TurnLeftUntold, LineLeftUntold, EndUntold] {
        assert!(left_standing(Some(fault)) > 0, "{fault:?} was not found");
    }
}

/// Those who are patient are never more on a contended record than it is for.
#[test]
fn no_more_than_so_many_are_at_work() {
    let all = records();
    let one = wanted(&all, "a", 80_000);
    let mut at_work = 0;
    for actor in 0..20 {
        let turn = all.take_turn(&[one], actor, NOW, true, |all| {
            assert!(all.begin(&id("a"), NOW));
        });
        at_work += u64::from(!turn.stands);
    }
    assert_eq!((at_work, all.line().length(one.hash)), (AT_ONCE, 17));
    let wake = all.end_all(&[one.hash], true, NOW);
    assert_eq!(wake, [3], "who has come first");
}
