//! The extension's shared memory: its layout, its size, its locks.

use super::sizes::*;
use super::totals::Totals;
use crate::pg::{process, raw};
use ::geo::{
    Board, Gate, Latencies, Place, Records, Running, Seat as GeoSeat, Slot as GeoSlot, Turns,
};
use ::lane::{Head as LaneHead, Lane, List, Request, Seat, Stripe};
use hotrow::{
    Backend, CombineRequest, ContendedTables, Definitions, Directory, FlushQueue, MEMBERS, Member,
    Members, Processor, Processors, ReadGuard, Row, Slot, WatchedTables, Word32, Word64,
};
use keyrange::{
    Bucket, Clock, Committer, Counters, Mark, RingPair, RingSpace, Rings, Slot as RangeSlot,
};
use pgrx::pg_sys;
use std::mem::{align_of, size_of};
use std::sync::OnceLock;

/// Counters of contention on rows that are not hot.
const CONTENTION: usize = 4096;
/// Counters of hot rows by role.
const SHARES: usize = 4096;
/// Locks beside one per hot row: the directory's, the waits-for graph's, the watched tables', the
/// lane's and that of transactions over several servers.
const EXTRA_LOCKS: usize = 5;

/// What stands at the beginning, once.
#[repr(C)]
struct Header {
    used: Word32,
    cursor: Word64,
    totals: Totals,
    guard: ReadGuard,
    contended: ContendedTables,
    watched: WatchedTables,
    definitions: Definitions,
    flush: FlushQueue,
    clock: Clock,
    lane: LaneHead,
    geo: Board,
    latencies: Latencies,
    gate: Gate,
    records: Records,
}

/// The attached shared memory. The references live as long as the process.
pub struct Shared {
    pub directory: Directory<'static>,
    pub members: &'static [Member],
    /// By PGPROC: processes, and what stands for prepared transactions.
    pub backends: &'static [Backend],
    /// By the operating system's numbers.
    processors: &'static [Processor],
    /// One per process.
    pub combine_requests: &'static [CombineRequest],
    pub totals: &'static Totals,
    pub guard: &'static ReadGuard,
    pub contended: &'static ContendedTables,
    /// Changed by `with_watched` only.
    pub watched: &'static WatchedTables,
    pub definitions: &'static Definitions,
    pub flush: &'static FlushQueue,
    /// What transactions have written to tables of `txn_heap`.
    pub rings: RingSpace<'static>,
    /// What is counted of these, by process.
    pub ranges: &'static [Counters],
    /// Declared transactions; None if the server was started without a lane. Changed by
    /// `with_lane`.
    pub lane: Option<Lane<'static>>,
    /// One per process: the transaction over several servers that it is voting on or applying.
    pub geo_slots: &'static [GeoSlot],
    /// One per process: its transaction that uses other servers. Changed by `with_running`.
    running: &'static [Running],
    /// One per process: what it does at the gate. Changed by `with_gate`.
    pub geo_seats: &'static [GeoSeat],
    /// Changed by `with_geo`.
    geo: &'static Board,
    /// Changed by `with_latencies`.
    latencies: &'static Latencies,
    /// Changed by `with_gate`.
    gate: &'static Gate,
    /// Changed by `with_records` and `with_turns`.
    records: &'static Records,
    /// Changed by `with_turns`.
    geo_places: &'static [Place],
    locks: *mut pg_sys::LWLockPadded,
}

// SAFETY: a backend has one thread; the only raw pointer leads to LWLocks, which are made for
// sharing.
unsafe impl Sync for Shared {}
// SAFETY: nothing in it is bound to the thread that made it.
unsafe impl Send for Shared {}

static SHARED: OnceLock<Shared> = OnceLock::new();

/// The shared memory, or None when the library was not preloaded.
#[inline]
pub fn shared() -> Option<&'static Shared> {
    SHARED.get()
}

/// One array after the other, each on a cache line.
struct Layout {
    at: usize,
}

impl Layout {
    fn take<T>(&mut self, count: usize) -> usize {
        const { assert!(align_of::<T>() <= 64) };
        let start = self.at.next_multiple_of(64);
        self.at = start + size_of::<T>() * count;
        start
    }
}

