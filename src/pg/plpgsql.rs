//! Statements of PL/pgSQL functions that come by no executor hook: assignments, conditions, RAISE,
//! COMMIT.
//!
//! PL/pgSQL tells one plugin of every statement that it is about to execute (plpgsql.h:
//! PLpgSQL_plugin; pl_exec.c: exec_stmts). This is that plugin. Another one that is there already
//! (a debugger, a profiler) is called as well. If one is put in place of ours later, PL/pgSQL
//! counts as any other language (`language.rs`).
//!
//! plpgsql.h is not bound by pgrx; `plpgsql_layout.rs` declares what is used.

use super::language::{self, is_watched};
use super::local::Local;
use super::nodes::nodes;
use super::plpgsql_layout::{
    Assign, Block, ExecSql, Expression, Function, GetDiagnostics, If, Return, State, Statement,
    kind,
};
use super::{builtin, column_triggers, quiet, raw};
use pgrx::pg_sys::{self, CmdType, Oid};
use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::OnceLock;

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

static OURS: Local<Plugin> = Local::new(plugin());

/// Functions that may be nested in each other and are known one by one. A deeper one counts as of
/// another language.
const FRAMES: usize = 32;

/// A function that runs.
#[derive(Clone, Copy)]
struct Frame {
    /// Its state, on the processor's stack.
    state: *const State,
    /// What `Hooks::dependencies` said when it began.
    dependencies: u64,
    /// WHILE loops that it is in. Their conditions are evaluated between two statements, and nobody
    /// is told.
    loops: u32,
}

struct Watch {
    /// The plugin that was there before.
    other: Cell<*const Plugin>,
    /// Which statement is being executed by which function; none after its end.
    state: Cell<*const State>,
    statement: Cell<*const Statement>,
    frames: [Cell<Option<Frame>>; FRAMES],
    depth: Cell<usize>,
}

static WATCH: Local<Watch> = Local::new(Watch {
    other: Cell::new(ptr::null()),
    state: Cell::new(ptr::null()),
    statement: Cell::new(ptr::null()),
    frames: [const { Cell::new(None) }; FRAMES],
    depth: Cell::new(0),
});

