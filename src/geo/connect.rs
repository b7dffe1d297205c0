//! Making a connection to a node.

use super::exchange::{Command, DURABLE, Exchange, Request, Role};
use super::facts::Facts;
use super::failure::{Failure, NO_CONNECTION, Outcome};
use super::node::{Node, Use};
use super::server::Server;
use super::socket::{Descriptor, For, wait_for_any, wait_for_socket};
use crate::pg::libpq::{Attempt, Session};
use crate::pg::process;
use crate::shared::guc;
use std::rc::Rc;

/// What postgres_fdw sets, so that values mean here what they mean there (connection.c:
/// configure_remote_session). The path goes first: from then on names are PostgreSQL's own.
const PATH: &str = "SELECT pg_catalog.set_config('search_path', 'pg_catalog', false)";
const SETTINGS: &str = "SELECT set_config('timezone', 'GMT', false), \
     set_config('datestyle', 'ISO', false), set_config('intervalstyle', 'postgres', false), \
     set_config('extra_float_digits', '3', false)";

/// The node notices by itself that we are gone. Some platforms cannot.
const WATCH: &str = "SELECT set_config('client_connection_check_interval', '1s', false), \
     set_config('tcp_keepalives_idle', '5', false), \
     set_config('tcp_keepalives_interval', '2', false), \
     set_config('tcp_keepalives_count', '3', false)";

const FACTS: &str = "SELECT system_identifier::pg_catalog.text, \
     CASE WHEN pg_catalog.pg_is_in_recovery() THEN '0' ELSE \
     pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8) END, \
     EXTRACT(epoch FROM pg_catalog.pg_postmaster_start_time())::pg_catalog.text \
     OPERATOR(pg_catalog.||) '/' OPERATOR(pg_catalog.||) \
     COALESCE(pg_catalog.pg_stat_get_bgwriter_stat_reset_time()::pg_catalog.text, ''), \
     EXISTS (SELECT FROM pg_catalog.pg_proc p \
     JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace \
     JOIN pg_catalog.pg_depend d ON d.objid OPERATOR(pg_catalog.=) p.oid \
     JOIN pg_catalog.pg_extension e ON e.oid OPERATOR(pg_catalog.=) d.refobjid \
     WHERE n.nspname OPERATOR(pg_catalog.=) 'txn' AND e.extname OPERATOR(pg_catalog.=) 'txn' \
     AND p.proname OPERATOR(pg_catalog.=) 'geo_report' \
     AND p.pronargs OPERATOR(pg_catalog.=) 0 AND d.deptype OPERATOR(pg_catalog.=) 'e' \
     AND d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass \
     AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_extension'::pg_catalog.regclass \
     AND pg_catalog.has_schema_privilege(n.oid, 'USAGE') \
     AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE')) \
     FROM pg_catalog.pg_control_system()";

fn failed(server: &Server, session: &Session) -> Failure {
    Failure::new(
        NO_CONNECTION,
        format!("could not connect to server \"{}\"", server.name),
    )
    .detail(session.message())
}

/// Begins to connect.
pub fn start(server: &Server) -> Outcome<(Session, Descriptor)> {
    server.check_before()?;
    let descriptor = Descriptor::acquire()?;
    let session = Session::start(&server.parameters)
        .ok_or_else(|| Failure::new(*b"53200", "out of memory"))?;
    Ok((session, descriptor))
}

/// How long to wait before a server that is starting or shutting down is asked again, in
/// milliseconds.
const AGAIN_MS: u64 = 50;

