//! When the parts of a round leave for their nodes, whether they leave at all, and what their
//! answers teach (`txn.geo_schedule`).

use super::coordinator::{self, memory};
use super::exchange::Exchange;
use super::failure::{Failure, Outcome};
use super::line;
use super::node::Node;
use super::nodes::{self, NodeId};
use crate::pg::local::Local;
use crate::pg::of_transaction;
use crate::pg::{process, xact};
use crate::shared::guc::{self, GeoSchedule};
use geo::{Admission, Contention, Cost, Lesson, RecordId, Records, Report, Taken, Trust};
use pgrx::pg_sys::{self, Oid};
use std::cell::RefCell;
use std::ffi::CStr;
use std::rc::Rc;

/// What was sent, and where.
pub type Sent = (NodeId, Rc<Exchange>);

/// A part of a round: where it goes, which records it is about, as far as they are known, and what
/// it is.
pub struct Part<T> {
    server: Oid,
    records: Vec<RecordId>,
    what: T,
}

impl<T> Part<T> {
    pub fn new(server: Oid, records: Vec<RecordId>, what: T) -> Part<T> {
        Part {
            server,
            records,
            what,
        }
    }
}

/// Parts that have left.
pub struct Round {
    servers: Vec<Oid>,
    /// The hashes of each part's records.
    records: Vec<Vec<u64>>,
    costs: Vec<Cost>,
    /// Of which part, and what.
    sent: Vec<(usize, Sent)>,
}

/// What fails after a wait for a lock.
const WAITED: [[u8; 5]; 2] = [*b"55P03", *b"40P01"];

/// A transaction is counted as at work on so many records at most.
const MOST_AT_WORK: usize = 256;

/// A record that this transaction is counted as at work on.
#[derive(Clone, Copy)]
struct AtWork {
    hash: u64,
    /// The nest level at which that has begun.
    level: i32,
    has_turn: bool,
}

static AT_WORK: Local<RefCell<Vec<AtWork>>> = Local::new(RefCell::new(Vec::new()));

/// Whether records matter.
pub fn forecasts() -> bool {
    matches!(
        guc::GEO_SCHEDULE.get(),
        GeoSchedule::Forecast | GeoSchedule::Admission
    )
}

/// The longest time that a part is put off, in microseconds.
fn most() -> u64 {
    guc::GEO_MAX_DELAY.get().max(0) as u64 * 1000
}

/// Sends parts: at once or, if they are scheduled, so that all are done at about one time. A part
/// that fails keeps the later ones from being sent. Raises on a cancel.
pub fn send_each<T>(
    parts: Vec<Part<T>>,
    is_scheduled: bool,
    mut send: impl FnMut(T) -> Outcome<Option<Sent>>,
) -> Outcome<Round> {
    let records: Vec<&RecordId> = parts.iter().flat_map(|part| &part.records).collect();
    let is_new = is_scheduled && forecasts() && !has_written();
    if is_new && guc::GEO_SCHEDULE.get() == GeoSchedule::Admission {
        admit(&records)?;
    }
    if records.is_empty() {
        // Nothing is known of what it is about.
    } else if is_new && may_stand() {
        line::stand(&records, |all| begin(all, &records, true))?;
    } else {
        memory().with_records(|all| begin(all, &records, false));
    }
    let hashes = |part: &Part<T>| part.records.iter().map(RecordId::hash).collect();
    let mut round = Round {
        servers: parts.iter().map(|part| part.server).collect(),
        records: parts.iter().map(hashes).collect(),
        costs: Vec::new(),
        sent: Vec::new(),
    };
    let costs = round.servers.iter().zip(&round.records);
    round.costs = costs
        .map(|(server, hashes)| cost(*server, hashes))
        .collect();
    let mut delays = vec![0; parts.len()];
    if is_scheduled && guc::GEO_SCHEDULE.get() != GeoSchedule::Off {
        delays = geo::schedule(&round.costs, most());
    }
    let began = process::now();
    let mut order: Vec<_> = parts.into_iter().enumerate().collect();
    order.sort_by_key(|(n, _)| delays[*n]);
    let mut sent = Vec::new();
    for (n, part) in order {
        if delays[n] > 0 {
            nodes::pause(began + delays[n], &sent)?;
        }
        if let Some(one) = send(part.what)? {
            sent.push(one.clone());
            round.sent.push((n, one));
        }
    }
    Ok(round)
}

impl Round {
    /// Waits until all parts have been answered; ends as soon as one has failed. Raises on a
    /// cancel.
    pub fn finish(self) -> Outcome<()> {
        let sent: Vec<Sent> = self.sent.iter().map(|(_, sent)| sent.clone()).collect();
        let told = nodes::finish_all(&sent);
        if forecasts() {
            match &told {
                Ok(()) => {
                    self.measure(true);
                    self.learn();
                }
                Err(failure) if WAITED.contains(&failure.code) => self.measure(false),
                Err(_) => {}
            }
        }
        told
    }