/// What hotlock does at these places.
pub struct Hooks {
    /// Before a statement that is not quiet, and when a function that has come to depend on a
    /// predecessor returns to an expression.
    pub let_predecessors_end: fn(),
    /// Does so before a ROLLBACK, which ends what the transaction is refused for.
    pub before_rollback: fn(),
    /// Whether these would wait, or refuse the transaction.
    pub is_bound: fn() -> bool,
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

fn wait_before_rollback() {
    if let Some(hooks) = HOOKS.get() {
        (hooks.before_rollback)();
    }
}

fn is_bound() -> bool {
    HOOKS.get().is_some_and(|hooks| (hooks.is_bound)())
}

fn dependencies() -> u64 {
    HOOKS.get().map_or(0, |hooks| (hooks.dependencies)())
}

/// Puts the plugin in place, in a session that may follow. Functions that already run are not
/// watched.
#[inline]
pub fn watch() {
    if language::is_unknown() {
        install();
    }
}

#[cold]
fn install() {
    // SAFETY: the variable lives as long as the process, and PL/pgSQL reads it before each call.
    unsafe {
        let variable: *mut *const c_void =
            raw::find_rendezvous_variable(c"PLpgSQL_plugin".as_ptr()).cast();
        let other: *const Plugin = (*variable).cast();
        WATCH.other.set(other);
        OURS.function_setup.set(Some(function_setup));
        OURS.function_ends.set(Some(function_ends));
        OURS.statement_begins.set(Some(statement_begins));
        OURS.statement_ends.set(Some(statement_ends));
        if let Some(other) = other.as_ref() {
            OURS.function_begins.set(other.function_begins.get());
        }
        language::put(variable, ptr::from_ref::<Plugin>(&OURS).cast());
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
        match other() {
            Some(other) => {
                if let Some(ends) = other.function_ends.get() {
                    ends(state, function);
                }
            }
            None => note_trigger(&*state),
        }
        let has_followed = leave(state).is_none_or(|frame| frame.dependencies != dependencies());
        if has_followed && is_in_expression((*function).oid) {
            wait();
        }
    }
}

/// A trigger's function has come to its end.
unsafe fn note_trigger(state: &State) {
    // SAFETY: PL/pgSQL's own structures; trigger.c has filled in which trigger it is.
    unsafe {
        if let Some(fired) = state.trigger.as_ref() {
            column_triggers::note((*fired.tg_trigger).tgoid, state.function);
        }
    }
}

/// Whether the function's caller is an expression, whose rest is evaluated next. A procedure and a
/// DO block are statements.
unsafe fn is_in_expression(function: Oid) -> bool {
    let is_procedure =
        |row: &pg_sys::FormData_pg_proc| row.prokind as u8 == pg_sys::PROKIND_PROCEDURE;
    // SAFETY: a catalog look-up. What has been dropped meanwhile counts as a function.
    function != Oid::INVALID
        && unsafe { builtin::ask_function(function, is_procedure) } != Some(true)
}

unsafe extern "C-unwind" fn statement_begins(state: *mut State, statement: *mut Statement) {
    // SAFETY: PL/pgSQL's arguments.
    unsafe {
        let kind = (*statement).kind;
        if is_bound() && !is_quiet(statement, &*state) {
            match kind {
                kind::ROLLBACK => wait_before_rollback(),
                _ => wait(),
            }
        }
        if kind == kind::WHILE {
            change(state, |frame| frame.loops += 1);
        }
        WATCH.state.set(state);
        WATCH.statement.set(statement);
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
        forget_statement();
        if let Some(ends) = other().and_then(|other| other.statement_ends.get()) {
            ends(state, statement);
        }
    }
}

/// A function begins, within a statement of another one or after an error in that. The stack grows
/// downwards: functions whose state lies lower have been left by an error.
fn enter(state: *const State) {
    forget_statement();
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

/// Whether a function runs, or was left by an error.
pub fn is_in_function() -> bool {
    WATCH.depth.get() > 0
}

/// At the end of a transaction.
pub fn forget() {
    forget_statement();
    WATCH.depth.set(0);
}

/// A statement may have been left by an error, and its function may be freed.
pub fn forget_statement() {
    WATCH.state.set(ptr::null());
    WATCH.statement.set(ptr::null());
}

/// Whether the statement does nothing that is not quiet, apart from what comes by the executor's
/// hooks.
unsafe fn is_quiet(statement: *const Statement, state: &State) -> bool {
    // SAFETY: the statement is read as what its kind says.
    unsafe {
        match (*statement).kind {
            kind::EXECSQL | kind::LOOP => true,
            kind::GETDIAG => (*statement.cast::<GetDiagnostics>()).is_quiet(state),
            kind::BLOCK => (*statement.cast::<Block>()).variables_with_defaults == 0,
            // The parser has added the cast to the variable's type, but for composite types.
            kind::ASSIGN => {
                quiet_value(&*(*statement.cast::<Assign>()).expression).is_some_and(quiet::is_plain)
            }
            kind::IF => {
                let branches = &*statement.cast::<If>();
                branches.elsif.is_null() && is_expression_quiet(branches.condition)
            }
            kind::RETURN => {
                let returns = &*statement.cast::<Return>();
                match returns.expression.as_ref() {
                    None => returns.is_as_declared(state),
                    Some(expression) => quiet_value(expression)
                        .is_some_and(|typ| Return::is_type_declared(state, typ)),
                }
            }
            _ => false,
        }
    }
}

unsafe fn is_expression_quiet(expression: *const Expression) -> bool {
    // SAFETY: PL/pgSQL's own structure.
    unsafe { quiet_value(&*expression) }.is_some()
}

/// The type of an expression, which PL/pgSQL evaluates by itself if it is simple; none if it is not
/// quiet. It is looked at as it was parsed. One that has not been parsed yet, or is to be parsed
/// again, is not known.
unsafe fn quiet_value(expression: &Expression) -> Option<Oid> {
    // SAFETY: PL/pgSQL's own structures; a query that gives a value has one column.
    unsafe {
        let query = expression.query().filter(|query| is_value_quiet(query))?;
        let column = nodes(query.targetList)
            .next()?
            .cast::<pg_sys::TargetEntry>();
        Some(pg_sys::exprType((*column).expr.cast()))
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

/// Whether the statement with that text, which is about to run, is the SQL statement of a PL/pgSQL
/// function. Then the next thing that happens after it is another statement of the function, which
/// we are told of. SPI and PL/pgSQL say so by their error contexts: SPI's is on top, and below it
/// PL/pgSQL's for the function of which we have been told. The text tells it from a statement that
/// a cast of its rows runs.
pub fn runs_statement(text: *const c_char) -> bool {
    let (state, statement) = (WATCH.state.get(), WATCH.statement.get());
    if state.is_null() || !is_watched() || is_in_loop(state) {
        return false;
    }
    // SAFETY: the function is executing the statement; the stack of error contexts is valid while
    // its functions run.
    unsafe {
        if (*statement).kind != kind::EXECSQL
            || !(*statement.cast::<ExecSql>()).is_run_as(text, &*state)
        {
            return false;
        }
        let top: *const Context = pg_sys::error_context_stack.cast();
        let Some(spi) = top.as_ref() else {
            return false;
        };
        spi.previous.as_ref().is_some_and(|below| {
            below.callback == OURS.given[0].get() && ptr::eq(below.argument, state.cast())
        })
    }
}
