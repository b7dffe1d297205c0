//! A transaction looks at its own version of a hot row again.
//!
//! See tam/multi.rs for why a version that somebody has followed must not simply be read by its writer. Before any
//! statement of a member that is not known to be harmless, the member declares that it comes back (`revisit`): a later
//! follower then leaves a MultiXact in the version's xmax, and one that has followed already gets its plain xmax replaced.

use super::session::{SESSION, member_id, memory, relation_of};
use crate::pg::raw;
use crate::pg::xact;
use crate::tam::{multi, swap};
use pgrx::pg_sys;

/// Declares that this transaction looks at its version of the row again.
///
/// # Safety
/// `rel` is the membership's open relation.
pub unsafe fn revisit(rel: pg_sys::Relation, n: usize) {
    let Some(membership) = SESSION.get(n) else {
        return;
    };
    let Some(version) = membership.version().filter(|_| membership.is_listed()) else {
        return;
    };
    let me = member_id(n);
    if let Some(follower) =
        memory().with_row(membership.slot(), |row, world| row.revisit(world, me))
    {
        // SAFETY: by the contract.
        unsafe { multi::share_xmax(rel, version, xact::own_xid(), follower) };
    }
}

/// Before a statement that may look at any of our versions.
pub fn before_statement() {
    for (n, membership) in SESSION.all() {
        if membership.is_listed() {
            // SAFETY: the transaction holds a lock on the relation, so that it can be opened.
            unsafe {
                let rel = raw::RelationIdGetRelation(relation_of(&membership));
                if !rel.is_null() {
                    revisit(rel, n);
                    raw::RelationClose(rel);
                }
            }
        }
    }
}

/// After an update: a statement that is already under way on the same table may meet the new version.
///
/// # Safety
/// `rel` is the membership's open relation.
pub unsafe fn after_update(rel: pg_sys::Relation, n: usize) {
    if swap::is_looked_at_again(rel) {
        // SAFETY: by the contract.
        unsafe { revisit(rel, n) };
    }
}
