//! How far the nodes are: round trips, measured by the resolver while sessions use the nodes.
//!
//! Read and changed under the lock of the board. Times are in microseconds.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Servers whose round trips are known, at most; of others none is.
const SERVERS: usize = 256;
/// A server that nobody has used for so long is not measured.
const USED_US: u64 = 10_000_000;
/// A shorter round trip than the known one counts for one part in so many, ...
const SHORTER: u64 = 2;
/// ... a longer one for one part in so many: a process that is not scheduled at once makes a round
/// trip look longer, and nothing makes one look shorter.
const LONGER: u64 = 16;

/// The round trip to a server.
#[repr(C)]
struct Latency {
    database: AtomicU64,
    server: AtomicU64,
    used_at: AtomicU64,
    /// Exponentially weighted moving average, near the shortest; 0: not measured.
    round_trip: AtomicU64,
    /// A `Trust`, plus one; 0: none yet.
    trust: AtomicU64,
}

/// How much of a forecast counts at first (GeoTP's sigma), per mille.
pub(crate) const TRUST: u64 = 800;
/// What a forecast that was good adds.
const MORE: u64 = 2;

/// How much of the forecasts for a server counts: less when they turn out to be too long, slowly
/// more while they are good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trust(u64);

impl Default for Trust {
    fn default() -> Trust {
        Trust(TRUST)
    }
}

impl Trust {
    /// What counts of a forecast.
    pub fn of(&self, forecast: u64) -> u64 {
        (u128::from(forecast) * u128::from(self.0) / 1000) as u64
    }

    /// A forecast was too long.
    pub fn lower(&mut self) {
        self.0 = self.0 * 3 / 4;
    }

    /// A forecast was good.
    pub fn raise(&mut self) {
        self.0 = (self.0 + MORE).min(1000);
    }
}

/// The round trips to all servers. Zeroed memory knows none.
#[repr(C)]
pub struct Latencies {
    entries: [Latency; SERVERS],
}

impl Latencies {
    fn find(&self, database: u32, server: u32) -> Option<&Latency> {
        self.entries.iter().find(|one| {
            one.database.load(Relaxed) == u64::from(database)
                && one.server.load(Relaxed) == u64::from(server)
        })
    }

    /// A session uses the server.
    pub fn note_used(&self, database: u32, server: u32, now: u64) {
        let is_free = |one: &&Latency| one.used_at.load(Relaxed) + USED_US < now;
        let found = self.find(database, server);
        let place = found.or_else(|| self.entries.iter().find(is_free));
        let Some(place) = place else { return };
        if found.is_none() {
            place.database.store(u64::from(database), Relaxed);
            place.server.store(u64::from(server), Relaxed);
            place.round_trip.store(0, Relaxed);
            place.trust.store(0, Relaxed);
        }
        place.used_at.store(now, Relaxed);
    }

    /// Whether a session has used the server of late, so that it is worth measuring.
    pub fn is_used(&self, database: u32, server: u32, now: u64) -> bool {
        self.find(database, server)
            .is_some_and(|one| one.used_at.load(Relaxed) + USED_US >= now)
    }

    /// A round trip has been measured.
    pub fn measured(&self, database: u32, server: u32, round_trip: u64) {
        let Some(one) = self.find(database, server) else {
            return;
        };
        let before = one.round_trip.load(Relaxed);
        let next = match before {
            0 => round_trip,
            before => {
                let weight = if round_trip < before { SHORTER } else { LONGER };
                (before * (weight - 1) + round_trip) / weight
            }
        };
        one.round_trip.store(next.max(1), Relaxed);
    }

    /// The round trip to the server; None: it is not known.
    pub fn round_trip(&self, database: u32, server: u32) -> Option<u64> {
        let found = self.find(database, server)?.round_trip.load(Relaxed);
        (found > 0).then_some(found)
    }

    /// How much of the forecasts for the server counts.
    pub fn trust(&self, database: u32, server: u32) -> Trust {
        let known = self.find(database, server);
        let known = known.and_then(|one| one.trust.load(Relaxed).checked_sub(1));
        known.map_or_else(Trust::default, Trust)
    }

    /// A round has taught something about the forecasts for the server.
    pub fn learn(&self, database: u32, server: u32, change: impl FnOnce(&mut Trust)) {
        if let Some(one) = self.find(database, server) {
            let mut trust = self.trust(database, server);
            change(&mut trust);
            one.trust.store(trust.0 + 1, Relaxed);
        }
    }
}

