//! `txn.run` runs a statement as a transaction of its own, and again as long as it is refused
//! because of others. Each new attempt declares the keys that the refused attempts have used.
//!
//! PL/pgSQL cannot do this: a block that catches errors cannot commit. Here each attempt begins
//! with a commit (SPI_commit), and so without a snapshot. The statement runs in a subtransaction,
//! which takes back what an error has left in the executor and in SPI.

use super::admit;
use super::errors;
use super::used::{BY_RANGE, Used, is_refused};
use crate::pg::catch::catching;
use crate::pg::error::guarded;
use crate::pg::local::Local;
use crate::pg::{process, raw};
use crate::shared::wait;
use pgrx::pg_sys::{self, Datum, NodeTag, Oid};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

/// Attempts at most.
const MOST: i32 = 1000;
/// A pause is at most so many times doubled: 64 ms.
const LONGEST_PAUSE: i32 = 6;

/// What the attempts so far have used.
static USED: Local<Used> = Local::new(Used::new());

/// The statement, its arguments, and where the answer goes.
struct Job {
    statement: *const c_char,
    arguments: *mut Datum,
    nulls: *mut bool,
    count: c_int,
    /// Where the result stands.
    context: pg_sys::MemoryContext,
    result: Cell<Option<Datum>>,
}

/// `CALL txn.run(statement, arguments, attempts, isolation, result)`.
///
/// # Safety
/// Called by fmgr.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn run_wrapper(fcinfo: pg_sys::FunctionCallInfo) -> Datum {
    // SAFETY: fmgr's argument; nothing in `run` has a destructor when it calls PostgreSQL.
    guarded(|| unsafe { run(fcinfo) })
}

#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_run_wrapper() -> &'static pg_sys::Pg_finfo_record {
    const RECORD: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };
    &RECORD
}

/// An argument of the procedure; None for NULL.
unsafe fn argument(fcinfo: pg_sys::FunctionCallInfo, n: usize) -> Option<Datum> {
    // SAFETY: it has five.
    let argument = unsafe { &*(*fcinfo).args.as_ptr().add(n) };
    (!argument.isnull).then_some(argument.value)
}

