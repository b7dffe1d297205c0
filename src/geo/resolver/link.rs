//! The resolver's connections. One that has to be made does not keep the others waiting.

use crate::geo::connect;
use crate::geo::coordinator::{self, memory};
use crate::geo::exchange::{Command, Exchange, Request, Role, Rows};
use crate::geo::failure::log;
use crate::geo::node::{Node, Use};
use crate::geo::schedule;
use crate::geo::server::Server;
use crate::geo::socket::Descriptor;
use crate::pg::libpq::{self, Attempt, Session};
use crate::pg::process;
use crate::shared::guc::{self, GeoSchedule};
use std::rc::Rc;

/// How long a node may take for an answer, in microseconds.
pub const ANSWER_US: u64 = 2_000_000;

/// A connection to a node, or the way to one.
pub struct Link {
    pub server: Rc<Server>,
    state: State,
    /// Whether the log has been told that the node cannot be reached.
    is_told: bool,
    ping: Option<Ping>,
    /// What the node was asked for: its hot rows.
    report: Option<Rc<Exchange>>,
    /// When it was asked for last.
    asked_at: u64,
    /// When the last round trip was measured.
    pinged_at: u64,
    /// The coordinator's name among the nodes.
    pub coordinator: u128,
    /// Another server acts under that name.
    pub is_fenced: bool,
    mark: Mark,
    /// When it last answered, in microseconds.
    heard_at: u64,
}

/// As long as the mark does not change, the connection is the same one. Nor has the node said that
/// a wait for its standby was cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    connections: u64,
    warnings: u64,
}

/// A round trip that is being measured.
struct Ping {
    sent: Rc<Exchange>,
    at: u64,
}

/// How often the round trip to a node that is used is measured, in microseconds.
const PING_US: u64 = 100_000;
/// How often the node is asked for its hot rows, in microseconds.
const REPORT_US: u64 = 500_000;
/// What says that there is no such function, or none for this user: undefined_function,
/// invalid_schema_name, insufficient_privilege.
const GONE: [[u8; 5]; 3] = [*b"42883", *b"3F000", *b"42501"];
/// After so long it is measured behind other commands, too.
const BUSY_US: u64 = 1_000_000;

/// What prepares a session, and the lock that only one server has at a time under this name: who is
/// a copy does not get it as long as the original has it.
type Answers = ([Rc<Exchange>; 3], Rc<Exchange>);

const FENCE: &str = "SELECT pg_catalog.pg_try_advisory_lock($1)";

enum State {
    Down,
    Connecting {
        session: Session,
        descriptor: Descriptor,
        attempt: Attempt,
        until: u64,
    },
    Preparing(Box<Node>, Answers, u64),
    Up(Box<Node>),
}

impl Link {
    pub fn new(server: Rc<Server>, coordinator: u128) -> Link {
        Link {
            server,
            state: State::Down,
            is_told: false,
            ping: None,
            report: None,
            asked_at: 0,
            pinged_at: 0,
            coordinator,
            is_fenced: false,
            mark: Mark::default(),
            heard_at: 0,
        }
    }

    pub fn mark(&mut self) -> Mark {
        match &self.state {
            State::Up(node) if !node.is_usable() => self.close(),
            State::Up(node) if node.session().take_standby_warning() => self.mark.warnings += 1,
            _ => {}
        }
        self.mark
    }

    /// What was sent last, if it has not been answered.
    pub fn last_sent(&mut self) -> Option<Rc<Exchange>> {
        self.node().and_then(|node| node.last_sent())
    }

    /// The connection, if there is one.
    pub fn node(&mut self) -> Option<&mut Node> {
        match &mut self.state {
            State::Up(node) if node.is_usable() => Some(node),
            _ => None,
        }
    }

