//! A record's window: how many transactions may have a turn at it at a time. It is set by how long
//! statements about the record wait at its node. TCP Vegas sets its window in that way, by the time
//! that packets wait (L. Brakmo, S. O'Malley, L. Peterson: "TCP Vegas", section 3.2).
//!
//! With too many, those who wait at the node wait for long, with locks on other records. With too
//! few, the record is idle while the next one is on its way. So the window gets smaller while
//! statements wait for longer than a round trip, and larger while they wait for less than half of
//! one. A record that nobody waits for has no window: it is open.
//!
//! Read and changed under the lock of the records. Zeroed memory is an open window.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The smallest window: one has the lock, one comes to it.
pub const LEAST: u64 = 2;
/// A larger one is open.
const MOST: u64 = 64;
const OPEN: u64 = MOST * PARTS;
/// The window is kept in such parts of a turn.
const PARTS: u64 = 8;
/// A round trip counts as this long at least, in microseconds: the time that a statement takes may
/// be that of its PREPARE, for a disk.
const NEAR_US: u64 = 20_000;
/// When no turn has come to its end for so long, at least and at most, the window doubles: whoever
/// is at work on the record may do nothing, or wait for those who stand in line.
const STANDSTILL_US: (u64, u64) = (1_000_000, 10_000_000);

/// That size, or 0, open, if it is beyond the largest.
fn bounded(size: u64) -> u64 {
    match size {
        0..=OPEN => size,
        _ => 0,
    }
}

/// A record's window, and its turns.
#[repr(C)]
#[derive(Default)]
pub struct Window {
    /// In parts of a turn; 0: it is open.
    size: AtomicU64,
    /// The shortest time that a statement has taken at the node, plus one; 0: not known.
    shortest: AtomicU64,
    /// Transactions that have a turn.
    turns: AtomicU64,
    /// When a turn has come to its end last, or the first one has begun.
    moved_at: AtomicU64,
}

impl Window {
    /// A transaction has a turn from now on.
    pub fn begin(&self, now: u64) {
        if self.turns.fetch_add(1, Relaxed) == 0 {
            self.moved_at.store(now, Relaxed);
        }
    }

    /// A turn has come to its end.
    pub fn end(&self, now: u64) {
        let turns = self.turns.load(Relaxed);
        self.turns.store(turns.saturating_sub(1), Relaxed);
        self.moved_at.store(now, Relaxed);
    }

    /// Whether one more may have a turn. None: there is no limit. `local` is how long the record
    /// takes at its node, in microseconds.
    pub fn has_room(&self, local: u64, now: u64) -> Option<bool> {
        let patience = (4 * local).clamp(STANDSTILL_US.0, STANDSTILL_US.1);
        let (mut size, turns) = (self.size.load(Relaxed), self.turns.load(Relaxed));
        let is_long = || self.moved_at.load(Relaxed).abs_diff(now) > patience;
        if size > 0 && turns > 0 && is_long() {
            size = bounded(2 * size);
            self.size.store(size, Relaxed);
            self.moved_at.store(now, Relaxed);
        }
        (size > 0).then_some(turns < size / PARTS)
    }

    /// A statement has taken so long at the node, beyond the round trip, or at least so long if it
    /// was not whole. Locks are kept for the round trip that is given.
    pub fn measured(&self, local: u64, round_trip: u64, is_whole: bool) {
        let shortest = match self.shortest.load(Relaxed) {
            0 => local,
            known => local.min(known - 1),
        };
        if is_whole {
            self.shortest.store(shortest + 1, Relaxed);
        }
        let half = round_trip.max(NEAR_US) / 2;
        // What takes long though nobody waits. More than this is somebody that has always waited.
        let waited = local - shortest.min(half);
        let size = self.size.load(Relaxed);
        if waited >= 2 * half {
            // One that was open has let everybody in: it begins as small as it can be.
            self.size.store((size * 7 / 8).max(LEAST * PARTS), Relaxed);
        } else if is_whole
            && waited < half
            && size > 0
            && (self.turns.load(Relaxed) + 1) * PARTS > size
        {
            self.size.store(bounded(size + 1), Relaxed);
        }
    }

    /// So many periods have passed: the shortest time may have become longer.
    pub fn age(&self, periods: u64) {
        for _ in 0..periods.min(8) {
            let shortest = self.shortest.load(Relaxed);
            if shortest > 0 {
                self.shortest.store(shortest + shortest / 8 + 100, Relaxed);
            }
        }
    }

    /// It is open, and nothing is known.
    pub fn open(&self) {
        self.size.store(0, Relaxed);
        self.shortest.store(0, Relaxed);
    }

    /// It is another record's, that nobody is at work on.
    pub fn clear(&self) {
        self.open();
        self.turns.store(0, Relaxed);
    }

