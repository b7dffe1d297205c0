//! Getting in front of the heap: while a statement runs that modifies or locks a table's rows, the
//! table's `rd_tableam` points to our copy of its routine, heap's or txn_heap's.
//!
//! A swap is undone at the statement's end, or at the abort of the (sub)transaction in which it was
//! made. It keeps the relation open by a reference of its own. No resource owner knows of that: a
//! portal's may end with a subtransaction that has not made the swap, and `undo` gives the
//! reference back at every end there is. (A cursor that fails in a savepoint within which it was
//! not made has no end of its own: PostgreSQL marks its portal as failed.) A relcache rebuild in
//! between puts the table's own routine back: then the statement goes on the ordinary way, which is
//! right unless it has an uncommitted version in its hands; heap refuses to update that one, and
//! the client gets 40001 (`hotlock/statement.rs`).

use crate::pg::local::Local;
use pgrx::pg_sys::{self, Datum, Oid, Relation, SubTransactionId, TableAmRoutine};
use std::cell::Cell;
use std::ptr;
use std::sync::OnceLock;

use crate::pg::plan::OnConflict;
use crate::pg::{catch, raw, xact};

/// Relations that can be swapped at a time; a statement with more runs the ordinary way for the
/// rest.
const CAPACITY: usize = 128;
/// And so many more of those in which the transaction has versions of hot rows.
const RESERVE: usize = 64;

/// What a statement may do with a swapped table.
#[derive(Clone, Copy)]
pub struct Use {
    /// The statement, as the address of its QueryDesc.
    pub query: usize,
    /// An UPDATE that leaves the key alone: its new tuples tell which row they are of, and may
    /// follow.
    pub may_follow: bool,
    /// INSERT ... ON CONFLICT: whether it updates rows that are there.
    pub on_conflict: OnConflict,
    /// It only locks the table's rows (`SELECT ... FOR UPDATE`).
    pub only_locks: bool,
}

#[derive(Clone, Copy)]
struct Entry {
    rel: Relation,
    subxact: SubTransactionId,
    /// In which a part of the statement runs, which may be a cursor's of further out; 0 for none.
    runs_in: SubTransactionId,
    usage: Use,
}

struct Swaps {
    entries: [Cell<Option<Entry>>; CAPACITY + RESERVE],
    /// All entries from here on are free.
    count: Cell<usize>,
}

static SWAPS: Local<Swaps> = Local::new(Swaps {
    entries: [const { Cell::new(None) }; CAPACITY + RESERVE],
    count: Cell::new(0),
});

/// The routines of the access methods whose storage is heap's, and for each the one that stands in
/// front of it.
struct Routines {
    heap: &'static TableAmRoutine,
    front_of_heap: TableAmRoutine,
    txn_heap: TableAmRoutine,
    front_of_txn_heap: TableAmRoutine,
}
// SAFETY: tables of function pointers, never written again.
unsafe impl Sync for Routines {}
// SAFETY: tables of function pointers, which are not bound to a thread.
unsafe impl Send for Routines {}

impl Routines {
    fn pairs(&self) -> [(&TableAmRoutine, &TableAmRoutine); 2] {
        [
            (self.heap, &self.front_of_heap),
            (&self.txn_heap, &self.front_of_txn_heap),
        ]
    }

    /// What stands in front of an access method's own routine.
    #[inline]
    fn front_of(&self, own: *const TableAmRoutine) -> Option<&TableAmRoutine> {
        let mut pairs = self.pairs().into_iter();
        pairs.find_map(|(back, front)| ptr::eq(back, own).then_some(front))
    }

    /// The access method's own routine behind one that stands in front.
    fn behind(&self, front: *const TableAmRoutine) -> Option<&TableAmRoutine> {
        let mut pairs = self.pairs().into_iter();
        pairs.find_map(|(back, ours)| ptr::eq(ours, front).then_some(back))
    }
}

static ROUTINES: OnceLock<Routines> = OnceLock::new();

/// Makes our routines from heap's: `front` makes what stands in front of a routine, `txn_heap` the
/// access method's, `both` what stands in front of that. Once, from `_PG_init`.
pub fn init(
    front: impl Fn(&mut TableAmRoutine),
    txn_heap: impl Fn(&mut TableAmRoutine),
    both: impl Fn(&mut TableAmRoutine),
) {
    // SAFETY: PostgreSQL keeps the callback for the life of the process.
    unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(put_back), Datum::from(0)) };
    // SAFETY: a static of the server.
    let heap = unsafe { &*pg_sys::GetHeapamTableAmRoutine() };
    let changed = |from: &TableAmRoutine, change: &dyn Fn(&mut TableAmRoutine)| {
        let mut routine = *from;
        change(&mut routine);
        routine
    };
    let own = changed(heap, &txn_heap);
    let _ = ROUTINES.set(Routines {
        heap,
        front_of_heap: changed(heap, &front),
        txn_heap: own,
        front_of_txn_heap: changed(&changed(&own, &front), &both),
    });
}

