//! A connection to a node, what is under way on it, and the transaction that is open there.
//!
//! Nothing here waits, raises, or runs code of others, so that a borrow of a node is short.

use super::exchange::{Command, Exchange, Request, Role, Rows};
use super::facts::Facts;
use super::failure::Failure;
use super::server::Server;
use super::socket::{Descriptor, For};
use crate::pg::libpq::{self, Answer, Session, Status};
use geo::RecordId;
use std::collections::VecDeque;
use std::ffi::c_char;
use std::ptr::null;
use std::rc::Rc;

/// So many writes may be put off at one node: they lie in memory.
const MOST_DEFERRED: usize = 100;
/// So many bytes of texts and values may wait with them.
const MOST_DEFERRED_BYTES: usize = 1 << 20;

/// Asks for the id of a transaction that has written.
pub const ID: &str = "SELECT pg_catalog.pg_current_xact_id()";

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// The transaction's own work.
    Work,
    /// Reads of one statement that need one snapshot; the number tells nested statements apart.
    Reads(usize),
}

/// Isolation of the transaction at the node, as SQL.
pub struct Level {
    pub isolation: &'static str,
    pub is_read_only: bool,
}

/// A write that is put off.
struct Deferred {
    command: Command,
    /// Its text and values, in bytes.
    bytes: usize,
    /// The nest level it belongs to.
    nest_level: i32,
    /// What it is about, as far as that is known and matters.
    records: Vec<RecordId>,
}

/// A connection and its state.
pub struct Node {
    pub server: Rc<Server>,
    pub for_use: Use,
    pub facts: Facts,
    session: Session,
    /// Its process at the node, as that has said.
    process: i32,
    _descriptor: Descriptor,
    /// Flushes whose answers have not all come, oldest first.
    under_way: VecDeque<Rc<Exchange>>,
    /// The nest level up to which the node has savepoints; 0: no transaction is open there.
    depth: i32,
    /// Savepoints above it are to be released with the next flush.
    keep: i32,
    /// The id of the transaction, once it has written.
    transaction: Option<u64>,
    /// Writes that are put off: they travel with the next flush.
    deferred: Vec<Deferred>,
    /// Some have been sent: the transaction has written there, whatever became of the rest of that
    /// flush.
    has_sent_deferred: bool,
    /// One of them has not done what the client was told.
    has_broken_promise: bool,
    /// Its name at the node, once PREPARE TRANSACTION has been sent.
    pub prepared: Option<String>,
    /// Made by the present transaction.
    is_new: bool,
    /// What the transaction has sent here from its begin on, as long as nothing has come back for
    /// it. None: something has, or more than statements was sent.
    unanswered: Option<Vec<Sending>>,
    /// The state of the transaction at the node is unknown: the connection must not be used again.
    is_broken: bool,
    /// The server or the mapping has changed.
    pub is_stale: bool,
}

/// What has been sent, and where its answers go.
pub type Sending = (Request, Rc<Exchange>);

/// What comes next on a connection.
pub enum Next {
    /// An answer, and to what it belongs.
    Answer(Rc<Exchange>, Answer),
    /// Something has moved on: look again.
    Again,
    /// Nothing until the socket has more.
    Wait,
    /// Nothing is under way.
    Nothing,
}

