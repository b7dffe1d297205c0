//! How fast the ticket of a row goes from holder to holder while transactions wait for it.

use crate::row::Row;

/// Releases of the ticket that are further apart, in microseconds, do not follow each other.
const LONGEST_TURN: u64 = 1_000_000;

impl Row {
    /// The ticket is released at `now`, and others wait for it: notes how long it is since its last
    /// release. Costs nothing where nobody waits.
    pub(crate) fn note_turn(&self, now: u64) {
        let since = now.saturating_sub(self.released_at.get());
        if since <= LONGEST_TURN {
            let mean = &self.counters.turn_us;
            mean.set(match mean.get() {
                0 => since.max(1),
                before => ((before * 7 + since) / 8).max(1),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MEMBERS, Member, Members, Patience};

    /// Each release goes to the longest waiter.
    const PATIENCE: Patience = Patience {
        fair_every: 1,
        longest_wait: u64::MAX,
        newest_first: 0,
        holds: false,
        competitors: 0,
    };

    #[test]
    fn the_time_between_turns_is_averaged() {
        let row = Row::default();
        let members: Vec<Member> = (0..4 * MEMBERS).map(|_| Member::default()).collect();
        let member = |backend: u32| backend * MEMBERS as u32;
        let w = Members { all: &members };
        let turn = || row.counters.turn_us.get();
        for n in 0..4 {
            row.acquire(w, member(n), PATIENCE, 0);
        }
        let now = LONGEST_TURN + 5;
        row.release(w, member(0), PATIENCE, now);
        assert_eq!(turn(), 0, "nothing is known of the turn before");
        row.release(w, member(1), PATIENCE, now + 800);
        assert_eq!(turn(), 800);
        row.enqueue(w, member(0), PATIENCE, now + 800);
        row.release(w, member(2), PATIENCE, now + 2400);
        assert_eq!(turn(), 900);
        row.enqueue(w, member(1), PATIENCE, now + 2400);
        row.release(w, member(3), PATIENCE, now + 2401 + LONGEST_TURN);
        assert_eq!(turn(), 900, "the row was not used meanwhile");
        // Nobody waits behind the last one.
        row.release(w, member(0), PATIENCE, now + 2402 + LONGEST_TURN);
        row.release(w, member(1), PATIENCE, now + 2500 + LONGEST_TURN);
        assert_eq!(turn(), (900 * 7 + 1) / 8);
    }
}
