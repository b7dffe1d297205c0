//! What settings may be set to, where that is one of a few words.

use pgrx::guc::PostgresGucEnum;

/// `txn.follower_reads`: what a statement of a follower may see.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PostgresGucEnum)]
pub enum FollowerReads {
    #[name = c"validated"]
    Validated,
    #[name = c"wait"]
    Wait,
    #[name = c"immediate"]
    Immediate,
}

/// `txn.lane`: whether transactions that declare their keys are put in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PostgresGucEnum)]
pub enum LaneMode {
    #[name = c"on"]
    On,
    #[name = c"auto"]
    Auto,
    #[name = c"off"]
    Off,
}

/// `txn.geo_prepare`: when nodes are asked to prepare.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PostgresGucEnum)]
pub enum GeoPrepare {
    #[name = c"early"]
    Early,
    #[name = c"at_commit"]
    AtCommit,
}

/// `txn.geo_answer`: when COMMIT returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PostgresGucEnum)]
pub enum GeoAnswer {
    #[name = c"applied"]
    Applied,
    #[name = c"decided"]
    Decided,
}

/// `txn.geo_schedule`: when the parts of a statement leave for their nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PostgresGucEnum)]
pub enum GeoSchedule {
    #[name = c"off"]
    Off,
    #[name = c"latency"]
    Latency,
    #[name = c"forecast"]
    Forecast,
    #[name = c"admission"]
    Admission,
}

/// `txn.geo_snapshot`: what REPEATABLE READ sees of several nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PostgresGucEnum)]
pub enum GeoSnapshot {
    #[name = c"node"]
    Node,
    #[name = c"global"]
    Global,
}

/// `txn.lane_beyond`: what becomes of a declared transaction that uses other keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PostgresGucEnum)]
pub enum LaneBeyond {
    #[name = c"validate"]
    Validate,
    #[name = c"error"]
    Error,
}
