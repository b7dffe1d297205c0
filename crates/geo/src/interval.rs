//! How long a wait takes until its session asks for a look for deadlocks. All times are in
//! microseconds.
//!
//! A look costs each server a query about all that wait. Where it has found a deadlock the next one
//! is likely, and all behind it wait as long as nobody looks; so the next waits ask early. A look
//! that finds nothing makes them ask a little later, up to twice `deadlock_timeout`: by then each
//! server has looked among its own processes.

/// The shortest interval, as a part of `deadlock_timeout`.
const PARTS: u64 = 5;

/// The shortest and the longest interval of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    least: u64,
    most: u64,
}

impl Interval {
    /// Of a session with these settings; `lock_timeout` is 0 if nothing limits the wait. Two looks
    /// come before that ends it.
    pub fn new(deadlock_timeout: u64, lock_timeout: u64) -> Interval {
        let most = match lock_timeout {
            0 => deadlock_timeout * 2,
            limit => (deadlock_timeout * 2).min(limit / 3),
        };
        let most = most.max(1);
        Interval {
            least: (deadlock_timeout / PARTS).clamp(1, most),
            most,
        }
    }

    /// The shortest interval.
    pub fn least(&self) -> u64 {
        self.least
    }

    /// The interval, with what was learned from the looks before; 0: nothing.
    pub fn now(&self, learned: u64) -> u64 {
        match learned {
            0 => self.most,
            learned => learned.clamp(self.least, self.most),
        }
    }

    /// What is learned from one look more.
    pub fn learn(&self, learned: u64, has_found: bool) -> u64 {
        let now = self.now(learned);
        let later = now + now.div_ceil(4);
        match (has_found, later < self.most) {
            (true, _) => self.least,
            (false, true) => later,
            (false, false) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_short_after_a_deadlock_and_grows_back() {
        let interval = Interval::new(1_000_000, 0);
        assert_eq!(interval.now(0), 2_000_000);
        assert_eq!(interval.learn(0, false), 0);
        let mut learned = interval.learn(0, true);
        let mut all = Vec::new();
        while learned != 0 {
            all.push(interval.now(learned));
            learned = interval.learn(learned, false);
        }
        assert_eq!(all[..3], [200_000, 250_000, 312_500]);
        assert!(all.is_sorted() && all.len() < 15, "{all:?}");
        assert_eq!(interval.learn(all[5], true), 200_000);
    }

    #[test]
    fn two_looks_come_before_the_lock_timeout() {
        assert_eq!(Interval::new(1_000_000, 3_000_000).now(0), 1_000_000);
        let short = Interval::new(1_000_000, 30);
        assert_eq!(
            (short.now(0), short.now(7), short.learn(0, true)),
            (10, 10, 10)
        );
    }

    #[test]
    fn sessions_with_other_settings_keep_to_theirs() {
        let patient = Interval::new(10_000_000, 0);
        assert_eq!(patient.now(200_000), 2_000_000);
        let hasty = Interval::new(10_000, 0);
        assert_eq!(hasty.now(200_000), 20_000);
        assert_eq!(Interval::new(0, 0).now(0), 1);
    }
}
