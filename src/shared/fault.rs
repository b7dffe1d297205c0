//! Mistakes that a test can switch on, one at a time, with `txn.planted_fault`:
//! `pgrx-tests/tests/server/planted.rs` shows that the checks find each of them. Compiled in with
//! the feature `planted_faults` only.

use pgrx::guc::PostgresGucEnum;

/// The mistakes. Those of range OCC are made in crates/keyrange (`fault.rs`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, PostgresGucEnum)]
pub enum Fault {
    #[name = c"none"]
    None,
    /// A follower does not wait for its predecessor before it commits.
    #[name = c"commit_order_not_kept"]
    CommitOrderNotKept,
    /// A follower commits although its predecessor has rolled back.
    #[name = c"doomed_follower_commits"]
    DoomedFollowerCommits,
    /// A statement that has looked at an uncommitted version and changed nothing does not depend on
    /// its writer.
    #[name = c"reader_not_dependent"]
    ReaderNotDependent,
    /// A leader leaves the hints that its looks at its own followed versions have set: its follower
    /// has to take them back.
    #[name = c"leader_does_not_restore"]
    LeaderDoesNotRestore,
    /// A client is told of what is not durable.
    #[name = c"read_guard_off"]
    ReadGuardOff,
    /// What was read beside predecessors is not asked for again.
    #[name = c"reads_not_validated"]
    ReadsNotValidated,
    /// A follower does not look again for a row that it has not found by its key.
    #[name = c"missed_rows_forgotten"]
    MissedRowsForgotten,
    /// A fetch begins in the middle of a row's versions whatever its snapshot shows.
    #[name = c"versions_passed_over"]
    VersionsPassedOver,
    /// A late snapshot is not taken.
    #[name = c"early_snapshot_kept"]
    EarlySnapshotKept,
    /// A change of definitions is not asked for that predecessors have committed.
    #[name = c"definitions_forgotten"]
    DefinitionsForgotten,
    /// What was overwritten in a ring is not asked for.
    #[name = c"eviction_ignored"]
    EvictionIgnored,
    /// A predicate ends one key too early.
    #[name = c"predicate_narrowed"]
    PredicateNarrowed,
    /// A writer registers nothing.
    #[name = c"not_registered"]
    NotRegistered,
}

/// Whether this mistake is to be made.
#[cfg(feature = "planted_faults")]
pub fn planted(fault: Fault) -> bool {
    setting::PLANTED_FAULT.get() == fault
}

/// Whether this mistake is to be made: never.
#[cfg(not(feature = "planted_faults"))]
#[inline(always)]
pub const fn planted(_: Fault) -> bool {
    false
}

#[cfg(feature = "planted_faults")]
pub mod setting {
    use super::Fault;
    use pgrx::guc::{GucContext, GucEnum, GucFlags, GucRegistry, GucSetting};
    use std::ffi::{c_int, c_void};

    pub static PLANTED_FAULT: GucSetting<Fault> = GucSetting::<Fault>::new(Fault::None);

    /// Defines the setting. Once, from `_PG_init`.
    pub fn init() {
        // SAFETY: the hook raises nothing and does not panic.
        unsafe {
            GucRegistry::define_enum_guc_with_hooks(
                c"txn.planted_fault",
                c"A mistake that this session makes, for tests of the checks that have to find it.",
                c"Test builds only.",
                &PLANTED_FAULT,
                GucContext::Suset,
                GucFlags::default(),
                None,
                Some(plant),
                None,
            );
        }
    }

    /// Tells crates/keyrange.
    unsafe extern "C-unwind" fn plant(new: c_int, _extra: *mut c_void) {
        keyrange::plant(match Fault::from_ordinal(new) {
            Fault::EvictionIgnored => Some(keyrange::Fault::EvictionIgnored),
            Fault::PredicateNarrowed => Some(keyrange::Fault::PredicateNarrowed),
            Fault::NotRegistered => Some(keyrange::Fault::NotRegistered),
            _ => None,
        });
    }
}
