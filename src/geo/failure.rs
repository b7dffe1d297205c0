//! What goes wrong with a node: a value until all that has a destructor is gone, then a PostgreSQL
//! error.

use crate::pg::error::{Told, in_c};
use crate::pg::libpq::Answer;
use crate::pg::raw;
use std::ffi::c_char;
use std::ptr::null;

/// An error on its way to the client.
#[derive(Clone, Debug)]
pub struct Failure {
    /// SQLSTATE.
    pub code: [u8; 5],
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
    /// What the node was doing: its own context, and the command that was sent.
    pub context: Option<String>,
}

pub type Outcome<T> = Result<T, Failure>;

/// SQLSTATE 08006: the connection was lost.
pub const CONNECTION_FAILURE: [u8; 5] = *b"08006";
/// SQLSTATE 08001: there was no connection.
pub const NO_CONNECTION: [u8; 5] = *b"08001";
/// SQLSTATE 08007: nobody knows whether the transaction has committed.
pub const UNKNOWN_OUTCOME: [u8; 5] = *b"08007";
/// SQLSTATE 0A000.
pub const NOT_SUPPORTED: [u8; 5] = *b"0A000";
/// SQLSTATE 55000.
pub const NOT_IN_STATE: [u8; 5] = *b"55000";
/// SQLSTATE 40000.
pub const ROLLED_BACK: [u8; 5] = *b"40000";

impl Failure {
    pub fn new(code: [u8; 5], message: impl Into<String>) -> Failure {
        Failure {
            code,
            message: message.into(),
            detail: None,
            hint: None,
            context: None,
        }
    }

    pub fn detail(mut self, detail: impl Into<String>) -> Failure {
        self.detail = Some(detail.into());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// The node's own error (connection.c: pgfdw_report_error).
    pub fn of_answer(answer: &Answer, command: &str) -> Failure {
        let code = answer
            .field(b'C')
            .and_then(|code| code.into_bytes().try_into().ok())
            .unwrap_or(CONNECTION_FAILURE);
        let context = answer
            .field(b'W')
            .into_iter()
            .chain([format!("remote SQL command: {command}")]);
        Failure {
            code,
            message: answer.field(b'M').unwrap_or_else(|| answer.message()),
            detail: answer.field(b'D'),
            hint: answer.field(b'H'),
            context: Some(context.collect::<Vec<_>>().join("\n")),
        }
    }

    /// The connection to a node is gone.
    pub fn lost(server: &str, why: &str) -> Failure {
        let failure = Failure::new(
            CONNECTION_FAILURE,
            format!("connection to server \"{server}\" was lost"),
        );
        if why.is_empty() {
            failure
        } else {
            failure.detail(why)
        }
    }

    /// Raises it as an ERROR. The caller's frames have nothing else with a destructor.
    pub fn raise(self) -> ! {
        let text = |text: &Option<String>| -> *const c_char {
            text.as_ref().map_or(null(), |text| in_c(text))
        };
        let told = Told {
            code: self.code,
            message: in_c(&self.message),
            detail: text(&self.detail),
            hint: text(&self.hint),
        };
        let context = text(&self.context);
        drop(self);
        // SAFETY: the texts lie in the current memory context, which the abort resets after
        // elog.c has copied them.
        unsafe { told.raise_in(context) }
    }

    /// Sends it as a WARNING. Only where an ERROR in sending would be one of the caller's, too.
    pub fn warn(&self) {
        let text = |text: &Option<String>| -> *const c_char {
            text.as_ref().map_or(null(), |text| in_c(text))
        };
        // SAFETY: as in `raise`.
        unsafe {
            Told {
                code: self.code,
                message: in_c(&self.message),
                detail: text(&self.detail),
                hint: text(&self.hint),
            }
            .warning();
        }
    }
}

/// What a callback's body has come to: its value, or the ERROR.
pub fn raised<T>(outcome: Outcome<T>) -> T {
    match outcome {
        Ok(value) => value,
        Err(failure) => failure.raise(),
    }
}

/// Runs the body of a callback that values with destructors live in: an ERROR of PostgreSQL's has
/// unwound them, and goes on as it was.
pub fn guarded<R>(body: impl FnOnce() -> R) -> R {
    // SAFETY: what `#[pg_guard]` does for a function.
    unsafe { pgrx::pg_sys::submodules::panic::pgrx_extern_c_guard(body) }
}

/// Looks for interrupts where values with destructors are alive: an ERROR unwinds.
pub fn check_for_interrupts() {
    // SAFETY: miscadmin.h's CHECK_FOR_INTERRUPTS, by the function that turns an ERROR into a panic.
    unsafe {
        if pgrx::pg_sys::InterruptPending != 0 {
            pgrx::pg_sys::ProcessInterrupts();
        }
    }
}

/// A line for the server log.
pub fn log(message: &str) {
    // SAFETY: as in `Failure::raise`.
    unsafe {
        if raw::errstart(raw::LOG_SERVER_ONLY, null()) {
            raw::errmsg_internal(c"%s".as_ptr(), in_c(message));
            raw::errfinish(c"txn".as_ptr(), 0, null());
        }
    }
}

/// The WARNING of a COMMIT that has not waited for all nodes.
pub fn not_applied() -> Failure {
    Failure::new(
        *b"01000",
        "the transaction is committed, but not yet at all servers",
    )
    .detail("Not all of them have answered.")
    .hint("They commit it as soon as they can. See txn.geo_transactions.")
}
