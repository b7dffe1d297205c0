//! What is used of plpgsql.h, which pgrx does not bind, and what the types of a function's
//! variables say.

use super::nodes::{nodes, tag};
use super::{quiet, raw};
use pgrx::pg_sys::{self, NodeTag, Oid};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

/// PLpgSQL_stmt_type.
pub mod kind {
    pub const BLOCK: u32 = 0;
    pub const ASSIGN: u32 = 1;
    pub const IF: u32 = 2;
    pub const LOOP: u32 = 4;
    pub const WHILE: u32 = 5;
    pub const RETURN: u32 = 11;
    pub const EXECSQL: u32 = 16;
    pub const GETDIAG: u32 = 19;
    pub const ROLLBACK: u32 = 26;
}

/// PLpgSQL_datum_type.
mod datum {
    pub const VARIABLE: u32 = 0;
    pub const ROW: u32 = 1;
    pub const RECORD: u32 = 2;
    pub const FIELD: u32 = 3;
    pub const PROMISE: u32 = 4;
}

/// PLpgSQL_promise_type: what a variable that PL/pgSQL has made itself stands for.
mod promise {
    pub const OPERATION: u32 = 4;
}

/// What each statement begins with.
#[repr(C)]
pub struct Statement {
    pub kind: u32,
    line: c_int,
    id: c_uint,
}

/// PLpgSQL_stmt_block.
#[repr(C)]
pub struct Block {
    statement: Statement,
    label: *mut c_char,
    pub body: *mut pg_sys::List,
    pub variables_with_defaults: c_int,
    initialized: *const c_int,
    pub exceptions: *const c_void,
}

/// PLpgSQL_stmt_assign.
#[repr(C)]
pub struct Assign {
    statement: Statement,
    /// The number of the variable that is assigned to.
    pub variable: c_int,
    pub expression: *mut Expression,
}

/// PLpgSQL_stmt_if.
#[repr(C)]
pub struct If {
    statement: Statement,
    pub condition: *mut Expression,
    pub then: *mut pg_sys::List,
    pub elsif: *mut pg_sys::List,
    pub otherwise: *mut pg_sys::List,
}

/// PLpgSQL_if_elsif.
#[repr(C)]
pub struct Elsif {
    line: c_int,
    pub condition: *mut Expression,
    pub then: *mut pg_sys::List,
}

/// PLpgSQL_stmt_return.
#[repr(C)]
pub struct Return {
    statement: Statement,
    pub expression: *mut Expression,
    /// The number of the variable that is returned; -1 for an expression or nothing.
    pub variable: c_int,
}

/// PLpgSQL_stmt_execsql.
#[repr(C)]
pub struct ExecSql {
    statement: Statement,
    expression: *mut Expression,
    is_write: bool,
    is_write_known: bool,
    has_into: bool,
    is_strict: bool,
    target: *const Variable,
}

/// PLpgSQL_stmt_getdiag.
#[repr(C)]
pub struct GetDiagnostics {
    statement: Statement,
    is_stacked: bool,
    items: *mut pg_sys::List,
}

/// PLpgSQL_diag_item.
#[repr(C)]
struct Diagnostic {
    kind: u32,
    target: c_int,
}

impl GetDiagnostics {
    /// Whether they do not tell of an error, and go into variables of plain types.
    pub unsafe fn is_quiet(&self, state: &State) -> bool {
        // SAFETY: PL/pgSQL's own structures.
        unsafe {
            !self.is_stacked
                && nodes(self.items).all(|item| {
                    let target = (*item.cast::<Diagnostic>()).target;
                    state
                        .variable(target)
                        .is_some_and(|variable| variable.is_plain())
                })
        }
    }
}

/// What PLpgSQL_expr begins with.
#[repr(C)]
pub struct Expression {
    query: *mut c_char,
    parse_mode: c_int,
    plan: pg_sys::SPIPlanPtr,
    numbers: *const pg_sys::Bitmapset,
    function: *const Function,
    names: *const c_void,
    /// What PL/pgSQL evaluates by itself, in the memory of `simple_plan`; null if the expression is
    /// not simple.
    simple: *mut pg_sys::Expr,
    simple_type: Oid,
    simple_typmod: i32,
    simple_is_mutable: bool,
    target: c_int,
    read_write: *const pg_sys::Param,
    simple_source: *const pg_sys::CachedPlanSource,
    simple_plan: *const pg_sys::CachedPlan,
}

/// What PLpgSQL_variable, _var, _row and _rec begin with, and the next word: the type of a _var or
/// _rec.
#[repr(C)]
pub struct Variable {
    kind: u32,
    number: c_int,
    name: *mut c_char,
    line: c_int,
    is_constant: u8,
    is_not_null: u8,
    default: *mut Expression,
    typ: *const Type,
}

/// PLpgSQL_var.
#[repr(C)]
struct Scalar {
    variable: Variable,
    cursor: *mut Expression,
    cursor_row: c_int,
    cursor_options: c_int,
    value: pg_sys::Datum,
    is_null: bool,
    is_freed: bool,
    promise: u32,
}

