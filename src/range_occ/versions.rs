//! Where the rings have been overwritten, the table is the history: PostgreSQL keeps every version
//! that a snapshot in use may need, and with it the id of whoever wrote or removed it.

use super::definition;
use super::key::{self, Table};
use super::session;
use super::view::{self, View};
use crate::hotlock::memory;
use crate::pg::{process, raw, tuple, xact};
use keyrange::{IntervalSet, Relation, has_no_csn};
use pgrx::pg_sys::{self, BlockNumber, HeapTupleHeader, Oid, TransactionId};
use std::cell::Cell;
use std::ffi::c_int;

/// Pages that a transaction looks at, over all of its looks: what one of them needs at its commit
/// others may wait for, and neither `statement_timeout` nor anything but a cancel ends it. With
/// more it is in doubt, and looks at none.
const MOST_PAGES: u32 = 2048;

/// A copy of a page of the table.
type Copied = [u64; pg_sys::BLCKSZ as usize / size_of::<u64>()];

/// Whether the versions in the table show that the snapshot sees all writers of these keys. Writers
/// that have rolled back or have no CSN yet do not count (`keyrange`, "Versions"). False in doubt.
pub fn show_no_writer(view: &View, relation: Relation, read: &IntervalSet) -> bool {
    let oid = key::oid_of(relation);
    // SAFETY: a plain read of a setting, which lets VACUUM take away what a snapshot may need.
    let are_kept = unsafe { pg_sys::old_snapshot_threshold < 0 };
    let Some(table) = session::known(oid).filter(|_| are_kept && is_as_before(view, oid)) else {
        return false;
    };
    // SAFETY: the transaction has touched the table, and keeps it locked.
    unsafe {
        let rel = raw::RelationIdGetRelation(oid);
        if rel.is_null() {
            return false;
        }
        let shown = look(rel, view, table, read);
        raw::RelationClose(rel);
        shown
    }
}

/// Whether the table has the definition and the storage that it had at the snapshot: nobody has
/// truncated, rewritten or altered it since, the transaction itself included.
fn is_as_before(view: &View, oid: Oid) -> bool {
    let relation = key::relation_of(oid);
    // SAFETY: nothing changes it here.
    let work = unsafe { session::look() };
    work.is_some_and(|work| !work.has_redefined(relation))
        && definition::is_seen(view, oid)
        && sees_class(view, oid)
}

/// Whether the snapshot sees who wrote the table's row of pg_class.
fn sees_class(view: &View, oid: Oid) -> bool {
    // SAFETY: a catalog look-up.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::RELOID as c_int;
        let row = raw::SearchSysCache1(cache, pg_sys::Datum::from(oid));
        if row.is_null() {
            return false;
        }
        let header = (*row).t_data;
        let writer = inserter(header);
        raw::ReleaseSysCache(row);
        writer.is_none_or(|xid| {
            !raw::TransactionIdIsCurrentTransactionId(xid)
                && !raw::XidInMVCCSnapshot(xid, view.snapshot())
        })
    }
}

/// The transaction that has inserted that version; `None` if all see the version, or none.
unsafe fn inserter(header: HeapTupleHeader) -> Option<TransactionId> {
    // SAFETY: by the callers.
    let (mask, xid) = unsafe { ((*header).t_infomask, tuple::raw_xmin(header)) };
    // Frozen is both bits: committed and invalid. Either way nobody has to be asked for.
    let is_settled = tuple::has(mask, pg_sys::HEAP_XMIN_INVALID);
    (!is_settled && xid >= pg_sys::FirstNormalTransactionId).then_some(xid)
}

/// Whether that writer is another one that the snapshot does not see, and may have a CSN.
unsafe fn counts(view: &View, xid: TransactionId) -> bool {
    // SAFETY: an id that the snapshot does not see is not older than TransactionXmin.
    unsafe {
        if !raw::XidInMVCCSnapshot(xid, view.snapshot())
            || raw::TransactionIdIsCurrentTransactionId(xid)
        {
            return false;
        }
        let is_gone = !xact::is_running(xid.into()) && !raw::TransactionIdDidCommit(xid);
        if is_gone {
            return false;
        }
        let top = view::widen(raw::SubTransGetTopmostTransaction(xid).into());
        !has_no_csn(memory().rings.committers, top, view::run_by)
    }
}

