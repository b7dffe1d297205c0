//! What the present user may know of the rows of a table.

use super::raw;
use pgrx::pg_sys::{self, AclResult, Oid};
use std::ffi::c_int;

/// utils/rls.h
const RLS_ENABLED: c_int = 2;

/// Whether the present user may be shown values of these columns (0 stands for none) of any row of
/// that table. The rule is that of the messages of constraints (genam.c:
/// BuildIndexValueDescription): SELECT on the table or on each of the columns, and only where row
/// security hides no rows. False for a table that is gone. In a transaction.
pub fn may_see(relation: Oid, columns: impl Iterator<Item = i16>) -> bool {
    let mut columns = columns.filter(|&number| number != 0).peekable();
    // SAFETY: catalog look-ups.
    unsafe {
        let mut missing = false;
        let (role, select) = (raw::GetUserId(), pg_sys::ACL_SELECT.into());
        let of_table = raw::pg_class_aclcheck_ext(relation, role, select, &mut missing);
        let may_select = of_table == AclResult::ACLCHECK_OK
            || columns.peek().is_some()
                && columns.all(|number| {
                    let of_column = raw::pg_attribute_aclcheck_ext(
                        relation,
                        number,
                        role,
                        select,
                        &mut missing,
                    );
                    of_column == AclResult::ACLCHECK_OK
                });
        may_select && !missing && raw::check_enable_rls(relation, Oid::INVALID, true) != RLS_ENABLED
    }
}

/// Whether row security hides rows of the table from the role.
pub fn hides_rows(relation: Oid, role: Oid) -> bool {
    // SAFETY: a catalog look-up.
    unsafe { raw::check_enable_rls(relation, role, true) == RLS_ENABLED }
}

/// Whether the role has one of these rights on the table, or on any of its columns.
pub fn may_use(relation: Oid, role: Oid, modes: u32) -> bool {
    let modes = pg_sys::AclMode::from(modes);
    let mut missing = false;
    // SAFETY: catalog look-ups.
    unsafe {
        let of_table = raw::pg_class_aclcheck_ext(relation, role, modes, &mut missing);
        of_table == AclResult::ACLCHECK_OK
            || !missing
                && raw::pg_attribute_aclcheck_all(
                    relation,
                    role,
                    modes,
                    pg_sys::AclMaskHow::ACLMASK_ANY,
                ) == AclResult::ACLCHECK_OK
    }
}

/// Runs `look` where values with destructors are alive, as in the functions of SQL: an ERROR
/// unwinds instead of jumping.
pub fn unwinding<R>(look: impl FnOnce() -> R) -> R {
    // SAFETY: `look` has nothing with a destructor alive when it calls PostgreSQL.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(look) }
}