/// For how long each part of a round is put off, so that all of them are done at about one time: no
/// lock at a near node is held for a far one (GeoTP, section 4.2: the start time t_j is the longest
/// round trip less that of j).
///
/// Takes the round trips, None where they are not known, and the longest time that a part may be
/// put off. A part whose round trip is not known is not put off, nor does it put off others.
pub fn delays(round_trips: &[Option<u64>], most: u64) -> Vec<u64> {
    let longest = round_trips.iter().copied().flatten().max().unwrap_or(0);
    let delay = |own: &Option<u64>| own.map_or(0, |own| (longest - own).min(most));
    round_trips.iter().map(delay).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies() -> Box<Latencies> {
        let zero = || AtomicU64::new(0);
        Box::new(Latencies {
            entries: std::array::from_fn(|_| Latency {
                database: zero(),
                server: zero(),
                used_at: zero(),
                round_trip: zero(),
                trust: zero(),
            }),
        })
    }

    const NOW: u64 = 1 << 40;

    #[test]
    fn what_is_used_is_measured() {
        let all = latencies();
        all.measured(5, 1, 100);
        assert_eq!(all.round_trip(5, 1), None);
        all.note_used(5, 1, NOW);
        assert!(all.is_used(5, 1, NOW + USED_US) && !all.is_used(5, 1, NOW + USED_US + 1));
        assert!(!all.is_used(6, 1, NOW) && !all.is_used(5, 2, NOW));
        all.measured(5, 1, 800);
        assert_eq!(all.round_trip(5, 1), Some(800));
        all.measured(5, 1, 1600);
        assert_eq!(all.round_trip(5, 1), Some(850));
        all.note_used(5, 1, NOW + 2 * USED_US);
        assert_eq!(all.round_trip(5, 1), Some(850));
    }

    #[test]
    fn a_change_of_the_round_trip_is_followed() {
        let all = latencies();
        all.note_used(5, 1, NOW);
        (0..100).for_each(|_| all.measured(5, 1, 10_000));
        // Measured ten times a second: within five seconds, and within one.
        (0..50).for_each(|_| all.measured(5, 1, 100_000));
        assert!(all.round_trip(5, 1).unwrap() > 95_000);
        (0..10).for_each(|_| all.measured(5, 1, 10_000));
        assert!(all.round_trip(5, 1).unwrap() < 10_500);
    }

    #[test]
    fn answers_that_are_read_late_count_for_little() {
        let all = latencies();
        all.note_used(5, 1, NOW);
        for n in 0..100 {
            all.measured(5, 1, if n % 3 == 0 { 50_000 } else { 10_000 });
        }
        assert!(all.round_trip(5, 1).unwrap() < 14_000);
    }

    #[test]
    fn places_of_servers_that_nobody_uses_are_taken() {
        let all = latencies();
        (0..SERVERS as u32).for_each(|server| all.note_used(5, server, NOW));
        all.note_used(5, 9999, NOW + 1);
        assert!(!all.is_used(5, 9999, NOW + 1));
        all.note_used(5, 9999, NOW + USED_US + 1);
        assert!(all.is_used(5, 9999, NOW + USED_US + 1));
    }

    #[test]
    fn trust_is_each_servers_own() {
        let all = latencies();
        all.learn(5, 1, Trust::lower);
        assert_eq!(all.trust(5, 1), Trust::default());
        all.note_used(5, 1, NOW);
        all.note_used(5, 2, NOW);
        all.learn(5, 1, Trust::lower);
        assert_eq!(all.trust(5, 1).of(1000), 600);
        all.learn(5, 1, Trust::raise);
        assert_eq!(all.trust(5, 1).of(1000), 602);
        assert_eq!(all.trust(5, 2).of(1000), TRUST);
        (0..1000).for_each(|_| all.learn(5, 1, Trust::lower));
        assert_eq!(all.trust(5, 1).of(u64::MAX), 0);
        (0..1000).for_each(|_| all.learn(5, 1, Trust::raise));
        assert_eq!(all.trust(5, 1).of(1000), 1000);
    }

    #[test]
    fn all_parts_are_done_at_one_time() {
        let trips = [Some(10), Some(100), None, Some(73)];
        assert_eq!(delays(&trips, 1000), [90, 0, 0, 27]);
        assert_eq!(delays(&trips, 50), [50, 0, 0, 27]);
        assert_eq!(delays(&[None, None], 50), [0, 0]);
        assert!(delays(&[], 50).is_empty());
    }
}
