//! Refusing a wait that would close a circle (design, traps 3 and 4).

use super::session::{SESSION, memory};
use crate::pg::wait;
use crate::pg::xact;
use hotrow::is_in_circle;

/// Nobody can be waiting for this transaction yet: it has written nothing and is in no other row.
fn is_fresh() -> bool {
    SESSION.all().count() <= 1 && xact::own_xid() == 0
}

/// Declares a wait of this transaction, or that it commits after another one. True when that closes a circle: of two that close
/// one, the second sees the first one's declaration. Whoever gets a ticket later finds what was declared when it waits
/// itself. Only transactions that have to do with hot rows are known; for others the deadlock detector is there.
pub fn closes(declare: impl FnOnce()) -> bool {
    SESSION.published.set(true);
    if is_fresh() {
        declare();
        return false;
    }
    let memory = memory();
    memory.with_graph(|| {
        declare();
        is_in_circle(memory.actors, memory.directory.rows, wait::me())
    })
}
