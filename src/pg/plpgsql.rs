//! Statements of PL/pgSQL functions that come by no executor hook: assignments, conditions, RAISE, COMMIT.
//!
//! PL/pgSQL tells one plugin of every statement that it is about to execute (plpgsql.h: PLpgSQL_plugin; pl_exec.c:
//! exec_stmts). This is that plugin. Another one that is there already (a debugger, a profiler) is called as well. If one is put
//! in place of ours later, PL/pgSQL counts as any other language: `is_watched` says no.
//!
//! plpgsql.h is not bound by pgrx; the fields that are used are declared here.

use super::plan::{nodes, tag};
use super::{quiet, raw};
use pgrx::pg_sys::{self, CmdType, Datum, NodeTag, Oid};
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

/// plpgsql.h: PLpgSQL_stmt_type.
mod kind {
    pub const BLOCK: u32 = 0;
    pub const ASSIGN: u32 = 1;
    pub const IF: u32 = 2;
    pub const LOOP: u32 = 4;
    pub const WHILE: u32 = 5;
    pub const RETURN: u32 = 11;
    pub const EXECSQL: u32 = 16;
    pub const GETDIAG: u32 = 19;
}

/// What PLpgSQL_stmt_block, _assign, _if and _return begin with.
#[repr(C)]
struct Statement {
    kind: u32,
    line: c_int,
    id: c_uint,
}

#[repr(C)]
struct Block {
    statement: Statement,
    label: *mut c_char,
    body: *mut pg_sys::List,
    variables_with_defaults: c_int,
}

#[repr(C)]
struct Assign {
    statement: Statement,
    variable: c_int,
    expression: *mut Expression,
}

#[repr(C)]
struct If {
    statement: Statement,
    condition: *mut Expression,
    then: *mut pg_sys::List,
    elsif: *mut pg_sys::List,
}

#[repr(C)]
struct Return {
    statement: Statement,
    expression: *mut Expression,
}

/// What PLpgSQL_expr begins with.
#[repr(C)]
struct Expression {
    query: *mut c_char,
    parse_mode: c_int,
    plan: pg_sys::SPIPlanPtr,
}

/// PLpgSQL_execstate and PLpgSQL_function, as far as the function's OID.
#[repr(C)]
pub struct State {
    function: *const Function,
}
#[repr(C)]
struct Function {
    signature: *const c_char,
    oid: Oid,
}

type OfFunction = Option<unsafe extern "C-unwind" fn(*mut State, *mut Function)>;
type OfStatement = Option<unsafe extern "C-unwind" fn(*mut State, *mut Statement)>;

/// PLpgSQL_plugin.
#[repr(C)]
struct Plugin {
    function_setup: Cell<OfFunction>,
    function_begins: Cell<OfFunction>,
    function_ends: Cell<OfFunction>,
    statement_begins: Cell<OfStatement>,
    statement_ends: Cell<OfStatement>,
    /// PL/pgSQL's own functions, which it fills in; the first is its error context callback.
    given: [Cell<*mut c_void>; 5],
}
// SAFETY: a backend has one thread.
unsafe impl Sync for Plugin {}

const fn plugin() -> Plugin {
    Plugin {
        function_setup: Cell::new(None),
        function_begins: Cell::new(None),
        function_ends: Cell::new(None),
        statement_begins: Cell::new(None),
        statement_ends: Cell::new(None),
        given: [const { Cell::new(ptr::null_mut()) }; 5],
    }
}

static OURS: Plugin = plugin();

/// Functions that may be nested in each other and are known one by one. A deeper one counts as of another language.
const FRAMES: usize = 32;

/// A function that runs.
#[derive(Clone, Copy)]
struct Frame {
    /// Its state, on the processor's stack.
    state: *const State,
    /// What `Hooks::dependencies` said when it began.
    dependencies: u64,
    /// WHILE loops that it is in. Their conditions are evaluated between two statements, and nobody is told.
    loops: u32,
}

struct Watch {
    variable: Cell<*mut *const Plugin>,
    /// The plugin that was there before.
    other: Cell<*const Plugin>,
    /// Which statement is being executed by which function; none after its end.
    state: Cell<*const State>,
    kind: Cell<u32>,
    frames: [Cell<Option<Frame>>; FRAMES],
    depth: Cell<usize>,
}
// SAFETY: a backend has one thread.
unsafe impl Sync for Watch {}

static WATCH: Watch = Watch {
    variable: Cell::new(ptr::null_mut()),
    other: Cell::new(ptr::null()),
    state: Cell::new(ptr::null()),
    kind: Cell::new(u32::MAX),
    frames: [const { Cell::new(None) }; FRAMES],
    depth: Cell::new(0),
};