    /// How long each part has taken at its node; not whole: one has waited in vain, and the others
    /// would have taken at least so long.
    fn measure(&self, is_whole: bool) {
        let now = process::now();
        // The locks are kept for the longest of them.
        let longest = self.costs.iter().filter_map(|cost| cost.round_trip).max();
        for &(n, (_, ref exchange)) in &self.sent {
            let (Some(trip), Some(longest)) = (self.costs[n].round_trip, longest) else {
                continue;
            };
            let hashes = &self.records[n];
            if hashes.is_empty() {
                continue;
            }
            let done = match exchange.is_done() {
                true => exchange.done_at(),
                false => now,
            };
            let local = done.saturating_sub(exchange.sent_at() + trip);
            let look = memory().with_turns(|all| {
                all.records()
                    .measured(hashes, local, longest, is_whole, now);
                all.first_before(hashes)
            });
            line::wake(&look);
        }
    }

    /// All have been answered: whether the forecasts were good.
    fn learn(&self) {
        let mut taken = vec![None; self.costs.len()];
        for &(n, (_, ref exchange)) in &self.sent {
            taken[n] = Some(Taken {
                sent: exchange.sent_at(),
                done: exchange.done_at(),
            });
        }
        let Some(taken) = taken.into_iter().collect::<Option<Vec<Taken>>>() else {
            return;
        };
        let (n, change): (usize, fn(&mut Trust)) = match geo::lesson(&self.costs, most(), &taken) {
            Some(Lesson::TooLong(n)) => (n, Trust::lower),
            Some(Lesson::Good(n)) => (n, Trust::raise),
            None => return,
        };
        let (database, server) = (coordinator::database(), self.servers[n].into());
        memory().with_latencies(|all| all.learn(database, server, change));
    }
}

/// What a part at that server about these records is going to take.
fn cost(server: Oid, hashes: &[u64]) -> Cost {
    let (database, server) = (coordinator::database(), server.into());
    let (round_trip, trust) = memory().with_latencies(|all| {
        let trip = all.round_trip(database, server);
        (trip, all.trust(database, server))
    });
    let mut local = 0;
    if !hashes.is_empty() {
        let now = process::now();
        local = trust.of(memory().with_records(|all| all.forecast(hashes, now)));
    }
    Cost { round_trip, local }
}

/// The transaction is at work on these records from now on, and has turns at them, or has not.
fn begin(all: &Records, records: &[&RecordId], has_turn: bool) {
    let (now, level) = (process::now(), xact::nest_level());
    of_transaction::note();
    let mut at_work = AT_WORK.borrow_mut();
    at_work.reserve(records.len());
    for record in records {
        let hash = record.hash();
        let is_new = at_work.len() < MOST_AT_WORK && at_work.iter().all(|one| one.hash != hash);
        if is_new && all.begin(record, now) {
            at_work.push(AtWork {
                hash,
                level,
                has_turn,
            });
            if has_turn {
                all.begin_turn(hash, now);
            }
        }
    }
}

/// Whether the transaction may be kept waiting in line.
fn may_stand() -> bool {
    // Others may wait for the end of who is at work on something, though it has written nothing. A
    // snapshot that is taken already would be too old for whoever has waited.
    let is_there = || !nodes::all(Node::is_open).is_empty();
    AT_WORK.borrow().is_empty() && (xact::is_read_committed() || !is_there())
}

/// What releases the locks at the nodes is on its way: others may have the turns. Raises nothing.
pub fn give_turns_back() {
    let Ok(mut at_work) = AT_WORK.try_borrow_mut() else {
        return;
    };
    let mut hashes = Vec::new();
    for one in at_work.iter_mut() {
        if std::mem::take(&mut one.has_turn) {
            hashes.push(one.hash);
        }
    }
    drop(at_work);
    give_back(&hashes);
}

fn give_back(hashes: &[u64]) {
    if !hashes.is_empty() {
        let now = process::now();
        line::wake(&memory().with_turns(|all| all.give_back(hashes, now)));
    }
}

/// A subtransaction at this level has committed into its parent. Raises nothing.
pub fn subtransaction_committed(level: i32) {
    let Ok(mut at_work) = AT_WORK.try_borrow_mut() else {
        return;
    };
    for one in at_work.iter_mut() {
        one.level = one.level.min(level - 1);
    }
}

