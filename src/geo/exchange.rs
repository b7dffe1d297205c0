//! A flush of commands to a node, and what comes back for them.

use super::failure::{Failure, Outcome};
use crate::pg::libpq::{Answer, Status};
use crate::pg::{process, xact};
use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::rc::Rc;

/// What a node acknowledges after this it has at its synchronous standbys, too, or it says that it
/// has not. For the session; code at the node may have set something else.
pub const DURABLE: &str = "SELECT \
     pg_catalog.set_config('synchronous_commit', \
     CASE pg_catalog.current_setting('synchronous_commit') \
     WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false), \
     pg_catalog.set_config('client_min_messages', 'warning', false)";

/// Commands that go together: an error in one skips the rest.
#[derive(Default)]
pub struct Request {
    pub commands: Vec<Command>,
}

/// One command, with parameters in text form.
#[derive(Clone)]
pub struct Command {
    pub text: CString,
    pub parameters: Vec<Option<CString>>,
    pub role: Role,
}

/// What becomes of a command's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// BEGIN, SAVEPOINT and the like: it must succeed, and says nothing.
    Prologue,
    /// The statement itself.
    Statement,
    /// A write that was put off, and has to change so many rows: the client was told so.
    Deferred(u64),
    /// Tells the transaction's id, if it has one.
    TransactionId,
    /// Its command tag is wanted: COMMIT, PREPARE TRANSACTION, COMMIT PREPARED.
    Ending,
    /// Tells a row of facts.
    Facts,
}

impl Command {
    pub fn new(role: Role, text: &str) -> Command {
        Command {
            text: in_c(text),
            parameters: Vec::new(),
            role,
        }
    }

    pub fn with(mut self, parameter: &str) -> Command {
        self.parameters.push(Some(in_c(parameter)));
        self
    }
}