unsafe fn run(fcinfo: pg_sys::FunctionCallInfo) -> Datum {
    // SAFETY: fmgr's argument, with arguments of the declared types; spi.c and snapmgr.c as
    // PL/pgSQL uses them.
    unsafe {
        let Some(statement) = argument(fcinfo, 0) else {
            errors::NULL_STATEMENT.raise();
        };
        let context = (*fcinfo).context.cast::<pg_sys::CallContext>();
        let is_called = !context.is_null() && (*context).type_ == NodeTag::T_CallContext;
        if !is_called || (*context).atomic {
            errors::RUN_IN_BLOCK.raise();
        }
        let attempts = argument(fcinfo, 2).map_or(MOST, |datum| datum.value() as i32);
        if !(1..=MOST).contains(&attempts) {
            errors::ATTEMPTS.raise();
        }
        let isolation = argument(fcinfo, 3).map(|text| isolation(text));
        let mut descriptor = ptr::null_mut();
        raw::get_call_result_type(fcinfo, ptr::null_mut(), &mut descriptor);
        let descriptor = raw::BlessTupleDesc(descriptor);
        let mut job = Job {
            statement: raw::text_to_cstring(statement.cast_mut_ptr()),
            arguments: ptr::null_mut(),
            nulls: ptr::null_mut(),
            count: 0,
            context: pg_sys::CurrentMemoryContext,
            result: Cell::new(None),
        };
        if let Some(array) = argument(fcinfo, 1) {
            read_arguments(array, &mut job);
        }
        raw::SPI_connect_ext(pg_sys::SPI_OPT_NONATOMIC as c_int);
        USED.forget();
        for attempt in 1..=attempts {
            raw::SPI_commit();
            if let Some(isolation) = isolation {
                raw::SPI_execute(isolation.as_ptr(), false, 0);
            }
            job.result.set(None);
            let is_last = attempt == attempts;
            if prepare(attempt, is_last) && try_once(&job, attempt, is_last) {
                break;
            }
        }
        raw::SPI_finish();
        let (mut values, mut nulls) = ([Datum::from(0)], [true]);
        if let Some(result) = job.result.get() {
            (values, nulls) = ([result], [false]);
        }
        let tuple = raw::heap_form_tuple(descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
        (*fcinfo).isnull = false;
        raw::HeapTupleHeaderGetDatum((*tuple).t_data)
    }
}

/// The command that sets that isolation level.
unsafe fn isolation(text: Datum) -> &'static CStr {
    // SAFETY: a text.
    let given = unsafe { CStr::from_ptr(raw::text_to_cstring(text.cast_mut_ptr())) };
    let given = given.to_bytes();
    for (name, command) in [
        (
            "read committed",
            c"SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
        ),
        (
            "repeatable read",
            c"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        ),
        (
            "serializable",
            c"SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        ),
    ] {
        if given.eq_ignore_ascii_case(name.as_bytes()) {
            return command;
        }
    }
    errors::ISOLATION.raise()
}

/// The texts of the arguments.
unsafe fn read_arguments(array: Datum, job: &mut Job) {
    // SAFETY: a text[], and its elements' storage.
    unsafe {
        let array = raw::pg_detoast_datum(array.cast_mut_ptr()).cast::<pg_sys::ArrayType>();
        raw::deconstruct_array(
            array,
            pg_sys::TEXTOID,
            -1,
            false,
            b'i' as c_char,
            &mut job.arguments,
            &mut job.nulls,
            &mut job.count,
        );
    }
}

/// Takes the keys that the attempts so far have used, or pauses if none are declared. False if that
/// was refused, and is to be tried again.
///
/// # Safety
/// Nothing with a destructor is alive in the callers.
unsafe fn prepare(attempt: i32, is_last: bool) -> bool {
    // SAFETY: an error in a wait leaves what SPI_rollback takes back; as in spi.c: _SPI_commit.
    unsafe {
        let failed = catching(
            || {
                let take = |lane| {
                    admit::enter(lane);
                    admit::wait_until_held(lane);
                    true
                };
                if !USED.declare(take) && attempt > 1 {
                    pause(attempt);
                }
            },
            |code| is_refused(code) && !is_last,
        );
        if failed {
            raw::SPI_rollback();
        }
        !failed
    }
}

/// Lets others end, for a time that grows with the attempts.
fn pause(attempt: i32) {
    let most = 1 << attempt.min(LONGEST_PAUSE);
    let ms = u64::from(process::random() % most) + 1;
    wait::sleep(ms, pg_sys::WaitEventTimeout::WAIT_EVENT_PG_SLEEP);
}

/// Runs the statement and commits. False if it is to be tried again.
///
/// # Safety
/// Nothing with a destructor is alive in the callers.
unsafe fn try_once(job: &Job, attempt: i32, is_last: bool) -> bool {
    // SAFETY: as PL/pgSQL runs a block with an EXCEPTION clause (pl_exec.c: exec_stmt_block).
    unsafe {
        let (context, owner) = (pg_sys::CurrentMemoryContext, pg_sys::CurrentResourceOwner);
        let back = || {
            pg_sys::CurrentMemoryContext = context;
            pg_sys::CurrentResourceOwner = owner;
        };
        let error = Cell::new(ptr::null_mut());
        let keep = |code| {
            if is_refused(code) && !is_last {
                USED.note(attempt >= BY_RANGE);
            } else {
                pg_sys::CurrentMemoryContext = job.context;
                error.set(raw::CopyErrorData());
            }
            true
        };
        raw::BeginInternalSubTransaction(ptr::null());
        pg_sys::CurrentMemoryContext = context;
        let failed = catching(
            || {
                execute(job);
                raw::ReleaseCurrentSubTransaction();
                back();
            },
            keep,
        );
        if failed {
            raw::RollbackAndReleaseCurrentSubTransaction();
            back();
            if !error.get().is_null() {
                raw::ReThrowError(error.get());
            }
            raw::SPI_rollback();
            return false;
        }
        // A refusal at the commit comes when the transaction has ended (spi.c: _SPI_commit).
        USED.note(attempt >= BY_RANGE);
        !catching(|| raw::SPI_commit(), |code| is_refused(code) && !is_last)
    }
}

/// The types of the parameters, as the statement has them.
struct Parameters {
    types: *mut Oid,
    count: c_int,
}

/// Lets the statement say of which types its parameters are.
unsafe extern "C-unwind" fn set_up(state: *mut pg_sys::ParseState, parameters: *mut c_void) {
    // SAFETY: `execute` gives its own.
    unsafe {
        let parameters = &mut *parameters.cast::<Parameters>();
        raw::setup_parse_variable_parameters(state, &mut parameters.types, &mut parameters.count);
    }
}

/// Runs the statement, and keeps the first row that it returns.
unsafe fn execute(job: &Job) {
    // SAFETY: as above; the parameters live as long as the plan is used.
    unsafe {
        // The array must live longer than SPI's memory of the call in which it is filled.
        let size = size_of::<Oid>() * job.count.max(1) as usize;
        let mut parameters = Parameters {
            types: raw::palloc0(size).cast(),
            count: job.count,
        };
        let options = pg_sys::SPIPrepareOptions {
            parserSetup: Some(set_up),
            parserSetupArg: (&raw mut parameters).cast(),
            ..Default::default()
        };
        let plan = raw::SPI_prepare_extended(job.statement, &options);
        if plan.is_null() {
            errors::TRANSACTION_COMMAND.raise();
        }
        if parameters.count > job.count {
            errors::TOO_FEW_ARGUMENTS.raise();
        }
        let params = raw::makeParamList(parameters.count);
        // A domain's CHECK may read.
        raw::PushActiveSnapshot(raw::GetTransactionSnapshot());
        for n in 0..parameters.count as usize {
            let typ = *parameters.types.add(n);
            let place = &mut *(*params).params.as_mut_ptr().add(n);
            place.ptype = typ;
            place.pflags = pg_sys::PARAM_FLAG_CONST as u16;
            place.isnull = *job.nulls.add(n);
            if !place.isnull && typ != Oid::INVALID {
                let text = raw::text_to_cstring((*job.arguments.add(n)).cast_mut_ptr());
                let (mut function, mut parameter) = (Oid::INVALID, Oid::INVALID);
                raw::getTypeInputInfo(typ, &mut function, &mut parameter);
                place.value = raw::OidInputFunctionCall(function, text, parameter, -1);
            }
        }
        raw::PopActiveSnapshot();
        let options = pg_sys::SPIExecuteOptions {
            params,
            ..Default::default()
        };
        let code = raw::SPI_execute_plan_extended(plan, &options);
        if code < 0 {
            errors::TRANSACTION_COMMAND.raise();
        }
        keep_row(job);
        raw::SPI_freetuptable(pg_sys::SPI_tuptable);
        raw::SPI_freeplan(plan);
    }
}

/// Keeps the first row that the statement has returned, if any.
unsafe fn keep_row(job: &Job) {
    // SAFETY: SPI's answer.
    unsafe {
        let table = pg_sys::SPI_tuptable;
        if table.is_null() || (*table).numvals == 0 {
            return;
        }
        raw::PushActiveSnapshot(raw::GetTransactionSnapshot());
        let row = raw::SPI_returntuple(*(*table).vals, (*table).tupdesc);
        let row = Datum::from(row.cast::<c_void>());
        let json = raw::DirectFunctionCall1Coll(Some(raw::row_to_json), Oid::INVALID, row);
        let text = raw::text_to_cstring(json.cast_mut_ptr());
        let current = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = job.context;
        let json =
            raw::DirectFunctionCall1Coll(Some(raw::jsonb_in), Oid::INVALID, Datum::from(text));
        pg_sys::CurrentMemoryContext = current;
        job.result.set(Some(json));
        raw::PopActiveSnapshot();
    }
}
