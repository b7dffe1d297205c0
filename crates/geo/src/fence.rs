//! How long a resolver waits for the lock by which a node knows its coordinator. All times are in
//! microseconds.
//!
//! Another server may hold the lock, and this one be a copy of it. More often the resolver's own
//! former session does: a crash or a broken line has ended it, and the node has not noticed yet. So
//! for a while the resolver counts as starting, and sessions wait for it.

use crate::board::Phase;

/// Remembers since when a node has said that another session has the lock.
#[derive(Default, Debug)]
pub struct Fence {
    since: Option<u64>,
}

impl Fence {
    /// The resolver's phase while another session holds the lock; none if none does. `patience`:
    /// how long a former session may take to end.
    pub fn phase(&mut self, is_taken: bool, now: u64, patience: u64) -> Option<Phase> {
        if !is_taken {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        Some(match now.saturating_sub(since) < patience {
            true => Phase::Starting,
            false => Phase::Paused,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_stays_taken_pauses_the_resolver_and_a_free_one_does_not() {
        let mut fence = Fence::default();
        assert_eq!(fence.phase(false, 100, 50), None);
        for (now, phase) in [
            (200, Phase::Starting),
            (249, Phase::Starting),
            (250, Phase::Paused),
            (900, Phase::Paused),
        ] {
            assert_eq!(fence.phase(true, now, 50), Some(phase), "{now}");
        }
    }

    #[test]
    fn each_time_that_it_is_taken_counts_anew() {
        let mut fence = Fence::default();
        assert_eq!(fence.phase(true, 200, 50), Some(Phase::Starting));
        assert_eq!(fence.phase(false, 240, 50), None);
        assert_eq!(fence.phase(true, 260, 50), Some(Phase::Starting));
        assert_eq!(fence.phase(true, 309, 50), Some(Phase::Starting));
        assert_eq!(fence.phase(true, 310, 50), Some(Phase::Paused));
    }
}
