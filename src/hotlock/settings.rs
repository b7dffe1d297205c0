//! The settings of a table: what its security label says, else what its partitioned parents' labels
//! say, else the session's settings.
//!
//! A label is read once per table and session. It is read again when pg_seclabel's relcache entry
//! has been invalidated, which every change of a label does (provider.rs). So it is when the
//! table's own entry has been: the table may have become a partition. Relcache entries of tables do
//! not depend on labels: a change of a label costs other sessions a look at the label and nothing
//! else. Whether the database has a label at all is remembered in the same way. Without one, a
//! session with its settings off asks for nothing else; with one, it asks for the labels of the
//! tables of its statements.

use super::late_snapshot;
use crate::pg::label;
use crate::pg::local::Local;
use crate::pg::per_table::PerTable;
use crate::pg::{nodes, plan, process};
use crate::shared::guc::{self, FollowerReads};
use pgrx::pg_sys::{self, Datum, Oid};
use std::cell::Cell;
use std::ffi::CStr;
use std::ops::RangeInclusive;

/// The name of the label provider.
pub const PROVIDER: &CStr = c"txn";

/// How updates of a table's hot rows are done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableMode {
    /// As in stock PostgreSQL.
    Off,
    /// One transaction at a time.
    Queue,
    /// They follow each other.
    Group,
}

/// What a label sets; the rest is the session's.
#[derive(Clone, Copy, Default)]
pub struct Settings {
    pub mode: Option<TableMode>,
    pub hot_threshold: Option<i32>,
    pub group_size: Option<i32>,
    pub follower_reads: Option<FollowerReads>,
}

/// What is wrong with a label's text.
pub struct Fault {
    pub message: String,
    pub detail: Option<String>,
}

const NOTHING: Settings = Settings {
    mode: None,
    hot_threshold: None,
    group_size: None,
    follower_reads: None,
};

/// The transaction goes PostgreSQL's way on all rows, whatever settings say.
static IS_ORDINARY: Local<Cell<bool>> = Local::new(Cell::new(false));

/// From now on the transaction goes PostgreSQL's way on all rows, or as settings say again.
pub fn be_ordinary(is_ordinary: bool) {
    IS_ORDINARY.set(is_ordinary);
}

/// The mode that the session's settings ask for.
#[inline]
pub fn session_mode() -> TableMode {
    if IS_ORDINARY.get() {
        return TableMode::Off;
    }
    match (guc::is_on(&guc::GROUP_LOCK), guc::is_on(&guc::QUEUE_LOCK)) {
        (true, _) => TableMode::Group,
        (false, true) => TableMode::Queue,
        (false, false) => TableMode::Off,
    }
}

impl Settings {
    /// The mode in force.
    #[inline]
    pub fn mode(&self) -> TableMode {
        if IS_ORDINARY.get() {
            return TableMode::Off;
        }
        self.mode.unwrap_or_else(session_mode)
    }

    /// Whether updates of the table's hot rows follow each other.
    #[inline]
    pub fn groups(&self) -> bool {
        self.mode() == TableMode::Group
    }

    /// Whether the present transaction's updates may follow others', and be followed.
    #[inline]
    pub fn follow(&self) -> bool {
        self.groups() && late_snapshot::builds_on_last()
    }

    /// Transactions that wait for a row before it becomes hot.
    #[inline]
    pub fn hot_threshold(&self) -> i32 {
        self.hot_threshold
            .unwrap_or_else(|| guc::value(&guc::HOT_THRESHOLD))
    }

    /// Transactions that follow each other before the group ends, at least 1.
    #[inline]
    pub fn group_size(&self) -> u32 {
        let size = self
            .group_size
            .unwrap_or_else(|| guc::value(&guc::GROUP_SIZE));
        size.max(1) as u32
    }

    /// What a follower's statement sees.
    #[inline]
    pub fn follower_reads(&self) -> FollowerReads {
        self.follower_reads
            .unwrap_or_else(|| guc::FOLLOWER_READS.get())
    }

    /// What is not set here is as in `other`.
    fn or(self, other: Settings) -> Settings {
        Settings {
            mode: self.mode.or(other.mode),
            hot_threshold: self.hot_threshold.or(other.hot_threshold),
            group_size: self.group_size.or(other.group_size),
            follower_reads: self.follower_reads.or(other.follower_reads),
        }
    }

    /// A label's text: `parameter=value`, separated by commas. The messages are those of storage
    /// parameters.
    pub fn parse(label: &str) -> Result<Settings, Fault> {
        let mut settings = NOTHING;
        for part in label.split(',') {
            let Some((name, value)) = part.split_once('=') else {
                return Err(Fault {
                    message: format!("invalid security label for txn: \"{label}\""),
                    detail: Some(
                        "A label is a list such as \"mode=group, hot_threshold=4\".".to_owned(),
                    ),
                });
            };
            let (name, value) = (name.trim(), value.trim());
            let is_new = match name {
                "mode" => put(&mut settings.mode, choice(name, value, &MODES)?),
                "hot_threshold" => put(
                    &mut settings.hot_threshold,
                    number(name, value, guc::HOT_THRESHOLDS)?,
                ),
                "group_size" => put(
                    &mut settings.group_size,
                    number(name, value, guc::GROUP_SIZES)?,
                ),
                "follower_reads" => put(&mut settings.follower_reads, choice(name, value, &READS)?),
                _ => {
                    return Err(Fault {
                        message: format!("unrecognized parameter \"{name}\""),
                        detail: Some(
                            "The parameters are \"mode\", \"hot_threshold\", \"group_size\" and \
                             \"follower_reads\"."
                                .to_owned(),
                        ),
                    });
                }
            };
            if !is_new {
                return Err(Fault {
                    message: format!("parameter \"{name}\" specified more than once"),
                    detail: None,
                });
            }
        }
        Ok(settings)
    }
}

