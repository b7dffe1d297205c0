//! The transaction that has locked or written a version of a row.

use crate::pg::buffer::{self, Page};
use crate::pg::{raw, tuple};
use pgrx::pg_sys::{self, LockTupleMode, MultiXactStatus};

/// The transaction that has locked or written a version of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RowLocker {
    Nobody,
    /// We have written or locked it, so that others who ask for that lock wait for us: we must not
    /// queue behind them.
    Own,
    /// That other running transaction holds it against the lock asked for; of several, the one that
    /// has updated it.
    Other(u32),
}

/// The transactions that have locked or written a version.
#[derive(Clone, Copy, Default)]
pub struct Holders {
    /// Our strongest lock of it.
    own: Option<LockTupleMode::Type>,
    /// Another running transaction that holds it against the lock asked for; of several, the one
    /// that has updated it.
    pub other: Option<u32>,
}

impl Holders {
    /// Whether our own lock keeps everybody from a lock that excludes one of that mode.
    pub fn keep_others_out(&self, mode: LockTupleMode::Type) -> bool {
        self.own.is_some_and(|own| own >= mode)
    }

    /// Whether our own lock is KEY SHARE and no more, as of the check of a foreign key.
    pub fn we_share_the_key(&self) -> bool {
        self.own == Some(LockTupleMode::LockTupleKeyShare)
    }

    fn against(self, mode: LockTupleMode::Type) -> RowLocker {
        match (self.own, self.other) {
            (Some(own), _) if conflicts(own, mode) => RowLocker::Own,
            (_, Some(other)) => RowLocker::Other(other),
            _ => RowLocker::Nobody,
        }
    }
}

/// Reads who holds a version, against a row lock of that mode.
///
/// # Safety
/// `rel` is open, and the version is one that a scan has found.
pub unsafe fn row_locker(
    rel: pg_sys::Relation,
    version: u64,
    mode: LockTupleMode::Type,
) -> RowLocker {
    // SAFETY: by the contract.
    unsafe { holders(rel, version, mode) }.against(mode)
}

/// Reads who holds a version, the others against a row lock of that mode.
///
/// # Safety
/// As for `row_locker`.
pub unsafe fn holders(rel: pg_sys::Relation, version: u64, mode: LockTupleMode::Type) -> Holders {
    // SAFETY: the caller's relation is open, and a scan has found the version.
    unsafe { holders_on(Page::pin(rel, version), version, mode) }
}

/// Whether another running transaction holds a version against a row lock of that mode, as far as a
/// glance tells.
///
/// # Safety
/// As for `row_locker`.
pub unsafe fn is_contended(rel: pg_sys::Relation, version: u64, mode: LockTupleMode::Type) -> bool {
    // SAFETY: the caller's relation is open, and a scan has found the version.
    unsafe {
        if is_free_at_a_glance(rel, version) {
            return false;
        }
        let page = Page::pin(rel, version);
        if page.glance(version).is_some_and(is_free) {
            page.unpin();
            return false;
        }
        matches!(
            holders_on(page, version, mode).against(mode),
            RowLocker::Other(_)
        )
    }
}

/// Whether nobody holds a version, as far as a glance at the page of the last index scan tells.
///
/// # Safety
/// As for `row_locker`.
#[inline]
pub unsafe fn is_free_at_a_glance(rel: pg_sys::Relation, version: u64) -> bool {
    // SAFETY: the caller's relation is open.
    unsafe { buffer::glance(rel, version) }.is_some_and(is_free)
}

/// Whether these flags of a version say that nobody holds it.
fn is_free(mask: u16) -> bool {
    tuple::has(
        mask,
        pg_sys::HEAP_XMAX_INVALID | pg_sys::HEAP_XMAX_COMMITTED,
    )
}

