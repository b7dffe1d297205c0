//! The kinds of transactions that a load has.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A single UPDATE, which may be combined with others.
    Auto,
    Block,
    Transfer,
    SavepointRolledBack,
    SavepointReleased,
    /// A function whose exception block may fail and go on.
    Function,
    /// A row is named twice.
    Twice,
    ForUpdate,
    Prepared,
    Rollback,
    StatementError,
    Read,
    /// Validated: takes the next seat of a hall, whose number is that of the seats it has counted.
    Seat,
    /// Validated: a reader.
    Audit,
    /// Declares two accounts, and changes them.
    Declared,
}

impl Kind {
    pub const ALL: [Kind; 15] = [
        Kind::Auto,
        Kind::Block,
        Kind::Transfer,
        Kind::SavepointRolledBack,
        Kind::SavepointReleased,
        Kind::Function,
        Kind::Twice,
        Kind::ForUpdate,
        Kind::Prepared,
        Kind::Rollback,
        Kind::StatementError,
        Kind::Read,
        Kind::Seat,
        Kind::Audit,
        Kind::Declared,
    ];

    /// Whether it changes nothing.
    pub fn is_reader(self) -> bool {
        matches!(self, Kind::Read | Kind::Audit)
    }
}
