//! `txn.explain_row`: whether updates of a row follow each other, condition by condition.

use super::detect;
use super::session::memory;
use super::settings::{self, Settings, TableMode, name_of_mode, name_of_reads};
use crate::pg::relation::{Key, is_used_as_catalog, key_of};
use crate::pg::{process, rights, xact};
use hotrow::{Cause, Identity, Obstacle, Row};
use pgrx::prelude::*;
use pgrx::{PgRelation, PgSqlErrorCode};
use std::ffi::{CStr, CString};

/// One condition: its name, whether it is met (None: that depends on the statement), and what more
/// there is to say.
type Line = (&'static str, Option<bool>, Option<String>);

/// Why a row backs off, in words.
pub fn cause_of(cause: Cause) -> &'static str {
    match cause {
        Cause::Cascades => "cascades",
        Cause::SecondChanges => "second changes",
        Cause::Cycles => "cycles",
    }
}

/// The name of an obstacle, in `txn.hotspots` and in the details of `txn.explain_row`.
fn name_of_obstacle(obstacle: Obstacle) -> &'static str {
    match obstacle {
        Obstacle::Subtransaction => "subtransaction",
        Obstacle::Isolation => "isolation level",
        Obstacle::Statement => "statement",
        Obstacle::LockedBefore => "locked before",
        Obstacle::Key => "unique key",
        Obstacle::Page => "page",
        Obstacle::SecondChange => "second change",
        Obstacle::GroupEnded => "group ended",
        Obstacle::Backoff => "backoff",
        Obstacle::Large => "large transaction",
        Obstacle::Definitions => "definitions",
        Obstacle::ManyRows => "many hot rows",
        Obstacle::BriefTurn => "brief turn",
    }
}

/// What to do about it.
fn advice(obstacle: Obstacle) -> &'static str {
    match obstacle {
        Obstacle::Subtransaction => {
            "The transaction has had the row before the savepoint or block with EXCEPTION that updates it: lock and update it in the same one."
        }
        Obstacle::Isolation => "The transactions are not READ COMMITTED.",
        Obstacle::Statement => {
            "The statement calls, reads or returns what must not come from uncommitted data."
        }
        Obstacle::LockedBefore => {
            "The transaction had locked the row before, by a foreign key's check or SELECT: update it first."
        }
        Obstacle::Key => "The update may change a unique key, or the row's triggers may.",
        Obstacle::Page => {
            "The page has no room (fillfactor), an indexed column changes, or others lock the row."
        }
        Obstacle::SecondChange => "A transaction changes the row twice: change it once.",
        Obstacle::GroupEnded => {
            "The group was full (group_size), or a session without group locking waited for the row."
        }
        Obstacle::Backoff => "The row backs off, because of rollbacks, second changes or cycles.",
        Obstacle::Large => "The transaction had written so much that logical decoding streams it.",
        Obstacle::Definitions => "DDL, GRANT or the like was being committed.",
        Obstacle::ManyRows => "The transaction was a member of eight hot rows.",
        Obstacle::BriefTurn => {
            "No harm: functions that end soon keep the row until then (txn.brief_turn)."
        }
    }
}

