//! Runs a schedule: each step as soon as its session is free, in the drawn order. A session whose
//! statement waits for another one is not free, which is asked of the server, not of a clock.
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use pgserver::Server;
use postgres::{Client, Statement};

use super::schedule::{Kind, Protocol, Schedule, Step};
use super::session::{Answer, Session};

/// After so long without an answer from anybody it is a hang.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long an answer is awaited before the server is asked whether the statement waits.
const TICK: Duration = Duration::from_millis(1);
/// The most sessions of a schedule: four, one that keeps a gate and one that keeps an old snapshot.
const MOST: usize = 6;

const BLOCKED: &str = "SELECT pid FROM pg_stat_activity WHERE pid = ANY($1) AND state = 'active' \
     AND wait_event_type IN ('Lock', 'Extension')";

/// A step that was sent, or was not.
#[derive(Clone, Debug)]
pub struct Event {
    /// Place in the schedule.
    pub step: usize,
    /// Moments are counted: what was sent later has a greater number.
    pub sent: u32,
    pub got: u32,
    /// Others went on while it waited.
    pub waited: bool,
    /// What was sent in place of the step's SQL.
    pub instead: Option<&'static str>,
    /// None: it was left out, because its transaction had failed.
    pub answer: Option<Answer>,
}

/// How a run ended.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// In the order in which steps were sent.
    pub events: Vec<Event>,
    /// Which sessions waited for which, when none of them went on any more.
    pub hang: Option<String>,
    /// The server or a session of it has gone.
    pub lost: Option<String>,
}

/// The sessions on one server.
pub struct Stage {
    pub control: Client,
    blocked: Statement,
    sessions: Vec<Session>,
    answers: Receiver<(usize, Answer)>,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// The event that its answer belongs to.
    busy: Option<usize>,
    open: bool,
    failed: bool,
    savepoint: bool,
    prepared: bool,
}

impl Stage {
    pub fn new(server: &Server) -> Result<Self> {
        let mut control = server.connect()?;
        let blocked = control.prepare(BLOCKED)?;
        let (sender, answers) = channel();
        let sessions = (0..MOST).map(|number| Session::start(server, number, sender.clone()));
        Ok(Stage {
            control,
            blocked,
            sessions: sessions.collect::<Result<_>>()?,
            answers,
        })
    }

    /// Something that must not fail, in one of the sessions.
    pub fn outside(&mut self, session: usize, sql: &str) -> Result<()> {
        self.sessions[session].send(sql, Protocol::Simple, None);
        match self.answers.recv_timeout(PATIENCE) {
            Ok((_, Answer::Done { .. })) => Ok(()),
            Ok((_, answer)) => bail!("{sql}: {answer:?}"),
            Err(_) => bail!("{sql}: no answer"),
        }
    }

    pub fn run(&mut self, schedule: &Schedule) -> Result<Run> {
        self.control
            .batch_execute(&schedule.schema.fill(schedule.base))
            .context("filling the tables")?;
        let holder = MOST - 1;
        if !schedule.churn.is_empty() {
            self.outside(
                holder,
                "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM a",
            )?;
            self.control.batch_execute(&schedule.churn.join(";"))?;
        }
        self.control
            .batch_execute(&schedule.schema.fill_first(schedule.base))?;
        let run = Play {
            schedule,
            stage: self,
            states: [State::default(); MOST],
            done: vec![false; schedule.steps.len()],
            run: Run::default(),
            now: 0,
        }
        .play()?;
        if run.hang.is_none() && run.lost.is_none() {
            if !schedule.churn.is_empty() {
                self.outside(holder, "COMMIT")?;
            }
            for session in 0..schedule.sessions {
                self.outside(session, "DISCARD ALL")?;
            }
            self.forget_prepared()?;
        }
        Ok(run)
    }

    fn forget_prepared(&mut self) -> Result<()> {
        for row in self.control.query(
            "SELECT gid FROM pg_prepared_xacts WHERE gid LIKE 'fz%'",
            &[],
        )? {
            let gid: String = row.get(0);
            self.control
                .batch_execute(&format!("ROLLBACK PREPARED '{gid}'"))?;
        }
        Ok(())
    }
}

struct Play<'a> {
    schedule: &'a Schedule,
    stage: &'a mut Stage,
    states: [State; MOST],
    done: Vec<bool>,
    run: Run,
    now: u32,
}

