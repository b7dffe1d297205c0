//! Which triggers an UPDATE of a table fires.

use pgrx::pg_sys;
use std::ops::RangeInclusive;

/// utils/fmgroids.h: the trigger functions of foreign keys, RI_FKey_check_ins to
/// RI_FKey_noaction_upd.
pub const FOREIGN_KEY: RangeInclusive<u32> = 1644..=1655;
/// Those of the table that is referred to. They do nothing as long as the key stays, and it is the
/// same in all versions that follow each other.
pub const REFERENCED: RangeInclusive<u32> = 1646..=1655;

/// The functions of the triggers for one of these events (`TRIGGER_TYPE_INSERT` and its kind) that
/// are not disabled.
///
/// # Safety
/// The relcache's description of the triggers, which stays while the result is used.
pub unsafe fn functions(
    triggers: *const pg_sys::TriggerDesc,
    events: u32,
) -> impl Iterator<Item = pg_sys::Oid> {
    // SAFETY: the caller's description has as many triggers as it says.
    let all = unsafe {
        std::slice::from_raw_parts((*triggers).triggers, (*triggers).numtriggers as usize)
    };
    let is_fired = move |trigger: &&pg_sys::Trigger| {
        trigger.tgtype as u32 & events != 0 && trigger.tgenabled as u8 != pg_sys::TRIGGER_DISABLED
    };
    all.iter().filter(is_fired).map(|trigger| trigger.tgfoid)
}

/// Whether UPDATE fires row triggers other than those, or collects rows for statement triggers.
///
/// # Safety
/// Null, or the relcache's description of the triggers.
pub unsafe fn has_row_triggers(
    triggers: *const pg_sys::TriggerDesc,
    harmless: &RangeInclusive<u32>,
) -> bool {
    // SAFETY: the caller's description is null or the relcache's, with as many triggers as it says.
    unsafe {
        if triggers.is_null() {
            return false;
        }
        let all =
            std::slice::from_raw_parts((*triggers).triggers, (*triggers).numtriggers as usize);
        (*triggers).trig_update_before_row
            || (*triggers).trig_update_old_table
            || (*triggers).trig_update_new_table
            || ((*triggers).trig_update_after_row
                && all
                    .iter()
                    .any(|trigger| !harmless.contains(&u32::from(trigger.tgfoid))))
    }
}

/// Whether UPDATE fires AFTER triggers for each row other than those, or collects rows for
/// statement triggers.
///
/// # Safety
/// Null, or the relcache's description of the triggers.
pub unsafe fn has_after_row_triggers(
    triggers: *const pg_sys::TriggerDesc,
    harmless: &RangeInclusive<u32>,
) -> bool {
    use pg_sys::{
        TRIGGER_TYPE_BEFORE, TRIGGER_TYPE_INSTEAD, TRIGGER_TYPE_ROW, TRIGGER_TYPE_UPDATE,
    };
    let after = TRIGGER_TYPE_ROW | TRIGGER_TYPE_UPDATE;
    let when = after | TRIGGER_TYPE_BEFORE | TRIGGER_TYPE_INSTEAD;
    // SAFETY: the caller's description is null or the relcache's, with as many triggers as it says.
    unsafe {
        !triggers.is_null()
            && ((*triggers).trig_update_old_table
                || (*triggers).trig_update_new_table
                || std::slice::from_raw_parts(
                    (*triggers).triggers,
                    (*triggers).numtriggers as usize,
                )
                .iter()
                .any(|trigger| {
                    trigger.tgtype as u32 & when == after
                        && !harmless.contains(&u32::from(trigger.tgfoid))
                }))
    }
}

/// Whether UPDATE fires BEFORE triggers for each row, or would if they were not disabled: then the
/// executor locks the row before it updates it.
///
/// # Safety
/// Null, or a description of the triggers as the relcache's.
pub unsafe fn has_before_row_triggers(triggers: *const pg_sys::TriggerDesc) -> bool {
    // SAFETY: by the contract.
    unsafe { !triggers.is_null() && (*triggers).trig_update_before_row }
}

/// Whether writing a row of an open table may leave a trigger to the commit: a user's, or a
/// constraint's.
pub fn has_any_deferrable_trigger(rel: pg_sys::Relation) -> bool {
    // SAFETY: null, or the relcache's description of the triggers.
    unsafe {
        let triggers = (*rel).trigdesc;
        !triggers.is_null()
            && std::slice::from_raw_parts((*triggers).triggers, (*triggers).numtriggers as usize)
                .iter()
                .any(|trigger| trigger.tgdeferrable)
    }
}

/// Whether triggers of users may be fired at the commit.
///
/// # Safety
/// Null, or the relcache's description of the triggers.
pub unsafe fn has_deferrable_triggers(triggers: *const pg_sys::TriggerDesc) -> bool {
    // SAFETY: null, or the relcache's description of the triggers.
    unsafe {
        !triggers.is_null()
            && std::slice::from_raw_parts((*triggers).triggers, (*triggers).numtriggers as usize)
                .iter()
                .any(|trigger| {
                    trigger.tgdeferrable && !FOREIGN_KEY.contains(&u32::from(trigger.tgfoid))
                })
    }
}

/// Whether UPDATE fires statement triggers before it comes to the first row.
///
/// # Safety
/// Null, or the relcache's description of the triggers.
pub unsafe fn has_before_statement_triggers(triggers: *const pg_sys::TriggerDesc) -> bool {
    // SAFETY: by the contract.
    unsafe { !triggers.is_null() && (*triggers).trig_update_before_statement }
}

/// Whether UPDATE fires statement triggers.
///
/// # Safety
/// Null, or the relcache's description of the triggers.
pub unsafe fn has_statement_triggers(triggers: *const pg_sys::TriggerDesc) -> bool {
    // SAFETY: null, or the relcache's description of the triggers.
    unsafe {
        !triggers.is_null()
            && ((*triggers).trig_update_before_statement || (*triggers).trig_update_after_statement)
    }
}
