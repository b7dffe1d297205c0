//! Databases in memory, correct ones, whose clients take turns at random.
use std::collections::HashMap;

use history::{Client, Event, History, Object, Outcome, Plan, State, Time, Transaction, Workload};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// What kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database {
    /// One transaction after the other.
    Serial,
    /// Snapshot isolation; of two that overlap and write the same object, the later writer fails.
    Snapshot,
    /// Each statement sees what is committed; who would have to wait for a writer fails.
    ReadCommitted,
}

/// A client in the middle of a transaction.
struct Session {
    plan: Plan,
    step: usize,
    snapshot: State,
    /// What it sees and leaves of what it has written.
    own: State,
    written: Vec<Object>,
    recorded: Transaction,
}

/// A history of `count` transactions by `clients`, and a last one that reads everything. In
/// `unknown` percent of them the client does not get the answer to its COMMIT.
pub fn simulate(
    workload: &Workload,
    database: Database,
    clients: u32,
    count: usize,
    unknown: u32,
) -> History {
    let mut history = History {
        initial: workload.initial(),
        transactions: Vec::new(),
    };
    let mut state = State::initial(&history);
    let mut rng = SmallRng::seed_from_u64(workload.seed);
    let mut sources: Vec<Client> = (0..clients).map(|number| workload.client(number)).collect();
    let mut sessions: Vec<Option<Session>> = (0..clients).map(|_| None).collect();
    let mut changes: HashMap<Object, Time> = HashMap::new();
    let mut begun = 0;
    let mut now: Time = 0;
    loop {
        let open = |number: &usize| sessions[*number].is_some() || begun < count;
        let busy = sessions.iter().position(Option::is_some);
        let candidates: Vec<usize> = match (database, busy) {
            (Database::Serial, Some(busy)) => vec![busy],
            _ => (0..sessions.len()).filter(open).collect(),
        };
        let Some(&number) = candidates.choose(&mut rng) else {
            let last = workload.last_reads(count as u32);
            history
                .transactions
                .push(alone(last, clients, &mut state, now + 2));
            return history;
        };
        now += 2;
        let Some(mut session) = sessions[number].take() else {
            begun += 1;
            let plan = sources[number].next().expect("a client has no end");
            sessions[number] = Some(Session::new(number as u32, plan, &state, now));
            continue;
        };
        let more = session.step < session.plan.steps.len();
        let failed = more && !session.execute(database, &state, &sessions, &changes, now);
        if more && !failed {
            sessions[number] = Some(session);
            continue;
        }
        let commit = !failed && !session.plan.roll_back;
        if commit {
            for object in &session.written {
                state.take_over(*object, &session.own);
                changes.insert(*object, now);
            }
        }
        session.recorded.completed = now + 1;
        session.recorded.outcome = match commit {
            // A broken connection may be found before or after the commit, or without one.
            _ if !failed && rng.random_range(0..100) < unknown => Outcome::Unknown,
            true => Outcome::Committed,
            false => Outcome::Aborted,
        };
        history.transactions.push(session.recorded);
    }
}

/// A transaction of reads after all others.
fn alone(plan: Plan, client: u32, state: &mut State, now: Time) -> Transaction {
    let events = plan.steps.iter().map(|step| Event {
        invoked: now,
        completed: now + 1,
        op: state.apply(step).expect("a read does not fail"),
    });
    Transaction {
        client,
        invoked: now,
        completed: now + 1,
        outcome: Outcome::Committed,
        events: events.collect(),
    }
}

impl Session {
    fn new(client: u32, plan: Plan, state: &State, now: Time) -> Self {
        Session {
            plan,
            step: 0,
            snapshot: state.clone(),
            own: state.clone(),
            written: Vec::new(),
            recorded: Transaction {
                client,
                invoked: now,
                completed: now,
                outcome: Outcome::Aborted,
                events: Vec::new(),
            },
        }
    }

    /// The next step; false if it fails.
    fn execute(
        &mut self,
        database: Database,
        state: &State,
        others: &[Option<Session>],
        changes: &HashMap<Object, Time>,
        now: Time,
    ) -> bool {
        let base = match database {
            Database::Snapshot => &self.snapshot,
            _ => state,
        };
        let mut view = base.clone();
        for object in &self.written {
            view.take_over(*object, &self.own);
        }
        let Ok(op) = view.apply(&self.plan.steps[self.step]) else {
            return false;
        };
        let written = op.written().map(|(object, _)| object);
        let removed = op.removed().map(|(object, _)| object);
        for object in written.into_iter().chain(removed) {
            let mut held = others.iter().flatten();
            let held = held.any(|other| other.written.contains(&object));
            // Not whether it is the same: it may have been there and gone again.
            let changed = changes
                .get(&object)
                .is_some_and(|time| *time > self.recorded.invoked);
            let changed = database == Database::Snapshot && changed;
            if held || changed && !self.written.contains(&object) {
                return false;
            }
            if !self.written.contains(&object) {
                self.written.push(object);
            }
        }
        self.own = view;
        self.step += 1;
        self.recorded.events.push(Event {
            invoked: now,
            completed: now + 1,
            op,
        });
        true
    }
}