    /// So many may have a turn; None: it is open.
    pub fn size(&self) -> Option<u64> {
        let size = self.size.load(Relaxed);
        (size > 0).then_some(size / PARTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1 << 40;
    const TRIP: u64 = 100_000;

    fn begin(window: &Window, count: u64) {
        (0..count).for_each(|_| window.begin(NOW));
    }

    #[test]
    fn what_nobody_waits_for_is_open() {
        let window = Window::default();
        begin(&window, 100);
        for local in [0, 10_000, 49_000] {
            window.measured(local, TRIP, true);
        }
        assert_eq!(window.has_room(0, NOW), None);
    }

    #[test]
    fn it_gets_smaller_while_they_wait_and_larger_while_not() {
        let window = Window::default();
        begin(&window, 20);
        window.measured(0, TRIP, true);
        window.measured(TRIP, TRIP, true);
        assert_eq!(window.has_room(0, NOW), Some(false));
        assert_eq!(window.size(), Some(LEAST));
        // In between it stays.
        window.measured(TRIP / 2, TRIP, true);
        assert_eq!(window.size(), Some(LEAST));
        (0..8 * PARTS).for_each(|_| window.measured(TRIP / 2 - 1, TRIP, true));
        assert_eq!(window.size(), Some(LEAST + 8));
        window.measured(TRIP, TRIP, true);
        assert_eq!(window.size(), Some(LEAST + 6), "an eighth less");
        // It opens when nobody waits though many have a turn.
        begin(&window, MOST);
        (0..MOST * PARTS).for_each(|_| window.measured(0, TRIP, true));
        assert_eq!(window.has_room(0, NOW), None);
    }

    /// What has waited in vain says only that it was too long.
    #[test]
    fn a_wait_in_vain_makes_it_smaller() {
        let window = Window::default();
        begin(&window, 20);
        window.measured(0, TRIP, false);
        assert_eq!(window.size(), None);
        window.measured(TRIP, TRIP, true);
        assert_eq!(window.size(), None, "the first one is the shortest");
        window.measured(3 * TRIP, TRIP, false);
        assert_eq!(window.size(), Some(LEAST));
        (0..100).for_each(|_| window.measured(0, TRIP, false));
        assert_eq!(window.size(), Some(LEAST));
    }

    #[test]
    fn it_does_not_grow_while_there_is_room() {
        let window = Window::default();
        begin(&window, 8);
        window.measured(0, TRIP, true);
        window.measured(TRIP, TRIP, true);
        (0..7).for_each(|_| window.end(NOW));
        (0..100).for_each(|_| window.measured(0, TRIP, true));
        assert_eq!(window.size(), Some(LEAST));
        assert_eq!(window.has_room(0, NOW), Some(true));
    }

    /// A disk or a standby takes its time for each PREPARE: that is no wait for others.
    #[test]
    fn what_always_takes_long_is_not_waited_for() {
        let window = Window::default();
        begin(&window, 20);
        (0..100).for_each(|_| window.measured(9_000, 100, true));
        assert_eq!(window.has_room(0, NOW), None);
        (0..100).for_each(|_| window.measured(19_000, 100, true));
        assert_eq!(window.has_room(0, NOW), None, "10 ms longer");
        window.measured(29_001, 100, true);
        assert_eq!(window.size(), Some(LEAST));
        // If all have waited from the start, that is seen, too.
        let window = Window::default();
        begin(&window, 20);
        (0..100).for_each(|_| window.measured(500_000, TRIP, true));
        assert_eq!(window.size(), Some(LEAST));
    }

    #[test]
    fn the_shortest_time_is_forgotten_slowly() {
        let window = Window::default();
        window.measured(0, 100, true);
        begin(&window, 20);
        (0..10).for_each(|_| window.age(3));
        window.measured(29_000, 100, true);
        assert_eq!(window.has_room(0, NOW), None);
        window.open();
        assert_eq!((window.size(), window.turns.load(Relaxed)), (None, 20));
        window.clear();
        assert_eq!(window.turns.load(Relaxed), 0);
    }

    #[test]
    fn it_doubles_at_each_standstill() {
        let window = Window::default();
        begin(&window, 20);
        window.measured(0, TRIP, true);
        window.measured(TRIP, TRIP, true);
        let at = |time: u64, local| {
            let room = window.has_room(local, time);
            (room, window.size())
        };
        let mut now = NOW + STANDSTILL_US.0;
        assert_eq!(at(now, 0), (Some(false), Some(LEAST)));
        for size in [4, 8, 16] {
            now += 1;
            assert_eq!(at(now, 0), (Some(false), Some(size)));
            assert_eq!(at(now, 0), (Some(false), Some(size)), "once");
            now += STANDSTILL_US.0;
        }
        // Longer where turns take long, but not for ever.
        assert_eq!(at(now + 1_000_000, 500_000), (Some(false), Some(16)));
        now += STANDSTILL_US.1 + 1;
        assert_eq!(at(now, 60_000_000), (Some(true), Some(32)));
        // A turn that ends is no standstill.
        window.end(now + STANDSTILL_US.0);
        assert_eq!(at(now + STANDSTILL_US.0 + 1, 0), (Some(true), Some(32)));
        // The clock was put back.
        now -= 60_000_000;
        assert_eq!(at(now, 0), (Some(true), Some(64)));
        assert_eq!(at(now + STANDSTILL_US.1 + 1, 0), (None, None), "it is open");
    }
}
