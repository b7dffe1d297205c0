//! BEFORE triggers that do nothing but set columns of the row: what they do, so that another
//! session can do it in their place.
//!
//! It is proved from what PL/pgSQL has compiled and planned in this session (`body.rs`), never from
//! text. So a trigger is known once it has fired in the session, each of its branches once it has
//! been taken. Which expressions other sessions may evaluate is for `../form` to say.

mod body;
mod noted;
pub mod program;

pub use noted::{init, note};

use super::{functions, language, raw};
use pgrx::pg_sys::{self, Bitmapset, Node, Trigger};
use program::Program;

/// What the BEFORE triggers of an open table do with a row of which these columns are updated, in
/// memory of the present context. None if they may do anything but set columns, or somebody takes
/// note of their calls.
///
/// # Safety
/// The table is locked by the statement; a transaction runs. `updated` is offset by
/// FirstLowInvalidHeapAttributeNumber.
pub unsafe fn program(rel: pg_sys::Relation, updated: *const Bitmapset) -> Option<*mut Program> {
    // SAFETY: the relcache's description of the triggers, with as many as it says.
    unsafe {
        if !are_calls_unnoticed() {
            return None;
        }
        let program = raw::palloc0(size_of::<Program>()).cast::<Program>();
        program.write(Program::empty(noted::changes()));
        let triggers = (*rel).trigdesc;
        let all =
            std::slice::from_raw_parts((*triggers).triggers, (*triggers).numtriggers as usize);
        for trigger in all {
            if is_before_row_update(trigger) && is_enabled(trigger) && is_fired_by(trigger, updated)
            {
                add(&mut *program, trigger, rel)?;
            }
        }
        Some(program)
    }
}

/// Whether a program is still what the triggers do, as far as this session has heard. (A table's
/// triggers do not change while a statement has locked it.)
pub fn is_current(program: &Program) -> bool {
    program.changes == noted::changes()
}

/// Whether no statistics, hook or plugin of others takes note of the call of a function.
fn are_calls_unnoticed() -> bool {
    // SAFETY: plain reads of a setting and of hooks.
    unsafe {
        language::is_watched()
            && pg_sys::pgstat_track_functions == pg_sys::TrackFunctionsLevel::TRACK_FUNC_OFF as i32
            && { pg_sys::needs_fmgr_hook }.is_none()
            && functions::is_unnoticed()
    }
}

unsafe fn add(program: &mut Program, trigger: &Trigger, rel: pg_sys::Relation) -> Option<()> {
    let first = program.ops().len();
    // SAFETY: as in `program`; the condition as the catalogs keep it.
    unsafe {
        if !trigger.tgqual.is_null() {
            program.fires_if(condition(trigger.tgqual))?;
        }
        body::add(program, noted::function_of(trigger)?, rel)?;
    }
    program.trigger_ends_here(first);
    Some(())
}

/// WHEN (trigger.c: TriggerEnabled). Without the planner, which could raise an error.
unsafe fn condition(text: *const std::ffi::c_char) -> *mut pg_sys::Expr {
    // SAFETY: an expression as the catalogs keep it, of OLD and NEW.
    unsafe {
        let node = raw::stringToNode(text).cast::<Node>();
        raw::ChangeVarNodes(node, pg_sys::PRS2_OLD_VARNO as i32, pg_sys::INNER_VAR, 0);
        raw::ChangeVarNodes(node, pg_sys::PRS2_NEW_VARNO as i32, pg_sys::OUTER_VAR, 0);
        raw::fix_opfuncids(node);
        node.cast()
    }
}

/// catalog/pg_trigger.h: TRIGGER_TYPE_MATCHES.
fn is_before_row_update(trigger: &Trigger) -> bool {
    use pg_sys::{
        TRIGGER_TYPE_BEFORE, TRIGGER_TYPE_INSTEAD, TRIGGER_TYPE_ROW, TRIGGER_TYPE_UPDATE,
    };
    let wanted = TRIGGER_TYPE_ROW | TRIGGER_TYPE_BEFORE | TRIGGER_TYPE_UPDATE;
    trigger.tgtype as u32 & (wanted | TRIGGER_TYPE_INSTEAD) == wanted
}

fn is_enabled(trigger: &Trigger) -> bool {
    let other = if is_replica() {
        pg_sys::TRIGGER_FIRES_ON_ORIGIN
    } else {
        pg_sys::TRIGGER_FIRES_ON_REPLICA
    };
    ![other, pg_sys::TRIGGER_DISABLED].contains(&(trigger.tgenabled as u8))
}

fn is_replica() -> bool {
    // SAFETY: a plain read of a setting.
    unsafe { pg_sys::SessionReplicationRole == pg_sys::SESSION_REPLICATION_ROLE_REPLICA as i32 }
}

/// Whether it fires for an update of these columns.
unsafe fn is_fired_by(trigger: &Trigger, updated: *const Bitmapset) -> bool {
    // SAFETY: as many columns as the trigger says; a valid set.
    unsafe {
        trigger.tgnattr == 0
            || (0..trigger.tgnattr as usize).any(|n| {
                let number = i32::from(*trigger.tgattr.add(n));
                raw::bms_is_member(number - pg_sys::FirstLowInvalidHeapAttributeNumber, updated)
            })
    }
}