/// A subtransaction at this level has rolled back, and its locks at the nodes are released: it is
/// at work on nothing any more. Raises nothing.
pub fn subtransaction_rolled_back(level: i32) {
    // A session that is cancelled there has left the line already.
    let Ok(mut at_work) = AT_WORK.try_borrow_mut() else {
        return;
    };
    let is_over = |one: &mut AtWork| one.level >= level;
    let over: Vec<AtWork> = at_work.extract_if(.., is_over).collect();
    drop(at_work);
    if over.is_empty() {
        return;
    }
    // The record is remembered as long as somebody is at work on it: its turn ends first.
    let turns = over.iter().filter(|one| one.has_turn);
    give_back(&turns.map(|one| one.hash).collect::<Vec<_>>());
    let now = process::now();
    memory().with_records(|all| over.iter().for_each(|one| all.forget(one.hash, now)));
}

/// The transaction has ended: it is at work on nothing any more. Raises nothing.
#[inline]
pub fn transaction_ended(has_committed: bool) {
    // A session that is terminated there does not unwind.
    line::leave();
    if is_at_work() {
        work_ended(has_committed);
    }
}

/// Whether the transaction is at work on rows of nodes.
pub fn is_at_work() -> bool {
    AT_WORK.try_borrow().is_ok_and(|all| !all.is_empty())
}

fn work_ended(has_committed: bool) {
    give_turns_back();
    let Ok(mut at_work) = AT_WORK.try_borrow_mut() else {
        return;
    };
    let (ended, now) = (std::mem::take(&mut *at_work), process::now());
    drop(at_work);
    let end = |all: &Records, one: &AtWork| all.end(one.hash, has_committed, now);
    memory().with_records(|all| ended.iter().for_each(|one| end(all, one)));
}

/// A node has told of its hot rows, with a line for each. A line has table, key, the number of
/// transactions that wait or are at work, and the mean microseconds from one transaction to the
/// next. Its end says whether transactions follow each other on the row. Lines that say something
/// else are skipped.
pub fn note_report(server: Oid, report: &str) {
    let now = process::now();
    for line in report.lines() {
        let mut fields = line.split('\t');
        let (table, key) = (fields.next(), fields.next());
        let mut number = || fields.next().and_then(|text| text.parse::<u64>().ok());
        let (queue, turn) = (number(), number());
        let follows = fields.next().and_then(|text| text.parse::<bool>().ok());
        if let (Some(table), Some(key), Some(queue), Some(turn), Some(follows)) =
            (table, key, queue, turn, follows)
        {
            let record = RecordId::new(coordinator::database(), server.into(), 0, table, key);
            let report = Report {
                queue,
                turn,
                follows,
            };
            memory().with_records(|all| all.reported(record.hash(), report, now));
        }
    }
}

/// One that has written something is let in: others wait for that meanwhile.
fn has_written() -> bool {
    xact::own_xid() != 0 || !nodes::all(Node::has_sent_writes).is_empty()
}

/// Waits until the transaction may begin to write about these records; an error if it waits too
/// often.
fn admit(records: &[&RecordId]) -> Outcome<()> {
    let is_new = |hash: &u64| AT_WORK.borrow().iter().all(|one| one.hash != *hash);
    let hashes = records.iter().map(|one| one.hash());
    let hashes: Vec<u64> = hashes.filter(is_new).collect();
    let mut waits = 0;
    loop {
        let now = process::now();
        let contention = memory().with_records(|all| all.contention(&hashes, now));
        let draw = f64::from(process::random()) / (f64::from(u32::MAX) + 1.0);
        match geo::admit(&contention, draw, waits) {
            Admission::Enter => return Ok(()),
            Admission::Wait(time) => nodes::pause(now + time, &[])?,
            Admission::Refuse => return Err(refused(&hashes, &contention)),
        }
        waits += 1;
    }
}

fn refused(hashes: &[u64], contention: &[Contention]) -> Failure {
    let risk = |one: &Contention| geo::risk(&[*one]);
    let worst = hashes
        .iter()
        .zip(contention)
        .max_by(|one, other| risk(one.1).total_cmp(&risk(other.1)));
    let failure = Failure::new(
        *b"40001",
        "could not serialize access because of contention at the nodes",
    )
    .hint("The transaction might succeed if retried. See txn.geo_records.");
    let Some((&hash, one)) = worst else {
        return failure;
    };
    let now = process::now();
    let relation = memory().with_records(|all| all.known(hash, now)).relation;
    // SAFETY: a catalog look-up, which gives null or a name.
    let name = unsafe {
        let name = pg_sys::get_rel_name(Oid::from(relation));
        match name.is_null() {
            true => String::new(),
            false => CStr::from_ptr(name).to_string_lossy().into_owned(),
        }
    };
    let (others, tries, commits) = (one.others, one.tries, one.commits);
    failure.detail(format!(
        "Transactions at work on a row of \"{name}\": {others}. \
         Of {tries} that have ended, {commits} have committed."
    ))
}
