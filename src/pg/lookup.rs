//! Looking for a row by its key, as the check of a foreign key does, and for this process's own
//! locks.

use super::relation::Key;
use super::{nodes, raw, tuple};
use hotrow::KEY_COLUMNS;
use pgrx::pg_sys::{self, Oid, ScanDirection, ScanKeyData};
use std::ffi::c_int;

/// Whether the statement that runs is one of a foreign key's trigger (ri_triggers.c:
/// ri_PerformCheck).
pub fn is_of_foreign_key() -> bool {
    let (mut user, mut context) = (Oid::INVALID, 0);
    // SAFETY: reads the session's state.
    unsafe { raw::GetUserIdAndSecContext(&mut user, &mut context) };
    context as u32 & pg_sys::SECURITY_NOFORCE_RLS != 0
}

/// Whether the table is this session's own.
pub fn is_temporary(relation: Oid) -> bool {
    // SAFETY: a catalog look-up.
    unsafe { raw::get_rel_persistence(relation) as u8 == pg_sys::RELPERSISTENCE_TEMP }
}

/// The partitioned table at the top, or the table itself.
///
/// # Safety
/// The table is locked.
pub unsafe fn root_of(oid: Oid) -> Oid {
    // SAFETY: catalog look-ups.
    unsafe {
        if !raw::get_rel_relispartition(oid) {
            return oid;
        }
        let ancestors = raw::get_partition_ancestors(oid);
        let top = nodes::oids(ancestors).last().unwrap_or(oid);
        raw::list_free(ancestors);
        top
    }
}

/// The partitioned tables to which the table belongs, from the top.
///
/// # Safety
/// In a transaction.
pub unsafe fn ancestors(oid: Oid) -> impl Iterator<Item = Oid> {
    // SAFETY: catalog look-ups; the list stands in the current memory context.
    unsafe {
        let list = if raw::get_rel_relispartition(oid) {
            raw::get_partition_ancestors(oid)
        } else {
            std::ptr::null_mut()
        };
        let count = nodes::length(list);
        (0..count)
            .rev()
            .map(move |n| (*(*list).elements.add(n)).oid_value)
    }
}

/// Whether this process has the table locked in that mode.
pub fn is_locked(relation: Oid, mode: u32) -> bool {
    // SAFETY: a plain read of backend state.
    let database = unsafe { pg_sys::MyDatabaseId };
    let tag = pg_sys::LOCKTAG {
        locktag_field1: database.into(),
        locktag_field2: relation.into(),
        locktag_field3: 0,
        locktag_field4: 0,
        locktag_type: pg_sys::LockTagType::LOCKTAG_RELATION as u8,
        locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
    };
    // SAFETY: SET_LOCKTAG_RELATION; looks at this process's own locks.
    unsafe { raw::LockHeldByMe(&tag, mode as pg_sys::LOCKMODE) }
}

/// Finds the version that the snapshot shows of the row with the same key as `copy`, and puts it
/// into the slot. False if there is none.
///
/// # Safety
/// `rel` is open and has heap's routine, `key` is its key, `copy` a tuple of it, and `slot` one of
/// its type.
pub unsafe fn find(
    rel: pg_sys::Relation,
    key: &Key,
    copy: pg_sys::HeapTuple,
    snapshot: pg_sys::Snapshot,
    slot: *mut pg_sys::TupleTableSlot,
) -> bool {
    // SAFETY: by the contract; the scan is as that of execReplication.c:
    // RelationFindReplTupleByIndex.
    unsafe {
        let index = raw::index_open(key.index(), pg_sys::AccessShareLock as pg_sys::LOCKMODE);
        let mut keys = [ScanKeyData::default(); KEY_COLUMNS];
        for (n, number) in key.numbers().enumerate() {
            let value = tuple::attribute(copy, c_int::from(number), (*rel).rd_att);
            let Some(value) = value else {
                raw::index_close(index, pg_sys::NoLock as pg_sys::LOCKMODE);
                return false;
            };
            let input = *(*index).rd_opcintype.add(n);
            let equal = raw::get_opfamily_member(
                *(*index).rd_opfamily.add(n),
                input,
                input,
                pg_sys::BTEqualStrategyNumber as i16,
            );
            raw::ScanKeyInit(
                &raw mut keys[n],
                n as i16 + 1,
                pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber,
                raw::get_opcode(equal),
                value,
            );
            keys[n].sk_collation = *(*index).rd_indcollation.add(n);
        }
        let count = key.len() as c_int;
        let scan = raw::index_beginscan(rel, index, snapshot, count, 0);
        raw::index_rescan(scan, keys.as_mut_ptr(), count, std::ptr::null_mut(), 0);
        let found = raw::index_getnext_slot(scan, ScanDirection::ForwardScanDirection, slot);
        raw::index_endscan(scan);
        raw::index_close(index, pg_sys::NoLock as pg_sys::LOCKMODE);
        found
    }
}