/// The text up to its first zero, which no text of PostgreSQL has.
pub fn in_c(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

impl Request {
    pub fn push(&mut self, command: Command) {
        self.commands.push(command);
    }

    pub fn of(command: Command) -> Request {
        Request {
            commands: vec![command],
        }
    }
}

/// Takes the rows of a statement as they come. It may raise: no part of a connection is borrowed
/// while it runs.
pub trait Rows {
    fn take(&self, answer: Answer);
}

/// The rows of an answer, as texts.
#[derive(Default)]
pub struct Texts(RefCell<Vec<Vec<Option<String>>>>);

impl Texts {
    pub fn take_all(&self) -> Vec<Vec<Option<String>>> {
        self.0.take()
    }
}

impl Rows for Texts {
    fn take(&self, answer: Answer) {
        let text = |row, column| Some(answer.value(row, column)?.to_string_lossy().into_owned());
        let row = |row| {
            (0..answer.columns())
                .map(|column| text(row, column))
                .collect()
        };
        self.0.borrow_mut().extend((0..answer.rows()).map(row));
    }
}

/// What has come back so far.
pub struct Exchange {
    commands: Vec<(Role, String)>,
    at: Cell<usize>,
    /// The nest level at which it was sent.
    level: i32,
    /// Rows that have come where none could be taken.
    kept: RefCell<Vec<Answer>>,
    is_done: Cell<bool>,
    sent_at: Cell<u64>,
    /// When the last answer was taken.
    done_at: Cell<u64>,
    failure: RefCell<Option<Failure>>,
    /// A write that was put off has not done what the client was told.
    has_broken_promise: Cell<bool>,
    /// Where the statement's rows go; None: nobody wants them, or not any more.
    rows: RefCell<Option<Rc<dyn Rows>>>,
    affected: Cell<u64>,
    transaction: Cell<Option<u64>>,
    tag: RefCell<Option<String>>,
    facts: RefCell<Vec<Option<String>>>,
}

impl Exchange {
    pub fn new(request: &Request, rows: Option<Rc<dyn Rows>>) -> Rc<Exchange> {
        let of = |command: &Command| (command.role, command.text.to_string_lossy().into_owned());
        Rc::new(Exchange {
            commands: request.commands.iter().map(of).collect(),
            at: Cell::new(0),
            level: xact::nest_level(),
            kept: RefCell::new(Vec::new()),
            is_done: Cell::new(false),
            sent_at: Cell::new(process::now()),
            done_at: Cell::new(0),
            failure: RefCell::new(None),
            has_broken_promise: Cell::new(false),
            rows: RefCell::new(rows),
            affected: Cell::new(0),
            transaction: Cell::new(None),
            tag: RefCell::new(None),
            facts: RefCell::new(Vec::new()),
        })
    }

    /// Whether everything has been answered.
    pub fn is_done(&self) -> bool {
        self.is_done.get()
    }

    /// When it was sent.
    pub fn sent_at(&self) -> u64 {
        self.sent_at.get()
    }

    /// When the last answer was taken.
    pub fn done_at(&self) -> u64 {
        self.done_at.get()
    }

    /// Nobody wants the rows any more.
    pub fn discard(&self) {
        self.rows.borrow_mut().take();
        self.kept.borrow_mut().clear();
    }

    /// The rows that come next are wanted one by one.
    pub fn wants_rows(&self) -> bool {
        self.role() == Some(Role::Statement) && self.rows.borrow().is_some()
    }

    fn role(&self) -> Option<Role> {
        self.commands.get(self.at.get()).map(|command| command.0)
    }

    /// The connection has been lost.
    pub fn fail(&self, failure: Failure) {
        self.failure.borrow_mut().get_or_insert(failure);
        self.is_done.set(true);
    }

    /// It is sent once more: nothing has come back for it.
    pub fn restart(&self) {
        self.failure.take();
        self.is_done.set(false);
        self.sent_at.set(process::now());
    }

    /// All results of the present command have come.
    pub fn next_command(&self) {
        self.at.set(self.at.get() + 1);
    }

    /// The nest level at which it was sent.
    pub fn level(&self) -> i32 {
        self.level
    }

    /// One result, where nothing may be raised: rows that somebody wants wait for `deliver`.
    pub fn keep(&self, answer: Answer) {
        if self.wants_rows() && matches!(answer.status(), Status::Row | Status::Rows) {
            self.affected.set(answer.affected());
            self.kept.borrow_mut().push(answer);
        } else {
            self.take(answer);
        }
    }

    /// Gives the rows that were kept. It may raise, as `Rows::take` may.
    pub fn deliver(&self) {
        let kept = self.kept.take();
        let rows = self.rows.borrow().clone();
        if let Some(rows) = rows {
            kept.into_iter().for_each(|answer| rows.take(answer));
        }
    }

    /// One result. It may raise, as `Rows::take` may.
    pub fn take(&self, answer: Answer) {
        match answer.status() {
            Status::Sync => {
                self.is_done.set(true);
                self.done_at.set(process::now());
            }
            Status::Skipped => self.note_deferred(),
            Status::Error => {
                let command = self.commands.get(self.at.get());
                let text = command.map_or("", |command| &command.1);
                let failure = Failure::of_answer(&answer, text);
                self.failure.borrow_mut().get_or_insert(failure);
                self.note_deferred();
            }
            Status::Done | Status::Rows | Status::Row => self.take_result(answer),
        }
    }

    /// The present command has not been done.
    fn note_deferred(&self) {
        let is_deferred = matches!(self.role(), Some(Role::Deferred(_)));
        self.has_broken_promise
            .set(is_deferred || self.has_broken_promise());
    }

    fn take_result(&self, answer: Answer) {
        match self.role() {
            Some(Role::Statement) => {
                if answer.status() != Status::Row {
                    self.affected.set(answer.affected());
                }
                self.deliver();
                let rows = self.rows.borrow().clone();
                if let Some(rows) = rows {
                    rows.take(answer);
                }
            }
            Some(Role::Deferred(told)) if answer.affected() != told => {
                self.has_broken_promise.set(true);
                let text = self.commands.get(self.at.get());
                let failure = other_count(told, answer.affected(), text.map_or("", |one| &one.1));
                self.failure.borrow_mut().get_or_insert(failure);
            }
            Some(Role::TransactionId) => {
                self.transaction
                    .set(answer.text(0).and_then(|id| id.parse().ok()));
            }
            Some(Role::Ending) => *self.tag.borrow_mut() = Some(answer.tag()),
            Some(Role::Facts) => {
                *self.facts.borrow_mut() = (0..answer.columns()).map(|n| answer.text(n)).collect();
            }
            Some(Role::Prologue | Role::Deferred(_)) | None => {}
        }
    }

    /// Rows that the statement has changed, or given.
    pub fn affected(&self) -> u64 {
        self.affected.get()
    }

    /// The id of the transaction at the node, if it was asked for and has one.
    pub fn transaction(&self) -> Option<u64> {
        self.transaction.get()
    }

    pub fn tag(&self) -> Option<String> {
        self.tag.borrow().clone()
    }

    pub fn facts(&self) -> Vec<Option<String>> {
        self.facts.borrow().clone()
    }

    /// Whether a write that was put off has not done what the client was told: the transaction
    /// must not commit.
    pub fn has_broken_promise(&self) -> bool {
        self.has_broken_promise.get()
    }

    /// Whether an error has come back.
    pub fn has_failed(&self) -> bool {
        self.failure.borrow().is_some()
    }

    /// The error, if one has come back.
    pub fn outcome(&self) -> Outcome<()> {
        match self.failure.borrow_mut().take() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

/// A write that was put off has changed another number of rows than the client was told.
fn other_count(told: u64, changed: u64, command: &str) -> Failure {
    let mut failure = Failure::new(
        *b"21000",
        format!("a deferred write has changed {changed} rows instead of {told}"),
    )
    .detail("With txn.geo_defer the client is told the number of rows before the write is sent.");
    failure.context = Some(format!("remote SQL command: {command}"));
    failure
}