/// `holders` on a pinned page, which is let go.
unsafe fn holders_on(page: Page, version: u64, mode: LockTupleMode::Type) -> Holders {
    let nobody = Holders::default();
    // SAFETY: as for `row_locker`; the header is read under the buffer's share lock.
    unsafe {
        page.share();
        let header = page.tuple(version).map(|(header, _)| {
            let xmin = (*header).t_choice.t_heap.t_xmin;
            let masks = ((*header).t_infomask, (*header).t_infomask2);
            (masks, tuple::raw_xmax(header), xmin)
        });
        page.release();
        let Some(((mask, mask2), xmax, xmin)) = header else {
            return nobody;
        };
        let own = |mode| Holders {
            own: Some(mode),
            ..nobody
        };
        if raw::TransactionIdIsCurrentTransactionId(xmin) {
            own(LockTupleMode::LockTupleExclusive)
        } else if is_free(mask) {
            nobody
        } else if tuple::has(mask, pg_sys::HEAP_XMAX_IS_MULTI) {
            holders_of_several(mask, xmax, mode)
        } else if raw::TransactionIdIsCurrentTransactionId(xmax) {
            own(held(mask, mask2))
        } else if conflicts(held(mask, mask2), mode) && raw::TransactionIdIsInProgress(xmax) {
            Holders {
                other: Some(u32::from(xmax)),
                ..nobody
            }
        } else {
            nobody
        }
    }
}

/// Whether we have written or locked that version.
///
/// # Safety
/// As for `row_locker`.
pub unsafe fn is_own(rel: pg_sys::Relation, version: u64) -> bool {
    // SAFETY: the caller's relation is open, and a scan has found the version.
    unsafe { row_locker(rel, version, LockTupleMode::LockTupleExclusive) == RowLocker::Own }
}

/// The lock that a plain xmax stands for (heapam.c: TUPLOCK_from_mxstatus,
/// get_mxact_status_for_lock).
fn held(mask: u16, mask2: u16) -> LockTupleMode::Type {
    let keys = u32::from(mask2) & pg_sys::HEAP_KEYS_UPDATED != 0;
    let locks = u32::from(mask) & (pg_sys::HEAP_XMAX_EXCL_LOCK | pg_sys::HEAP_XMAX_KEYSHR_LOCK);
    if tuple::is_locked_only(mask) && locks == pg_sys::HEAP_XMAX_KEYSHR_LOCK {
        LockTupleMode::LockTupleKeyShare
    } else if tuple::is_locked_only(mask) && locks != pg_sys::HEAP_XMAX_EXCL_LOCK {
        LockTupleMode::LockTupleShare
    } else if keys {
        LockTupleMode::LockTupleExclusive
    } else {
        LockTupleMode::LockTupleNoKeyExclusive
    }
}

/// Whether two row locks exclude each other (heapam.c: tupleLockExtraInfo). The modes are numbered
/// by strength from 0: the weakest of them only excludes the strongest, the second one the two
/// strongest, and so on.
fn conflicts(one: LockTupleMode::Type, other: LockTupleMode::Type) -> bool {
    one + other >= LockTupleMode::LockTupleExclusive
}

/// The holders of a version whose xmax is a MultiXact.
///
/// # Safety
/// It has been read, with these bits, from a version that a scan has found, so it is not truncated
/// yet.
unsafe fn holders_of_several(
    mask: u16,
    xmax: pg_sys::MultiXactId,
    mode: LockTupleMode::Type,
) -> Holders {
    let mut holders = Holders::default();
    let only_locks = tuple::has(mask, pg_sys::HEAP_XMAX_LOCK_ONLY);
    // HEAP_LOCKED_UPGRADED
    if only_locks
        && !tuple::has(
            mask,
            pg_sys::HEAP_XMAX_EXCL_LOCK | pg_sys::HEAP_XMAX_KEYSHR_LOCK,
        )
    {
        return holders;
    }
    // SAFETY: a scan has found the version, so its MultiXact is not truncated yet.
    unsafe {
        tuple::each_member(xmax, only_locks, |member| {
            let (held, updates) = match member.status {
                MultiXactStatus::MultiXactStatusNoKeyUpdate => {
                    (LockTupleMode::LockTupleNoKeyExclusive, true)
                }
                MultiXactStatus::MultiXactStatusUpdate => (LockTupleMode::LockTupleExclusive, true),
                // The others are numbered as the modes.
                locks => (locks, false),
            };
            if raw::TransactionIdIsCurrentTransactionId(member.xid) {
                holders.own = holders.own.max(Some(held));
            } else if (holders.other.is_none() || updates)
                && conflicts(held, mode)
                && raw::TransactionIdIsInProgress(member.xid)
            {
                holders.other = Some(u32::from(member.xid));
            }
        });
    }
    holders
}
