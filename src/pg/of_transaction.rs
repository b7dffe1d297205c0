//! State of the present transaction that is as at the beginning again when it has ended.
//!
//! Most transactions have none. `is_any_set` tells so with one look: then the steps of a statement,
//! and of the transaction's end, that only deal with such state have nothing to do.

use super::local::Local;
use std::cell::Cell;

static IS_ANY_SET: Local<Cell<bool>> = Local::new(Cell::new(false));

/// Whether the present transaction has come to have such state.
#[inline]
pub fn is_any_set() -> bool {
    IS_ANY_SET.get()
}

/// It has, in another place than an `OfTransaction`: in a list, or in shared memory.
#[inline]
pub fn note() {
    IS_ANY_SET.set(true);
}

/// The transaction has ended, and all of its state has been dealt with.
pub fn forget() {
    IS_ANY_SET.set(false);
}

/// How many `OfTransaction` are set: in builds with debug assertions, to see that the end of a
/// transaction leaves none.
#[cfg(debug_assertions)]
static SET: Local<Cell<usize>> = Local::new(Cell::new(0));

/// Whether none is set any more, where that is known.
pub fn are_all_clear() -> bool {
    #[cfg(debug_assertions)]
    return SET.get() == 0;
    #[cfg(not(debug_assertions))]
    true
}

/// A part of such state. Its default is what it is at the beginning of a transaction.
pub struct OfTransaction<T> {
    value: Cell<T>,
    #[cfg(debug_assertions)]
    is_set: Cell<bool>,
}

impl<T> OfTransaction<T> {
    /// `default` is the type's default.
    pub const fn new(default: T) -> Self {
        OfTransaction {
            value: Cell::new(default),
            #[cfg(debug_assertions)]
            is_set: Cell::new(false),
        }
    }

    /// Sets it: the end of the transaction is to deal with it.
    #[inline]
    pub fn set(&self, value: T) {
        note();
        self.count(true);
        self.value.set(value);
    }

    #[inline]
    fn count(&self, is_set: bool) {
        #[cfg(debug_assertions)]
        if self.is_set.replace(is_set) != is_set {
            SET.set(if is_set { SET.get() + 1 } else { SET.get() - 1 });
        }
        let _ = is_set;
    }
}

impl<T: Copy> OfTransaction<T> {
    #[inline]
    pub fn get(&self) -> T {
        self.value.get()
    }
}

impl<T: Default> OfTransaction<T> {
    /// It is as at the beginning again.
    #[inline]
    pub fn clear(&self) {
        self.take();
    }

    /// It is as at the beginning again, and was this.
    #[inline]
    pub fn take(&self) -> T {
        self.count(false);
        self.value.take()
    }
}
