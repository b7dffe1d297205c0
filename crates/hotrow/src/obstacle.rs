//! Why updates of a row do not follow each other, counted for whoever wants to change that.

/// What has kept a transaction from following, or others from following it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Obstacle {
    /// The update is made in a savepoint, or in a block with an exception handler.
    Subtransaction,
    /// The transaction is not READ COMMITTED.
    Isolation,
    /// The statement calls, reads or returns what must not come from uncommitted data.
    Statement,
    /// The transaction had locked the row in PostgreSQL's own way before.
    LockedBefore,
    /// The update may change a unique key.
    Key,
    /// The page has no room for the version, an indexed column changes, or others have locked the
    /// version.
    Page,
    /// A predecessor has gone on to change or lock its own version.
    SecondChange,
    /// The group has as many members as it may have, or has ended because a session without group
    /// locking waits.
    GroupEnded,
    /// The row backs off.
    Backoff,
    /// The transaction has written so much that logical decoding would stream it.
    Large,
    /// Somebody commits a change of definitions.
    Definitions,
    /// The transaction is a member of as many hot rows as it can be.
    ManyRows,
    /// A function that ends soon keeps the row until then (brief.rs).
    BriefTurn,
}

impl Obstacle {
    pub const ALL: [Obstacle; 13] = [
        Obstacle::Subtransaction,
        Obstacle::Isolation,
        Obstacle::Statement,
        Obstacle::LockedBefore,
        Obstacle::Key,
        Obstacle::Page,
        Obstacle::SecondChange,
        Obstacle::GroupEnded,
        Obstacle::Backoff,
        Obstacle::Large,
        Obstacle::Definitions,
        Obstacle::ManyRows,
        Obstacle::BriefTurn,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_obstacle_has_its_own_place() {
        for (n, obstacle) in Obstacle::ALL.into_iter().enumerate() {
            assert_eq!(obstacle as usize, n);
        }
    }
}