/// PLpgSQL_row.
#[repr(C)]
struct Row {
    /// Its last word is the row's descriptor.
    variable: Variable,
    fields: c_int,
    names: *mut *mut c_char,
    numbers: *const c_int,
}

/// PLpgSQL_rec.
#[repr(C)]
struct Record {
    variable: Variable,
    typ: Oid,
}

/// What PLpgSQL_recfield begins with.
#[repr(C)]
pub struct Field {
    kind: u32,
    number: c_int,
    pub name: *const c_char,
    /// The number of the record.
    pub record: c_int,
}

/// What PLpgSQL_type begins with.
#[repr(C)]
struct Type {
    name: *mut c_char,
    oid: Oid,
}

/// PLpgSQL_execstate.
#[repr(C)]
pub struct State {
    pub function: *const Function,
    /// What fired the trigger whose function it is, or null.
    pub trigger: *const pg_sys::TriggerData,
    event_trigger: *mut c_void,
    value: pg_sys::Datum,
    is_null: bool,
    value_type: Oid,
    /// The declared type of the function's result.
    result: Oid,
    flags: [bool; 4],
    exit_label: *mut c_char,
    error: *mut c_void,
    store: [*mut c_void; 5],
    found: c_int,
    data: c_int,
    variables: *const *const Variable,
}

/// PLpgSQL_function, as far as its body.
#[repr(C)]
pub struct Function {
    signature: *const c_char,
    pub oid: Oid,
    /// Which version of its row in pg_proc it was made from.
    pub xmin: pg_sys::TransactionId,
    pub tid: pg_sys::ItemPointerData,
    is_trigger: u32,
    collation: Oid,
    key: *const c_void,
    context: pg_sys::MemoryContext,
    result: Oid,
    result_length: c_int,
    flags: [bool; 5],
    kind: c_char,
    arguments: c_int,
    argument_numbers: [c_int; pg_sys::FUNC_MAX_ARGS as usize],
    out: c_int,
    found: c_int,
    /// The numbers of the variables NEW and OLD.
    pub new: c_int,
    pub old: c_int,
    resolves: u32,
    prints_parameters: bool,
    extra: [c_int; 2],
    data: c_int,
    variables: *const *const Variable,
    copied: usize,
    /// Null if it has been freed, or is not complete.
    pub action: *const Block,
}

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Block, variables_with_defaults) == 32);
    assert!(offset_of!(Assign, expression) == 16);
    assert!(offset_of!(Block, body) == 24 && offset_of!(Block, exceptions) == 48);
    assert!(offset_of!(If, condition) == 16 && offset_of!(If, elsif) == 32);
    assert!(offset_of!(Elsif, condition) == 8 && offset_of!(Elsif, then) == 16);
    assert!(offset_of!(Return, expression) == 16 && offset_of!(Return, variable) == 24);
    assert!(offset_of!(ExecSql, has_into) == 26 && offset_of!(ExecSql, target) == 32);
    assert!(offset_of!(GetDiagnostics, items) == 16 && offset_of!(Diagnostic, target) == 4);
    assert!(offset_of!(Expression, plan) == 16 && offset_of!(Expression, simple) == 48);
    assert!(offset_of!(Expression, simple_typmod) == 60);
    assert!(offset_of!(Expression, simple_source) == 80);
    assert!(offset_of!(Variable, typ) == 32);
    assert!(offset_of!(Scalar, cursor) == 40 && offset_of!(Scalar, promise) == 68);
    assert!(offset_of!(Row, fields) == 40 && offset_of!(Row, numbers) == 56);
    assert!(offset_of!(Record, typ) == 40);
    assert!(offset_of!(Field, name) == 8 && offset_of!(Field, record) == 16);
    assert!(offset_of!(Function, tid) == 16 && offset_of!(Function, context) == 40);
    assert!(offset_of!(Function, new) == 476 && offset_of!(Function, action) == 520);
    assert!(offset_of!(State, result) == 40 && offset_of!(State, variables) == 112);
};

impl State {
    /// A variable of the function by its number.
    unsafe fn variable(&self, number: c_int) -> Option<&Variable> {
        // SAFETY: PL/pgSQL numbers its variables from 0.
        unsafe {
            (0..self.data)
                .contains(&number)
                .then(|| &**self.variables.add(number as usize))
        }
    }
}

impl Function {
    unsafe fn variable(&self, number: c_int) -> Option<*const Variable> {
        // SAFETY: PL/pgSQL numbers its variables from 0.
        (0..self.data)
            .contains(&number)
            .then(|| unsafe { *self.variables.add(number as usize) })
    }

    /// A field of a record among its variables, by its number.
    pub unsafe fn field(&self, number: c_int) -> Option<&Field> {
        // SAFETY: read as what the kind says.
        unsafe {
            let variable = self.variable(number)?;
            ((*variable).kind == datum::FIELD).then(|| &*variable.cast())
        }
    }

    /// Whether the variable is TG_OP.
    pub unsafe fn is_operation(&self, number: c_int) -> bool {
        // SAFETY: read as what the kind says.
        unsafe {
            self.variable(number).is_some_and(|variable| {
                (*variable).kind == datum::PROMISE
                    && (*variable.cast::<Scalar>()).promise == promise::OPERATION
            })
        }
    }
}