fn routines() -> &'static Routines {
    match ROUTINES.get() {
        Some(routines) => routines,
        None => std::process::abort(),
    }
}

/// Heap's own routine.
#[inline]
pub fn heap() -> &'static TableAmRoutine {
    routines().heap
}

/// The routine of the access method `txn_heap`.
pub fn txn_heap() -> &'static TableAmRoutine {
    &routines().txn_heap
}

/// Puts our routine in front of that of an open relation with heap's storage, for the statement.
/// False when there is no room left; `is_needed` says that it may be the reserve.
///
/// # Safety
/// `rel` stays open until the statement ends or its (sub)transaction aborts.
pub unsafe fn put(rel: Relation, usage: Use, is_needed: bool) -> bool {
    let routines = routines();
    // SAFETY: by the contract; rd_tableam is a pointer that the executor only reads.
    unsafe {
        let now = (*rel).rd_tableam;
        let Some(front) = routines
            .front_of(now)
            .or_else(|| routines.behind(now).and(now.as_ref()))
        else {
            return true;
        };
        let count = SWAPS.count.get();
        let room = CAPACITY + if is_needed { RESERVE } else { 0 };
        let Some(place) = SWAPS.entries[..room].get(count) else {
            return false;
        };
        (*rel).rd_refcnt += 1;
        place.set(Some(Entry {
            rel,
            subxact: raw::GetCurrentSubTransactionId(),
            runs_in: 0,
            usage,
        }));
        SWAPS.count.set(count + 1);
        (*rel).rd_tableam = front;
        true
    }
}

/// After a relcache entry has been rebuilt (inval.c: LocalExecuteInvalidationMessage): it has its
/// own routine again. Puts our routine in front of the relations of running statements again:
/// GRANT, ANALYZE and concurrent index builds do not wait for these. Puts heap's into the relation
/// in which heap's own callback is at work.
unsafe extern "C-unwind" fn put_back(_: Datum, _: Oid) {
    let routines = routines();
    let heaps_own = HEAPS_OWN.get();
    // SAFETY: both kinds are open: by the reference that `put` took, and for the time of
    // `with_heap`.
    unsafe {
        let is_heaps = |rel| heaps_own.is_some_and(|own| ptr::eq(own.rel, rel));
        for (_, entry) in live().filter(|(_, entry)| !is_heaps(entry.rel)) {
            if let Some(front) = routines.front_of((*entry.rel).rd_tableam) {
                (*entry.rel).rd_tableam = front;
            }
        }
        if let Some(own) = heaps_own {
            (*own.rel).rd_tableam = routines.heap;
        }
    }
}

/// The relation in which heap's own callback works at present, and the routine that it has
/// otherwise; see `with_heap`.
#[derive(Clone, Copy)]
struct AsHeap {
    rel: Relation,
    otherwise: *const TableAmRoutine,
}
static HEAPS_OWN: Local<Cell<Option<AsHeap>>> = Local::new(Cell::new(None));

static TURNS: Local<Cell<u64>> = Local::new(Cell::new(0));

/// How often heap's routine has been put in place of another one.
#[inline]
pub fn heaps_turns() -> u64 {
    TURNS.get()
}

/// The relation in which heap's own callback works at present, if there is one: without tracking,
/// should somebody else come by.
#[inline]
pub fn heaps_own() -> Option<Relation> {
    HEAPS_OWN.get().map(|own| own.rel)
}

/// # Safety
/// `rel` is open.
unsafe fn put_heaps(rel: Relation) {
    TURNS.set(TURNS.get() + 1);
    // SAFETY: the caller's relation is open, so its relcache entry is pinned.
    unsafe { (*rel).rd_tableam = heap() };
}

/// What the statement that swapped this relation may do with it. With two statements at work on it
/// (a function called by one runs the other) it is not known whose rows come. Then none of them
/// follows.
pub fn usage(rel: Relation) -> Option<Use> {
    let mut of_rel = live()
        .filter(|(_, entry)| ptr::eq(entry.rel, rel))
        .map(|(_, entry)| entry.usage);
    let first = of_rel.next()?;
    if of_rel.next().is_none() {
        return Some(first);
    }
    Some(Use {
        may_follow: false,
        on_conflict: OnConflict::Fail,
        only_locks: false,
        ..first
    })
}

