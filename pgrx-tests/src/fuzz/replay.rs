//! Replays the transactions on a server without the library. The order of their statements there
//! follows from what each was told. A transaction that has seen a write comes after its commit; one
//! that has not seen it comes before. A transaction that writes a row after another one waits for
//! its commit. Where the answers leave the order open, the replay may take another way; then
//! nothing is concluded.
use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use pgserver::{PgInstall, Server, ServerOptions};

use super::account::{Account, Effect, Fate, bits};
use super::compose::{DECLARES, SAME_TABLES};
use super::finding::Finding;
use super::health::{Final, contents};
use super::observe::{self, How};
use super::report::Tally;
use super::run::{Event, Run, Stage};
use super::schedule::{Kind, Schedule, Step};
use super::server;
use super::session::Answer;

/// The server without the library.
pub struct Stock {
    // Ends before its server.
    stage: Stage,
    _server: Server,
    tables: Option<u64>,
}

impl Stock {
    pub fn start(install: &PgInstall) -> Result<Self> {
        let server = Server::start(install, server::settings(ServerOptions::stock()))?;
        server::prepare(&server)?;
        Ok(Stock {
            stage: Stage::new(&server)?,
            _server: server,
            tables: None,
        })
    }

    pub fn replay(
        &mut self,
        schedule: &Schedule,
        run: &Run,
        end: &Final,
        tally: &mut Tally,
    ) -> Result<Vec<Finding>> {
        let account = Account::new(schedule, run, end);
        let Some(mut replayed) = order(&account) else {
            tally.left_out += 1;
            return Ok(Vec::new());
        };
        replace_declarations(&mut replayed, schedule, run);
        let group = schedule.seed / SAME_TABLES;
        if self.tables != Some(group) {
            self.stage.control.batch_execute(&replayed.schema.sql())?;
            self.tables = Some(group);
        }
        let again = self.stage.run(&replayed)?;
        if again.hang.is_some() || again.lost.is_some() {
            anyhow::bail!("the replay without the library does not end");
        }
        let (mut same, mut findings) = compare((schedule, run), (&replayed, &again));
        if same {
            let stock = contents(&mut self.stage.control, &schedule.schema)?;
            if stock != end.contents {
                findings.push(Finding {
                    rule: "not as in stock",
                    text: format!(
                        "the tables hold {:?}, but in stock PostgreSQL {stock:?}",
                        end.contents
                    ),
                    step: None,
                });
            }
        }
        if !findings.is_empty() && is_doubtful(&account) {
            findings.clear();
            same = false;
        }
        match same || !findings.is_empty() {
            true => tally.same += u64::from(findings.is_empty()),
            false => tally.elsewhere += 1,
        }
        Ok(findings)
    }
}

/// Puts in the place of each declaration what the server with the library has answered to it.
fn replace_declarations(replayed: &mut Schedule, schedule: &Schedule, run: &Run) {
    let declares = |step: &&mut Step| step.sql.starts_with(DECLARES);
    for step in replayed.steps.iter_mut().filter(declares) {
        // With `txn.lane = auto` it may not have been worth while.
        let is_refused = |event: &Event| {
            let rows = match &event.answer {
                Some(Answer::Done { rows, .. }) => rows.as_slice(),
                _ => &[],
            };
            schedule.steps[event.step].id == step.id && rows == ["f"]
        };
        let is_taken = !run.events.iter().any(is_refused);
        step.sql = format!("SELECT {is_taken}");
    }
}

/// Whether the run without the library has told what the first run has told; and a finding if it
/// has told something else although both went the same way.
fn compare(first: (&Schedule, &Run), second: (&Schedule, &Run)) -> (bool, Vec<Finding>) {
    let (schedule, run) = first;
    let (replayed, again) = second;
    let mut findings = Vec::new();
    let mut same = again.events.iter().all(|event| !event.waited);
    for event in &again.events {
        let step = &replayed.steps[event.step];
        let Some(before) = run
            .events
            .iter()
            .find(|event| schedule.steps[event.step].id == step.id)
        else {
            continue;
        };
        same &= is_done(event.answer.as_ref())
            && versions(before.answer.as_ref()) == versions(event.answer.as_ref());
        if same && !tells_the_same(before.answer.as_ref(), event.answer.as_ref()) {
            findings.push(Finding {
                rule: "not as in stock",
                text: format!(
                    "{:?}, but in stock PostgreSQL {:?}",
                    before.answer, event.answer
                ),
                step: Some(step.id),
            });
            same = false;
        }
    }
    (same, findings)
}

fn is_done(answer: Option<&Answer>) -> bool {
    answer.is_none_or(Answer::is_done)
}

/// The versions of rows that an answer tells of, without regard to their order.
fn versions(answer: Option<&Answer>) -> Vec<(char, u32, i64)> {
    let Some(Answer::Done { rows, .. }) = answer else {
        return Vec::new();
    };
    let told = observe::read(rows.iter().map(String::as_str));
    let mut versions: Vec<_> = told
        .items
        .iter()
        .map(|item| (item.table, item.n, item.value))
        .collect();
    versions.sort_unstable();
    versions
}

fn tells_the_same(one: Option<&Answer>, other: Option<&Answer>) -> bool {
    match (one, other) {
        (
            Some(Answer::Done { rows, count }),
            Some(Answer::Done {
                rows: others,
                count: counted,
            }),
        ) => {
            // A text that lists rows lists them in any order.
            rows.len() == others.len() && count == counted
        }
        (one, other) => one == other,
    }
}

