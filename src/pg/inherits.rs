//! Which tables inherit from those of a plan, as a snapshot shows it (catalog/pg_inherits.h): a
//! plan names the partitions that were there when it was made.

use super::{nodes, tuple};
use pgrx::pg_sys::{self, Datum, Oid, ScanKeyData, Snapshot};

/// InheritsRelationId.
const CATALOG: u32 = 2611;
/// InheritsParentIndexId.
const BY_PARENT: u32 = 2187;
const CHILD: i32 = 1;
const PARENT: i32 = 2;
const DETACH_PENDING: i32 = 4;

/// A table that inherits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Heir {
    parent: u32,
    child: u32,
    /// DETACH CONCURRENTLY has begun.
    is_leaving: bool,
}

/// The tables that inherit from a table of the plan, as the snapshot shows it; in order. An ERROR
/// unwinds.
///
/// # Safety
/// A plan whose tables are locked, and a snapshot.
pub unsafe fn heirs(plan: *const pg_sys::PlannedStmt, snapshot: Snapshot) -> Vec<Heir> {
    let mut heirs = Vec::new();
    // SAFETY: by the contract, the plan's range table; the catalog is locked while it is read.
    unsafe {
        let mode = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
        let catalog = pg_sys::table_open(CATALOG.into(), mode);
        for entry in nodes::nodes((*plan).rtable) {
            let entry = &*entry.cast::<pg_sys::RangeTblEntry>();
            if entry.rtekind == pg_sys::RTEKind::RTE_RELATION {
                add_heirs(&mut heirs, catalog, entry.relid, snapshot);
            }
        }
        pg_sys::table_close(catalog, mode);
    }
    heirs.sort_unstable();
    heirs.dedup();
    heirs
}

/// # Safety
/// The open catalog, and a snapshot.
unsafe fn add_heirs(
    heirs: &mut Vec<Heir>,
    catalog: pg_sys::Relation,
    parent: Oid,
    snapshot: Snapshot,
) {
    let mut key = ScanKeyData::default();
    // SAFETY: by the contract; as pg_inherits.c: find_inheritance_children_extended.
    unsafe {
        pg_sys::ScanKeyInit(
            &mut key,
            PARENT as pg_sys::AttrNumber,
            pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber,
            pg_sys::F_OIDEQ.into(),
            Datum::from(parent),
        );
        let scan =
            pg_sys::systable_beginscan(catalog, BY_PARENT.into(), true, snapshot, 1, &mut key);
        loop {
            let row = pg_sys::systable_getnext(scan);
            if row.is_null() {
                break;
            }
            let column = |number| tuple::attribute(row, number, (*catalog).rd_att);
            heirs.push(Heir {
                parent: parent.into(),
                child: column(CHILD).map_or(0, |child| child.value() as u32),
                is_leaving: column(DETACH_PENDING).is_some_and(|value| value.value() as u8 != 0),
            });
        }
        pg_sys::systable_endscan(scan);
    }
}