impl Play<'_> {
    fn play(mut self) -> Result<Run> {
        loop {
            let next = self.next();
            let Some(step) = next else {
                if !self.busy() {
                    break;
                }
                if !self.wait_for_anybody()? {
                    break;
                }
                continue;
            };
            self.begin(step);
            if !self.settle()? {
                break;
            }
        }
        if self.run.hang.is_none() && self.run.lost.is_none() {
            self.finish()?;
        }
        Ok(self.run)
    }

    fn busy(&self) -> bool {
        self.states.iter().any(|state| state.busy.is_some())
    }

    /// The first step whose session is free.
    fn next(&self) -> Option<usize> {
        (0..self.done.len()).find(|step| {
            let session = self.schedule.steps[*step].session;
            !self.done[*step] && self.states[session].busy.is_none()
        })
    }

    /// Sends the step, or leaves it out.
    fn begin(&mut self, number: usize) {
        self.done[number] = true;
        let step = &self.schedule.steps[number];
        let state = &mut self.states[step.session];
        let mut instead = None;
        let left_out = match step.kind {
            Kind::Outside | Kind::Begin | Kind::Whole => false,
            Kind::Statement | Kind::Savepoint => state.failed || !state.open,
            Kind::RollbackTo => !state.savepoint || !state.open,
            Kind::Commit | Kind::Rollback | Kind::Prepare => {
                if state.failed {
                    instead = Some("ROLLBACK");
                }
                !state.open
            }
            Kind::CommitPrepared | Kind::RollbackPrepared => !state.prepared,
        };
        self.now += 1;
        self.run.events.push(Event {
            step: number,
            sent: self.now,
            got: self.now,
            waited: false,
            instead,
            answer: None,
        });
        if left_out {
            return;
        }
        state.busy = Some(self.run.events.len() - 1);
        let sql = instead.unwrap_or(&step.sql);
        let session = &self.stage.sessions[step.session];
        session.send(sql, step.protocol, step.parameter);
    }

    fn take(&mut self, session: usize, answer: Answer) {
        self.now += 1;
        let Some(event) = self.states[session].busy.take() else {
            return;
        };
        if let Answer::Lost(why) = &answer {
            self.run.lost = Some(why.clone());
        }
        let done = answer.is_done();
        let instead = self.run.events[event].instead.is_some();
        let step: &Step = &self.schedule.steps[self.run.events[event].step];
        let state = &mut self.states[session];
        match (step.kind, done) {
            (Kind::Begin, true) => {
                *state = State {
                    open: true,
                    prepared: state.prepared,
                    ..State::default()
                }
            }
            (Kind::Statement | Kind::Savepoint | Kind::RollbackTo, false) => state.failed = true,
            (Kind::Savepoint, true) => state.savepoint = true,
            (Kind::RollbackTo, true) => state.failed = false,
            (Kind::Commit | Kind::Rollback, _) => {
                *state = State {
                    prepared: state.prepared,
                    ..State::default()
                }
            }
            (Kind::Prepare, _) => {
                *state = State {
                    prepared: done && !instead,
                    ..State::default()
                }
            }
            (Kind::CommitPrepared | Kind::RollbackPrepared, _) => state.prepared = false,
            _ => {}
        }
        let event = &mut self.run.events[event];
        event.got = self.now;
        event.answer = Some(answer);
    }

    /// Until all sessions are free or wait for others. False: it is over.
    fn settle(&mut self) -> Result<bool> {
        let mut blocked_before = false;
        let mut began = Instant::now();
        while self.busy() && self.run.lost.is_none() {
            match self.stage.answers.recv_timeout(TICK) {
                Ok((session, answer)) => {
                    self.take(session, answer);
                    blocked_before = false;
                    began = Instant::now();
                }
                Err(RecvTimeoutError::Disconnected) => bail!("the sessions are gone"),
                Err(RecvTimeoutError::Timeout) => {
                    let busy = self.pids();
                    let blocked = self.stage.control.query(&self.stage.blocked, &[&busy]);
                    let Ok(blocked) = blocked else {
                        self.run.lost = Some("the server is gone".to_owned());
                        break;
                    };
                    let all = blocked.len() == busy.len();
                    if all && blocked_before {
                        self.note_waits();
                        break;
                    }
                    blocked_before = all;
                    if began.elapsed() > PATIENCE {
                        return self.hang();
                    }
                }
            }
        }
        Ok(self.run.lost.is_none())
    }

    fn pids(&self) -> Vec<i32> {
        let busy = self
            .states
            .iter()
            .enumerate()
            .filter(|(_, state)| state.busy.is_some());
        busy.map(|(session, _)| self.stage.sessions[session].pid)
            .collect()
    }

    fn note_waits(&mut self) {
        for state in &self.states {
            if let Some(event) = state.busy {
                self.run.events[event].waited = true;
            }
        }
    }

    /// Nobody is free: whoever comes back first. False: it is over.
    fn wait_for_anybody(&mut self) -> Result<bool> {
        match self.stage.answers.recv_timeout(PATIENCE) {
            Ok((session, answer)) => {
                self.take(session, answer);
                self.settle()
            }
            Err(_) => {
                let _ = self.hang()?;
                Ok(false)
            }
        }
    }

    fn hang(&mut self) -> Result<bool> {
        self.run.hang = Some(crate::watchdog::who_waits(&mut self.stage.control));
        Ok(false)
    }

    /// Ends transactions whose end was dropped from the schedule.
    fn finish(&mut self) -> Result<()> {
        let open: BTreeMap<usize, bool> = self
            .states
            .iter()
            .map(|state| state.open)
            .enumerate()
            .collect();
        for (session, _) in open.into_iter().filter(|(_, open)| *open) {
            self.stage.outside(session, "ROLLBACK")?;
        }
        Ok(())
    }
}
