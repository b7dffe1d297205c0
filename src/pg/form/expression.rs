//! Which expressions have a form, and their bytes. An allowlist, node by node.

use super::Form;
use super::values::may_pass;
use crate::pg::builtin::{self, Known, is_builtin};
use crate::pg::nodes::{length, nodes, tag};
use crate::pg::raw;
use pgrx::pg_sys::SQLValueFunctionOp::*;
use pgrx::pg_sys::{self, Node, NodeTag, Oid};
use std::ffi::CStr;

/// Functions that a statement may call by name: immutable ones that look at nothing but their
/// arguments. (Not any immutable function: `quote_ident` is one, and looks at a setting.)
const CALLS: [u32; 26] = [
    pg_sys::F_ABS_INT2,
    pg_sys::F_ABS_INT4,
    pg_sys::F_ABS_INT8,
    pg_sys::F_ABS_FLOAT4,
    pg_sys::F_ABS_FLOAT8,
    pg_sys::F_ABS_NUMERIC,
    pg_sys::F_MOD_INT2_INT2,
    pg_sys::F_MOD_INT4_INT4,
    pg_sys::F_MOD_INT8_INT8,
    pg_sys::F_MOD_NUMERIC_NUMERIC,
    pg_sys::F_SIGN_NUMERIC,
    pg_sys::F_SIGN_FLOAT8,
    pg_sys::F_ROUND_NUMERIC,
    pg_sys::F_ROUND_NUMERIC_INT4,
    pg_sys::F_ROUND_FLOAT8,
    pg_sys::F_TRUNC_NUMERIC,
    pg_sys::F_TRUNC_NUMERIC_INT4,
    pg_sys::F_TRUNC_FLOAT8,
    pg_sys::F_CEIL_NUMERIC,
    pg_sys::F_CEIL_FLOAT8,
    pg_sys::F_CEILING_NUMERIC,
    pg_sys::F_CEILING_FLOAT8,
    pg_sys::F_FLOOR_NUMERIC,
    pg_sys::F_FLOOR_FLOAT8,
    pg_sys::F_JSONB_SET,
    pg_sys::F_JSONB_INSERT,
];

/// What tells the time of the transaction or of the statement.
const TIMES: [u32; 3] = [
    pg_sys::F_NOW,
    pg_sys::F_TRANSACTION_TIMESTAMP,
    pg_sys::F_STATEMENT_TIMESTAMP,
];

/// Casts between times with and without a zone. They depend on the setting of the time zone, and on
/// nothing else.
const ZONED_CASTS: [u32; 4] = [
    pg_sys::F_TIMESTAMP_TIMESTAMPTZ,
    pg_sys::F_TIMESTAMPTZ_TIMESTAMP,
    pg_sys::F_DATE_TIMESTAMPTZ,
    pg_sys::F_TIMESTAMPTZ_DATE,
];

impl Form {
    pub(super) unsafe fn expressions(&mut self, list: *const pg_sys::List) -> Option<()> {
        // SAFETY: as in `of_plan`.
        unsafe {
            self.bytes.put_number(length(list) as u32)?;
            nodes(list).try_for_each(|node| self.expression(node))
        }
    }

    pub(super) unsafe fn expression(&mut self, node: *const Node) -> Option<()> {
        // SAFETY: as in `of_plan`; nodes are read as what their tags say.
        unsafe {
            self.bytes.put_number(tag(node) as u32)?;
            match tag(node) {
                NodeTag::T_Var => self.column(&*node.cast()),
                NodeTag::T_Const => self.constant(&*node.cast()),
                NodeTag::T_Param => self.param(&*node.cast()),
                // NULLIF and IS DISTINCT FROM have the same structure.
                NodeTag::T_OpExpr | NodeTag::T_NullIfExpr | NodeTag::T_DistinctExpr => {
                    self.operator(&*node.cast())
                }
                NodeTag::T_ScalarArrayOpExpr => self.array_operator(&*node.cast()),
                NodeTag::T_FuncExpr => self.call(&*node.cast()),
                NodeTag::T_SQLValueFunction => self.time(&*node.cast()),
                NodeTag::T_CoerceViaIO => self.cast_by_text(&*node.cast()),
                NodeTag::T_RelabelType => {
                    let relabel = &*node.cast::<pg_sys::RelabelType>();
                    self.value_type(relabel.resulttype)?;
                    self.expression(relabel.arg.cast())
                }
                NodeTag::T_BoolExpr => {
                    let junction = &*node.cast::<pg_sys::BoolExpr>();
                    self.bytes.put_number(junction.boolop)?;
                    self.expressions(junction.args)
                }
                NodeTag::T_NullTest => {
                    let test = &*node.cast::<pg_sys::NullTest>();
                    if test.argisrow {
                        return None;
                    }
                    self.bytes.put_number(test.nulltesttype)?;
                    self.expression(test.arg.cast())
                }
                NodeTag::T_CoalesceExpr => {
                    let coalesce = &*node.cast::<pg_sys::CoalesceExpr>();
                    self.value_type(coalesce.coalescetype)?;
                    self.expressions(coalesce.args)
                }
                NodeTag::T_MinMaxExpr => {
                    let most = &*node.cast::<pg_sys::MinMaxExpr>();
                    self.value_type(most.minmaxtype)?;
                    self.bytes.put_number(u32::from(most.inputcollid))?;
                    self.bytes.put_number(most.op)?;
                    self.expressions(most.args)
                }
                NodeTag::T_CaseExpr => self.case(&*node.cast()),
                _ => None,
            }
        }
    }