/// The modes by name.
const MODES: [(&str, TableMode); 3] = [
    ("group", TableMode::Group),
    ("queue", TableMode::Queue),
    ("off", TableMode::Off),
];
const READS: [(&str, FollowerReads); 3] = [
    ("validated", FollowerReads::Validated),
    ("wait", FollowerReads::Wait),
    ("immediate", FollowerReads::Immediate),
];

/// A mode's name.
pub fn name_of_mode(mode: TableMode) -> &'static str {
    name_of(mode, &MODES)
}

/// The name of what followers see.
pub fn name_of_reads(reads: FollowerReads) -> &'static str {
    name_of(reads, &READS)
}

fn name_of<T: Copy + PartialEq>(value: T, names: &[(&'static str, T)]) -> &'static str {
    let named = names.iter().find(|(_, known)| *known == value);
    named.map_or("", |(name, _)| name)
}

/// Sets what is not set yet.
fn put<T>(place: &mut Option<T>, value: T) -> bool {
    place.replace(value).is_none()
}

fn choice<T: Copy>(name: &str, value: &str, known: &[(&'static str, T)]) -> Result<T, Fault> {
    let found = known
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(value));
    found.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<_> = known
            .iter()
            .map(|(name, _)| format!("\"{name}\""))
            .collect();
        Fault {
            message: format!("invalid value for enum option \"{name}\": {value}"),
            detail: Some(format!("Valid values are {}.", known.join(", "))),
        }
    })
}

fn number(name: &str, value: &str, valid: RangeInclusive<i32>) -> Result<i32, Fault> {
    let Ok(number) = value.parse() else {
        return Err(Fault {
            message: format!("invalid value for integer option \"{name}\": {value}"),
            detail: None,
        });
    };
    if !valid.contains(&number) {
        return Err(Fault {
            message: format!("value {value} out of bounds for option \"{name}\""),
            detail: Some(format!(
                "Valid values are between \"{}\" and \"{}\".",
                valid.start(),
                valid.end()
            )),
        });
    }
    Ok(number)
}

/// What labels say, as far as this session knows.
struct Labels {
    of_table: PerTable<Settings, 1024>,
    /// Whether there are any; None: not known.
    exist: Cell<Option<bool>>,
}

static LABELS: Local<Labels> = Local::new(Labels {
    of_table: PerTable::new(),
    exist: Cell::new(None),
});

unsafe extern "C-unwind" fn forget(_arg: Datum, relation: Oid) {
    if relation == Oid::INVALID || relation == pg_sys::SecLabelRelationId {
        LABELS.of_table.forget(Oid::INVALID);
        LABELS.exist.set(None);
    } else {
        LABELS.of_table.forget(relation);
    }
}

/// Registers the invalidation callback. Once, from `_PG_init`.
pub fn init() {
    // SAFETY: the callback touches only process-local cells.
    unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(forget), Datum::from(0)) };
}

/// Whether any table of this database has settings of its own. In a transaction.
#[inline]
pub fn exist() -> bool {
    LABELS.exist.get().unwrap_or_else(look_for_labels)
}

#[cold]
fn look_for_labels() -> bool {
    let exist = label::exist(PROVIDER);
    LABELS.exist.set(Some(exist));
    exist
}

/// The settings of a table that is open or locked. In a transaction, with no lock of ours held.
#[inline]
pub fn of(relation: Oid) -> Settings {
    if !exist() || u32::from(relation) < pg_sys::FirstNormalObjectId {
        return NOTHING;
    }
    LABELS.of_table.get(relation, || {
        let mut settings = NOTHING;
        label::for_each(relation, PROVIDER, |text| {
            // What another version of the library has accepted and this one does not know counts as
            // nothing.
            let found = text
                .to_str()
                .ok()
                .and_then(|text| Settings::parse(text).ok());
            settings = settings.or(found.unwrap_or(NOTHING));
        });
        settings
    })
}

/// Whether this transaction uses the hot rows of that table, which is open or locked.
#[inline]
pub fn uses(relation: Oid) -> bool {
    process::is_backend()
        && match exist() {
            true => mode_of(relation),
            false => session_mode(),
        } != TableMode::Off
}

fn mode_of(relation: Oid) -> TableMode {
    of(relation).mode()
}

/// Whether a statement of this transaction, a member of no hot row, may come to use hot rows: the
/// session's settings say so, or the label of a table that it names. The plan of an INSERT does not
/// name the partitions.
///
/// # Safety
/// The statement is about to be started, or has been: its tables are locked.
#[inline]
pub unsafe fn concern(query: *const pg_sys::QueryDesc) -> bool {
    process::is_backend()
        // SAFETY: by the contract.
        && (session_mode() != TableMode::Off || exist() && unsafe { names_table_in_use(query) })
}

/// Whether the label of a table that the statement names says so, or it may route rows to such a
/// table.
unsafe fn names_table_in_use(query: *const pg_sys::QueryDesc) -> bool {
    // SAFETY: by `concern`; a plan's list of tables.
    unsafe {
        let plan = (*query).plannedstmt;
        plan::may_route_upserts(plan)
            || nodes::oids((*plan).relationOids)
                .any(|relation| of(relation).mode() != TableMode::Off)
    }
}