impl Node {
    pub fn new(server: Rc<Server>, for_use: Use, session: Session, descriptor: Descriptor) -> Node {
        Node {
            server,
            for_use,
            facts: Facts::default(),
            process: session.process(),
            session,
            _descriptor: descriptor,
            under_way: VecDeque::new(),
            depth: 0,
            keep: 0,
            transaction: None,
            deferred: Vec::new(),
            has_sent_deferred: false,
            has_broken_promise: false,
            prepared: None,
            is_new: true,
            unanswered: None,
            is_broken: false,
            is_stale: false,
        }
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    pub fn process(&self) -> i32 {
        self.process
    }

    /// Whether the present transaction uses it. It may not have been sent anything yet.
    pub fn is_in_transaction(&self) -> bool {
        self.is_open() || self.has_deferred()
    }

    /// Whether a transaction is open at the node.
    pub fn is_open(&self) -> bool {
        self.depth > 0
    }

    /// The id of the transaction at the node, if it has written and told so.
    pub fn transaction(&self) -> Option<u64> {
        self.transaction
    }

    /// Whether writes have been sent there: others may wait for their locks.
    pub fn has_sent_writes(&self) -> bool {
        self.transaction.is_some() || self.has_sent_deferred || self.prepared.is_some()
    }

    /// Whether the transaction has written there, or is going to.
    pub fn has_written(&self) -> bool {
        self.transaction.is_some() || self.has_deferred() || self.has_sent_deferred
    }

    /// Puts a write off, at this nest level. False: too many wait already.
    pub fn defer(&mut self, command: Command, nest_level: i32, records: Vec<RecordId>) -> bool {
        let values = command.parameters.iter().flatten();
        let texts = values.chain([&command.text]);
        let bytes: usize = texts.map(|text| text.count_bytes()).sum();
        let waiting: usize = self.deferred.iter().map(|one| one.bytes).sum();
        let has_room =
            self.deferred.len() < MOST_DEFERRED && waiting + bytes <= MOST_DEFERRED_BYTES;
        if has_room {
            self.deferred.push(Deferred {
                command,
                bytes,
                nest_level,
                records,
            });
        }
        has_room
    }

    /// Whether writes wait to be sent.
    pub fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// What the writes that wait are about.
    pub fn deferred_records(&self) -> Vec<RecordId> {
        let all = self.deferred.iter().flat_map(|one| &one.records);
        all.copied().collect()
    }

    /// Whether a write has not done what the client was told: the transaction must not commit.
    pub fn has_broken_promise(&self) -> bool {
        self.has_broken_promise
    }

    /// The commands that go before the next one: the writes that were put off, each in its
    /// savepoint; a question for the transaction's id; what brings the node to the present nest
    /// level.
    pub fn opening(
        &mut self,
        level: &Level,
        nest_level: i32,
        name: &str,
        lock_timeout_ms: i32,
    ) -> Request {
        let mut request = Request::default();
        if self.has_deferred() {
            // They were put off when the transaction could write.
            let level = &Level {
                is_read_only: false,
                ..*level
            };
            for one in std::mem::take(&mut self.deferred) {
                self.adjust(&mut request, level, one.nest_level, name, lock_timeout_ms);
                request.push(one.command);
            }
            request.push(Command::new(Role::TransactionId, ID));
            self.has_sent_deferred = true;
        }
        self.adjust(&mut request, level, nest_level, name, lock_timeout_ms);
        request
    }

    pub fn is_usable(&self) -> bool {
        !self.is_broken && self.session.is_up()
    }

    /// It must not be used again.
    pub fn give_up(&mut self) {
        self.is_broken = true;
        let why = self.session.message();
        for exchange in self.under_way.drain(..) {
            exchange.fail(Failure::lost(&self.server.name, &why));
        }
    }

    /// Whether answers are outstanding.
    pub fn is_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// How many flushes wait for their answers.
    pub fn count_under_way(&self) -> usize {
        self.under_way.len()
    }

    /// What was sent last, if it has not been answered.
    pub fn last_sent(&self) -> Option<Rc<Exchange>> {
        self.under_way.back().cloned()
    }

    /// Commands that open a transaction, or adjust its savepoints to this nest level.
    fn adjust(
        &mut self,
        request: &mut Request,
        level: &Level,
        nest_level: i32,
        name: &str,
        lock_timeout_ms: i32,
    ) {
        if self.depth == 0 {
            let access = if level.is_read_only { " READ ONLY" } else { "" };
            request.push(Command::new(
                Role::Prologue,
                &format!("BEGIN ISOLATION LEVEL {}{access}", level.isolation),
            ));
            let settings = "SELECT pg_catalog.set_config('application_name', $1, true), \
                            pg_catalog.set_config('lock_timeout', $2, true)";
            request.push(
                Command::new(Role::Prologue, settings)
                    .with(name)
                    .with(&lock_timeout_ms.to_string()),
            );
            self.depth = 1;
            self.keep = 1;
            self.unanswered = (!self.is_new).then(Vec::new);
        }
        if self.keep < self.depth {
            let first = self.keep + 1;
            request.push(Command::new(
                Role::Prologue,
                &format!("RELEASE SAVEPOINT s{first}"),
            ));
            self.depth = self.keep;
        }
        for level in self.depth + 1..=nest_level {
            request.push(Command::new(Role::Prologue, &format!("SAVEPOINT s{level}")));
        }
        self.depth = self.depth.max(nest_level);
        self.keep = self.depth;
    }

    /// A subtransaction at this level has committed into its parent.
    pub fn subtransaction_committed(&mut self, level: i32) {
        self.keep = self.keep.min(level - 1);
        for one in &mut self.deferred {
            one.nest_level = one.nest_level.min(level - 1);
        }
    }

    /// The commands that take back what was done at this level, if anything was. What was put off
    /// is forgotten.
    pub fn roll_back_to(&mut self, level: i32) -> Option<Request> {
        self.deferred.retain(|one| one.nest_level < level);
        if self.keep < level || self.depth < level {
            return None;
        }
        let mut request = Request::default();
        for command in ["ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT"] {
            request.push(Command::new(Role::Prologue, &format!("{command} s{level}")));
        }
        self.depth = level - 1;
        self.keep = level - 1;
        Some(request)
    }

    /// Forgets the transaction: its end has been sent, or it is the resolver's now.
    pub fn end_transaction(&mut self) {
        self.depth = 0;
        self.keep = 0;
        self.transaction = None;
        self.prepared = None;
        self.deferred.clear();
        self.has_sent_deferred = false;
        self.has_broken_promise = false;
        self.is_new = false;
        self.unanswered = None;
    }

    /// Sends the commands. What comes back is in the exchange; a connection that is lost makes it
    /// fail at once.
    pub fn send(&mut self, request: &Request, rows: Option<Rc<dyn Rows>>) -> Rc<Exchange> {
        self.unanswered = None;
        let exchange = Exchange::new(request, rows);
        self.send_as(request, &exchange);
        exchange
    }

    /// Sends commands that change nothing for good before the transaction ends: they may be sent
    /// once more, on another connection, if this one was dead already.
    pub fn send_statement(&mut self, request: Request, rows: Option<Rc<dyn Rows>>) -> Rc<Exchange> {
        let exchange = Exchange::new(&request, rows);
        self.send_as(&request, &exchange);
        if let Some(unanswered) = &mut self.unanswered {
            unanswered.push((request, Rc::clone(&exchange)));
        }
        exchange
    }

    /// The connection is lost, and nothing has come back for what the transaction has sent: takes
    /// that out.
    pub fn take_unanswered(&mut self) -> Option<Vec<Sending>> {
        let is_lost = !self.is_usable() && self.is_in_transaction();
        self.unanswered.take_if(|sent| is_lost && !sent.is_empty())
    }

    /// What was sent may not be sent once more.
    pub fn forget_unanswered(&mut self) {
        self.unanswered = None;
    }

    /// Takes the place of a connection that was lost: sends what that one has sent.
    pub fn go_on_for(&mut self, lost: &mut Node, sent: Vec<Sending>) {
        (self.depth, self.keep) = (lost.depth, lost.keep);
        self.deferred = std::mem::take(&mut lost.deferred);
        self.has_sent_deferred = lost.has_sent_deferred;
        for (request, exchange) in sent {
            exchange.restart();
            self.send_as(&request, &exchange);
        }
    }

    fn send_as(&mut self, request: &Request, exchange: &Rc<Exchange>) {
        let is_sent = self.is_usable()
            && request.commands.iter().all(|command| {
                let values: Vec<*const c_char> = command
                    .parameters
                    .iter()
                    .map(|value| value.as_ref().map_or(null(), |value| value.as_ptr()))
                    .collect();
                self.session.send(&command.text, &values)
            })
            && self.session.sync();
        self.under_way.push_back(Rc::clone(exchange));
        if !is_sent {
            self.give_up();
        }
    }

    /// Whether something is under way that was sent above this nest level.
    pub fn is_under_way_above(&self, level: i32) -> bool {
        self.under_way
            .front()
            .is_some_and(|oldest| oldest.level() < level)
    }

    /// What comes next, without waiting.
    pub fn next(&mut self) -> Next {
        let Some(exchange) = self.under_way.front().cloned() else {
            return Next::Nothing;
        };
        if self.session.flush().is_none() {
            self.give_up();
            return Next::Again;
        }
        if exchange.wants_rows() {
            self.session.row_by_row();
        }
        if self.session.is_busy() {
            if !self.session.is_up() {
                self.give_up();
                return Next::Again;
            }
            return Next::Wait;
        }
        match self.session.next() {
            None if self.session.is_up() => {
                exchange.next_command();
                Next::Again
            }
            None => {
                self.give_up();
                Next::Again
            }
            // The connection was dead before.
            Some(answer) if self.unanswered.is_some() && answer.is_last() => {
                self.give_up();
                Next::Again
            }
            Some(answer) => {
                self.unanswered = None;
                if answer.status() == Status::Sync {
                    self.under_way.pop_front();
                }
                Next::Answer(exchange, answer)
            }
        }
    }

    /// An exchange is over: the node has told the transaction's id with it.
    pub fn note(&mut self, exchange: &Exchange) {
        if self.is_open() {
            self.transaction = self.transaction.or(exchange.transaction());
            self.has_broken_promise |= exchange.has_broken_promise();
        }
    }

    /// Takes all that has come, as told, without waiting. Whether nothing is under way any more.
    /// `take` raises nothing.
    pub fn take_all(&mut self, take: impl Fn(&Exchange, Answer)) -> bool {
        loop {
            match self.next() {
                Next::Answer(exchange, answer) => {
                    take(&exchange, answer);
                    if exchange.is_done() {
                        self.note(&exchange);
                    }
                }
                Next::Again => {}
                Next::Nothing => return true,
                Next::Wait => return false,
            }
        }
    }

    /// Takes what has come for nobody: the ends of transactions that were not waited for. A
    /// connection that is lost is noticed.
    pub fn catch_up(&mut self) {
        self.consume();
        // A server that shuts down says so, and libpq has to look again to see that it has gone.
        while self.is_usable() && libpq::is_ready(self.session.socket(), false) {
            self.consume();
        }
        self.take_all(|exchange, answer| {
            exchange.discard();
            exchange.take(answer);
        });
    }

    /// For what `next` waits.
    pub fn waits_for(&self) -> For {
        match self.session.flush() {
            Some(false) => For::Either,
            _ => For::Reading,
        }
    }

    /// Reads what has arrived.
    pub fn consume(&mut self) {
        if !self.session.consume() {
            self.give_up();
        }
    }
}
