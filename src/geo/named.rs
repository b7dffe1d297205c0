//! The nodes that a statement names, and as whom it reaches them.

use super::server::{self, Server};
use crate::pg::nodes::{nodes as elements, nth};
use pgrx::pg_sys::{self, AppendRelInfo, Oid, PlannedStmt};
use std::rc::Rc;

/// What a statement says of the nodes that it uses: as whom it reaches which server.
pub struct Named(Vec<(Oid, Oid)>);

impl Named {
    /// # Safety
    /// A plan, or null.
    pub unsafe fn by(plan: *const PlannedStmt) -> Named {
        let mut named = Vec::new();
        // SAFETY: by the contract: its range table; a catalog look-up.
        unsafe {
            if plan.is_null() {
                return Named(named);
            }
            for (at, entry) in elements((*plan).rtable).enumerate() {
                let entry = entry.cast::<pg_sys::RangeTblEntry>();
                if (*entry).relkind as u8 == pg_sys::RELKIND_FOREIGN_TABLE {
                    let server = pg_sys::GetForeignServerIdByRelId((*entry).relid);
                    named.push((user_of(&*plan, at as u32 + 1), server));
                }
            }
        }
        Named(named)
    }

    pub fn has(&self, server: Oid) -> bool {
        self.0.iter().any(|named| named.1 == server)
    }

    /// The nodes to be read: what the statement names, and those that the present user can reach.
    /// Each mapping once; the present user comes before others.
    pub fn nodes(&self) -> Vec<Rc<Server>> {
        // SAFETY: reads the session's state.
        let me = unsafe { pg_sys::GetUserId() };
        let all = server::in_use();
        let (own, others): (Vec<_>, Vec<_>) = self.0.iter().partition(|named| named.0 == me);
        let reachable = all.iter().map(|&server| (me, server));
        let mut found: Vec<Rc<Server>> = Vec::new();
        for (user, server) in own.into_iter().chain(others).chain(reachable) {
            if !all.contains(&server) || !server::has_mapping(server, user) {
                continue;
            }
            let server = server::find(server, user);
            if found.iter().all(|one| one.mapping != server.mapping) {
                found.push(server);
            }
        }
        found
    }
}

/// As whom the statement uses the table in that place of its range table, counted from 1: a
/// partition as it does the table that it belongs to.
///
/// # Safety
/// A plan, and a place of its range table.
unsafe fn user_of(plan: &PlannedStmt, mut at: u32) -> Oid {
    // SAFETY: by the contract; the range table, its permissions, and who was expanded to whom.
    unsafe {
        loop {
            let entry = &*nth::<pg_sys::RangeTblEntry>(plan.rtable, at as usize - 1);
            if entry.perminfoindex > 0 {
                let at = entry.perminfoindex as usize - 1;
                let rights = &*nth::<pg_sys::RTEPermissionInfo>(plan.permInfos, at);
                if rights.checkAsUser != Oid::INVALID {
                    return rights.checkAsUser;
                }
                break;
            }
            let mut expanded =
                elements(plan.appendRelations).map(|one| one.cast::<AppendRelInfo>());
            match expanded.find(|&one| (*one).child_relid == at) {
                Some(one) => at = (*one).parent_relid,
                None => break,
            }
        }
        pg_sys::GetUserId()
    }
}
