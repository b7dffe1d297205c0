//! PostgreSQL's functions about what the catalogs say: names, rights, tables, types, functions.

use pgrx::pg_sys::*;
use std::ffi::{c_char, c_int, c_void};

unsafe extern "C-unwind" {
    // catalog/namespace.c
    pub fn RangeVarGetRelidExtended(
        name: *const RangeVar,
        mode: LOCKMODE,
        flags: uint32,
        callback: RangeVarGetRelidCallback,
        argument: *mut c_void,
    ) -> Oid;
    pub fn RelnameGetRelid(name: *const c_char) -> Oid;
    pub fn makeRangeVarFromNameList(names: *mut List) -> *mut RangeVar;

    pub fn OverrideSearchPathMatchesCurrent(path: *mut OverrideSearchPath) -> bool;

    // utils/cache/lsyscache.c, catalog, commands: names
    pub fn get_rel_name(relation: Oid) -> *mut c_char;
    pub fn get_namespace_oid(name: *const c_char, missing_ok: bool) -> Oid;
    pub fn get_database_oid(name: *const c_char, missing_ok: bool) -> Oid;
    pub fn get_relname_relid(name: *const c_char, namespace: Oid) -> Oid;
    pub fn get_am_oid(name: *const c_char, missing_ok: bool) -> Oid;
    pub fn get_am_name(am: Oid) -> *mut c_char;
    pub fn get_language_oid(name: *const c_char, missing_ok: bool) -> Oid;

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
    pub fn object_aclcheck(class: Oid, object: Oid, role: Oid, mode: AclMode) -> AclResult::Type;

    // utils/misc/rls.c
    pub fn check_enable_rls(relation: Oid, user: Oid, no_error: bool) -> c_int;

    // commands/seclabel.c
    pub fn GetSecurityLabel(object: *const ObjectAddress, provider: *const c_char) -> *mut c_char;

    // catalog/pg_inherits.c; not bound by pgrx
    pub fn find_inheritance_children(parent: Oid, mode: LOCKMODE) -> *mut List;
    pub fn find_all_inheritors(parent: Oid, mode: LOCKMODE, counts: *mut *mut List) -> *mut List;

    // catalog/partition.c
    pub fn get_partition_ancestors(relation: Oid) -> *mut List;

    // utils/cache/partcache.c
    pub fn RelationGetPartitionQual(relation: Relation) -> *mut List;

    // optimizer/util/var.c
    pub fn pull_varattnos(node: *mut Node, varno: Index, varattnos: *mut *mut Bitmapset);

    // utils/cache/relcache.c
    pub fn RelationGetIndexPredicate(relation: Relation) -> *mut List;
    pub fn RelationIdGetRelation(relid: Oid) -> Relation;
    pub fn RelationClose(rel: Relation);
    pub fn RelationGetIndexList(rel: Relation) -> *mut List;
    pub fn RelationGetIndexAttrBitmap(
        rel: Relation,
        kind: IndexAttrBitmapKind::Type,
    ) -> *mut Bitmapset;
    pub fn RelationGetIndexExpressions(relation: Relation) -> *mut List;
    pub fn RelationGetFKeyList(rel: Relation) -> *mut List;

    // utils/cache/syscache.c
    pub fn SearchSysCache1(cache: c_int, key: Datum) -> HeapTuple;
    pub fn SysCacheGetAttr(
        cache: c_int,
        tuple: HeapTuple,
        number: AttrNumber,
        is_null: *mut bool,
    ) -> Datum;
    pub fn get_atttype(relation: Oid, number: AttrNumber) -> Oid;
    pub fn ReleaseSysCache(tuple: HeapTuple);

    // utils/cache
    pub fn get_typlenbyvalalign(
        typ: Oid,
        length: *mut int16,
        by_value: *mut bool,
        align: *mut c_char,
    );
    pub fn getBaseType(typ: Oid) -> Oid;
    pub fn lookup_type_cache(typ: Oid, flags: c_int) -> *mut TypeCacheEntry;
    pub fn get_collation_isdeterministic(collation: Oid) -> bool;
    pub fn op_mergejoinable(operator: Oid, input: Oid) -> bool;
    pub fn getTypeOutputInfo(typ: Oid, output: *mut Oid, is_varlena: *mut bool);
    pub fn getTypeInputInfo(typ: Oid, input: *mut Oid, parameter: *mut Oid);
    pub fn get_element_type(typ: Oid) -> Oid;
    pub fn get_opname(operator: Oid) -> *mut c_char;
    pub fn get_opcode(operator: Oid) -> Oid;
    pub fn get_typtype(typ: Oid) -> c_char;
    pub fn get_opfamily_member(family: Oid, left: Oid, right: Oid, strategy: int16) -> Oid;
    pub fn get_rel_relispartition(relation: Oid) -> bool;
    pub fn get_rel_persistence(relation: Oid) -> c_char;
    pub fn op_input_types(operator: Oid, left: *mut Oid, right: *mut Oid);

    // utils/adt/pg_locale.c; not bound by pgrx
    pub fn lc_collate_is_c(collation: Oid) -> bool;

    // utils/fmgr
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
    pub fn OidOutputFunctionCall(function: Oid, value: Datum) -> *mut c_char;
    pub fn get_call_result_type(
        call: FunctionCallInfo,
        typ: *mut Oid,
        descriptor: *mut TupleDesc,
    ) -> TypeFuncClass::Type;
    pub fn DirectFunctionCall1Coll(function: PGFunction, collation: Oid, argument: Datum) -> Datum;

    // utils/adt
    pub fn stringToQualifiedNameList(text: *const c_char, context: *mut Node) -> *mut List;
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
    pub fn ArrayGetNItems(dimensions: c_int, lengths: *const c_int) -> c_int;
    pub fn row_to_json(call: FunctionCallInfo) -> Datum;
    pub fn jsonb_in(call: FunctionCallInfo) -> Datum;
    pub fn text_to_cstring(text: *const text) -> *mut c_char;
    pub fn cstring_to_text(text: *const c_char) -> *mut text;
}