/// Connects, and prepares the session at the node. A server that is starting or shutting down is
/// waited for. Raises on a cancel.
pub fn connect(server: &Rc<Server>, for_use: Use) -> Outcome<Node> {
    let limit = server
        .connect_timeout_ms()
        .unwrap_or(guc::GEO_CONNECT_TIMEOUT.get().max(1) as u64);
    let until = process::now() + limit * 1000;
    loop {
        let (session, descriptor) = start(server)?;
        match wait_until_connected(&session, until) {
            End::Connected => return prepare(server, for_use, session, descriptor),
            End::TooLate => {
                return Err(Failure::new(
                    NO_CONNECTION,
                    format!("could not connect to server \"{}\"", server.name),
                )
                .detail(format!("There was no answer within {limit} ms.")));
            }
            End::Failed => {
                let is_over = process::now() + AGAIN_MS * 1000 >= until;
                if is_over || !session.may_succeed_later() {
                    return Err(failed(server, &session));
                }
            }
        }
        drop((session, descriptor));
        wait_for_any(&[], AGAIN_MS);
    }
}

/// How an attempt to connect has ended.
enum End {
    Connected,
    Failed,
    TooLate,
}

/// Goes on connecting until then. Raises on a cancel.
fn wait_until_connected(session: &Session, until: u64) -> End {
    let mut attempt = session.begun();
    loop {
        let what = match attempt {
            Attempt::ToRead => For::Reading,
            Attempt::ToWrite => For::Writing,
            Attempt::Done => return End::Connected,
            Attempt::Failed => return End::Failed,
        };
        let left_ms = until.saturating_sub(process::now()) / 1000;
        if left_ms == 0 {
            return End::TooLate;
        }
        if wait_for_socket(session.socket(), what, Some(left_ms)) {
            attempt = session.go_on();
        }
    }
}

/// The commands that prepare a session at the node: each in a flush of its own that may fail alone.
pub fn preparation() -> [Request; 3] {
    [
        Request {
            commands: [PATH, SETTINGS, DURABLE]
                .map(|text| Command::new(Role::Prologue, text))
                .into(),
        },
        Request::of(Command::new(Role::Prologue, WATCH)),
        Request::of(Command::new(Role::Facts, FACTS)),
    ]
}

/// What the answers to `preparation` say.
pub fn facts(answers: &[Rc<Exchange>; 3]) -> Outcome<Facts> {
    answers[0].outcome()?;
    answers[2].outcome()?;
    let mut facts = answers[2].facts().into_iter();
    let system = facts.next().flatten().unwrap_or_default();
    let timeline = facts.next().flatten().unwrap_or_default();
    let started = facts.next().flatten().unwrap_or_default();
    let reports = facts.next().flatten().as_deref() == Some("t");
    Ok(Facts {
        system,
        started,
        reports,
        timeline: u32::from_str_radix(&timeline, 16).unwrap_or(0),
    })
}

/// A connected session becomes a node's.
pub fn adopt(
    server: &Rc<Server>,
    for_use: Use,
    session: Session,
    descriptor: Descriptor,
) -> Outcome<Node> {
    server.check_after(session.has_used_password())?;
    if !session.enter_pipeline() {
        return Err(failed(server, &session));
    }
    Ok(Node::new(Rc::clone(server), for_use, session, descriptor))
}

fn prepare(
    server: &Rc<Server>,
    for_use: Use,
    session: Session,
    descriptor: Descriptor,
) -> Outcome<Node> {
    let mut node = adopt(server, for_use, session, descriptor)?;
    let answers = preparation().map(|request| node.send(&request, None));
    wait(&mut node)?;
    node.facts = facts(&answers)?;
    Ok(node)
}

/// Waits for all that is under way on a connection that is not in the session's list yet. Raises on
/// a cancel.
pub fn wait(node: &mut Node) -> Outcome<()> {
    while !node.take_all(Exchange::take) {
        wait_for_socket(node.session().socket(), node.waits_for(), None);
        node.consume();
    }
    Ok(())
}

/// Waits so where a cancel is not heard. False if one comes, or the time is over.
pub fn wait_until(node: &mut Node, until: u64) -> bool {
    while !node.take_all(Exchange::take) {
        let now = process::now();
        if now >= until || process::is_to_fail() {
            return false;
        }
        let left_ms = (until - now) / 1000 + 1;
        wait_for_socket(node.session().socket(), node.waits_for(), Some(left_ms));
        node.consume();
    }
    true
}