    /// The type of a value, if such values have a form.
    fn value_type(&mut self, typ: Oid) -> Option<()> {
        may_pass(typ)?;
        self.bytes.put_number(u32::from(typ))
    }

    fn column(&mut self, var: &pg_sys::Var) -> Option<()> {
        may_pass(var.vartype)?;
        if var.varattno <= 0 || var.varlevelsup != 0 {
            return None;
        }
        match (self.in_trigger, var.varno) {
            (true, pg_sys::INNER_VAR) => self.bytes.put_number(0)?,
            (true, pg_sys::OUTER_VAR) => self.bytes.put_number(1)?,
            (false, table) if table == self.table => {}
            _ => return None,
        }
        self.bytes.put_number(var.varattno as u32)
    }

    unsafe fn constant(&mut self, constant: &pg_sys::Const) -> Option<()> {
        self.bytes.put_number(u32::from(constant.consttype))?;
        self.bytes.put_number(u32::from(constant.constcollid))?;
        let (typ, value) = (constant.consttype, constant.constvalue);
        // SAFETY: as in `of_plan`.
        unsafe { self.bytes.put_value(typ, value, constant.constisnull) }
    }

    fn param(&mut self, param: &pg_sys::Param) -> Option<()> {
        may_pass(param.paramtype)?;
        if param.paramkind != pg_sys::ParamKind::PARAM_EXTERN || self.in_trigger {
            return None;
        }
        self.bytes.put_number(param.paramid as u32)?;
        self.bytes.put_number(u32::from(param.paramtype))?;
        self.parameter(param.paramid, param.paramtype)
    }

    unsafe fn operator(&mut self, op: &pg_sys::OpExpr) -> Option<()> {
        // SAFETY: as in `of_plan`.
        unsafe {
            if !is_plain_operator(op.opno) || !is_portable_function(op.opfuncid) {
                return None;
            }
            self.may_call(op.opfuncid)?;
            may_pass(op.opresulttype)?;
            self.bytes.put_number(u32::from(op.opfuncid))?;
            self.bytes.put_number(u32::from(op.opresulttype))?;
            self.bytes.put_number(u32::from(op.inputcollid))?;
            self.expressions(op.args)
        }
    }

    unsafe fn array_operator(&mut self, op: &pg_sys::ScalarArrayOpExpr) -> Option<()> {
        // SAFETY: as in `of_plan`.
        unsafe {
            if !is_plain_operator(op.opno) || !is_portable_function(op.opfuncid) {
                return None;
            }
            self.may_call(op.opfuncid)?;
            self.bytes.put_number(u32::from(op.opfuncid))?;
            self.bytes.put_number(u32::from(op.useOr))?;
            self.bytes.put_number(u32::from(op.inputcollid))?;
            self.expressions(op.args)
        }
    }

    unsafe fn cast_by_text(&mut self, cast: &pg_sys::CoerceViaIO) -> Option<()> {
        // SAFETY: as in `of_plan`.
        unsafe {
            if !reads_as_it_is_written(cast.resulttype)
                || !reads_as_it_is_written(raw::exprType(cast.arg.cast()))
            {
                return None;
            }
            self.bytes.put_number(u32::from(cast.resulttype))?;
            self.bytes.put_number(u32::from(cast.resultcollid))?;
            self.expression(cast.arg.cast())
        }
    }

    unsafe fn case(&mut self, case: &pg_sys::CaseExpr) -> Option<()> {
        if !case.arg.is_null() {
            return None;
        }
        self.value_type(case.casetype)?;
        // SAFETY: as in `of_plan`.
        unsafe {
            self.bytes.put_number(length(case.args) as u32)?;
            for when in nodes(case.args) {
                let when = when.cast::<pg_sys::CaseWhen>();
                self.expression((*when).expr.cast())?;
                self.expression((*when).result.cast())?;
            }
            self.bytes.put_number(u32::from(case.defresult.is_null()))?;
            if case.defresult.is_null() {
                return Some(());
            }
            self.expression(case.defresult.cast())
        }
    }