/// Why updates of the row have not followed, with how often: the most frequent first. None if
/// nothing was in the way.
pub fn obstacles(row: &Row) -> Option<String> {
    let texts: Vec<_> = row
        .obstacles()
        .map(|(obstacle, count)| format!("{} {count}", name_of_obstacle(obstacle)))
        .collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// The conditions under which updates of the row with that key follow each other. Wants SELECT on
/// the table or columns of it; the state
/// of a row is for those who may know of each row with which key it is there.
///
/// # Errors
/// 42501 without the privilege, 42809 for what is not an ordinary table, 22023 and 22004 for a key
/// that is not one.
#[pg_extern(sql = false)]
fn explain_row(
    relation: pg_sys::Oid,
    key: Vec<Option<String>>,
) -> TableIterator<
    'static,
    (
        name!(condition, &'static str),
        name!(met, Option<bool>),
        name!(detail, Option<String>),
    ),
> {
    check_privilege(relation);
    // SAFETY: closed, with its lock kept, at the end of the statement.
    let table =
        unsafe { PgRelation::with_lock(relation, pg_sys::AccessShareLock as pg_sys::LOCKMODE) };
    if !table.is_table() {
        ereport!(
            ERROR,
            PgSqlErrorCode::ERRCODE_WRONG_OBJECT_TYPE,
            format!("\"{}\" is not an ordinary table", table.name()),
            "Hot rows are rows of ordinary tables; of a partitioned one, name the partition."
        );
    }
    let settings = settings::of(relation);
    let mut lines = vec![group_lock(&settings), in_force(&settings), isolation()];
    let found = key_of(table.as_ptr());
    lines.push((
        "the table has a key",
        Some(found.is_some()),
        found.is_none().then(|| no_key(&table).to_owned()),
    ));
    if let Some(found) = found {
        let identity = identity(&table, found, &key);
        lines.push((
            "UPDATE fires no deferrable triggers",
            Some(!found.has_deferrable_triggers()),
            found.has_row_triggers().then(|| {
                "With other row triggers UPDATE follows, MERGE and ON CONFLICT do not.".to_owned()
            }),
        ));
        lines.push((
            "all indexes are checked at once",
            Some(found.has_simple_indexes()),
            (!found.has_simple_indexes())
                .then(|| "The table has a deferrable or an exclusion constraint.".to_owned()),
        ));
        lines.push(indexed(&table));
        if rights::unwinding(|| rights::may_see(relation, found.numbers())) {
            lines.extend(row(&identity, &settings));
        } else {
            let detail =
                "Row security is in force for you on this table, or you may not read its key.";
            lines.push(("the row is hot", None, Some(detail.to_owned())));
        }
    }
    TableIterator::new(lines)
}

fn check_privilege(relation: pg_sys::Oid) {
    // SAFETY: catalog look-ups; a name is null for a table that is gone.
    let refused = unsafe {
        let (user, select) = (pg_sys::GetUserId(), pg_sys::ACL_SELECT.into());
        let mut missing = false;
        let acl = pg_sys::pg_class_aclcheck_ext(relation, user, select, &mut missing);
        let any = pg_sys::AclMaskHow::ACLMASK_ANY;
        let refused = pg_sys::AclResult::ACLCHECK_OK != acl
            && !missing
            && pg_sys::pg_attribute_aclcheck_all(relation, user, select, any)
                != pg_sys::AclResult::ACLCHECK_OK;
        let name = pg_sys::get_rel_name(relation);
        (refused && !name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
    };
    if let Some(name) = refused {
        ereport!(
            ERROR,
            PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
            format!("permission denied for table {name}")
        );
    }
}

fn group_lock(settings: &Settings) -> Line {
    let detail = match (settings.mode.is_some(), settings.mode()) {
        (false, TableMode::Group) => "txn.group_lock is on in this session.",
        (false, TableMode::Queue) => {
            "txn.queue_lock is on in this session: one transaction at a time, without collisions."
        }
        (false, TableMode::Off) => "In this session, updates lock the ordinary way.",
        (true, TableMode::Group) => "Switched on for the table, in every session.",
        (true, TableMode::Queue) => {
            "The table's mode is queue: one transaction at a time, without collisions."
        }
        (true, TableMode::Off) => "Switched off for the table, in every session.",
    };
    (
        "group locking is on",
        Some(settings.groups()),
        Some(detail.to_owned()),
    )
}

/// Where a setting comes from.
fn origin<T>(of_table: Option<T>) -> &'static str {
    match of_table {
        Some(_) => "table",
        None => "session",
    }
}

/// The settings in force for the table in this session.
fn in_force(settings: &Settings) -> Line {
    let text = format!(
        "mode {} ({}), hot_threshold {} ({}), group_size {} ({}), follower_reads {} ({}).",
        name_of_mode(settings.mode()),
        origin(settings.mode),
        settings.hot_threshold(),
        origin(settings.hot_threshold),
        settings.group_size(),
        origin(settings.group_size),
        name_of_reads(settings.follower_reads()),
        origin(settings.follower_reads),
    );
    ("settings in force", None, Some(text))
}

fn isolation() -> Line {
    let met = xact::is_read_committed();
    let otherwise = "A stricter transaction follows only at REPEATABLE READ, if its first statement \
        is a simple UPDATE of the row by key.";
    (
        "the transaction is READ COMMITTED",
        Some(met),
        (!met).then(|| otherwise.to_owned()),
    )
}

fn no_key(table: &PgRelation) -> &'static str {
    // SAFETY: an open relation.
    let (form, oid) = unsafe { (&*table.rd_rel, u32::from(table.oid())) };
    if oid < pg_sys::FirstNormalObjectId {
        "It is a system catalog."
    // SAFETY: an open table.
    } else if unsafe { is_used_as_catalog(table.as_ptr()) } {
        "Output plugins of logical decoding read it as a catalog (user_catalog_table)."
    } else if form.relpersistence as u8 == pg_sys::RELPERSISTENCE_TEMP {
        "A temporary table is used by one session only."
    } else if table.rd_pkindex == pg_sys::Oid::INVALID
        && table.rd_replidindex == pg_sys::Oid::INVALID
    {
        "It has neither a primary key nor a replica identity index."
    } else {
        "Its key has more than eight columns, or a generated one."
    }
}

/// The row's identity, from its key as text.
fn identity(table: &PgRelation, key: &Key, values: &[Option<String>]) -> Identity {
    let descriptor = table.tuple_desc();
    let columns: Vec<_> = key
        .numbers()
        .filter_map(|number| descriptor.get(number as usize - 1))
        .collect();
    if values.len() != columns.len() {
        let names: Vec<_> = columns.iter().map(|column| column.name()).collect();
        ereport!(
            ERROR,
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            format!(
                "wrong number of values for the key of table \"{}\"",
                table.name()
            ),
            format!("The key is ({}).", names.join(", "))
        );
    }
    let datums: Vec<_> = columns
        .iter()
        .zip(values)
        .map(|(column, value)| {
            let Some(value) = value else {
                ereport!(
                    ERROR,
                    PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED,
                    format!("column \"{}\" of a key is not null", column.name())
                );
            };
            let Some(datum) = read(column.atttypid, column.atttypmod, value) else {
                ereport!(
                    ERROR,
                    PgSqlErrorCode::ERRCODE_INVALID_TEXT_REPRESENTATION,
                    format!(
                        "invalid value for column \"{}\" of the key: \"{value}\"",
                        column.name()
                    )
                );
            };
            (datum, column.atttypid)
        })
        .collect();
    // SAFETY: values of the columns' own types.
    unsafe { key.of_values(&datums) }
}

/// A value of that type from its text; None if it is not one.
fn read(typ: pg_sys::Oid, modifier: i32, text: &str) -> Option<pg_sys::Datum> {
    let text = CString::new(text).ok()?;
    // SAFETY: the type's input function, with an error context of the kind it wants, and text that
    // outlives the call.
    unsafe {
        let (mut input, mut parameter) = (pg_sys::Oid::INVALID, pg_sys::Oid::INVALID);
        pg_sys::getTypeInputInfo(typ, &mut input, &mut parameter);
        let mut function = pg_sys::FmgrInfo::default();
        pg_sys::fmgr_info(input, &mut function);
        let mut context = pg_sys::ErrorSaveContext {
            type_: pg_sys::NodeTag::T_ErrorSaveContext,
            ..Default::default()
        };
        let mut value = pg_sys::Datum::from(0);
        pg_sys::InputFunctionCallSafe(
            &mut function,
            text.as_ptr().cast_mut(),
            parameter,
            modifier,
            (&raw mut context).cast(),
            &mut value,
        )
        .then_some(value)
    }
}

/// Which columns must stay as they are.
fn indexed(table: &PgRelation) -> Line {
    // SAFETY: an open relation; the set is a copy of ours.
    let columns: Vec<String> = unsafe {
        let kind = pg_sys::IndexAttrBitmapKind::INDEX_ATTR_BITMAP_HOT_BLOCKING;
        let set = pg_sys::RelationGetIndexAttrBitmap(table.as_ptr(), kind);
        table
            .tuple_desc()
            .iter()
            .filter(|column| {
                let at = i32::from(column.attnum) - pg_sys::FirstLowInvalidHeapAttributeNumber;
                pg_sys::bms_is_member(at, set)
            })
            .map(|column| column.name().to_owned())
            .collect()
    };
    (
        "the statement changes no indexed column",
        None,
        Some(format!("Indexed: {}.", columns.join(", "))),
    )
}

/// The row's own state.
fn row(identity: &Identity, settings: &Settings) -> Vec<Line> {
    let Some(slot) = detect::find(identity) else {
        let waiting = memory().directory.contention(identity).get();
        let detail = match settings.hot_threshold() {
            0 => "It becomes hot with its next update (hot_threshold).".to_owned(),
            n => format!(
                "It becomes hot when {n} transactions wait to update it (hot_threshold); {waiting} now."
            ),
        };
        let has_room = detect::has_room();
        let full =
            "Your rows have their share of the places, or all are in use (txn.max_hot_rows).";
        return vec![
            ("the row is hot", Some(false), Some(detail)),
            (
                "there is room for another hot row",
                Some(has_room),
                (!has_room).then(|| full.to_owned()),
            ),
        ];
    };
    let now = process::now();
    let (waiting, running, backoff) = memory().with_row(slot, |row, _| {
        (row.waiting(), row.running(), row.backoff(now))
    });
    vec![
        (
            "the row is hot",
            Some(true),
            Some(format!("{waiting} waiting, {running} running.")),
        ),
        (
            "the row does not back off",
            Some(backoff.is_none()),
            backoff.map(|(until, cause)| {
                let rest = (until - now).div_ceil(1000);
                format!(
                    "One transaction at a time for {rest} ms more, because of {}.",
                    cause_of(cause)
                )
            }),
        ),
        followed(&memory().directory.rows[slot as usize]),
    ]
}

/// Whether updates of the row have followed in practice, and why not.
fn followed(row: &Row) -> Line {
    let counters = &row.counters;
    let mut detail = format!(
        "{} of {} updates have followed.",
        counters.followed.get(),
        counters.updates.get()
    );
    let first = row.obstacles().next();
    if let (Some((obstacle, _)), Some(all)) = (first, obstacles(row)) {
        detail += &format!(" In the way: {all}. {}", advice(obstacle));
    }
    (
        "updates have followed each other",
        Some(first.is_none()),
        Some(detail),
    )
}