/// What hotlock does at these places.
pub struct Hooks {
    /// Before a statement that is not quiet, and when a function that has come to depend on a predecessor returns to an expression.
    pub let_predecessors_end: fn(),
    /// How often the session has come to depend on one.
    pub dependencies: fn() -> u64,
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Names them. Once, from `_PG_init`.
pub fn init(hooks: Hooks) {
    let _ = HOOKS.set(hooks);
}

fn wait() {
    if let Some(hooks) = HOOKS.get() {
        (hooks.let_predecessors_end)();
    }
}

fn dependencies() -> u64 {
    HOOKS.get().map_or(0, |hooks| (hooks.dependencies)())
}

/// Puts the plugin in place, in a session that may follow. Functions that already run are not watched.
#[inline]
pub fn watch() {
    if WATCH.variable.get().is_null() {
        install();
    }
}

#[cold]
fn install() {
    // SAFETY: the variable lives as long as the process, and PL/pgSQL reads it before each call.
    unsafe {
        let variable = raw::find_rendezvous_variable(c"PLpgSQL_plugin".as_ptr()).cast();
        let other: *const Plugin = *variable;
        WATCH.other.set(other);
        OURS.function_setup.set(Some(function_setup));
        OURS.function_ends.set(Some(function_ends));
        OURS.statement_begins.set(Some(statement_begins));
        OURS.statement_ends.set(Some(statement_ends));
        if let Some(other) = other.as_ref() {
            OURS.function_begins.set(other.function_begins.get());
        }
        *variable = &raw const OURS;
        WATCH.variable.set(variable);
    }
}

/// Whether PL/pgSQL tells us of its statements.
pub fn is_watched() -> bool {
    let variable = WATCH.variable.get();
    // SAFETY: as in `install`.
    !variable.is_null() && ptr::eq(unsafe { *variable }, &raw const OURS)
}

/// Whether a function is written in PL/pgSQL.
///
/// # Safety
/// A transaction runs; catalogs can be read.
pub unsafe fn is_written_in_it(function: Oid) -> bool {
    // SAFETY: as lsyscache.c looks functions up.
    unsafe {
        let id = pg_sys::SysCacheIdentifier::PROCOID as i32;
        let tuple = raw::SearchSysCache1(id, Datum::from(function));
        if tuple.is_null() {
            return false;
        }
        let header = (*tuple).t_data;
        let form = header
            .cast::<u8>()
            .add((*header).t_hoff as usize)
            .cast::<pg_sys::FormData_pg_proc>();
        let language = (*form).prolang;
        raw::ReleaseSysCache(tuple);
        language == raw::get_language_oid(c"plpgsql".as_ptr(), true) && language != Oid::INVALID
    }
}

fn other<'a>() -> Option<&'a Plugin> {
    // SAFETY: the other plugin's own structure, which it keeps for the life of the process.
    unsafe { WATCH.other.get().as_ref() }
}

unsafe extern "C-unwind" fn function_setup(state: *mut State, function: *mut Function) {
    enter(state);
    if let Some(other) = other() {
        // PL/pgSQL has filled in ours; the other plugin looks into its own.
        for (theirs, ours) in other.given.iter().zip(&OURS.given) {
            theirs.set(ours.get());
        }
        if let Some(setup) = other.function_setup.get() {
            // SAFETY: PL/pgSQL's arguments.
            unsafe { setup(state, function) };
        }
    }
}

unsafe extern "C-unwind" fn function_ends(state: *mut State, function: *mut Function) {
    // SAFETY: PL/pgSQL's arguments.
    unsafe {
        if let Some(ends) = other().and_then(|other| other.function_ends.get()) {
            ends(state, function);
        }
        let has_followed = leave(state).is_none_or(|frame| frame.dependencies != dependencies());
        if has_followed && is_in_expression((*function).oid) {
            wait();
        }
    }
}

/// Whether the function's caller is an expression, whose rest is evaluated next. A procedure and a DO block are statements.
unsafe fn is_in_expression(function: Oid) -> bool {
    // SAFETY: a catalog look-up.
    function != Oid::INVALID
        && unsafe { raw::get_func_prokind(function) } as u8 != pg_sys::PROKIND_PROCEDURE
}

unsafe extern "C-unwind" fn statement_begins(state: *mut State, statement: *mut Statement) {
    // SAFETY: PL/pgSQL's arguments.
    unsafe {
        let kind = (*statement).kind;
        if !is_quiet(statement) {
            wait();
        }
        if kind == kind::WHILE {
            change(state, |frame| frame.loops += 1);
        }
        WATCH.state.set(state);
        WATCH.kind.set(kind);
        if let Some(begins) = other().and_then(|other| other.statement_begins.get()) {
            begins(state, statement);
        }
    }
}

unsafe extern "C-unwind" fn statement_ends(state: *mut State, statement: *mut Statement) {
    // SAFETY: PL/pgSQL's arguments.
    unsafe {
        if (*statement).kind == kind::WHILE {
            change(state, |frame| frame.loops = frame.loops.saturating_sub(1));
        }
        WATCH.state.set(ptr::null());
        if let Some(ends) = other().and_then(|other| other.statement_ends.get()) {
            ends(state, statement);
        }
    }
}

/// A function begins. The stack grows downwards: functions whose state lies lower have been left by an error.
fn enter(state: *const State) {
    let mut depth = WATCH.depth.get();
    while depth > 0 && frame(depth - 1).is_none_or(|frame| frame.state.addr() <= state.addr()) {
        depth -= 1;
    }
    if let Some(place) = WATCH.frames.get(depth) {
        place.set(Some(Frame {
            state,
            dependencies: dependencies(),
            loops: 0,
        }));
        WATCH.depth.set(depth + 1);
    }
}

fn frame(n: usize) -> Option<Frame> {
    WATCH.frames.get(n).and_then(Cell::get)
}

/// The place of a function that runs.
fn place_of(state: *const State) -> Option<usize> {
    (0..WATCH.depth.get())
        .rev()
        .find(|&n| frame(n).is_some_and(|frame| ptr::eq(frame.state, state)))
}

/// A function ends. None for one that is not known.
fn leave(state: *const State) -> Option<Frame> {
    let n = place_of(state)?;
    WATCH.depth.set(n);
    frame(n)
}

fn change(state: *const State, change: impl FnOnce(&mut Frame)) {
    if let Some(n) = place_of(state)
        && let Some(mut changed) = frame(n)
    {
        change(&mut changed);
        WATCH.frames[n].set(Some(changed));
    }
}

/// Whether the function may evaluate a condition between two statements, or is not known.
fn is_in_loop(state: *const State) -> bool {
    place_of(state)
        .and_then(frame)
        .is_none_or(|frame| frame.loops > 0)
}

/// At the end of a transaction.
pub fn forget() {
    WATCH.state.set(ptr::null());
    WATCH.depth.set(0);
}

/// Whether the statement does nothing that is not quiet, apart from what comes by the executor's hooks.
unsafe fn is_quiet(statement: *const Statement) -> bool {
    // SAFETY: the statement is read as what its kind says.
    unsafe {
        match (*statement).kind {
            kind::EXECSQL | kind::LOOP | kind::GETDIAG => true,
            kind::BLOCK => (*statement.cast::<Block>()).variables_with_defaults == 0,
            kind::ASSIGN => is_expression_quiet((*statement.cast::<Assign>()).expression),
            kind::IF => {
                let branches = &*statement.cast::<If>();
                branches.elsif.is_null() && is_expression_quiet(branches.condition)
            }
            kind::RETURN => {
                let expression = (*statement.cast::<Return>()).expression;
                expression.is_null() || is_expression_quiet(expression)
            }
            _ => false,
        }
    }
}

/// An expression, which PL/pgSQL evaluates by itself if it is simple. It is looked at as it was parsed, which stays as long as
/// its plan source is valid. One that has not been parsed yet, or is to be parsed again, is not known.
unsafe fn is_expression_quiet(expression: *const Expression) -> bool {
    // SAFETY: as in `is_quiet`; the function owns the plan, and the plan its sources.
    unsafe {
        let plan = (*expression).plan;
        if plan.is_null() {
            return false;
        }
        let mut sources = nodes(raw::SPI_plan_get_plan_sources(plan));
        let (Some(source), None) = (sources.next(), sources.next()) else {
            return false;
        };
        let source = &*source.cast::<pg_sys::CachedPlanSource>();
        let mut queries = nodes(source.query_list);
        let (Some(query), None) = (queries.next(), queries.next()) else {
            return false;
        };
        source.is_valid && tag(query) == NodeTag::T_Query && is_value_quiet(&*query.cast())
    }
}

/// Whether the query is `SELECT expression`, and that is quiet.
unsafe fn is_value_quiet(query: &pg_sys::Query) -> bool {
    // SAFETY: a parsed query.
    unsafe {
        query.commandType == CmdType::CMD_SELECT
            && query.rtable.is_null()
            && !query.hasSubLinks
            && !query.hasAggs
            && !query.hasTargetSRFs
            && quiet::is_quiet(query.targetList.cast())
    }
}

/// elog.h: ErrorContextCallback.
#[repr(C)]
struct Context {
    previous: *const Context,
    callback: *mut c_void,
    argument: *const c_void,
}

/// Whether the statement that is about to start is, word for word, an SQL statement of a PL/pgSQL function. Then the next thing that happens after
/// it is another statement of the function, which we are told of. SPI and PL/pgSQL say so by their error contexts: SPI's is on
/// top, and below it PL/pgSQL's for the function of which we have been told.
pub fn runs_statement() -> bool {
    let state = WATCH.state.get();
    if state.is_null() || WATCH.kind.get() != kind::EXECSQL || !is_watched() || is_in_loop(state) {
        return false;
    }
    // SAFETY: the stack of error contexts is valid while its functions run.
    unsafe {
        let top: *const Context = pg_sys::error_context_stack.cast();
        let Some(spi) = top.as_ref() else {
            return false;
        };
        spi.previous.as_ref().is_some_and(|below| {
            below.callback == OURS.given[0].get() && ptr::eq(below.argument, state.cast())
        })
    }
}

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Block, variables_with_defaults) == 32);
    assert!(offset_of!(Assign, expression) == 16);
    assert!(offset_of!(If, condition) == 16 && offset_of!(If, elsif) == 32);
    assert!(offset_of!(Return, expression) == 16);
    assert!(offset_of!(Expression, plan) == 16);
};