    unsafe fn call(&mut self, call: &pg_sys::FuncExpr) -> Option<()> {
        let function = u32::from(call.funcid);
        // SAFETY: as in `of_plan`.
        unsafe {
            if TIMES.contains(&function) {
                self.reads_clock = true;
            } else if ZONED_CASTS.contains(&function) {
                self.reads_zone = true;
            } else if function == pg_sys::F_TO_JSONB {
                if !nodes(call.args).all(|value| reads_as_it_is_written(raw::exprType(value))) {
                    return None;
                }
            } else if !(CALLS.contains(&function)
                || is_cast(call) && is_portable_function(call.funcid))
            {
                return None;
            }
            self.may_call(call.funcid)?;
            // The planner has not been there to add what is left out of a trigger's WHEN.
            const WITH_DEFAULTS: [u32; 2] = [pg_sys::F_JSONB_SET, pg_sys::F_JSONB_INSERT];
            if WITH_DEFAULTS.contains(&function) && self.in_trigger && length(call.args) != 4 {
                return None;
            }
            may_pass(call.funcresulttype)?;
            self.bytes.put_number(function)?;
            self.bytes.put_number(u32::from(call.funcresulttype))?;
            self.bytes.put_number(u32::from(call.inputcollid))?;
            self.expressions(call.args)
        }
    }

    /// Whether the present user may call a function of a trigger's. The executor asks that when it
    /// compiles an expression (execExpr.c: ExecInitFunc), which only the statement's have been.
    unsafe fn may_call(&self, function: Oid) -> Option<()> {
        // SAFETY: a catalog look-up.
        let is_allowed = !self.in_trigger
            || unsafe {
                let right = pg_sys::ACL_EXECUTE.into();
                let class = pg_sys::ProcedureRelationId;
                raw::object_aclcheck(class, function, raw::GetUserId(), right)
                    == pg_sys::AclResult::ACLCHECK_OK
            };
        is_allowed.then_some(())
    }

    /// CURRENT_TIMESTAMP and its like.
    fn time(&mut self, value: &pg_sys::SQLValueFunction) -> Option<()> {
        match value.op {
            SVFOP_CURRENT_TIMESTAMP | SVFOP_CURRENT_TIMESTAMP_N => {}
            SVFOP_CURRENT_DATE | SVFOP_LOCALTIMESTAMP | SVFOP_LOCALTIMESTAMP_N => {
                self.reads_zone = true;
            }
            _ => return None,
        }
        self.reads_clock = true;
        self.bytes.put_number(value.op)?;
        self.bytes.put_number(value.typmod as u32)
    }
}

/// Whether an expression of the catalogs (a CHECK constraint) has a form: it may be evaluated for
/// another session.
///
/// # Safety
/// `text` is an expression as the catalogs keep it.
pub unsafe fn is_portable(text: *const std::ffi::c_char) -> bool {
    // SAFETY: by the contract; function numbers are filled in as the planner does.
    unsafe {
        let node = raw::stringToNode(text).cast::<Node>();
        raw::fix_opfuncids(node);
        // Constraints name the table so.
        let mut form = Form::empty(1);
        form.expression(node).is_some() && !form.reads_clock && !form.reads_zone
    }
}

/// Whether the call is written as a cast, or not at all.
pub(super) fn is_cast(call: &pg_sys::FuncExpr) -> bool {
    use pg_sys::CoercionForm::{COERCE_EXPLICIT_CAST, COERCE_IMPLICIT_CAST};
    [COERCE_EXPLICIT_CAST, COERCE_IMPLICIT_CAST].contains(&call.funcformat)
}

/// Whether an operator compares, computes or concatenates.
fn is_plain_operator(operator: Oid) -> bool {
    const NAMES: [&[u8]; 24] = [
        b"=", b"<>", b"<", b"<=", b">", b">=", b"+", b"-", b"*", b"/", b"%", b"&", b"|", b"#",
        b"<<", b">>", b"||", b"->", b"->>", b"#>", b"#>>", b"@>", b"<@", b"?",
    ];
    static KNOWN: Known<64> = Known::new();
    is_builtin(operator)
        && KNOWN.get(operator, || {
            // SAFETY: a catalog look-up; the name is a palloc'd string or null.
            unsafe {
                let name = raw::get_opname(operator);
                !name.is_null() && NAMES.contains(&CStr::from_ptr(name).to_bytes())
            }
        })
}

/// Whether a function is one of PostgreSQL's own, immutable and written in C.
fn is_portable_function(function: Oid) -> bool {
    static KNOWN: Known<64> = Known::new();
    is_builtin(function)
        && KNOWN.get(function, || {
            // SAFETY: a catalog look-up.
            unsafe { builtin::ask_function(function, builtin::is_immutable_internal) == Some(true) }
        })
}

/// Whether no setting changes how a value of that type is written and read: not times
/// (`DateStyle`), not floating-point numbers (`extra_float_digits`).
fn reads_as_it_is_written(typ: Oid) -> bool {
    matches!(
        typ,
        pg_sys::BOOLOID
            | pg_sys::INT2OID
            | pg_sys::INT4OID
            | pg_sys::INT8OID
            | pg_sys::OIDOID
            | pg_sys::NUMERICOID
            | pg_sys::UUIDOID
            | pg_sys::TEXTOID
            | pg_sys::VARCHAROID
            | pg_sys::BPCHAROID
            | pg_sys::JSONBOID
    )
}
