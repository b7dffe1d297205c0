//! PostgreSQL's functions about statements: parsing, planning, running them, SPI, nodes.

use pgrx::pg_sys::*;
use std::ffi::{c_char, c_int, c_void};

/// tcop/tcopprot.h
pub const LOGSTMT_DDL: c_int = 1;

unsafe extern "C-unwind" {
    // parser/parser.c
    pub fn raw_parser(text: *const c_char, mode: RawParseMode::Type) -> *mut List;

    // parser/parse_param.c; not bound by pgrx
    pub fn setup_parse_variable_parameters(
        state: *mut ParseState,
        types: *mut *mut Oid,
        count: *mut c_int,
    );

    // optimizer
    pub fn standard_planner(
        parse: *mut Query,
        source: *const c_char,
        options: c_int,
        params: ParamListInfo,
    ) -> *mut PlannedStmt;
    pub fn contain_volatile_functions(clause: *mut Node) -> bool;
    pub fn eval_const_expressions(root: *mut PlannerInfo, node: *mut Node) -> *mut Node;

    // executor
    pub fn CreateStandaloneExprContext() -> *mut ExprContext;
    pub fn FreeExprContext(context: *mut ExprContext, is_commit: bool);
    pub fn ExecInitExprWithParams(node: *mut Expr, params: ParamListInfo) -> *mut ExprState;
    pub fn ExecCheckPermissions(rtable: *mut List, infos: *mut List, raises: bool) -> bool;
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
    pub fn ExecGetUpdateNewTuple(
        result: *mut ResultRelInfo,
        plan: *mut TupleTableSlot,
        old: *mut TupleTableSlot,
    ) -> *mut TupleTableSlot;
    pub fn ExecConstraints(
        result: *mut ResultRelInfo,
        slot: *mut TupleTableSlot,
        estate: *mut EState,
    );
    pub fn ExecSetExecProcNode(node: *mut PlanState, function: ExecProcNodeMtd);
    // executor/execPartition.c; not bound by pgrx
    pub fn ExecFindPartition(
        modify: *mut ModifyTableState,
        root: *mut ResultRelInfo,
        routing: *mut PartitionTupleRouting,
        slot: *mut TupleTableSlot,
        estate: *mut EState,
    ) -> *mut ResultRelInfo;
    pub fn InstrStartNode(instrumentation: *mut Instrumentation);
    pub fn InstrStopNode(instrumentation: *mut Instrumentation, tuples: f64);
    pub fn ExecGetUpdatedCols(result: *mut ResultRelInfo, estate: *mut EState) -> *mut Bitmapset;

    // executor/execTuples.c
    pub fn ExecInitExtraTupleSlot(
        estate: *mut EState,
        descriptor: TupleDesc,
        operations: *const TupleTableSlotOps,
    ) -> *mut TupleTableSlot;
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
    pub fn ExecStorePinnedBufferHeapTuple(
        tuple: HeapTuple,
        slot: *mut TupleTableSlot,
        buffer: Buffer,
    ) -> *mut TupleTableSlot;
    pub fn ExecForceStoreHeapTuple(tuple: HeapTuple, slot: *mut TupleTableSlot, free: bool);
    pub fn ExecStoreVirtualTuple(slot: *mut TupleTableSlot) -> *mut TupleTableSlot;
    pub fn MakeSingleTupleTableSlot(
        desc: TupleDesc,
        operations: *const TupleTableSlotOps,
    ) -> *mut TupleTableSlot;
    pub fn ExecDropSingleTupleTableSlot(slot: *mut TupleTableSlot);
    pub fn slot_getsomeattrs_int(slot: *mut TupleTableSlot, attnum: c_int);
    pub fn BlessTupleDesc(descriptor: TupleDesc) -> TupleDesc;
    pub fn HeapTupleHeaderGetDatum(row: HeapTupleHeader) -> Datum;

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
    pub fn SPI_inside_nonatomic_context() -> bool;
    pub fn SPI_plan_get_plan_sources(plan: SPIPlanPtr) -> *mut List;

    // tcop/utility.c
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
    pub fn GetCommandLogLevel(node: *mut Node) -> c_int;

    // nodes
    pub fn makeParamList(count: c_int) -> ParamListInfo;
    pub fn copyObjectImpl(from: *const c_void) -> *mut c_void;
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
    pub fn ChangeVarNodes(node: *mut Node, from: c_int, to: c_int, sublevels_up: c_int);
    pub fn fix_opfuncids(node: *mut Node);
    pub fn exprType(expression: *const Node) -> Oid;
    pub fn exprTypmod(expression: *const Node) -> i32;
    pub fn exprCollation(expression: *const Node) -> Oid;
    pub fn makeConst(
        typ: Oid,
        modifier: i32,
        collation: Oid,
        length: c_int,
        value: Datum,
        is_null: bool,
        by_value: bool,
    ) -> *mut Const;

    // nodes/list.c, nodes/bitmapset.c
    pub fn bms_next_member(set: *const Bitmapset, previous: c_int) -> c_int;
    pub fn bms_add_member(set: *mut Bitmapset, member: c_int) -> *mut Bitmapset;
    pub fn bms_is_member(member: c_int, set: *const Bitmapset) -> bool;
    pub fn bms_overlap(a: *const Bitmapset, b: *const Bitmapset) -> bool;
    pub fn bms_free(set: *mut Bitmapset);
    pub fn list_copy(list: *const List) -> *mut List;
    pub fn list_free(list: *mut List);
    pub fn list_member_oid(list: *const List, oid: Oid) -> bool;
}
