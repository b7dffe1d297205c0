//! PostgreSQL's functions about what is stored: pages, tuples, indexes, and their records in WAL.

use pgrx::pg_sys::*;
use std::ffi::{c_char, c_int, c_void};

unsafe extern "C-unwind" {
    // storage/buffer
    pub fn ReadBuffer(rel: Relation, block: BlockNumber) -> Buffer;
    pub fn ReadRecentBuffer(
        locator: RelFileLocator,
        fork: ForkNumber::Type,
        block: BlockNumber,
        recent: Buffer,
    ) -> bool;
    pub fn ReadBufferExtended(
        rel: Relation,
        fork: ForkNumber::Type,
        block: BlockNumber,
        mode: ReadBufferMode::Type,
        strategy: BufferAccessStrategy,
    ) -> Buffer;
    pub fn RelationGetNumberOfBlocksInFork(rel: Relation, fork: ForkNumber::Type) -> BlockNumber;
    pub fn GetAccessStrategy(kind: BufferAccessStrategyType::Type) -> BufferAccessStrategy;
    pub fn FreeAccessStrategy(strategy: BufferAccessStrategy);
    pub fn ReleaseAndReadBuffer(buffer: Buffer, rel: Relation, block: BlockNumber) -> Buffer;
    pub fn ReleaseBuffer(buffer: Buffer);
    pub fn UnlockReleaseBuffer(buffer: Buffer);
    pub fn LockBuffer(buffer: Buffer, mode: c_int);
    pub fn MarkBufferDirty(buffer: Buffer);

    // storage/page, access/heap
    pub fn visibilitymap_count(
        rel: Relation,
        all_visible: *mut BlockNumber,
        all_frozen: *mut BlockNumber,
    );
    pub fn visibilitymap_get_status(rel: Relation, block: BlockNumber, map: *mut Buffer) -> uint8;
    pub fn PageGetHeapFreeSpace(page: Page) -> Size;
    pub fn heap_page_prune_opt(rel: Relation, buffer: Buffer);
    pub fn heap_lock_tuple(
        rel: Relation,
        tuple: HeapTuple,
        cid: CommandId,
        mode: LockTupleMode::Type,
        policy: LockWaitPolicy::Type,
        follow_updates: bool,
        buffer: *mut Buffer,
        failure: *mut TM_FailureData,
    ) -> TM_Result::Type;
    pub fn HeapTupleHeaderGetCmin(tuple: HeapTupleHeader) -> CommandId;
    pub fn HeapTupleGetUpdateXid(tuple: HeapTupleHeader) -> TransactionId;
    pub fn heap_hot_search_buffer(
        tid: ItemPointer,
        rel: Relation,
        buffer: Buffer,
        snapshot: Snapshot,
        tuple: HeapTuple,
        all_dead: *mut bool,
        first_call: bool,
    ) -> bool;
    pub fn HeapTupleIsSurelyDead(tuple: HeapTuple, test: *mut GlobalVisState) -> bool;
    pub fn GlobalVisTestFor(rel: Relation) -> *mut GlobalVisState;
    pub fn HeapTupleSatisfiesVisibility(
        tuple: HeapTuple,
        snapshot: Snapshot,
        buffer: Buffer,
    ) -> bool;
    pub fn toast_flatten_tuple(tuple: HeapTuple, descriptor: TupleDesc) -> HeapTuple;

    // access/heap/hio.c; not bound by pgrx
    pub fn RelationPutHeapTuple(rel: Relation, buffer: Buffer, tuple: HeapTuple, token: bool);

    // access/common/heaptuple.c
    pub fn nocachegetattr(tuple: HeapTuple, attnum: c_int, desc: TupleDesc) -> Datum;
    pub fn getmissingattr(desc: TupleDesc, attnum: c_int, isnull: *mut bool) -> Datum;
    pub fn heap_form_tuple(
        descriptor: TupleDesc,
        values: *mut Datum,
        nulls: *mut bool,
    ) -> HeapTuple;
    pub fn heap_copytuple(tuple: HeapTuple) -> HeapTuple;

    // replication/logical/message.c; not bound by pgrx
    pub fn LogLogicalMessage(
        prefix: *const c_char,
        message: *const c_char,
        size: usize,
        transactional: bool,
    ) -> XLogRecPtr;

    // utils/adt/datum.c
    pub fn datumIsEqual(a: Datum, b: Datum, by_value: bool, length: c_int) -> bool;

    // utils/fmgr/fmgr.c
    pub fn pg_detoast_datum_copy(datum: *mut varlena) -> *mut varlena;
    pub fn pg_detoast_datum(datum: *mut varlena) -> *mut varlena;
    pub fn pg_detoast_datum_packed(datum: *mut varlena) -> *mut varlena;

    // utils/activity
    pub fn pgstat_count_heap_update(rel: Relation, hot: bool, newpage: bool);
    pub fn pgstat_update_heap_dead_tuples(rel: Relation, delta: c_int);

    // access/table, access/index
    pub fn table_open(relation: Oid, mode: LOCKMODE) -> Relation;
    pub fn table_close(relation: Relation, mode: LOCKMODE);
    pub fn ScanKeyInit(
        key: ScanKey,
        attribute: AttrNumber,
        strategy: StrategyNumber,
        function: RegProcedure,
        argument: Datum,
    );
    pub fn index_open(relation: Oid, mode: LOCKMODE) -> Relation;
    pub fn index_close(relation: Relation, mode: LOCKMODE);
    pub fn index_beginscan(
        heap: Relation,
        index: Relation,
        snapshot: Snapshot,
        keys: c_int,
        orders: c_int,
    ) -> IndexScanDesc;
    pub fn index_rescan(
        scan: IndexScanDesc,
        keys: ScanKey,
        count: c_int,
        orders: ScanKey,
        order_count: c_int,
    );
    pub fn index_getnext_slot(
        scan: IndexScanDesc,
        direction: ScanDirection::Type,
        slot: *mut TupleTableSlot,
    ) -> bool;
    pub fn index_endscan(scan: IndexScanDesc);
    pub fn systable_beginscan(
        relation: Relation,
        index: Oid,
        by_index: bool,
        snapshot: Snapshot,
        keys: c_int,
        key: ScanKey,
    ) -> SysScanDesc;
    pub fn systable_getnext(scan: SysScanDesc) -> HeapTuple;
    pub fn systable_endscan(scan: SysScanDesc);

    // access/transam/xlog.c, replication/syncrep.c
    pub fn XLogFlush(record: XLogRecPtr);
    pub fn GetXLogInsertRecPtr() -> XLogRecPtr;
    pub fn GetFlushRecPtr(timeline: *mut TimeLineID) -> XLogRecPtr;
    pub fn SyncRepWaitForLSN(lsn: XLogRecPtr, commit: bool);
    pub fn assign_synchronous_commit(value: c_int, extra: *mut c_void);

    // access/transam/xloginsert.c
    pub fn XLogBeginInsert();
    pub fn XLogRegisterBuffer(block_id: uint8, buffer: Buffer, flags: uint8);
    pub fn XLogRegisterData(data: *mut c_char, len: uint32);
    pub fn XLogRegisterBufData(block_id: uint8, data: *mut c_char, len: uint32);
    pub fn XLogSetRecordFlags(flags: uint8);
    pub fn XLogInsert(rmid: RmgrId, info: uint8) -> XLogRecPtr;
    pub fn XLogCheckBufferNeedsBackup(buffer: Buffer) -> bool;

    /// access/xlog.h
    pub static CommitDelay: c_int;
}
