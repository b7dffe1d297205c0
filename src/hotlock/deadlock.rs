//! Refusing a wait that would close a cycle (docs/design/group-locking.md, "opposite orders").

use super::session::{SESSION, memory};
use crate::pg::process;

use crate::pg::xact;
use hotrow::is_in_circle;

/// Declares a wait of this transaction, or that it commits after another one. True when that closes
/// a cycle: of two that close one, the second sees the first one's declaration. Whoever gets a
/// ticket later finds what was declared when it waits itself. Only transactions that have to do
/// with hot rows are known; for others the deadlock detector is there.
pub fn closes(declare: impl FnOnce()) -> bool {
    SESSION.published.set(true);
    if SESSION.is_fresh() {
        declare();
        return false;
    }
    search(declare)
}

/// Whether the transaction has tickets and nothing else: who waits for it waits for one of those.
pub fn has_only_tickets() -> bool {
    xact::own_xid() == 0
        && SESSION.has_locked_nothing()
        && SESSION.all().all(|(_, m)| m.has_ticket() && !m.depends())
}

/// Declares a wait of such a transaction. True when that closes a cycle, which is none of its
/// making: it has to give way to those who wait for its ticket.
pub fn closes_with_ticket(declare: impl FnOnce()) -> bool {
    SESSION.published.set(true);
    search(declare)
}

fn search(declare: impl FnOnce()) -> bool {
    let memory = memory();
    memory.with_graph(|| {
        declare();
        is_in_circle(memory.backends, memory.directory.rows, process::me())
    })
}
