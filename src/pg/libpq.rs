//! libpq, the client library, as a part of this process.
//!
//! We link nothing: `postgres_fdw` brings libpq with it, and its functions are looked up once that
//! library is loaded (libpq-fe.h). Connections are in pipeline mode and do not block. Nothing here
//! raises or waits; an `Answer` and a `Session` free what they own.

use super::libpq_names::{Functions, PGconn, PGresult, functions};
use pgrx::pg_sys;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{NonNull, null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

pub use super::libpq_names::{is_loaded, load};

/// libpq-fe.h: ExecStatusType.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// PGRES_COMMAND_OK, or PGRES_EMPTY_QUERY.
    Done,
    /// PGRES_TUPLES_OK: the last rows, perhaps none.
    Rows,
    /// PGRES_SINGLE_TUPLE: a row; more may come.
    Row,
    /// PGRES_PIPELINE_SYNC.
    Sync,
    /// PGRES_PIPELINE_ABORTED: not run, because of an error before it.
    Skipped,
    /// Everything else is an error.
    Error,
}

/// One result of libpq.
pub struct Answer(NonNull<PGresult>);

impl Answer {
    pub fn status(&self) -> Status {
        // SAFETY: a result that is ours.
        match unsafe { (functions().PQresultStatus)(self.0.as_ptr()) } {
            0 | 1 => Status::Done,
            2 => Status::Rows,
            9 => Status::Row,
            10 => Status::Sync,
            11 => Status::Skipped,
            _ => Status::Error,
        }
    }

    pub fn rows(&self) -> i32 {
        // SAFETY: a result of libpq's, which this value owns.
        unsafe { (functions().PQntuples)(self.0.as_ptr()) }
    }

    pub fn columns(&self) -> i32 {
        // SAFETY: a result of libpq's, which this value owns.
        unsafe { (functions().PQnfields)(self.0.as_ptr()) }
    }

    /// A value as text, as long as the answer lives; None for NULL or for a place that is not
    /// there.
    pub fn value(&self, row: i32, column: i32) -> Option<&CStr> {
        if row >= self.rows() || column >= self.columns() {
            return None;
        }
        // SAFETY: as above; within bounds. libpq ends each value with a zero.
        unsafe {
            let is_null = (functions().PQgetisnull)(self.0.as_ptr(), row, column) != 0;
            (!is_null)
                .then(|| CStr::from_ptr((functions().PQgetvalue)(self.0.as_ptr(), row, column)))
        }
    }

    /// A value of the first row as a string.
    pub fn text(&self, column: i32) -> Option<String> {
        Some(self.value(0, column)?.to_string_lossy().into_owned())
    }

    /// The command tag, such as `UPDATE 1`.
    pub fn tag(&self) -> String {
        // SAFETY: as above; never null.
        let tag = unsafe { CStr::from_ptr((functions().PQcmdStatus)(self.0.as_ptr())) };
        tag.to_string_lossy().into_owned()
    }

    /// How many rows the command has changed.
    pub fn affected(&self) -> u64 {
        // SAFETY: as above; never null.
        let count = unsafe { CStr::from_ptr((functions().PQcmdTuples)(self.0.as_ptr())) };
        count
            .to_str()
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0)
    }

    /// A field of an error report (postgres_ext.h: PG_DIAG_*).
    pub fn field(&self, code: u8) -> Option<String> {
        // SAFETY: a result of libpq's, which this value owns.
        unsafe { field_of(self.0.as_ptr(), code) }
    }

    /// Whether it is the server's last word on this connection.
    pub fn is_last(&self) -> bool {
        /// postgres_ext.h: PG_DIAG_SEVERITY_NONLOCALIZED.
        const SEVERITY: u8 = b'V';
        let severity = self.field(SEVERITY);
        self.status() == Status::Error && severity.is_none_or(|severity| severity != "ERROR")
    }

    /// The whole message, should there be no fields.
    pub fn message(&self) -> String {
        // SAFETY: as above; never null.
        let text = unsafe { CStr::from_ptr((functions().PQresultErrorMessage)(self.0.as_ptr())) };
        text.to_string_lossy().trim_end().to_owned()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // SAFETY: ours, and freed once.
        unsafe { (functions().PQclear)(self.0.as_ptr()) }
    }
}