/// The committed transactions' steps in an order that the answers allow; none if that is not to be
/// had.
fn order(account: &Account) -> Option<Schedule> {
    let schedule = account.schedule;
    if schedule.schema.range || !account.unstable.is_empty() {
        return None;
    }
    let kept: Vec<usize> = (0..account.run.events.len())
        .filter(|number| account.is_committed(account.step(*number).unit))
        .collect();
    let left_out = kept.iter().any(|number| {
        let step = account.step(*number);
        let mode = schedule.mode(step.unit);
        mode.one_snapshot
            || !step.parts.is_empty()
            || !is_done(account.event(*number).answer.as_ref())
    });
    if left_out || kept.is_empty() {
        return None;
    }
    let after = constraints(account, &kept)?;
    let sorted = sort(account, &kept, &after)?;
    let steps: Vec<Step> = sorted
        .iter()
        .filter(|number| account.event(**number).answer.is_some())
        .map(|number| account.step(*number).clone())
        .collect();
    let mut schema = schedule.schema.clone();
    schema.forget_labels();
    schema
        .tables
        .iter_mut()
        .for_each(|table| table.method = "heap");
    Some(Schedule {
        schema,
        steps: steps
            .into_iter()
            .filter(|step| !step.sql.contains("txn."))
            .collect(),
        ..schedule.clone()
    })
}

type After = BTreeMap<usize, BTreeSet<usize>>;

/// Which events have to come before each; none if the writers of a row may have come to it in more
/// than one order.
fn constraints(account: &Account, kept: &[usize]) -> Option<After> {
    let mut after = After::new();
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    let mut ends: BTreeMap<usize, usize> = BTreeMap::new();
    for number in kept {
        let step = account.step(*number);
        if let Some(before) = last.insert(step.session, *number) {
            after.entry(*number).or_default().insert(before);
        }
        if matches!(step.kind, Kind::Commit | Kind::Whole | Kind::CommitPrepared) {
            ends.insert(step.unit, *number);
        }
    }
    let mut put = |first: Option<&usize>, second: Option<&usize>| {
        if let (Some(first), Some(second)) = (first, second)
            && first != second
        {
            after.entry(*second).or_default().insert(*first);
        }
    };
    for sight in account
        .sights
        .iter()
        .filter(|sight| account.is_committed(sight.unit))
    {
        for bit in bits(sight.mask & account.good & !account.own(sight.unit)) {
            put(ends.get(&account.owner(bit)), Some(&sight.event));
        }
        if sight.how == How::Read {
            for effect in account
                .committed(sight.place)
                .filter(|effect| effect.unit != sight.unit)
            {
                if sight.mask >> effect.bit & 1 == 0 {
                    put(Some(&sight.event), ends.get(&effect.unit));
                }
            }
        }
    }
    for table in &account.schedule.schema.tables {
        for n in 1..=table.rows + 2 {
            let writers: Vec<_> = account.committed((table.name, n)).collect();
            for (at, one) in writers.iter().enumerate() {
                for other in writers[at + 1..]
                    .iter()
                    .filter(|other| other.unit != one.unit)
                {
                    let (first, second) = match came_first(account, one, other)? {
                        true => (one, other),
                        false => (other, one),
                    };
                    put(ends.get(&first.unit), Some(&second.event));
                }
            }
        }
    }
    Some(after)
}

/// Whether `one` wrote the row before `other` did; none if nothing tells. The first writer keeps
/// the row until it ends.
fn came_first(account: &Account, one: &Effect, other: &Effect) -> Option<bool> {
    let precedes = |first: &Effect, second: &Effect| {
        if account.event(first.event).got < account.event(second.event).sent {
            return true;
        }
        let mut versions = account.sights.iter().filter(|sight| {
            sight.place == first.place && (!sight.in_error && account.is_committed(sight.unit))
        });
        if versions.any(|sight| sight.mask >> first.bit & !(sight.mask >> second.bit) & 1 == 1) {
            return true;
        }
        match (account.fates[first.unit], account.fates[second.unit]) {
            (Fate::Committed { told, .. }, Fate::Committed { asked, .. }) => told < asked,
            _ => false,
        }
    };
    match (precedes(one, other), precedes(other, one)) {
        (true, false) => Some(true),
        (false, true) => Some(false),
        _ => None,
    }
}

/// When an event took place, as far as is known. A step that did not wait did so when it was sent;
/// one that waited, after the step that let it go on, whichever answer was heard first.
fn moment(account: &Account, number: usize) -> u32 {
    let event = account.event(number);
    match event.waited {
        true => event.got,
        false => event.sent,
    }
}

/// Whether several statements have gone on after one step, so that nothing but their answers, which
/// come in any order, tells who was first.
fn is_doubtful(account: &Account) -> bool {
    let events = &account.run.events;
    events.iter().enumerate().any(|(number, event)| {
        let until = events.get(number + 1).map_or(u32::MAX, |next| next.sent);
        let mut released = events[..number]
            .iter()
            .filter(|other| other.waited && other.got > event.sent && other.got < until);
        match released.next() {
            Some(first) => first.got < event.got || released.next().is_some(),
            None => false,
        }
    })
}

/// An order that keeps the constraints, else as near as can be to the one in which the events took
/// place.
fn sort(account: &Account, kept: &[usize], after: &After) -> Option<Vec<usize>> {
    let mut left: BTreeSet<(u32, usize)> = kept
        .iter()
        .map(|number| (moment(account, *number), *number))
        .collect();
    let mut sorted = Vec::new();
    let mut done = BTreeSet::new();
    while !left.is_empty() {
        let next = left.iter().copied().find(|(_, number)| {
            let before = after.get(number);
            before
                .into_iter()
                .flatten()
                .all(|before| done.contains(before))
        })?;
        left.remove(&next);
        done.insert(next.1);
        sorted.push(next.1);
    }
    Some(sorted)
}
