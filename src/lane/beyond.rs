//! What a declared transaction uses beyond what it has declared: `txn.lane_beyond` and
//! `txn.my_declared`.

use super::admit;
use super::errors;
use super::partition;
use super::strict;
use super::used;
use crate::pg::local::Local;
use crate::range_occ::session;
use ::lane::{Item, Mode};
use keyrange::{Interval, Predicates};
use std::cell::RefCell;

/// Intervals of a table that are kept apart.
const MOST: usize = 1 << 14;

/// What the transaction has used, while that is looked at.
static USED: Local<RefCell<Vec<Item>>> = Local::new(RefCell::new(Vec::new()));

/// What is declared to be read, or to be written as well.
fn declared(is_fit: impl Fn(&Item) -> bool) -> Predicates {
    let mut declared = Predicates::new(MOST);
    for item in admit::taken().filter(is_fit) {
        declared.read_one(item.relation, item.keys);
    }
    declared
}

/// Whether keys of the item's relation are declared for what it does.
fn is_any_declared(item: &Item) -> bool {
    admit::taken().any(|one| {
        one.relation == item.relation && (one.mode == Mode::Write || item.mode == Mode::Read)
    })
}

/// What the transaction has written and, if it is validated, read so far, without having declared
/// it. Each under the relation under which it would be. Nothing with a destructor is alive in the
/// callers.
pub fn accesses() -> Vec<Item> {
    *USED.borrow_mut() = used::present(false);
    let used = |n: usize| USED.borrow().get(n).copied();
    let mut n = 0;
    while let Some(item) = used(n) {
        // SAFETY: in a transaction, and no frame above has a destructor.
        let (relation, keys) = unsafe { partition::declared_as(item.relation, item.keys) };
        let item = Item { relation, ..item };
        if keys.is_none() && is_any_declared(&item) {
            // These may be those.
            USED.borrow_mut().swap_remove(n);
            continue;
        }
        let keys = keys.unwrap_or(Interval::ALL);
        USED.borrow_mut()[n] = Item { keys, ..item };
        n += 1;
    }
    let known = declared(|_| true);
    let written = declared(|item| item.mode == Mode::Write);
    let mut found = USED.take();
    found.retain(|item| {
        let declared = match item.mode {
            Mode::Read => &known,
            Mode::Write => &written,
        };
        !declared.covers(item.relation, &item.keys)
    });
    found
}

/// The transaction is about to commit. If it has declared what it reads, it must have read nothing
/// else, should it be one that fails then.
#[inline]
pub fn check_reads() {
    if !strict::is_of_reads() || !session::is_validated() {
        return;
    }
    let read = accesses().into_iter().find(|item| item.mode == Mode::Read);
    if let Some(read) = read {
        errors::beyond(&read);
    }
}
