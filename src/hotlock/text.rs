//! Text for messages, put together without an allocation.

use crate::pg::{raw, rights};
use hotrow::{LABEL_BYTES, Row};
use pgrx::pg_sys::{self, Oid};
use std::ffi::CStr;
use std::io::Write;

/// Text of bounded length, without a destructor; what does not fit is cut. It ends with a zero
/// byte.
pub struct Text {
    bytes: [u8; Text::ROOM + 1],
    length: usize,
}

impl Text {
    const ROOM: usize = 192 + LABEL_BYTES;

    pub fn new() -> Text {
        Text {
            bytes: [0; Text::ROOM + 1],
            length: 0,
        }
    }

    /// What a row is called in messages: its key and its table.
    pub fn row(database: u32, relation: u32, label: &[u8]) -> Text {
        let mut text = Text::new();
        text.add_row(database, relation, label);
        text
    }

    /// The key may be empty.
    pub fn add_row(&mut self, database: u32, relation: u32, label: &[u8]) {
        self.add(format_args!("row"));
        if !label.is_empty() {
            self.add(format_args!(" ("));
            self.add_bytes(label);
            self.add(format_args!(")"));
        }
        // SAFETY: a catalog look-up within a transaction; null for a table that is gone.
        let name = unsafe {
            if database == u32::from(pg_sys::MyDatabaseId) {
                raw::get_rel_name(Oid::from(relation))
            } else {
                std::ptr::null_mut()
            }
        };
        if name.is_null() {
            self.add(format_args!(" of table {relation} of database {database}"));
        } else {
            self.add(format_args!(" of table \""));
            // SAFETY: a string of PostgreSQL's.
            self.add_bytes(unsafe { CStr::from_ptr(name) }.to_bytes());
            self.add(format_args!("\""));
        }
    }

    pub fn add(&mut self, what: std::fmt::Arguments) {
        let mut rest = &mut self.bytes[self.length..Self::ROOM];
        let room = rest.len();
        let _ = rest.write_fmt(what);
        self.length += room - rest.len();
    }

    pub fn add_bytes(&mut self, bytes: &[u8]) {
        let mut rest = &mut self.bytes[self.length..Self::ROOM];
        let room = rest.len();
        let _ = rest.write(bytes);
        self.length += room - rest.len();
    }

    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

/// Whether the present user may know the row's key.
pub fn may_see_key(row: &Row) -> bool {
    rights::may_see(row.relation().into(), row.columns().into_iter())
}