    /// Measures the round trip to a node that is used, once in a while, and asks for its hot rows.
    pub fn measure(&mut self) {
        let now = process::now();
        let (database, server) = (coordinator::database(), self.server.server.into());
        if let Some(ping) = self.ping.take() {
            if let Some(node) = self.node() {
                node.consume();
                drain(node);
            }
            if !ping.sent.is_done() && self.node().is_some() {
                self.ping = Some(ping);
                return;
            }
            let round_trip = ping.sent.done_at().saturating_sub(ping.at);
            if ping.sent.is_done() && !ping.sent.has_failed() {
                memory().with_latencies(|all| all.measured(database, server, round_trip));
            }
        }
        if let Some(report) = self.report.take_if(|report| report.is_done()) {
            self.take_report(&report);
        }
        // Behind other commands it would measure these, too: better than nothing.
        let is_free = self.node().is_some_and(|node| !node.is_under_way());
        let pause = if is_free { PING_US } else { BUSY_US };
        let is_due = guc::GEO_SCHEDULE.get() != GeoSchedule::Off && self.pinged_at + pause <= now;
        if is_due && memory().with_latencies(|all| all.is_used(database, server, now)) {
            let request = Request::of(Command::new(Role::Prologue, ""));
            if let Some(sent) = send(self, &request, None) {
                self.pinged_at = now;
                self.ping = Some(Ping { sent, at: now });
                self.ask_for_report(now);
            }
        }
    }

    /// Asks for the node's hot rows once in a while, if it can tell.
    fn ask_for_report(&mut self, now: u64) {
        let reports = self.node().is_some_and(|node| node.facts.reports);
        if reports && self.report.is_none() && self.asked_at + REPORT_US <= now {
            let report = Request::of(Command::new(Role::Facts, "SELECT txn.geo_report()"));
            self.report = send(self, &report, None);
            self.asked_at = now;
        }
    }

    fn take_report(&mut self, asked: &Exchange) {
        if let Some(Some(report)) = asked.facts().first() {
            schedule::note_report(self.server.server, report);
        }
        // Somebody has taken the function away: the node is not asked again.
        let is_gone = asked
            .outcome()
            .is_err_and(|failure| GONE.contains(&failure.code));
        if is_gone && let Some(node) = self.node() {
            node.facts.reports = false;
        }
    }

    /// When the next round trip is due.
    pub fn next_measure(&self) -> u64 {
        self.pinged_at + PING_US
    }

    /// Takes what has come, without waiting.
    pub fn catch_up(&mut self) {
        if let Some(node) = self.node()
            && node.is_under_way()
        {
            node.consume();
            let before = node.count_under_way();
            drain(node);
            if node.count_under_way() < before {
                self.heard_at = process::now();
            }
        }
    }

    /// Whether the node has answered nothing for too long of what was sent at that time.
    pub fn is_silent_since(&self, sent_at: u64, now: u64) -> bool {
        now >= sent_at.max(self.heard_at) + ANSWER_US
    }

    /// Closes it: the next pass makes a new one. What the node may have warned of is not known.
    pub fn close(&mut self) {
        self.mark.connections += 1;
        self.go_down();
    }

    /// There is no connection, and nobody answers what was asked.
    fn go_down(&mut self) {
        (self.ping, self.report) = (None, None);
        self.state = State::Down;
    }

    /// Whether the last attempt has failed.
    pub fn has_failed(&self) -> bool {
        self.is_told
    }

    /// Whether it is on its way.
    pub fn is_coming(&self) -> bool {
        matches!(self.state, State::Connecting { .. } | State::Preparing(..))
    }

