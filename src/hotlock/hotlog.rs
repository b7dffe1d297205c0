//! The server log's lines about rows that become hot and cool down (`txn.log_hotspots`).

use super::settings;
use super::text::Text;
use crate::pg::error;
use crate::shared::guc;
use hotrow::{Identity, LABEL_BYTES, Row};
use pgrx::pg_sys::Oid;

/// Tells of a row's promotion. No lock is held.
pub fn became_hot(identity: &Identity, label: &[u8]) {
    if guc::LOG_HOTSPOTS.get() {
        let mut message = Text::row(identity.database, identity.relation, label);
        message.add(format_args!(" is hot now"));
        let mut detail = Text::new();
        detail.add(format_args!(
            "{} transactions were waiting to update it.",
            settings::of(Oid::from(identity.relation)).hot_threshold()
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

    /// Whether it was a row, and not a gate (gate.rs).
    pub fn is_of_row(&self) -> bool {
        self.relation != 0
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
