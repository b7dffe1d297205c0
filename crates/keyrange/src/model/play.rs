//! Plays a plan in many random schedules, with or without a planted fault.

use std::sync::Arc;

use shuttle::{
    Config, FailurePersistence, Runner,
    scheduler::{PctScheduler, RandomScheduler, Scheduler},
};

use super::{history, outcomes::Outcomes, plan::Plan, server::Server, transaction::Session};
use crate::fault::{Fault, plant};

fn play(plan: Plan, outcomes: &Arc<Outcomes>) {
    if outcomes.found().is_some() {
        return;
    }
    let server = shuttle::sync::Arc::new(Server::new(plan.shape, plan.recovered));
    let sessions: Vec<_> = (0..plan.shape.processes)
        .map(|process| {
            let (server, outcomes) = (server.clone(), outcomes.clone());
            shuttle::thread::spawn(move || {
                let session = Session {
                    server: &server,
                    process: process as u32,
                    plan,
                    outcomes: &outcomes,
                };
                (0..plan.rounds).for_each(|_| session.run());
                session.end_prepared();
            })
        })
        .collect();
    sessions
        .into_iter()
        .for_each(|session| session.join().unwrap());
    let state = server.state.lock().unwrap();
    if let Some(violation) = history::violation(&state.history) {
        *outcomes.violation.lock().unwrap() = Some(violation);
    }
}

fn check(plan: Plan, scheduler: impl Scheduler + 'static) -> Arc<Outcomes> {
    let outcomes = Arc::new(Outcomes::default());
    let played = outcomes.clone();
    run(scheduler, move || play(plan, &played));
    outcomes
}

pub fn run(scheduler: impl Scheduler + 'static, body: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(body);
}

/// Whether the fault shows in any of the schedules: those that change at random, and those that let
/// some session wait for long.
pub fn finds(fault: Fault, plan: Plan) -> bool {
    plant(Some(fault));
    let mut outcomes = check(plan, RandomScheduler::new_from_seed(1, 5000));
    if outcomes.found().is_none() {
        outcomes = check(plan, PctScheduler::new_from_seed(1, 3, 30_000));
    }
    plant(None);
    eprintln!("{fault:?}: {:?}", outcomes.found());
    outcomes.found().is_some()
}

pub fn assert_serializable(plan: Plan) -> Arc<Outcomes> {
    let random = check(plan, RandomScheduler::new_from_seed(7, 4000));
    assert_eq!(random.found(), None);
    let prioritized = check(plan, PctScheduler::new_from_seed(7, 4, 2000));
    assert_eq!(prioritized.found(), None);
    eprintln!(
        "passed {:?} conflict {:?} lost {:?} at once {:?} copied {:?} moved {:?}",
        random.passed,
        random.conflict,
        random.history_lost,
        random.at_once,
        random.copied,
        random.moved
    );
    random
}
