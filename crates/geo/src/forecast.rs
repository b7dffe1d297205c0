//! The schedule of a round with forecasts of what its parts take at their nodes, and what a round
//! teaches about forecasts (GeoTP, section 4.3). Times are in microseconds.

use crate::latency::delays;

/// What a part of a round is going to take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// The way to the node and back; None: not known.
    pub round_trip: Option<u64>,
    /// The time at the node, as far as it is forecast.
    pub local: u64,
}

/// When a part has left, and when its answer has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// The part's command was sent.
    pub sent: u64,
    /// All of its answer was there.
    pub done: u64,
}

/// What a round says about the forecast for one of its parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lesson {
    /// Another part was put off for it, and has come last: the forecast for it was too long.
    TooLong(usize),
    /// Others were put off for it, and none has come last.
    Good(usize),
}

impl Cost {
    /// From the sending to the answer.
    fn whole(&self) -> Option<u64> {
        self.round_trip.map(|trip| trip.saturating_add(self.local))
    }
}

/// For how long each part is put off, so that all are done at about one time: t_j is the largest
/// sum of round trip and forecast, less that of j. A part whose round trip is not known is not put
/// off, nor does it put off others.
pub fn schedule(parts: &[Cost], most: u64) -> Vec<u64> {
    let all: Vec<_> = parts.iter().map(Cost::whole).collect();
    delays(&all, most)
}

/// What a round teaches; None: nothing, because no part was put off for a forecast.
///
/// Only forecasts that are too long hurt: without a forecast a part is put off by the round trips
/// alone, and the round takes no longer for that.
pub fn lesson(parts: &[Cost], most: u64, taken: &[Taken]) -> Option<Lesson> {
    let by_distance: Vec<Option<u64>> = parts.iter().map(|one| one.round_trip).collect();
    let put_off: Vec<(u64, u64)> = schedule(parts, most)
        .into_iter()
        .zip(delays(&by_distance, most))
        .collect();
    let (first, longest) = (0..parts.len())
        .max_by_key(|&n| parts[n].whole())
        .map(|n| (n, parts[n]))?;
    let is_put_off = |n: usize| put_off[n].0 > put_off[n].1;
    if longest.local == 0 || !(0..parts.len()).any(is_put_off) {
        return None;
    }
    // Answers that should come together differ by as much without anybody's fault.
    let tolerance = longest.round_trip.unwrap_or(0) / 20 + 1000;
    let is_last = |n: usize| {
        let own = parts[n].whole().unwrap_or(0);
        // What the part itself took beyond its own forecast is not the other one's fault.
        let surprise = (taken[n].done.saturating_sub(taken[n].sent)).saturating_sub(own);
        taken[n].done > taken[first].done + tolerance + surprise
    };
    let too_long = (0..parts.len()).any(|n| is_put_off(n) && is_last(n));
    Some(match too_long {
        true => Lesson::TooLong(first),
        false => Lesson::Good(first),
    })
}

#[cfg(test)]
mod tests;
