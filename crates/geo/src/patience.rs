//! How long a reader waits in the gate's line at a time. All times are in microseconds.
//!
//! A commit inside may wait, on a hot row of its node, for one that came behind the reader. So the
//! first turn is short, and each one that follows is twice as long; between two the reader is
//! outside for as long as it has waited.

/// The first turn: so many round trips to the farthest server, and at least so long.
const FEW_TRIPS: u64 = 4;
const LEAST: u64 = 20_000;

/// The turns of one reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    turn: u64,
    most: u64,
}

impl Patience {
    /// The longest round trip to its servers, and how long commits are held up at a time, at most.
    pub fn new(longest_trip: u64, most: u64) -> Patience {
        let turn = FEW_TRIPS.saturating_mul(longest_trip);
        Patience {
            turn: turn.clamp(LEAST, most.max(LEAST)),
            most,
        }
    }

    /// When a turn ends that has begun at `began`, for a reader that waits until `until`.
    pub fn turn_ends(&self, began: u64, until: u64) -> u64 {
        until.min(began + self.turn.min(self.most))
    }

    /// A turn from `began` to `now` was too short. When the next one begins.
    pub fn next_begins(&mut self, began: u64, now: u64, until: u64) -> u64 {
        self.turn = self.turn.saturating_mul(2);
        until.min(now + now.saturating_sub(began))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: u64 = u64::MAX;

    #[test]
    fn turns_begin_with_a_few_round_trips_and_double() {
        let mut patience = Patience::new(50_000, 1_000_000);
        let mut lasts = || {
            let lasts = patience.turn_ends(7, NEVER) - 7;
            patience.next_begins(7, 7 + lasts, NEVER);
            lasts
        };
        let turns: Vec<u64> = (0..5).map(|_| lasts()).collect();
        assert_eq!(turns, [200_000, 400_000, 800_000, 1_000_000, 1_000_000]);
    }

    #[test]
    fn a_near_server_is_given_a_moment_and_a_setting_its_way() {
        assert_eq!(Patience::new(10, 1_000_000).turn_ends(0, NEVER), LEAST);
        assert_eq!(Patience::new(10, 5_000).turn_ends(0, NEVER), 5_000);
        assert_eq!(Patience::new(NEVER, 5_000).turn_ends(0, NEVER), 5_000);
    }

    #[test]
    fn it_is_outside_for_as_long_as_it_has_waited_and_not_beyond_its_limit() {
        let mut patience = Patience::new(1_000, 1_000_000);
        assert_eq!(patience.next_begins(100, 130, NEVER), 160);
        assert_eq!(patience.next_begins(100, 130, 150), 150);
        assert_eq!(patience.turn_ends(100, 120), 120);
    }
}