    fn failed(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_told, true) {
            log(&format!(
                "txn: the resolver cannot reach server \"{}\": {why}",
                self.server.name
            ));
        }
        self.go_down();
    }

    /// Begins to connect if need be, and goes on as far as it can without waiting.
    pub fn go_on(&mut self) {
        loop {
            match std::mem::replace(&mut self.state, State::Down) {
                State::Down => match connect::start(&self.server) {
                    Ok((session, descriptor)) => {
                        let timeout = guc::GEO_CONNECT_TIMEOUT.get().max(1) as u64;
                        self.state = State::Connecting {
                            attempt: session.begun(),
                            session,
                            descriptor,
                            until: process::now() + timeout * 1000,
                        };
                        return;
                    }
                    Err(failure) => return self.failed(&failure.message),
                },
                State::Connecting {
                    session,
                    descriptor,
                    attempt,
                    until,
                } => {
                    if !self.connect(session, descriptor, attempt, until) {
                        return;
                    }
                }
                State::Preparing(node, answers, until) => {
                    return self.prepare(node, answers, until);
                }
                State::Up(node) => {
                    if node.is_usable() {
                        self.state = State::Up(node);
                    } else {
                        self.close();
                    }
                    return;
                }
            }
        }
    }

    /// One step of connecting. Whether another may be taken at once.
    fn connect(
        &mut self,
        session: Session,
        descriptor: Descriptor,
        attempt: Attempt,
        until: u64,
    ) -> bool {
        let writes = attempt == Attempt::ToWrite;
        let is_waiting = matches!(attempt, Attempt::ToRead | Attempt::ToWrite);
        let is_ready = is_waiting && libpq::is_ready(session.socket(), writes);
        if is_waiting && !is_ready {
            if process::now() >= until {
                self.failed("there was no answer");
            } else {
                self.state = State::Connecting {
                    session,
                    descriptor,
                    attempt,
                    until,
                };
            }
            return false;
        }
        match session.go_on() {
            Attempt::Failed => {
                self.failed(&session.message());
                false
            }
            Attempt::Done => match connect::adopt(&self.server, Use::Work, session, descriptor) {
                Ok(mut node) => {
                    let sent = connect::preparation().map(|one| node.send(&one, None));
                    let sent = (sent, node.send(&self.fence(), None));
                    let until = process::now() + ANSWER_US;
                    self.state = State::Preparing(Box::new(node), sent, until);
                    true
                }
                Err(failure) => {
                    self.failed(&failure.message);
                    false
                }
            },
            attempt => {
                self.state = State::Connecting {
                    session,
                    descriptor,
                    attempt,
                    until,
                };
                true
            }
        }
    }

    /// Asks for the lock that only one server has under this name.
    fn fence(&self) -> Request {
        let key = self.coordinator as i64 ^ i64::from(u32::from(self.server.mapping));
        Request::of(Command::new(Role::Facts, FENCE).with(&key.to_string()))
    }

    fn prepare(&mut self, mut node: Box<Node>, answers: Answers, until: u64) {
        node.consume();
        if !drain(&mut node) {
            if process::now() >= until {
                self.failed("there was no answer");
            } else {
                self.state = State::Preparing(node, answers, until);
            }
            return;
        }
        let locked = answers.1.facts().first().cloned().flatten();
        self.is_fenced = locked.as_deref() == Some("f");
        if locked.as_deref() != Some("t") {
            return self.failed("another server acts as this coordinator");
        }
        match connect::facts(&answers.0) {
            Ok(facts) if facts.timeline == 0 => self.failed("it is in recovery"),
            Ok(facts) => {
                node.facts = facts;
                if std::mem::replace(&mut self.is_told, false) {
                    log(&format!(
                        "txn: the resolver reaches server \"{}\" again",
                        self.server.name
                    ));
                }
                self.mark.connections += 1;
                self.state = State::Up(node);
            }
            Err(failure) => self.failed(&failure.message),
        }
    }

    /// What it waits for: a connection that is made, or an answer.
    pub fn socket(&self) -> Option<(i32, bool)> {
        match &self.state {
            State::Connecting {
                session, attempt, ..
            } => Some((session.socket(), *attempt == Attempt::ToWrite)),
            State::Preparing(node, ..) => Some(socket(node)),
            State::Up(_) => self.busy_socket(),
            State::Down => None,
        }
    }

    /// What it waits for if it is up.
    pub fn busy_socket(&self) -> Option<(i32, bool)> {
        match &self.state {
            State::Up(node) if node.is_under_way() && node.is_usable() => Some(socket(node)),
            _ => None,
        }
    }
}

/// The node's socket, and whether there is something to write.
fn socket(node: &Node) -> (i32, bool) {
    let session = node.session();
    (session.socket(), session.flush() == Some(false))
}

/// Takes all that has come. Whether nothing is under way any more.
fn drain(node: &mut Node) -> bool {
    node.take_all(Exchange::take)
}

/// Sends a request on a link that is up.
pub fn send(
    link: &mut Link,
    request: &Request,
    rows: Option<Rc<dyn Rows>>,
) -> Option<Rc<Exchange>> {
    link.node().map(|node| node.send(request, rows))
}