struct Offsets {
    header: usize,
    buckets: usize,
    contention: usize,
    shares: usize,
    rows: usize,
    members: usize,
    backends: usize,
    combine_requests: usize,
    committers: usize,
    counters: usize,
    range_buckets: usize,
    range_slots: usize,
    range_marks: usize,
    lane_seats: usize,
    lane_requests: usize,
    lane_queues: usize,
    lane_stripes: usize,
    geo_slots: usize,
    running: usize,
    geo_seats: usize,
    geo_places: usize,
    processors: usize,
    size: usize,
}

fn offsets() -> Offsets {
    let mut layout = Layout { at: 0 };
    let header = layout.take::<Header>(1);
    let bucket_array = layout.take::<Word32>(buckets());
    let contention = layout.take::<Word32>(CONTENTION);
    let shares = layout.take::<Word32>(SHARES);
    let row_array = layout.take::<Row>(rows());
    let member_array = layout.take::<Member>(all_backends() * MEMBERS);
    let backend_array = layout.take::<Backend>(all_backends());
    let request_array = layout.take::<CombineRequest>(backends());
    let committers = layout.take::<Committer>(backends());
    let counters = layout.take::<Counters>(backends());
    let (rings, slots) = all_rings();
    let ring_buckets = layout.take::<Bucket>(rings);
    let ring_slots = layout.take::<RangeSlot>(slots);
    let ring_marks = layout.take::<Mark>(ring_pairs() * range_marks());
    let lane_seats = layout.take::<Seat>(backends());
    let lane_request_array = layout.take::<Request>(lane_requests());
    let lane_queues = layout.take::<List>(lane_requests().next_power_of_two());
    let lane_stripe_array = layout.take::<Stripe>(lane_stripes());
    let geo_slots = layout.take::<GeoSlot>(backends());
    let running = layout.take::<Running>(backends());
    let geo_seats = layout.take::<GeoSeat>(backends());
    let geo_places = layout.take::<Place>(backends());
    let processor_array = layout.take::<Processor>(processors());
    Offsets {
        header,
        buckets: bucket_array,
        contention,
        shares,
        rows: row_array,
        members: member_array,
        backends: backend_array,
        combine_requests: request_array,
        committers,
        counters,
        range_buckets: ring_buckets,
        range_slots: ring_slots,
        range_marks: ring_marks,
        lane_seats,
        lane_requests: lane_request_array,
        lane_queues,
        lane_stripes: lane_stripe_array,
        geo_slots,
        running,
        geo_seats,
        geo_places,
        processors: processor_array,
        size: layout.at + 64,
    }
}

/// In `shmem_request_hook`: asks for the memory and the locks.
pub fn request() {
    // SAFETY: called from shmem_request_hook, where both are allowed.
    unsafe {
        pg_sys::RequestAddinShmemSpace(offsets().size);
        pg_sys::RequestNamedLWLockTranche(c"txn".as_ptr(), (rows() + EXTRA_LOCKS) as i32);
    }
}

/// In `shmem_startup_hook`: creates or attaches.
pub fn startup() {
    let offsets = offsets();
    // SAFETY: AddinShmemInitLock protects creation; ShmemInitStruct returns `size` bytes that live
    // as long as the server; all parts consist of integers for which zero is a valid value, and lie
    // aligned and disjoint by `offsets`.
    let shared = unsafe {
        let lock = &raw mut (*pg_sys::MainLWLockArray.add(ADDIN_SHMEM_INIT_LOCK)).lock;
        raw::LWLockAcquire(lock, pg_sys::LWLockMode::LW_EXCLUSIVE);
        let mut found = false;
        let block = pg_sys::ShmemInitStruct(c"txn".as_ptr(), offsets.size, &mut found).cast::<u8>();
        let start = block.add(block.align_offset(64));
        if !found {
            std::ptr::write_bytes(block, 0, offsets.size);
        }
        raw::LWLockRelease(lock);
        let header = &*start.add(offsets.header).cast::<Header>();
        Shared {
            directory: Directory {
                buckets: slice(start, offsets.buckets, buckets()),
                rows: slice(start, offsets.rows, rows()),
                contention: slice(start, offsets.contention, CONTENTION),
                shares: slice(start, offsets.shares, SHARES),
                used: &header.used,
                cursor: &header.cursor,
            },
            members: slice(start, offsets.members, all_backends() * MEMBERS),
            backends: slice(start, offsets.backends, all_backends()),
            processors: slice(start, offsets.processors, processors()),
            combine_requests: slice(start, offsets.combine_requests, backends()),
            totals: &header.totals,
            guard: &header.guard,
            contended: &header.contended,
            watched: &header.watched,
            definitions: &header.definitions,
            flush: &header.flush,
            rings: space(start, &offsets, &header.clock),
            ranges: slice(start, offsets.counters, backends()),
            lane: (lane_stripes() > 0).then(|| lane(start, &offsets, &header.lane)),
            geo_slots: slice(start, offsets.geo_slots, backends()),
            running: slice(start, offsets.running, backends()),
            geo_seats: slice(start, offsets.geo_seats, backends()),
            geo: &header.geo,
            latencies: &header.latencies,
            gate: &header.gate,
            records: &header.records,
            geo_places: slice(start, offsets.geo_places, backends()),
            locks: pg_sys::GetNamedLWLockTranche(c"txn".as_ptr()),
        }
    };
    let _ = SHARED.set(shared);
}

