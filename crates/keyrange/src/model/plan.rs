//! What is run in one schedule of the model check, and the plans that the tests share.

use super::server::Shape;

/// What is run in one schedule.
#[derive(Clone, Copy)]
pub struct Plan {
    pub shape: Shape,
    /// Transactions of each session.
    pub rounds: usize,
    /// Most keys that a transaction writes.
    pub writes: usize,
    /// Shares of transactions, scans or writes.
    pub readers: f64,
    pub blind: f64,
    pub whole: f64,
    pub prepares: f64,
    pub deaths: f64,
    /// Share of a reader's scans before which it makes a ring copy if it has none.
    pub copies: f64,
    /// Share of transactions that look at versions where the rings do not tell.
    pub versions: f64,
    /// A prepared transaction is left from before the start.
    pub recovered: bool,
    /// Ranges have pieces.
    pub in_pieces: bool,
}

pub const PLAN: Plan = Plan {
    shape: Shape {
        processes: 3,
        buckets: 2,
        depth: 8,
        window: false,
    },
    rounds: 2,
    writes: 2,
    readers: 0.3,
    blind: 0.3,
    whole: 0.05,
    prepares: 0.1,
    deaths: 0.0,
    copies: 0.0,
    versions: 0.0,
    recovered: false,
    in_pieces: true,
};

pub const TINY: Shape = Shape {
    depth: 1,
    ..PLAN.shape
};

pub const OVERFLOWING: Plan = Plan {
    shape: TINY,
    ..PLAN
};

/// Where rings overflow, and versions are looked at.
pub const LOOKING: Plan = Plan {
    versions: 1.0,
    writes: 3,
    ..OVERFLOWING
};

pub const RECOVERED: Plan = Plan {
    recovered: true,
    ..PLAN
};

/// With so many rings that a scan looks for pieces, not everywhere.
pub const PIECES: Plan = Plan {
    shape: Shape {
        buckets: 32,
        ..PLAN.shape
    },
    ..PLAN
};

pub const WINDOW: Plan = Plan {
    shape: Shape {
        window: true,
        ..PLAN.shape
    },
    blind: 0.2,
    writes: 1,
    ..PLAN
};

pub const COPYING: Plan = Plan {
    copies: 0.6,
    readers: 0.5,
    ..PLAN
};
