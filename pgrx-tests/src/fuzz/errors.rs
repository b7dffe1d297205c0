//! Errors: those that stock PostgreSQL may give in the same place, and those that the documentation
//! adds.
use super::account::{Account, Fate};
use super::finding::Finding;
use super::schedule::{Kind, Step};
use super::session::Answer;

/// What group locking adds (docs/group-locking.md), SQLSTATE 40001.
const RETRY: [&str; 9] = [
    "could not continue: a transaction that this one built on rolled back",
    "could not continue: a table that this transaction read has been written",
    "could not continue: a definition in the database was changed meanwhile",
    "could not change the hot row again: another transaction has already built on it",
    "could not commit: a session whose update was combined with this one has ended",
    "could not update the hot row: the definition of its table was changed meanwhile",
    "could not commit: another transaction has taken the row version that this one built on",
    "could not read: the snapshot does not show a transaction that this one built on",
    "could not wait for a transaction that this one built on",
];

/// Of a transaction whose child refers to a row that another one has removed.
const REMOVED: &str =
    "could not lock the row to which a foreign key refers: another transaction has removed it";

/// Stock PostgreSQL's own above READ COMMITTED.
pub const CONCURRENT: [&str; 2] = [
    "could not serialize access due to concurrent update",
    "could not serialize access due to concurrent delete",
];

/// What validation adds (docs/range-occ.md).
const CONFLICT: &str =
    "could not serialize access due to concurrent writes in a range that was read";
/// What a declared transaction adds for validated ones (docs/lane.md).
const HELD: &str = "could not serialize access due to a declared transaction";
/// With `txn.lane_beyond = error`.
const BEYOND: &str = "the transaction uses keys that it has not declared";
const HISTORY: &str =
    "could not serialize access because the history of concurrent writes is incomplete";

pub fn check(account: &Account) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, event) in account.run.events.iter().enumerate() {
        let step = account.step(number);
        let mut finding = |rule, text: String| {
            findings.push(Finding {
                rule,
                text,
                step: Some(step.id),
            });
        };
        match &event.answer {
            Some(Answer::Failed {
                code,
                message,
                detail,
            }) => {
                if !may_come(account, step, code, message) {
                    finding("error", format!("{code}: {message} {detail}"));
                } else if is_about_nothing(account, number, code) {
                    finding(
                        "dirty error",
                        format!("{code}: {message}, though the row's value was never committed"),
                    );
                }
                if message == HISTORY && is_needless(account, number) {
                    finding(
                        "needless refusal",
                        format!("{message}: nobody has written a table that it used"),
                    );
                }
            }
            Some(Answer::Done { rows, .. }) if step.kind == Kind::Outside => {
                if let Some(row) = rows.iter().find(|row| row.contains("secret-")) {
                    finding(
                        "leak",
                        format!("a role without the right to read it is shown {row}"),
                    );
                }
            }
            _ => {}
        }
    }
    findings
}

fn may_come(account: &Account, step: &Step, code: &str, message: &str) -> bool {
    let mode = account.schedule.mode(step.unit);
    if step.kind == Kind::Outside || step.kind == Kind::Begin {
        return false;
    }
    if code == "23514" && message.contains("\"a_is_whole\"") {
        return false;
    }
    match code {
        "40P01" => message == "deadlock detected",
        "40001" if mode.validated => {
            message == CONFLICT
                || message == HISTORY
                || message == HELD
                || CONCURRENT.contains(&message)
                || message.contains("was redefined by a concurrent transaction")
        }
        "40001" if mode.one_snapshot && CONCURRENT.contains(&message) => true,
        "40001" if mode.one_snapshot && !mode.on => false,
        "40001" if message == REMOVED => {
            let mut others = account.schedule.steps.iter();
            mode.on && others.any(|other| other.unit != step.unit && !other.removes.is_empty())
        }
        "40001" => mode.on && RETRY.contains(&message),
        "55000" if message == BEYOND => mode.is_strict,
        // Foreign tables and cursors WITH HOLD cannot be prepared.
        "0A000" => step.kind == Kind::Prepare,
        code => step.errors.contains(&code),
    }
}

/// The statement fails only for a row whose value is not 0, and nobody had committed such a value
/// when it failed.
fn is_about_nothing(account: &Account, number: usize, code: &str) -> bool {
    let step = account.step(number);
    let Some(place) = step.blames.filter(|_| step.errors.contains(&code)) else {
        return false;
    };
    let event = account.event(number);
    let mut own = account
        .effects
        .iter()
        .filter(|effect| effect.place == place && effect.unit == step.unit);
    let mut others = account
        .committed(place)
        .filter(|effect| match account.fates[effect.unit] {
            Fate::Committed { asked, .. } => asked < event.got,
            Fate::Aborted => false,
        });
    account.is_stable(place) && own.next().is_none() && others.next().is_none()
}

/// Nobody else did anything but writes to a table that the transaction did not use, from its
/// beginning until it was refused.
fn is_needless(account: &Account, number: usize) -> bool {
    let step = account.step(number);
    let began = (0..number).find(|earlier| account.step(*earlier).unit == step.unit);
    let began = account.event(began.unwrap_or(number)).sent;
    let ended = account.event(number).got;
    account.run.events.iter().enumerate().all(|(other, event)| {
        let beside = account.step(other);
        let apart = event.got < began || event.sent > ended;
        beside.unit == step.unit
            || apart && !spans(account, other, began, ended)
            || beside.kind == Kind::Outside
            || is_read_only(account, beside.unit)
    })
}

/// Whether the transaction only had plain reads, and writes that are nobody's business.
fn is_read_only(account: &Account, unit: usize) -> bool {
    let steps = account
        .schedule
        .steps
        .iter()
        .filter(|step| step.unit == unit);
    let mut statements = steps.filter(|step| matches!(step.kind, Kind::Statement | Kind::Whole));
    statements.all(|step| step.aside || step.snapshot && step.sql.starts_with("SELECT"))
}

/// Whether the event belongs to a transaction that runs at the same time.
fn spans(account: &Account, number: usize, began: u32, ended: u32) -> bool {
    let unit = account.step(number).unit;
    let of_unit = || {
        let events = account.run.events.iter().enumerate();
        events
            .filter(|(other, _)| account.step(*other).unit == unit)
            .map(|(_, event)| event)
    };
    let first = of_unit().map(|event| event.sent).min().unwrap_or(0);
    let last = of_unit().map(|event| event.got).max().unwrap_or(u32::MAX);
    first < ended && last > began
}
