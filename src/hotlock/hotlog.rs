//! The server log's lines about rows that become hot and cool down (`txn.log_hotspots`).

use crate::guc;
use crate::pg::error;
use crate::pg::raw;
use hotrow::{Identity, LABEL_BYTES, Row};
use pgrx::pg_sys::{self, Oid};
use std::ffi::CStr;
use std::io::Write;

/// Tells of a row's promotion. No lock is held.
pub fn became_hot(identity: &Identity, label: &[u8]) {
    if guc::LOG_HOTSPOTS.get() {
        let mut message = Text::row(identity.database, identity.relation, label);
        message.add(format_args!(" is hot now"));
        let mut detail = Text::new();
        detail.add(format_args!(
            "{} transactions were waiting to update it.",
            guc::HOT_THRESHOLD.get()
        ));
        error::log(message.as_c_str(), detail.as_c_str());
    }
}

/// What there is to say of a row that cools down, taken while it is still in its place.
pub struct Life {
    database: u32,
    relation: u32,
    label: ([u8; LABEL_BYTES], usize),
    seconds: u64,
    updates: u64,
    followed: u64,
    combined: u64,
    cascades: u64,
}

impl Life {
    /// The row's lock is held.
    pub fn of(row: &Row, now: u64) -> Life {
        let c = &row.counters;
        Life {
            database: row.database(),
            relation: row.relation(),
            label: row.label(),
            seconds: now.saturating_sub(row.since.get()) / 1_000_000,
            updates: c.updates.get(),
            followed: c.followed.get(),
            combined: c.combined.get(),
            cascades: c.cascades.get(),
        }
    }

    /// Tells of it. No lock is held.
    pub fn log(&self) {
        if guc::LOG_HOTSPOTS.get() {
            let (label, length) = &self.label;
            let mut message = Text::row(self.database, self.relation, &label[..*length]);
            message.add(format_args!(" is not hot any more"));
            let mut detail = Text::new();
            detail.add(format_args!(
                "In {} s: {} updates, {} of them followed, {} combined, {} cascades.",
                self.seconds, self.updates, self.followed, self.combined, self.cascades
            ));
            error::log(message.as_c_str(), detail.as_c_str());
        }
    }
}

/// Text of bounded length, without a destructor; what does not fit is cut. It ends with a zero byte.
struct Text {
    bytes: [u8; Text::ROOM + 1],
    length: usize,
}

impl Text {
    const ROOM: usize = 192 + LABEL_BYTES;

    fn new() -> Text {
        Text {
            bytes: [0; Text::ROOM + 1],
            length: 0,
        }
    }

    fn row(database: u32, relation: u32, label: &[u8]) -> Text {
        let mut text = Text::new();
        text.add(format_args!("row ("));
        text.add_bytes(label);
        // SAFETY: a catalog look-up within a transaction; null for a table that is gone.
        let name = unsafe {
            if database == u32::from(pg_sys::MyDatabaseId) {
                raw::get_rel_name(Oid::from(relation))
            } else {
                std::ptr::null_mut()
            }
        };
        if name.is_null() {
            text.add(format_args!(") of table {relation} of database {database}"));
        } else {
            text.add(format_args!(") of table \""));
            // SAFETY: a string of PostgreSQL's.
            text.add_bytes(unsafe { CStr::from_ptr(name) }.to_bytes());
            text.add(format_args!("\""));
        }
        text
    }

    fn add(&mut self, what: std::fmt::Arguments) {
        let mut rest = &mut self.bytes[self.length..Self::ROOM];
        let room = rest.len();
        let _ = rest.write_fmt(what);
        self.length += room - rest.len();
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        let mut rest = &mut self.bytes[self.length..Self::ROOM];
        let room = rest.len();
        let _ = rest.write(bytes);
        self.length += room - rest.len();
    }

    fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}
