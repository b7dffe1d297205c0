//! What must hold of every run, in stock PostgreSQL and here. Each rule follows from READ COMMITTED
//! and from what the answers say; where an answer leaves something open, nothing is concluded.
mod answers;
mod definitions;
mod outcome;

use super::account::{Account, Place};
use super::errors;
use super::finding::Finding;
use super::health::Final;
use super::order;
use super::run::Run;
use super::schedule::Schedule;

/// All that is wrong with a run that came to its end.
pub fn judge(schedule: &Schedule, run: &Run, end: &Final) -> Vec<Finding> {
    let account = Account::new(schedule, run, end);
    let mut judge = Judge {
        account: &account,
        findings: end.findings.clone(),
    };
    judge.sights();
    judge.groups();
    judge.own_writes();
    judge.goes_on();
    judge.stays();
    judge.misses();
    judge.versions();
    judge.definitions();
    judge.outcome();
    judge.logs();
    judge.notes();
    judge.chains();
    judge.findings.extend(order::circles(&account));
    judge.findings.extend(errors::check(&account));
    judge.findings
}

struct Judge<'a> {
    account: &'a Account<'a>,
    findings: Vec<Finding>,
}

fn show(place: Place, mask: i64) -> String {
    format!("{}:{}={mask}", place.0, place.1)
}

impl Judge<'_> {
    fn finding(&mut self, rule: &'static str, event: Option<usize>, text: String) {
        let step = event.map(|event| self.account.step(event).id);
        self.findings.push(Finding { rule, text, step });
    }
}