/// # Safety
/// `result` is a result of libpq that has not been cleared.
unsafe fn field_of(result: *const PGresult, code: u8) -> Option<String> {
    // SAFETY: the caller's result is libpq's, and keeps its texts until it is cleared.
    unsafe {
        let text = (functions().PQresultErrorField)(result, c_int::from(code));
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    }
}

/// What a connection attempt waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attempt {
    ToRead,
    ToWrite,
    Failed,
    Done,
}

/// libpq-fe.h: PQERRORS_VERBOSE.
const VERBOSE: c_int = 2;

/// A line of a verbose message: what is before the SQLSTATE, that, and what is behind it
/// (fe-protocol3.c: pqBuildErrorMessage3).
fn split_code(line: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = line.split_once(":  ")?;
    let (code, behind) = rest.split_once(": ")?;
    let is_code = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    (code.len() == 5 && code.bytes().all(is_code)).then_some((before, code, behind))
}

/// What a message is if it is not verbose.
fn plain(message: &str) -> String {
    let is_place = |line: &&str| {
        let number = line.rsplit_once(".c:").map(|(_, number)| number);
        number.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let without_code = |line: &str| match split_code(line) {
        Some((before, _, behind)) => format!("{before}:  {behind}"),
        None => line.to_owned(),
    };
    let lines = message.lines().filter(|line| !is_place(line));
    lines.map(without_code).collect::<Vec<_>>().join("\n")
}

/// A connection to a server. Dropping it closes it.
pub struct Session {
    connection: NonNull<PGconn>,
    /// A notice said that a wait for a synchronous standby was cancelled.
    standby_wait_cancelled: Box<AtomicBool>,
}

impl Session {
    /// Begins to connect. None when libpq has no memory. Pairs of a keyword and a value.
    pub fn start(parameters: &[(CString, CString)]) -> Option<Session> {
        let ends = |pick: fn(&(CString, CString)) -> &CString| {
            let mut all: Vec<*const c_char> = parameters.iter().map(|p| pick(p).as_ptr()).collect();
            all.push(null());
            all
        };
        let (keywords, values) = (ends(|p| &p.0), ends(|p| &p.1));
        // SAFETY: two arrays that end with null, of strings that live during the call.
        let connection =
            unsafe { (functions().PQconnectStartParams)(keywords.as_ptr(), values.as_ptr(), 0) };
        let session = Session {
            connection: NonNull::new(connection)?,
            standby_wait_cancelled: Box::new(AtomicBool::new(false)),
        };
        // SAFETY: the box stays where it is for as long as the connection.
        unsafe {
            let flag = (&raw const *session.standby_wait_cancelled)
                .cast_mut()
                .cast();
            (functions().PQsetNoticeReceiver)(connection, Some(on_notice), flag);
            // The only way to the SQLSTATE of an attempt that has failed.
            (functions().PQsetErrorVerbosity)(connection, VERBOSE);
        }
        Some(session)
    }

    /// What the attempt waits for first.
    pub fn begun(&self) -> Attempt {
        const BAD: c_int = 1;
        // SAFETY: our connection.
        match unsafe { (functions().PQstatus)(self.raw()) } {
            BAD => Attempt::Failed,
            _ => Attempt::ToWrite,
        }
    }

    /// Goes on connecting (PQconnectPoll).
    pub fn go_on(&self) -> Attempt {
        // SAFETY: our connection.
        match unsafe { (functions().PQconnectPoll)(self.raw()) } {
            1 => Attempt::ToRead,
            2 => Attempt::ToWrite,
            3 => Attempt::Done,
            _ => Attempt::Failed,
        }
    }

    /// Once connected: pipeline mode, without blocking. Whether libpq agreed.
    pub fn enter_pipeline(&self) -> bool {
        // SAFETY: our connection.
        unsafe {
            (functions().PQsetnonblocking)(self.raw(), 1) == 0
                && (functions().PQenterPipelineMode)(self.raw()) == 1
        }
    }

    /// Whether the connection has not been lost.
    pub fn is_up(&self) -> bool {
        // SAFETY: our connection.
        unsafe { (functions().PQstatus)(self.raw()) == 0 }
    }

    /// The server's process, as it has said; 0 when there is no connection.
    pub fn process(&self) -> c_int {
        // SAFETY: our connection.
        unsafe { (functions().PQbackendPID)(self.raw()) }
    }

    /// The socket; -1 when there is none.
    pub fn socket(&self) -> c_int {
        // SAFETY: our connection.
        unsafe { (functions().PQsocket)(self.raw()) }
    }

    /// libpq's last message about the connection.
    pub fn message(&self) -> String {
        plain(&self.verbose_message())
    }

    /// With SQLSTATEs, and places in PostgreSQL's source.
    fn verbose_message(&self) -> String {
        // SAFETY: our connection; never null.
        let text = unsafe { CStr::from_ptr((functions().PQerrorMessage)(self.raw())) };
        text.to_string_lossy().trim_end().to_owned()
    }

    /// Whether the attempt has failed at a server that is starting or shutting down (57P03).
    pub fn may_succeed_later(&self) -> bool {
        self.verbose_message()
            .lines()
            .any(|line| split_code(line).is_some_and(|(_, code, _)| code == "57P03"))
    }

    pub fn has_used_password(&self) -> bool {
        // SAFETY: our connection.
        unsafe { (functions().PQconnectionUsedPassword)(self.raw()) != 0 }
    }

    /// Queues a command with parameters in text form. Whether libpq took it.
    pub fn send(&self, command: &CStr, parameters: &[*const c_char]) -> bool {
        // SAFETY: strings that live during the call; types are left to the server, lengths and
        // formats are not wanted for text.
        unsafe {
            (functions().PQsendQueryParams)(
                self.raw(),
                command.as_ptr(),
                parameters.len() as c_int,
                null(),
                parameters.as_ptr(),
                null(),
                null(),
                0,
            ) == 1
        }
    }

    /// Queues the end of what an error skips, and sends it all as far as the socket takes it.
    pub fn sync(&self) -> bool {
        // SAFETY: our connection.
        unsafe { (functions().PQpipelineSync)(self.raw()) == 1 && self.flush().is_some() }
    }

    /// Sends what is queued. Whether nothing is left; None: the connection is lost.
    pub fn flush(&self) -> Option<bool> {
        // SAFETY: our connection.
        match unsafe { (functions().PQflush)(self.raw()) } {
            0 => Some(true),
            1 => Some(false),
            _ => None,
        }
    }

    /// Reads what has arrived. Whether the connection is still there.
    pub fn consume(&self) -> bool {
        // SAFETY: our connection.
        unsafe { (functions().PQconsumeInput)(self.raw()) == 1 }
    }

    /// Whether `next` would wait.
    pub fn is_busy(&self) -> bool {
        // SAFETY: our connection.
        unsafe { (functions().PQisBusy)(self.raw()) == 1 }
    }

    /// The next result; None at the end of a command's. Only if it is not busy.
    pub fn next(&self) -> Option<Answer> {
        // SAFETY: our connection.
        NonNull::new(unsafe { (functions().PQgetResult)(self.raw()) }).map(Answer)
    }

    /// The command whose results come next gives one row at a time.
    pub fn row_by_row(&self) {
        // SAFETY: our connection. A refusal means that the rows come at once.
        unsafe { (functions().PQsetSingleRowMode)(self.raw()) };
    }

    /// Whether a notice said, since the last call, that a wait for a standby was cancelled.
    pub fn take_standby_warning(&self) -> bool {
        self.standby_wait_cancelled.swap(false, Ordering::Relaxed)
    }

    /// What it takes to cancel the command that runs; None when it cannot be cancelled.
    pub fn canceller(&self) -> Option<Canceller> {
        // SAFETY: our connection.
        NonNull::new(unsafe { (functions().PQgetCancel)(self.raw()) }).map(Canceller)
    }

    fn raw(&self) -> *mut PGconn {
        self.connection.as_ptr()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: ours, and closed once.
        unsafe { (functions().PQfinish)(self.raw()) }
    }
}

/// The address and key of a session at its server.
pub struct Canceller(NonNull<c_void>);

// SAFETY: libpq's object of its own, which PQcancel only reads.
unsafe impl Send for Canceller {}

impl Canceller {
    /// Asks the server to cancel (a connection of its own, which blocks until it is closed).
    pub fn cancel(&self) -> bool {
        let mut message = [0 as c_char; 256];
        // SAFETY: ours; a buffer of that size.
        unsafe { (functions().PQcancel)(self.0.as_ptr(), message.as_mut_ptr(), 256) == 1 }
    }
}

impl Drop for Canceller {
    fn drop(&mut self) {
        // SAFETY: ours, and freed once.
        unsafe { (functions().PQfreeCancel)(self.0.as_ptr()) }
    }
}

/// A notice from the server. The texts are translated, the name of the function is not
/// (syncrep.c: SyncRepWaitForLSN).
unsafe extern "C" fn on_notice(flag: *mut c_void, notice: *const PGresult) {
    /// postgres_ext.h: PG_DIAG_SOURCE_FUNCTION.
    const FUNCTION: u8 = b'R';
    // SAFETY: called by libpq with its notice and our flag.
    unsafe {
        if field_of(notice, FUNCTION).is_some_and(|name| name == "SyncRepWaitForLSN") {
            (*flag.cast::<AtomicBool>()).store(true, Ordering::Relaxed);
        }
    }
}

/// The keywords that libpq takes as connection options, but for those that only a program gives.
fn connection_options() -> Vec<Vec<u8>> {
    let functions: &Functions = functions();
    let mut found = Vec::new();
    // SAFETY: PQconndefaults gives null or an array that ends with a null keyword, to be freed with
    // PQconninfoFree.
    unsafe {
        let options = (functions.PQconndefaults)();
        let mut at = options;
        while !at.is_null() && !(*at).keyword.is_null() {
            if *(*at).dispchar != b'D' as c_char {
                found.push(CStr::from_ptr((*at).keyword).to_bytes().to_vec());
            }
            at = at.add(1);
        }
        (functions.PQconninfoFree)(options);
    }
    found.retain(|name| !matches!(&name[..], b"fallback_application_name" | b"client_encoding"));
    found
}

/// Whether that is a connection option (option.c: is_libpq_option).
pub fn is_connection_option(keyword: &str) -> bool {
    static OPTIONS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let options = OPTIONS.get_or_init(connection_options);
    options.iter().any(|one| one == keyword.as_bytes())
}

/// poll(2) on sockets: raises nothing and looks at no interrupt. True for each that is ready.
/// Others see the wait in pg_stat_activity.
pub fn poll(sockets: &[(c_int, bool)], timeout_ms: i32) -> Vec<bool> {
    let mut all: Vec<libc::pollfd> = sockets
        .iter()
        .map(|&(fd, writes)| libc::pollfd {
            fd,
            events: libc::POLLIN | if writes { libc::POLLOUT } else { 0 },
            revents: 0,
        })
        .collect();
    let place = if all.is_empty() {
        null_mut()
    } else {
        all.as_mut_ptr()
    };
    // SAFETY: an array of that length; the place where our wait event is shown.
    let ready = unsafe {
        *pg_sys::my_wait_event_info = pg_sys::PG_WAIT_EXTENSION;
        let ready = libc::poll(place, all.len() as libc::nfds_t, timeout_ms);
        *pg_sys::my_wait_event_info = 0;
        ready
    };
    all.iter()
        .map(|one| ready > 0 && one.revents != 0)
        .collect()
}

/// Whether the socket can be read, or written, at once.
pub fn is_ready(socket: c_int, writes: bool) -> bool {
    let mut one = libc::pollfd {
        fd: socket,
        events: if writes { libc::POLLOUT } else { libc::POLLIN },
        revents: 0,
    };
    // SAFETY: one entry.
    unsafe { libc::poll(&raw mut one, 1, 0) > 0 }
}