/// The last writer that was asked for within one look, and the answer: it stays, or errs to the
/// safe side. A writer of many rows is asked for once.
struct Counted(Cell<(TransactionId, bool)>);

impl Counted {
    unsafe fn counts(&self, view: &View, xid: TransactionId) -> bool {
        let (last, answer) = self.0.get();
        if last == xid {
            return answer;
        }
        // SAFETY: by the callers.
        let answer = unsafe { counts(view, xid) };
        self.0.set((xid, answer));
        answer
    }
}

/// # Safety
/// `rel` is open and locked, a table of `txn_heap` with storage, known as `table`.
unsafe fn look(rel: pg_sys::Relation, view: &View, table: &Table, read: &IntervalSet) -> bool {
    // SAFETY: nothing changes it here but this count.
    let Some(work) = (unsafe { session::look() }) else {
        return false;
    };
    let counted = Counted(Cell::new((TransactionId::INVALID, false)));
    const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;
    // SAFETY: by the contract; an ERROR releases pins and locks, and nothing here has a destructor.
    unsafe {
        // What comes later is of transactions that had no CSN.
        let blocks = raw::RelationGetNumberOfBlocksInFork(rel, MAIN);
        let mut visible: BlockNumber = 0;
        raw::visibilitymap_count(rel, &mut visible, std::ptr::null_mut());
        if blocks.saturating_sub(visible) > MOST_PAGES - work.pages.get() {
            // The look would end in doubt.
            return false;
        }
        let strategy = raw::GetAccessStrategy(pg_sys::BufferAccessStrategyType::BAS_BULKREAD);
        let mut map: pg_sys::Buffer = 0;
        let is_shown = |block: BlockNumber| {
            process::check_for_interrupts();
            // What all can see, this snapshot sees. Writers clear the bit before they register.
            let status = raw::visibilitymap_get_status(rel, block, &mut map);
            if u32::from(status) & pg_sys::VISIBILITYMAP_ALL_VISIBLE != 0 {
                return true;
            }
            if work.pages.get() == MOST_PAGES {
                return false;
            }
            work.pages.set(work.pages.get() + 1);
            let mode = pg_sys::ReadBufferMode::RBM_NORMAL;
            let buffer = raw::ReadBufferExtended(rel, MAIN, block, mode, strategy);
            let mut page: Copied = [0; _];
            copy(buffer, &mut page);
            page_shows_no_writer(rel, (&raw mut page).cast(), view, &counted, table, read)
        };
        let shown = (0..blocks).all(is_shown);
        if map != 0 {
            raw::ReleaseBuffer(map);
        }
        raw::FreeAccessStrategy(strategy);
        shown
    }
}

/// Copies a pinned page, so that values can be looked at without its lock, and drops the pin.
unsafe fn copy(buffer: pg_sys::Buffer, to: &mut Copied) {
    let page = crate::pg::buffer::Page { buffer };
    page.share();
    // SAFETY: pinned and locked; both are as long as a page.
    unsafe { std::ptr::copy_nonoverlapping(page.bytes().cast(), to.as_mut_ptr(), to.len()) };
    page.release();
}

/// # Safety
/// `page` is a page of `rel`, or a copy of one.
unsafe fn page_shows_no_writer(
    rel: pg_sys::Relation,
    page: pg_sys::Page,
    view: &View,
    counted: &Counted,
    table: &Table,
    read: &IntervalSet,
) -> bool {
    // SAFETY: by the contract; versions on the page are whole.
    unsafe {
        (1..=tuple::count(page)).all(|offset| {
            let Some((header, length)) = tuple::tuple_at(page, offset) else {
                return true;
            };
            let writers = [inserter(header), tuple::remover(header)];
            if !writers
                .iter()
                .flatten()
                .any(|&xid| counted.counts(view, xid))
            {
                return true;
            }
            let mut version = pg_sys::HeapTupleData {
                t_len: length,
                t_self: pg_sys::ItemPointerData::default(),
                t_tableOid: (*rel).rd_id,
                t_data: header,
            };
            let keys = table.image_of_tuple(&raw mut version, (*rel).rd_att);
            read.overlapping(&keys).is_none()
        })
    }
}
