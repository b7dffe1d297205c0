//! PostgreSQL's functions, called as they are.
//!
//! pgrx wraps every function so that an ERROR becomes a Rust panic. On its way through that wrapper
//! an ERROR loses its CONTEXT and the names of constraint, table and column, and each call pays for
//! a `sigsetjmp`. Code that PostgreSQL calls for every statement and tuple therefore uses these
//! declarations: an ERROR jumps over our frames, straight to PostgreSQL's handler. The rule that
//! makes this sound: **no value with a destructor is alive, and no `with_row` closure is running,
//! across a call from this module.** What must be undone is undone by the transaction callbacks.

use pgrx::pg_sys::*;
use std::ffi::{c_char, c_int, c_void};

/// utils/timeout.h, not bound by pgrx: PostgreSQL's own timers.
#[derive(Clone, Copy)]
#[repr(C)]
pub enum TimeoutId {
    LockTimeout = 2,
    StatementTimeout = 3,
}

/// utils/elog.h
pub const ERROR: c_int = 21;
pub const NOTICE: c_int = 18;
pub const LOG_SERVER_ONLY: c_int = 16;

/// tcop/tcopprot.h
pub const LOGSTMT_DDL: c_int = 1;

unsafe extern "C-unwind" {
    // utils/error/elog.c
    pub fn errstart(elevel: c_int, domain: *const c_char) -> bool;
    pub fn errcode(code: c_int) -> c_int;
    pub fn errmsg_internal(format: *const c_char, ...) -> c_int;
    pub fn errdetail_internal(format: *const c_char, ...) -> c_int;
    pub fn set_errcontext_domain(domain: *const c_char) -> c_int;
    pub fn errcontext_msg(format: *const c_char, ...) -> c_int;
    pub fn errhint(format: *const c_char, ...) -> c_int;
    pub fn errfinish(file: *const c_char, line: c_int, function: *const c_char);
    pub fn FlushErrorState();
    pub fn CopyErrorData() -> *mut ErrorData;
    pub fn FreeErrorData(error: *mut ErrorData);
    pub fn geterrcode() -> c_int;
    pub fn ReThrowError(error: *mut ErrorData) -> !;
    pub fn pg_re_throw() -> !;
    pub fn ProcessInterrupts();

    // utils/resowner/resowner.c
    pub fn RegisterResourceReleaseCallback(callback: ResourceReleaseCallback, arg: *mut c_void);

    // commands/trigger.c
    pub fn AfterTriggerFireDeferred();
    pub fn AfterTriggerPendingOnRel(relation: Oid) -> bool;

    // storage/lmgr
    pub fn LWLockAcquire(lock: *mut LWLock, mode: LWLockMode::Type) -> bool;
    pub fn LWLockRelease(lock: *mut LWLock);
    pub fn LockHeldByMe(tag: *const LOCKTAG, mode: LOCKMODE) -> bool;
    pub fn LockRelationOid(relation: Oid, mode: LOCKMODE);
    pub fn UnlockRelationOid(relation: Oid, mode: LOCKMODE);
    pub fn LockTuple(relation: Relation, tid: *const ItemPointerData, mode: LOCKMODE);
    pub fn UnlockTuple(relation: Relation, tid: *const ItemPointerData, mode: LOCKMODE);
    pub fn XactLockTableWait(
        xid: TransactionId,
        rel: Relation,
        tid: ItemPointer,
        oper: XLTW_Oper::Type,
    );
    pub fn VirtualXactLock(vxid: VirtualTransactionId, wait: bool) -> bool;
    pub fn LockWaiterCount(tag: *const LOCKTAG) -> c_int;
    #[cfg(feature = "stop_events")]
    pub fn LockAcquire(
        tag: *const LOCKTAG,
        mode: LOCKMODE,
        session: bool,
        no_wait: bool,
    ) -> LockAcquireResult::Type;
    #[cfg(feature = "stop_events")]
    pub fn LockRelease(tag: *const LOCKTAG, mode: LOCKMODE, session: bool) -> bool;

    // common/hashfn.c; not bound by pgrx
    #[cfg(feature = "stop_events")]
    pub fn hash_bytes(bytes: *const u8, length: c_int) -> uint32;

    // storage/ipc, utils/misc/timeout.c
    pub fn PostmasterIsAliveInternal() -> bool;
    pub fn proc_exit(code: c_int) -> !;
    #[cfg(not(target_os = "linux"))]
    pub fn WaitLatch(
        latch: *mut Latch,
        events: c_int,
        timeout: std::ffi::c_long,
        info: uint32,
    ) -> c_int;
    pub fn ResetLatch(latch: *mut Latch);
    pub fn SetLatch(latch: *mut Latch);
    pub fn TransactionIdIsInProgress(xid: TransactionId) -> bool;
    pub fn enable_timeout_after(id: TimeoutId, delay_ms: c_int);
    pub fn disable_timeout(id: TimeoutId, keep_indicator: bool);
    pub fn get_timeout_active(id: TimeoutId) -> bool;
    pub fn get_timeout_indicator(id: TimeoutId, reset: bool) -> bool;

    // access/transam/twophase.c; not bound by pgrx
    pub static max_prepared_xacts: c_int;

    // libpq/auth.c; not bound by pgrx
    pub static mut ClientAuthentication_hook:
        Option<unsafe extern "C-unwind" fn(port: *mut Port, status: c_int)>;

    // utils/misc/guc.c
    pub fn GUC_check_errcode(code: c_int);

    // access/transam
    pub fn ReadNextFullTransactionId() -> FullTransactionId;
    pub fn GetTopFullTransactionIdIfAny() -> FullTransactionId;
    pub fn RecoveryInProgress() -> bool;
    pub fn TransactionIdDidCommit(xid: TransactionId) -> bool;
    pub fn TransactionIdIsCurrentTransactionId(xid: TransactionId) -> bool;
    pub fn HeapTupleGetUpdateXid(tuple: HeapTupleHeader) -> TransactionId;
    pub fn GetTopTransactionIdIfAny() -> TransactionId;
    pub fn GetCurrentTransactionIdIfAny() -> TransactionId;
    pub fn GetCurrentTransactionId() -> TransactionId;
    pub fn GetCurrentTransactionNestLevel() -> c_int;
    pub fn ExecCheckPermissions(rtable: *mut List, infos: *mut List, raises: bool) -> bool;
    pub fn GetCurrentTransactionStartTimestamp() -> TimestampTz;
    pub fn GetCurrentStatementStartTimestamp() -> TimestampTz;
    pub fn SetParallelStartTimestamps(transaction: TimestampTz, statement: TimestampTz);
    pub fn GetCurrentSubTransactionId() -> SubTransactionId;
    pub fn GetCurrentCommandId(used: bool) -> CommandId;
    pub fn CommandCounterIncrement();
    pub fn IsTransactionBlock() -> bool;
    // parser/parser.c
    pub fn raw_parser(text: *const c_char, mode: RawParseMode::Type) -> *mut List;
    pub fn IsInTransactionBlock(is_top_level: bool) -> bool;
    pub fn IsSubTransaction() -> bool;
    // utils/init/miscinit.c, utils/misc/superuser.c
    pub fn GetUserId() -> Oid;
    pub fn GetSessionUserId() -> Oid;
    pub fn superuser_arg(role: Oid) -> bool;
    pub fn GetUserIdAndSecContext(user: *mut Oid, context: *mut c_int);
    // catalog/aclchk.c
    pub fn pg_class_aclcheck_ext(
        table: Oid,
        role: Oid,
        mode: AclMode,
        is_missing: *mut bool,
    ) -> AclResult::Type;
    pub fn pg_attribute_aclcheck_ext(
        table: Oid,
        column: AttrNumber,
        role: Oid,
        mode: AclMode,
        is_missing: *mut bool,
    ) -> AclResult::Type;
    pub fn pg_attribute_aclcheck_all(
        table: Oid,
        role: Oid,
        mode: AclMode,
        how: AclMaskHow::Type,
    ) -> AclResult::Type;
    // utils/misc/rls.c
    pub fn check_enable_rls(relation: Oid, user: Oid, no_error: bool) -> c_int;
    pub fn IsTransactionState() -> bool;
    pub fn MultiXactIdSetOldestMember();
    pub fn LWLockReleaseAll();
    pub fn UnlockBuffers();
    pub fn XLogResetInsertion();
    pub fn ConditionVariableCancelSleep() -> bool;
    pub fn LockErrorCleanup();
    pub fn GetMultiXactIdMembers(
        multi: MultiXactId,
        members: *mut *mut MultiXactMember,
        from_pgupgrade: bool,
        only_locks: bool,
    ) -> c_int;
    pub fn XLogFlush(record: XLogRecPtr);
    pub fn GetXLogInsertRecPtr() -> XLogRecPtr;
    pub fn GetFlushRecPtr(timeline: *mut TimeLineID) -> XLogRecPtr;
    pub fn SyncRepWaitForLSN(lsn: XLogRecPtr, commit: bool);
    pub fn XLogBeginInsert();
    pub fn XLogRegisterBuffer(block_id: uint8, buffer: Buffer, flags: uint8);
    pub fn XLogRegisterData(data: *mut c_char, len: uint32);
    pub fn XLogRegisterBufData(block_id: uint8, data: *mut c_char, len: uint32);
    pub fn XLogSetRecordFlags(flags: uint8);
    pub fn XLogInsert(rmid: RmgrId, info: uint8) -> XLogRecPtr;
    pub fn XLogCheckBufferNeedsBackup(buffer: Buffer) -> bool;

    // storage/buffer, access/heap
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
    pub fn visibilitymap_get_status(rel: Relation, block: BlockNumber, map: *mut Buffer) -> uint8;
    pub fn SubTransGetTopmostTransaction(xid: TransactionId) -> TransactionId;
    pub fn ReleaseAndReadBuffer(buffer: Buffer, rel: Relation, block: BlockNumber) -> Buffer;
    pub fn ReleaseBuffer(buffer: Buffer);
    pub fn UnlockReleaseBuffer(buffer: Buffer);
    pub fn LockBuffer(buffer: Buffer, mode: c_int);
    pub fn MarkBufferDirty(buffer: Buffer);
    pub fn PageGetHeapFreeSpace(page: Page) -> Size;
    pub fn heap_page_prune_opt(rel: Relation, buffer: Buffer);
    // access/heap/hio.c; not bound by pgrx
    pub fn RelationPutHeapTuple(rel: Relation, buffer: Buffer, tuple: HeapTuple, token: bool);
    pub fn nocachegetattr(tuple: HeapTuple, attnum: c_int, desc: TupleDesc) -> Datum;
    pub fn getmissingattr(desc: TupleDesc, attnum: c_int, isnull: *mut bool) -> Datum;
    pub fn datumIsEqual(a: Datum, b: Datum, by_value: bool, length: c_int) -> bool;
    pub fn pgstat_count_heap_update(rel: Relation, hot: bool, newpage: bool);
    pub fn pgstat_update_heap_dead_tuples(rel: Relation, delta: c_int);

    // optimizer/plan/planner.c
    pub fn standard_planner(
        parse: *mut Query,
        source: *const c_char,
        options: c_int,
        params: ParamListInfo,
    ) -> *mut PlannedStmt;

    // executor
    pub fn standard_ExecutorStart(query: *mut QueryDesc, eflags: c_int);
    pub fn standard_ExecutorRun(
        query: *mut QueryDesc,
        direction: ScanDirection::Type,
        count: uint64,
        once: bool,
    );
    pub fn standard_ExecutorFinish(query: *mut QueryDesc);
    pub fn standard_ExecutorEnd(query: *mut QueryDesc);
    pub fn CreateQueryDesc(
        plan: *mut PlannedStmt,
        source: *const c_char,
        snapshot: Snapshot,
        crosscheck: Snapshot,
        destination: *mut DestReceiver,
        params: ParamListInfo,
        environment: *mut QueryEnvironment,
        instruments: c_int,
    ) -> *mut QueryDesc;
    pub fn FreeQueryDesc(query: *mut QueryDesc);
    pub fn standard_ProcessUtility(
        pstmt: *mut PlannedStmt,
        source: *const c_char,
        read_only: bool,
        context: ProcessUtilityContext::Type,
        params: ParamListInfo,
        env: *mut QueryEnvironment,
        dest: *mut DestReceiver,
        completion: *mut QueryCompletion,
    );
    pub fn ExecFetchSlotHeapTuple(
        slot: *mut TupleTableSlot,
        materialize: bool,
        free: *mut bool,
    ) -> HeapTuple;
    pub fn ExecStoreBufferHeapTuple(
        tuple: HeapTuple,
        slot: *mut TupleTableSlot,
        buffer: Buffer,
    ) -> *mut TupleTableSlot;
    pub fn HeapTupleSatisfiesVisibility(
        tuple: HeapTuple,
        snapshot: Snapshot,
        buffer: Buffer,
    ) -> bool;
    pub fn ExecStorePinnedBufferHeapTuple(
        tuple: HeapTuple,
        slot: *mut TupleTableSlot,
        buffer: Buffer,
    ) -> *mut TupleTableSlot;
    pub fn ExecGetUpdateNewTuple(
        result: *mut ResultRelInfo,
        plan: *mut TupleTableSlot,
        old: *mut TupleTableSlot,
    ) -> *mut TupleTableSlot;
    pub fn ExecForceStoreHeapTuple(tuple: HeapTuple, slot: *mut TupleTableSlot, free: bool);
    pub fn ExecStoreVirtualTuple(slot: *mut TupleTableSlot) -> *mut TupleTableSlot;
    pub fn MakeSingleTupleTableSlot(
        desc: TupleDesc,
        operations: *const TupleTableSlotOps,
    ) -> *mut TupleTableSlot;
    pub fn ExecDropSingleTupleTableSlot(slot: *mut TupleTableSlot);
    pub fn ExecConstraints(
        result: *mut ResultRelInfo,
        slot: *mut TupleTableSlot,
        estate: *mut EState,
    );
    pub fn InstrStartNode(instrumentation: *mut Instrumentation);
    pub fn InstrStopNode(instrumentation: *mut Instrumentation, tuples: f64);
    pub fn ExecGetUpdatedCols(result: *mut ResultRelInfo, estate: *mut EState) -> *mut Bitmapset;
    pub fn slot_getsomeattrs_int(slot: *mut TupleTableSlot, attnum: c_int);

    // executor/spi.c
    pub fn SPI_connect_ext(options: c_int) -> c_int;
    pub fn SPI_finish() -> c_int;
    pub fn SPI_commit();
    pub fn SPI_rollback();
    pub fn SPI_execute(text: *const c_char, read_only: bool, count: std::ffi::c_long) -> c_int;
    pub fn SPI_prepare_extended(
        text: *const c_char,
        options: *const SPIPrepareOptions,
    ) -> SPIPlanPtr;
    pub fn SPI_execute_plan_extended(plan: SPIPlanPtr, options: *const SPIExecuteOptions) -> c_int;
    pub fn SPI_freeplan(plan: SPIPlanPtr) -> c_int;
    pub fn SPI_freetuptable(table: *mut SPITupleTable);
    pub fn SPI_returntuple(row: HeapTuple, descriptor: TupleDesc) -> HeapTupleHeader;
    // access/transam/xact.c
    pub fn BeginInternalSubTransaction(name: *const c_char);
    pub fn ReleaseCurrentSubTransaction();
    pub fn RollbackAndReleaseCurrentSubTransaction();
    // parser/parse_param.c; not bound by pgrx
    pub fn setup_parse_variable_parameters(
        state: *mut ParseState,
        types: *mut *mut Oid,
        count: *mut c_int,
    );
    // nodes/params.c, utils/fmgr
    pub fn makeParamList(count: c_int) -> ParamListInfo;
    pub fn get_call_result_type(
        call: FunctionCallInfo,
        typ: *mut Oid,
        descriptor: *mut TupleDesc,
    ) -> TypeFuncClass::Type;
    pub fn DirectFunctionCall1Coll(function: PGFunction, collation: Oid, argument: Datum) -> Datum;
    pub fn row_to_json(call: FunctionCallInfo) -> Datum;
    pub fn jsonb_in(call: FunctionCallInfo) -> Datum;
    pub fn text_to_cstring(text: *const text) -> *mut c_char;
    // executor/execTuples.c, access/common/heaptuple.c
    pub fn BlessTupleDesc(descriptor: TupleDesc) -> TupleDesc;
    pub fn HeapTupleHeaderGetDatum(row: HeapTupleHeader) -> Datum;
    pub fn heap_form_tuple(
        descriptor: TupleDesc,
        values: *mut Datum,
        nulls: *mut bool,
    ) -> HeapTuple;
    pub fn SPI_inside_nonatomic_context() -> bool;
    pub fn SPI_plan_get_plan_sources(plan: SPIPlanPtr) -> *mut List;

    // tcop/utility.c
    pub fn GetCommandLogLevel(node: *mut Node) -> c_int;

    // nodes
    pub fn expression_tree_mutator_impl(
        node: *mut Node,
        mutator: tree_mutator_callback,
        context: *mut c_void,
    ) -> *mut Node;
    pub fn expression_tree_walker_impl(
        node: *mut Node,
        walker: Option<unsafe extern "C-unwind" fn(*mut Node, *mut c_void) -> bool>,
        context: *mut c_void,
    ) -> bool;
    pub fn query_tree_walker_impl(
        query: *mut Query,
        walker: Option<unsafe extern "C-unwind" fn(*mut Node, *mut c_void) -> bool>,
        context: *mut c_void,
        flags: c_int,
    ) -> bool;
    pub fn stringToNode(text: *const c_char) -> *mut c_void;
    pub fn fix_opfuncids(node: *mut Node);

    // libpq/pqcomm.c; not bound by pgrx
    pub fn pq_buffer_has_data() -> bool;
    pub fn pq_startmsgread();
    pub fn pq_endmsgread();
    pub fn pq_peekbyte() -> c_int;

    // catalog/namespace.c
    pub fn RangeVarGetRelidExtended(
        name: *const RangeVar,
        mode: LOCKMODE,
        flags: uint32,
        callback: RangeVarGetRelidCallback,
        argument: *mut c_void,
    ) -> Oid;

    // utils
    pub fn ActiveSnapshotSet() -> bool;
    pub fn GetActiveSnapshot() -> Snapshot;
    pub fn PopActiveSnapshot();
    pub fn GetSnapshotData(snapshot: Snapshot) -> Snapshot;
    pub static SharedInvalidMessageCounter: u64;
    pub fn AcceptInvalidationMessages();
    pub fn GetSerializableTransactionSnapshot(snapshot: Snapshot) -> Snapshot;
    pub fn ReleasePredicateLocks(is_commit: bool, is_read_only_safe: bool);
    pub fn GetMemoryChunkContext(pointer: *mut c_void) -> MemoryContext;
    pub fn palloc0(size: usize) -> *mut c_void;
    pub fn MemoryContextAlloc(context: MemoryContext, size: usize) -> *mut c_void;
    pub fn PushCopiedSnapshot(snapshot: Snapshot);
    pub fn GetTransactionSnapshot() -> Snapshot;
    pub fn GetLatestSnapshot() -> Snapshot;
    pub fn RegisterSnapshot(snapshot: Snapshot) -> Snapshot;
    pub fn UnregisterSnapshotFromOwner(snapshot: Snapshot, owner: ResourceOwner);
    pub fn UnregisterSnapshot(snapshot: Snapshot);
    pub fn InvalidateCatalogSnapshot();
    pub fn PushActiveSnapshot(snapshot: Snapshot);
    pub fn PushActiveSnapshotWithLevel(snapshot: Snapshot, level: c_int);
    pub fn XidInMVCCSnapshot(xid: TransactionId, snapshot: Snapshot) -> bool;
    pub fn GetCurrentTimestamp() -> TimestampTz;
    pub fn get_rel_name(relation: Oid) -> *mut c_char;
    pub fn RelationGetIndexPredicate(relation: Relation) -> *mut List;
    pub fn RelationIdGetRelation(relid: Oid) -> Relation;
    pub fn RelationClose(rel: Relation);
    pub fn RelationGetIndexList(rel: Relation) -> *mut List;
    pub fn RelationGetIndexAttrBitmap(
        rel: Relation,
        kind: IndexAttrBitmapKind::Type,
    ) -> *mut Bitmapset;
    pub fn bms_next_member(set: *const Bitmapset, previous: c_int) -> c_int;
    pub fn bms_is_member(member: c_int, set: *const Bitmapset) -> bool;
    pub fn bms_overlap(a: *const Bitmapset, b: *const Bitmapset) -> bool;
    pub fn bms_free(set: *mut Bitmapset);
    pub fn list_copy(list: *const List) -> *mut List;
    pub fn list_free(list: *mut List);
    pub fn contain_volatile_functions(clause: *mut Node) -> bool;
    pub fn list_member_oid(list: *const List, oid: Oid) -> bool;
    pub fn palloc(size: Size) -> *mut c_void;
    pub fn AllocSetContextCreateInternal(
        parent: MemoryContext,
        name: *const c_char,
        min: Size,
        initial: Size,
        max: Size,
    ) -> MemoryContext;
    pub fn pg_detoast_datum_copy(datum: *mut varlena) -> *mut varlena;
    pub fn pg_detoast_datum(datum: *mut varlena) -> *mut varlena;
    pub fn deconstruct_array(
        array: *mut ArrayType,
        typ: Oid,
        length: c_int,
        by_value: bool,
        align: c_char,
        elements: *mut *mut Datum,
        nulls: *mut *mut bool,
        count: *mut c_int,
    );
    pub fn get_typlenbyvalalign(
        typ: Oid,
        length: *mut int16,
        by_value: *mut bool,
        align: *mut c_char,
    );
    pub fn getBaseType(typ: Oid) -> Oid;
    pub fn lookup_type_cache(typ: Oid, flags: c_int) -> *mut TypeCacheEntry;
    // utils/adt/pg_locale.c; not bound by pgrx
    pub fn lc_collate_is_c(collation: Oid) -> bool;
    pub fn get_namespace_oid(name: *const c_char, missing_ok: bool) -> Oid;
    pub fn get_database_oid(name: *const c_char, missing_ok: bool) -> Oid;
    pub fn RelnameGetRelid(name: *const c_char) -> Oid;
    pub fn object_aclcheck(class: Oid, object: Oid, role: Oid, mode: AclMode) -> AclResult::Type;
    pub fn get_relname_relid(name: *const c_char, namespace: Oid) -> Oid;
    pub fn get_am_oid(name: *const c_char, missing_ok: bool) -> Oid;
    pub fn get_am_name(am: Oid) -> *mut c_char;
    pub fn pg_detoast_datum_packed(datum: *mut varlena) -> *mut varlena;
    pub fn get_collation_isdeterministic(collation: Oid) -> bool;
    pub fn op_mergejoinable(operator: Oid, input: Oid) -> bool;
    pub fn getTypeOutputInfo(typ: Oid, output: *mut Oid, is_varlena: *mut bool);
    pub fn OidOutputFunctionCall(function: Oid, value: Datum) -> *mut c_char;
    pub fn pg_mbcliplen(text: *const c_char, len: c_int, limit: c_int) -> c_int;
    // utils/adt/varlena.c, utils/fmgr
    pub fn stringToQualifiedNameList(text: *const c_char, context: *mut Node) -> *mut List;
    pub fn getTypeInputInfo(typ: Oid, input: *mut Oid, parameter: *mut Oid);
    pub fn fmgr_info(function: Oid, info: *mut FmgrInfo);
    pub fn InputFunctionCallSafe(
        function: *mut FmgrInfo,
        text: *mut c_char,
        parameter: Oid,
        modifier: c_int,
        context: *mut Node,
        result: *mut Datum,
    ) -> bool;
    pub fn OidInputFunctionCall(
        function: Oid,
        text: *mut c_char,
        parameter: Oid,
        modifier: c_int,
    ) -> Datum;
    pub fn eval_const_expressions(root: *mut PlannerInfo, node: *mut Node) -> *mut Node;
    pub fn get_element_type(typ: Oid) -> Oid;
    pub fn get_opname(operator: Oid) -> *mut c_char;
    pub fn exprType(expression: *const Node) -> Oid;
    pub fn pg_get_timezone_name(zone: *mut pg_tz) -> *const c_char;
    pub fn pg_get_client_encoding() -> c_int;
    pub fn GetDatabaseEncoding() -> c_int;
    pub fn get_opcode(operator: Oid) -> Oid;
    pub fn get_typtype(typ: Oid) -> c_char;
    pub fn get_language_oid(name: *const c_char, missing_ok: bool) -> Oid;
    pub fn RelationGetIndexExpressions(relation: Relation) -> *mut List;
    pub fn find_rendezvous_variable(name: *const c_char) -> *mut *mut c_void;
    pub fn RegisterXactCallback(callback: XactCallback, arg: *mut c_void);
    pub fn UnregisterXactCallback(callback: XactCallback, arg: *mut c_void);
    pub fn SearchSysCache1(cache: c_int, key: Datum) -> HeapTuple;
    pub fn ReleaseSysCache(tuple: HeapTuple);
    pub fn RelationGetFKeyList(rel: Relation) -> *mut List;
    pub fn MemoryContextReset(context: MemoryContext);
    pub fn pfree(pointer: *mut c_void);
    pub fn cstring_to_text(text: *const c_char) -> *mut text;

    // catalogs: access/genam.h, access/table.h, commands/seclabel.h, catalog/partition.h
    pub fn table_open(relation: Oid, mode: LOCKMODE) -> Relation;
    pub fn table_close(relation: Relation, mode: LOCKMODE);
    pub fn ScanKeyInit(
        key: ScanKey,
        attribute: AttrNumber,
        strategy: StrategyNumber,
        function: RegProcedure,
        argument: Datum,
    );
    pub fn heap_copytuple(tuple: HeapTuple) -> HeapTuple;
    pub fn toast_flatten_tuple(tuple: HeapTuple, descriptor: TupleDesc) -> HeapTuple;
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
    pub fn get_opfamily_member(family: Oid, left: Oid, right: Oid, strategy: int16) -> Oid;
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
    pub fn GetSecurityLabel(object: *const ObjectAddress, provider: *const c_char) -> *mut c_char;
    pub fn get_rel_relispartition(relation: Oid) -> bool;
    /// access/xlog.h
    pub static CommitDelay: c_int;
    pub fn pg_usleep(microseconds: std::ffi::c_long);
    pub fn get_rel_persistence(relation: Oid) -> c_char;
    pub fn op_input_types(operator: Oid, left: *mut Oid, right: *mut Oid);
    pub fn makeRangeVarFromNameList(names: *mut List) -> *mut RangeVar;
    // catalog/pg_inherits.c; not bound by pgrx
    pub fn find_inheritance_children(parent: Oid, mode: LOCKMODE) -> *mut List;
    pub fn find_all_inheritors(parent: Oid, mode: LOCKMODE, counts: *mut *mut List) -> *mut List;
    pub fn get_partition_ancestors(relation: Oid) -> *mut List;
}
