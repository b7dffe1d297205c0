//! What refused transactions have used, which the next attempt declares.

use super::admit;
use super::asleep;
use super::partition;
use super::respect;
use super::target;
use crate::pg::catch::Code;
use crate::pg::{raw, xact};
use crate::range_occ::work::Whole;
use crate::range_occ::{key, session};
use ::lane::{Item, Lane, Mode, put_in_order};
use keyrange::{DEFINITION, Interval, Relation};
use std::cell::RefCell;

/// From this attempt on the logical ranges of the keys are declared.
pub const BY_RANGE: i32 = 4;
/// Neighbouring keys that are declared one by one.
const MOST_APART: usize = 16;
/// Items that are kept apart; of more, neighbours are joined.
const MOST_ITEMS: usize = 4096;

/// Whether a transaction that fails so may succeed later.
pub fn is_refused(code: Code) -> bool {
    matches!(&code, b"40001" | b"40P01")
}

/// What the present transaction has read, if it is validated, and written.
pub fn present(by_range: bool) -> Vec<Item> {
    let found = session::with_present(|work| {
        let mut found: Vec<Item> = Vec::new();
        let mut add = |relation: Relation, keys: Interval, mode| {
            let table = work.table(key::oid_of(relation));
            let rows = match table.and_then(|table| table.layout) {
                Some(layout) => layout.rows(&keys, MOST_APART),
                None => vec![keys],
            };
            found.extend(rows.into_iter().map(|keys| Item {
                relation,
                keys,
                mode,
            }));
        };
        for (relation, set) in work.predicates.iter() {
            // What a subtransaction that has failed may have read is not known.
            let is_known = work.whole.get(&relation) != Some(&Whole::Rollback);
            if relation & DEFINITION == 0 && is_known {
                set.iter().for_each(|keys| add(relation, keys, Mode::Read));
            }
        }
        let written = work.writes.iter();
        for written in written.filter(|written| written.relation & DEFINITION == 0) {
            let keys = written.place.map_or(Interval::ALL, |(_, keys)| keys);
            add(written.relation, keys, Mode::Write);
        }
        if by_range {
            for item in &mut found {
                if let Some(table) = work.table(key::oid_of(item.relation)) {
                    let map = table.ranges();
                    let bounds = |image| map.bounds(map.range_of(image));
                    item.keys = bounds(item.keys.low()).hull(&bounds(item.keys.high()));
                }
            }
        }
        found
    });
    found.unwrap_or_default()
}

/// What the attempts so far have used.
pub struct Used(RefCell<Vec<Item>>);

impl Used {
    pub const fn new() -> Self {
        Used(RefCell::new(Vec::new()))
    }

    pub fn forget(&self) {
        self.0.borrow_mut().clear();
    }

    /// Notes what the present transaction has read and written.
    pub fn note(&self, by_range: bool) {
        let mut used = self.0.borrow_mut();
        // What it waited for, or was refused at, is not written.
        used.extend(respect::wanted());
        used.extend(present(by_range));
        // More relations than that are left as they are.
        let _ = put_in_order(&mut used, MOST_ITEMS);
    }

    /// Declares the keys, as far as the user may do so, and has `take` enter the lane with them.
    /// Whether the transaction has them.
    pub fn declare(&self, take: impl FnOnce(Lane<'static>) -> bool) -> bool {
        let Some(lane) = admit::lane() else {
            return false;
        };
        // SAFETY: a plain read of shared state.
        if xact::is_serializable() || unsafe { raw::RecoveryInProgress() } {
            return false;
        }
        // SAFETY: reads the session's state.
        let role = unsafe { raw::GetUserId() };
        admit::begin();
        let used = |n: usize| self.0.borrow().get(n).copied();
        let mut n = 0;
        while let Some(mut item) = used(n) {
            // SAFETY: in a transaction, and no frame above has a destructor.
            let (relation, keys) = unsafe { partition::declared_as(item.relation, item.keys) };
            (item.relation, item.keys) = (relation, keys.unwrap_or(Interval::ALL));
            if target::may_declare_item(role, &item) {
                admit::declare(item.relation, item.keys, item.mode);
            }
            n += 1;
        }
        let is_fit = admit::settle(lane).is_some_and(|count| count > 0);
        if !is_fit || target::first_too_wide(role).is_some() {
            return false;
        }
        if asleep::has_sleepers(lane) {
            // They would have to notice first.
            return false;
        }
        take(lane)
    }
}