impl Variable {
    /// Whether it has a type of PostgreSQL's own, so that casts to it call none of a user's
    /// functions either.
    unsafe fn is_plain(&self) -> bool {
        // SAFETY: read as what its kind says.
        self.kind == datum::VARIABLE && unsafe { quiet::is_plain((*self.typ).oid) }
    }

    /// Whether putting a value of that type into the variable calls no function of a user's: it has
    /// just this type, and no domain.
    unsafe fn takes(&self, typ: Oid) -> bool {
        // SAFETY: read as what its kind says.
        self.kind == datum::VARIABLE && unsafe { (*self.typ).oid } == typ && quiet::is_plain(typ)
    }
}

impl Expression {
    /// The source of its plan, if it has been parsed, into one statement.
    pub unsafe fn source<'a>(&self) -> Option<&'a pg_sys::CachedPlanSource> {
        if self.plan.is_null() {
            return None;
        }
        // SAFETY: the function owns the plan, and the plan its sources.
        unsafe {
            let mut sources = nodes(raw::SPI_plan_get_plan_sources(self.plan));
            match (sources.next(), sources.next()) {
                (Some(source), None) => Some(&*source.cast()),
                _ => None,
            }
        }
    }

    /// The query, as it was parsed. None if it is to be parsed again.
    pub unsafe fn query<'a>(&self) -> Option<&'a pg_sys::Query> {
        // SAFETY: as above; the query stays as long as its source is valid.
        unsafe {
            let source = self.source().filter(|source| source.is_valid)?;
            let mut queries = nodes(source.query_list);
            match (queries.next(), queries.next()) {
                (Some(query), None) if tag(query) == NodeTag::T_Query => Some(&*query.cast()),
                _ => None,
            }
        }
    }
}

impl Expression {
    /// What PL/pgSQL is going to evaluate by itself without parsing or planning anew, with its type
    /// and that's modifier (plancache.c: CachedPlanIsSimplyValid). None if it is not so.
    pub unsafe fn planned(&self) -> Option<(*mut pg_sys::Expr, Oid, i32)> {
        // SAFETY: the function owns the plan, that its source, and that its generic plan, which has
        // the expression.
        unsafe {
            if self.simple.is_null() || self.simple_plan.is_null() {
                return None;
            }
            let (source, plan) = (&*self.simple_source, self.simple_plan);
            let is_current = source.is_valid
                && ptr::eq(source.gplan, plan)
                && (*plan).is_valid
                && !(*plan).dependsOnRole
                && raw::OverrideSearchPathMatchesCurrent(source.search_path);
            is_current.then_some((self.simple, self.simple_type, self.simple_typmod))
        }
    }
}

impl ExecSql {
    /// Whether that text is the statement's own, at the same place, and what its rows are put into
    /// takes them as they are.
    pub unsafe fn is_run_as(&self, text: *const c_char, state: &State) -> bool {
        // SAFETY: PL/pgSQL's own structures.
        unsafe {
            let Some(source) = (*self.expression).source() else {
                return false;
            };
            source.query_string == text
                && (!self.has_into || takes_rows(state, &*self.target, source.resultDesc))
        }
    }
}

unsafe fn takes_rows(state: &State, target: &Variable, rows: pg_sys::TupleDesc) -> bool {
    // SAFETY: the target is read as what its kind says; the descriptor has as many attributes as it
    // says.
    unsafe {
        match target.kind {
            datum::RECORD => (*ptr::from_ref(target).cast::<Record>()).typ == pg_sys::RECORDOID,
            datum::ROW if !rows.is_null() => {
                let row = &*ptr::from_ref(target).cast::<Row>();
                let columns = (*rows).attrs.as_slice((*rows).natts as usize);
                (0..row.fields as usize).all(|n| {
                    let variable = state.variable(*row.numbers.add(n));
                    // A field without a column gets a null.
                    variable.is_some_and(|variable| match columns.get(n) {
                        Some(column) => variable.takes(column.atttypid),
                        None => variable.is_plain(),
                    })
                })
            }
            _ => false,
        }
    }
}

impl Return {
    /// Whether what is returned is given to the caller as it is: nothing, a trigger's row, a row of
    /// OUT parameters, or a variable of the result's own type.
    pub unsafe fn is_as_declared(&self, state: &State) -> bool {
        // SAFETY: PL/pgSQL's own structures.
        unsafe {
            if self.variable < 0 || !state.trigger.is_null() {
                return true;
            }
            state
                .variable(self.variable)
                .is_some_and(|variable| match variable.kind {
                    datum::ROW | datum::RECORD => state.result == pg_sys::RECORDOID,
                    _ => variable.takes(state.result),
                })
        }
    }

    /// Whether the value of an expression of that type is given to the caller as it is. (A
    /// trigger's row is not cast, and another value is an error.)
    pub fn is_type_declared(state: &State, typ: Oid) -> bool {
        !state.trigger.is_null() || state.result == typ && quiet::is_plain(typ)
    }
}
