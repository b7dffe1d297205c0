//! Turns by themselves, and random schedules of those that stand in line: nobody is left standing.

use super::*;
use crate::fault::plant;
use crate::line::places;
use crate::record_id::RecordId;
use crate::records::REPORT_US;
use crate::records::tests::{NOW, TRIP, id, records, report};
use crate::window::LEAST;
use std::collections::BTreeSet;

/// Sessions, each of which has some transactions. One of three does not stand in line.
const SESSIONS: usize = 9;
const TRANSACTIONS: usize = 4;
const KEYS: [&str; 3] = ["a", "b", "c"];

/// Has the record waited for: its window is the smallest one. Returns its hash.
fn contended(all: &Records, one: &RecordId) -> u64 {
    assert!(all.begin(one, NOW));
    all.measured(&[one.hash()], 0, TRIP, true, NOW);
    all.measured(&[one.hash()], 10 * TRIP, TRIP, true, NOW);
    all.end(one.hash(), true, NOW);
    one.hash()
}

/// The transaction is at work on the record, and has a turn.
fn begin(all: &Records, one: &RecordId) {
    assert!(all.begin(one, NOW));
    all.begin_turn(one.hash(), NOW);
}

/// What a session is doing.
#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    Idle,
    /// It stands in line; `true`: it has been woken.
    Stands(bool),
    /// `true`: it has turns.
    AtWork(bool),
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
    places: Vec<Place>,
    draws: Draws,
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
        for key in KEYS {
            contended(&all, &id(key));
        }
        Schedule {
            all,
            places: places(SESSIONS),
            draws: Draws(seed * 2 + 1),
            states: vec![State::Idle; SESSIONS],
            own: vec![BTreeSet::new(); SESSIONS],
            left: vec![TRANSACTIONS; SESSIONS],
            wakes: Vec::new(),
        }
    }

    fn turns(&self) -> Turns<'_> {
        Turns::new(&self.all, &self.places)
    }

    fn ids(&self, session: usize) -> Vec<RecordId> {
        let own = self.own[session].iter();
        own.map(|&key| id(KEYS[key])).collect()
    }

    fn hashes(&self, session: usize) -> Vec<u64> {
        self.ids(session).iter().map(RecordId::hash).collect()
    }

    fn look(&mut self, session: usize) {
        let ids = self.ids(session);
        let enter = |all: &Records| ids.iter().for_each(|one| begin(all, one));
        let turns = self.turns();
        let wanted: Vec<&RecordId> = ids.iter().collect();
        let turn = turns.take(&wanted, session as u32, NOW, enter);
        self.states[session] = match turn.stands {
            true => State::Stands(false),
            false => State::AtWork(true),
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
                if !session.is_multiple_of(3) {
                    self.look(session);
                } else {
                    for one in self.ids(session) {
                        assert!(self.all.begin(&one, NOW));
                    }
                    self.states[session] = State::AtWork(false);
                }
            }
            // Some are cancelled.
            State::Stands(is_woken) => match (self.draws.below(64), is_woken) {
                (0, _) => {
                    let wake = self.turns().leave_line(session as u32);
                    self.note(wake);
                    self.states[session] = State::Idle;
                }
                (_, true) => self.look(session),
                (_, false) => return false,
            },
            State::AtWork(has_turns) => {
                let hashes = self.hashes(session);
                if has_turns {
                    let wake = self.turns().give_back(&hashes, NOW);
                    self.note(wake);
                }
                let end = |hash: &u64| self.all.end(*hash, true, NOW);
                hashes.iter().for_each(end);
                self.states[session] = State::Idle;
            }
        }
        true
    }

    /// Whether all come to their end, though nobody looks again unasked. Towards the end nobody is
    /// cancelled any more: whoever is left standing stays.
    fn ends(mut self, may_cancel: bool) -> bool {
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
            let is_left = matches!(self.states[session], State::Stands(false));
            if (may_cancel && idle < 2 || !is_left) && self.step(session) {
                idle = 0;
            }
        }
        let ended = |one: &State| *one == State::Idle;
        let is_free = |key: &&str| {
            let hash = id(key).hash();
            self.turns().in_line(hash) == 0 && self.all.room(hash, NOW) == Some(true)
        };
        self.states.iter().all(ended)
            && self.left.iter().all(|&left| left == 0)
            && KEYS.iter().all(is_free)
    }
}

/// The number of schedules in which somebody is left standing.
fn left_standing(fault: Option<Fault>) -> usize {
    plant(fault.as_slice());
    let stands = |seed: &u64| !Schedule::new(*seed).ends(seed.is_multiple_of(2));
    let count = (0..3000).filter(stands).count();
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

/// Those that do not stand in line take nobody's turn: the others come at their own pace.
#[test]
fn a_turn_comes_though_others_do_not_stand() {
    let (all, places) = (records(), places(SESSIONS));
    let turns = Turns::new(&all, &places);
    contended(&all, &id("a"));
    (0..20).for_each(|_| assert!(all.begin(&id("a"), NOW)));
    let turn = turns.take(&[&id("a")], 3, NOW, |all| begin(all, &id("a")));
    assert!(!turn.stands);
}

/// Each one's turn, one after the other, in the order of coming.
#[test]
fn nobody_overtakes_in_line() {
    let (all, places) = (records(), places(20));
    let turns = Turns::new(&all, &places);
    let hash = contended(&all, &id("a"));
    let look = |backend| {
        let enter = |all: &Records| begin(all, &id("a"));
        turns.take(&[&id("a")], backend, NOW, enter)
    };
    let mut stand = (0..10).filter(|&backend| look(backend).stands);
    assert_eq!(stand.by_ref().count() as u64, 10 - LEAST);
    for next in LEAST as u32..10 {
        let wake = turns.give_back(&[hash], NOW);
        assert_eq!(wake, [next], "the one that has come first");
        assert!(look(19).stands, "a new one");
        turns.leave_line(19);
        let turn = look(next);
        assert!(!turn.stands);
        assert_eq!(turn.wake, Vec::from_iter((next < 9).then_some(next + 1)));
        assert!(next == 9 || look(next + 1).stands, "it is full again");
    }
    assert_eq!(turns.in_line(hash), 0);
    assert!(look(11).stands);
}

#[test]
fn one_stands_only_before_what_is_contended() {
    let (all, places) = (records(), places(20));
    let turns = Turns::new(&all, &places);
    let fast = id("fast");
    let slow = contended(&all, &id("slow"));
    for _ in 0..20 {
        begin(&all, &fast);
        begin(&all, &id("slow"));
    }
    let later = NOW + REPORT_US + 1;
    let stands = |wanted: &[&str], now| {
        let ids: Vec<RecordId> = wanted.iter().map(|name| id(name)).collect();
        let wanted: Vec<&RecordId> = ids.iter().collect();
        let turn = turns.take(&wanted, 3, now, |_| ());
        turns.leave_line(3);
        turn.stands
    };
    assert!(!stands(&["fast"], NOW));
    assert!(stands(&["fast", "slow"], NOW));
    all.reported(slow, report(3, 5, false), NOW);
    assert!(stands(&["slow"], NOW), "they wait at the node");
    all.reported(slow, report(3, 5, true), NOW);
    assert!(!stands(&["slow"], NOW), "they follow each other");
    all.begin_turn(slow, later);
    turns.give_back(&[slow], later);
    assert!(stands(&["slow"], later), "that was long ago");
    assert!(!stands(&[], later) && !stands(&["unknown"], later));
}
