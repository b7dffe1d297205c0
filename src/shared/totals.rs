//! Totals since the last reset, in shared memory.

use hotrow::Word64;

/// One counter per line of `txn.stats`.
#[repr(C)]
pub struct Totals {
    pub promotions: Word64,
    pub coolings: Word64,
    pub tickets: Word64,
    pub ticket_waits: Word64,
    pub direct_handovers: Word64,
    pub followed: Word64,
    pub combined: Word64,
    pub abandoned: Word64,
    pub ordinary: Word64,
    pub groups: Word64,
    pub commit_waits: Word64,
    pub snapshot_waits: Word64,
    pub cascades: Word64,
    pub doomed: Word64,
    pub cycles: Word64,
    pub own_row: Word64,
    pub backoffs: Word64,
    pub fallbacks: Word64,
    pub table_full: Word64,
    pub early_commits: Word64,
    pub read_waits: Word64,
    pub validated_reads: Word64,
    pub refused_reads: Word64,
    pub lane_taken: Word64,
    pub lane_waits: Word64,
    pub lane_drains: Word64,
    pub lane_skipped: Word64,
    pub lane_overflows: Word64,
    pub lane_cold: Word64,
    pub lane_rescheduled: Word64,
    pub geo_deadlocks: Word64,
    pub followed_prepared: Word64,
    pub reset_at: Word64,
}

impl Totals {
    /// The counters in the order of the view's columns.
    pub fn all(&self) -> [&Word64; 21] {
        [
            &self.promotions,
            &self.coolings,
            &self.tickets,
            &self.ticket_waits,
            &self.direct_handovers,
            &self.followed,
            &self.combined,
            &self.abandoned,
            &self.ordinary,
            &self.groups,
            &self.commit_waits,
            &self.snapshot_waits,
            &self.cascades,
            &self.doomed,
            &self.cycles,
            &self.own_row,
            &self.backoffs,
            &self.fallbacks,
            &self.table_full,
            &self.early_commits,
            &self.read_waits,
        ]
    }

    /// Those that came later, which the view has at its end.
    pub fn later(&self) -> [&Word64; 11] {
        [
            &self.validated_reads,
            &self.refused_reads,
            &self.lane_taken,
            &self.lane_waits,
            &self.lane_drains,
            &self.lane_skipped,
            &self.lane_overflows,
            &self.lane_cold,
            &self.lane_rescheduled,
            &self.geo_deadlocks,
            &self.followed_prepared,
        ]
    }

    /// Back to zero.
    pub fn reset(&self, now: u64) {
        let all = self.all().into_iter().chain(self.later());
        all.for_each(|counter| counter.set(0));
        self.reset_at.set(now);
    }
}