fn live() -> impl Iterator<Item = (usize, Entry)> {
    SWAPS
        .entries
        .iter()
        .take(SWAPS.count.get())
        .enumerate()
        .filter_map(|(n, cell)| cell.get().map(|e| (n, e)))
}

/// Whether a relcache rebuild has put a table's own routine back under a statement.
pub fn is_any_lost() -> bool {
    // SAFETY: open by the reference that `put` took.
    live().any(|(_, entry)| unsafe { routines().behind((*entry.rel).rd_tableam).is_none() })
}

/// Undoes the swaps that `which` selects; a relation that another statement still uses stays
/// swapped.
#[inline]
fn undo(which: impl Fn(&Entry) -> bool) {
    if SWAPS.count.get() > 0 {
        undo_some(which);
    }
}

fn undo_some(which: impl Fn(&Entry) -> bool) {
    let entries = &SWAPS.entries[..SWAPS.count.get()];
    let mut count = 0;
    for (n, place) in entries.iter().enumerate() {
        let Some(entry) = place.get() else { continue };
        if !which(&entry) {
            count = n + 1;
            continue;
        }
        place.set(None);
        let is_other = |place: &Cell<Option<Entry>>| match place.get() {
            Some(other) => ptr::eq(other.rel, entry.rel),
            None => false,
        };
        // SAFETY: open by the reference that `put` took, which is given back.
        unsafe {
            if !entries.iter().any(is_other)
                && let Some(own) = routines().behind((*entry.rel).rd_tableam)
            {
                (*entry.rel).rd_tableam = own;
            }
            (*entry.rel).rd_refcnt -= 1;
        }
    }
    SWAPS.count.set(count);
}

/// At the end of a statement.
#[inline]
pub fn end_of_statement(query: usize) {
    undo(|entry| entry.usage.query == query);
}

/// At the end of a transaction.
#[inline]
pub fn end_of_transaction() {
    undo(|_| true);
}

/// Runs a part of a statement. An ERROR jumps over the way back, and the abort of its
/// subtransaction looks for it.
#[inline]
pub fn while_running(query: usize, run: impl FnOnce()) {
    if SWAPS.count.get() == 0 || xact::nest_level() == 1 {
        return run();
    }
    // SAFETY: reads backend state.
    note_running(query, unsafe { raw::GetCurrentSubTransactionId() });
    run();
    note_running(query, 0);
}

fn note_running(query: usize, runs_in: SubTransactionId) {
    for (n, entry) in live().filter(|(_, entry)| entry.usage.query == query) {
        SWAPS.entries[n].set(Some(Entry { runs_in, ..entry }));
    }
}

/// At the abort of a subtransaction.
pub fn abort_of_subtransaction(subxact: SubTransactionId) {
    undo(|entry| entry.subxact == subxact || entry.runs_in == subxact);
}

/// At the commit of a subtransaction: the parent takes over.
pub fn commit_of_subtransaction(subxact: SubTransactionId, parent: SubTransactionId) {
    for (n, entry) in live() {
        if entry.subxact == subxact {
            SWAPS.entries[n].set(Some(Entry {
                subxact: parent,
                ..entry
            }));
        }
    }
}

/// Runs heap's own callback on a relation with heap's routine in place: `heap_getnext` refuses any
/// other.
///
/// # Safety
/// `rel` is open; neither `body` nor its callers own anything with a destructor.
pub unsafe fn with_heap<R: Copy>(rel: Relation, body: impl FnOnce() -> R) -> Option<R> {
    let mut result = None;
    // SAFETY: by the contract; an ERROR goes on once the relation has its routine again.
    unsafe {
        let otherwise = (*rel).rd_tableam;
        let outer = HEAPS_OWN.replace(Some(AsHeap { rel, otherwise }));
        put_heaps(rel);
        let restore = || {
            HEAPS_OWN.set(outer);
            (*rel).rd_tableam = otherwise;
        };
        catch::catching(
            || result = Some(body()),
            |_| {
                restore();
                false
            },
        );
        restore();
    }
    result
}

/// Runs a statement: of a function, perhaps, that heap's callback calls for an index's expression.
/// The relation has its routine meanwhile.
///
/// # Safety
/// As for `with_heap`.
pub unsafe fn as_usual(body: impl FnOnce()) {
    let Some(outer) = HEAPS_OWN.take() else {
        return body();
    };
    // SAFETY: by the contract; the relation is open as long as heap's callback is at work.
    unsafe {
        (*outer.rel).rd_tableam = outer.otherwise;
        let restore = || {
            HEAPS_OWN.set(Some(outer));
            put_heaps(outer.rel);
        };
        catch::catching(body, |_| {
            restore();
            false
        });
        restore();
    }
}