/// # Safety
/// As for `slice`, for all arrays of range OCC.
unsafe fn space(start: *mut u8, offsets: &Offsets, clock: &'static Clock) -> RingSpace<'static> {
    let (buckets, depth) = (range_buckets(), range_slots());
    let all = buckets + RELATION_BUCKETS;
    // SAFETY: the caller's memory has all arrays of range OCC at these offsets.
    let (heads, slots, marks) = unsafe {
        (
            slice::<Bucket>(start, offsets.range_buckets, all_rings().0),
            slice::<RangeSlot>(start, offsets.range_slots, all_rings().1),
            slice::<Mark>(start, offsets.range_marks, ring_pairs() * range_marks()),
        )
    };
    // One pair of rings after the other, then the definitions.
    let pair = |n: usize| {
        let heads = &heads[n * all..][..all];
        let slots = &slots[n * all * depth..][..all * depth];
        let marks = &marks[n * range_marks()..][..range_marks()];
        let (range_heads, relation_heads) = heads.split_at(buckets);
        let (range_slots, relation_slots) = slots.split_at(buckets * depth);
        RingPair {
            ranges: Rings::new(range_heads, range_slots, marks),
            relations: Rings::new(relation_heads, relation_slots, marks),
        }
    };
    RingSpace {
        clock,
        // SAFETY: the caller's memory has all arrays of range OCC at these offsets.
        committers: unsafe { slice(start, offsets.committers, backends()) },
        writes: pair(0),
        reads: (ring_pairs() > 1).then(|| pair(1)),
        definitions: Rings::new(
            &heads[rings_of_pairs()..],
            &slots[rings_of_pairs() * depth..],
            &marks[..range_marks()], // those of the writes
        ),
    }
}

/// # Safety
/// As for `slice`, for all arrays of the lane.
unsafe fn lane(start: *mut u8, offsets: &Offsets, head: &'static LaneHead) -> Lane<'static> {
    let requests = lane_requests();
    // SAFETY: the caller's memory has all arrays of the lane at these offsets.
    unsafe {
        Lane {
            head,
            seats: slice(start, offsets.lane_seats, backends()),
            requests: slice(start, offsets.lane_requests, requests),
            queues: slice(start, offsets.lane_queues, requests.next_power_of_two()),
            stripes: slice(start, offsets.lane_stripes, lane_stripes()),
        }
    }
}

/// storage/lwlocknames.txt: AddinShmemInitLock is number 21.
const ADDIN_SHMEM_INIT_LOCK: usize = 21;

/// # Safety
/// `count` zeroed or initialised values of `T` lie at `start + offset`, for the life of the
/// process.
unsafe fn slice<T>(start: *mut u8, offset: usize, count: usize) -> &'static [T] {
    // SAFETY: the caller's memory has `count` values of `T` there, for the life of the process.
    unsafe { std::slice::from_raw_parts(start.add(offset).cast(), count) }
}

impl Shared {
    /// The processors, with the process that was seen last on each.
    #[inline]
    pub fn processors(&self) -> Processors<'static> {
        Processors {
            all: self.processors,
            backends: self.backends,
        }
    }

    pub fn members(&self) -> Members<'static> {
        Members { all: self.members }
    }

    fn locked<R>(&self, index: usize, body: impl FnOnce() -> R) -> R {
        // SAFETY: the index is below the number of requested locks; `body` is pure shared-memory
        // work that raises no ERROR, and a panic in it becomes an ERROR whose clean-up releases all
        // LWLocks.
        unsafe {
            let lock = &raw mut (*self.locks.add(index)).lock;
            raw::LWLockAcquire(lock, pg_sys::LWLockMode::LW_EXCLUSIVE);
            let result = body();
            raw::LWLockRelease(lock);
            result
        }
    }

    /// This process's counters of range OCC.
    #[inline]
    pub fn counters(&self) -> &'static Counters {
        &self.ranges[process::me() as usize]
    }

    /// Bytes that range OCC has of it.
    pub fn range_bytes(&self) -> usize {
        let offsets = offsets();
        offsets.lane_seats - offsets.committers
    }

    /// Works on a hot row under its lock.
    #[inline]
    pub fn with_row<R>(
        &self,
        slot: Slot,
        body: impl FnOnce(&'static Row, Members<'static>) -> R,
    ) -> R {
        let row = &self.directory.rows[slot as usize];
        let members = self.members();
        self.locked(EXTRA_LOCKS + slot as usize, || body(row, members))
    }

    /// Works under the directory's lock; a row's lock may be taken inside.
    pub fn with_directory<R>(&self, body: impl FnOnce(Directory<'static>) -> R) -> R {
        let directory = self.directory;
        self.locked(0, || body(directory))
    }

    /// Works under the waits-for graph's lock; no other lock is taken inside.
    pub fn with_graph<R>(&self, body: impl FnOnce() -> R) -> R {
        self.locked(1, body)
    }

    /// Works under the watched tables' lock; no other of ours is taken inside.
    pub fn with_watched<R>(&self, body: impl FnOnce(&'static WatchedTables) -> R) -> R {
        let watched = self.watched;
        self.locked(2, || body(watched))
    }

    /// Works under the lane's lock; no other of ours is taken inside.
    #[inline]
    pub fn with_lane<R>(&self, lane: Lane<'static>, body: impl FnOnce(Lane<'static>) -> R) -> R {
        self.locked(3, || body(lane))
    }

    /// Works under the lock of transactions over several servers; no other of ours is taken inside.
    pub fn with_geo<R>(&self, body: impl FnOnce(&'static Board) -> R) -> R {
        let space = self.geo;
        self.locked(4, || body(space))
    }

    /// Works on the round trips to other servers, under the lock of `with_geo`.
    pub fn with_latencies<R>(&self, body: impl FnOnce(&'static Latencies) -> R) -> R {
        let latencies = self.latencies;
        self.locked(4, || body(latencies))
    }

    /// Works on the transactions that use other servers, under the lock of `with_geo`.
    pub fn with_running<R>(&self, body: impl FnOnce(&'static [Running]) -> R) -> R {
        let running = self.running;
        self.locked(4, || body(running))
    }

    /// Works on the gate of transactions over several servers, under the lock of `with_geo`.
    pub fn with_gate<R>(&self, body: impl FnOnce(&'static Gate, &'static [GeoSeat]) -> R) -> R {
        let (gate, seats) = (self.gate, self.geo_seats);
        self.locked(4, || body(gate, seats))
    }

    /// Works on what is known of records at other servers, under the lock of `with_geo`.
    pub fn with_records<R>(&self, body: impl FnOnce(&'static Records) -> R) -> R {
        let records = self.records;
        self.locked(4, || body(records))
    }

    /// Works on the turns at these records, under the lock of `with_geo`.
    pub fn with_turns<R>(&self, body: impl FnOnce(Turns<'static>) -> R) -> R {
        let turns = Turns::new(self.records, self.geo_places);
        self.locked(4, || body(turns))
    }

    /// The number of the next transaction over several servers.
    pub fn next_geo_sequence(&self) -> u64 {
        self.geo.next_sequence()
    }

    /// The number of the latest one.
    pub fn latest_geo_sequence(&self) -> u64 {
        self.geo.latest_sequence()
    }
}
