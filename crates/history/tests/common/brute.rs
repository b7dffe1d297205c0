//! The truth about small histories: every order is tried.
use history::{History, Object, Outcome, State, Transaction};

/// Executes a transaction alone; false if it does not see what it saw.
fn replay(state: &mut State, transaction: &Transaction) -> bool {
    let mut events = transaction.events.iter();
    events.all(|event| state.apply(&event.op.step()).as_ref() == Ok(&event.op))
}

/// All choices of the transactions that committed.
fn choices(history: &History) -> impl Iterator<Item = Vec<&Transaction>> {
    let with = |outcome| {
        let all = history.transactions.iter();
        all.filter(move |transaction| transaction.outcome == outcome)
    };
    let unknown: Vec<_> = with(Outcome::Unknown).collect();
    (0..1u32 << unknown.len()).map(move |choice| {
        let chosen = unknown.iter().enumerate();
        let chosen = chosen.filter(|(bit, _)| choice >> bit & 1 == 1);
        with(Outcome::Committed)
            .chain(chosen.map(|(_, transaction)| *transaction))
            .collect()
    })
}

/// Whether there is a serial order in which everybody sees what they saw.
pub fn serializable(history: &History) -> bool {
    fn order(state: &State, left: &[&Transaction]) -> bool {
        left.is_empty()
            || (0..left.len()).any(|place| {
                let mut state = state.clone();
                let mut rest = left.to_vec();
                replay(&mut state, rest.remove(place)) && order(&state, &rest)
            })
    }
    choices(history).any(|committed| order(&State::initial(history), &committed))
}

/// A transaction that has taken its snapshot.
#[derive(Clone)]
struct Begun {
    /// What it leaves, if nobody gets in between.
    own: State,
    writes: Vec<Object>,
}

/// Whether there is an order of snapshots and commits that explains the history. In it every
/// transaction sees what it saw, and no two that overlap have changed the same object.
pub fn snapshot(history: &History) -> bool {
    choices(history).any(|committed| {
        let begun = vec![None; committed.len()];
        let ended = vec![false; committed.len()];
        interleave(&State::initial(history), &committed, &begun, &ended)
    })
}

fn interleave(
    state: &State,
    transactions: &[&Transaction],
    begun: &[Option<Begun>],
    ended: &[bool],
) -> bool {
    if ended.iter().all(|ended| *ended) {
        return true;
    }
    (0..transactions.len())
        .filter(|one| !ended[*one])
        .any(|one| {
            let mut begun = begun.to_vec();
            let mut ended = ended.to_vec();
            let Some(mine) = begun[one].take() else {
                let mut own = state.clone();
                if !replay(&mut own, transactions[one]) {
                    return false;
                }
                let writes = changed(transactions[one], state, &own);
                begun[one] = Some(Begun { own, writes });
                return interleave(state, transactions, &begun, &ended);
            };
            let others = begun.iter().flatten();
            let overlap = others
                .flat_map(|other| &other.writes)
                .any(|object| mine.writes.contains(object));
            if overlap {
                return false;
            }
            let mut state = state.clone();
            for object in &mine.writes {
                state.take_over(*object, &mine.own);
            }
            ended[one] = true;
            interleave(&state, transactions, &begun, &ended)
        })
}

/// The objects that are not what they were.
fn changed(transaction: &Transaction, before: &State, after: &State) -> Vec<Object> {
    let ops = transaction.events.iter().map(|event| &event.op);
    let touched = ops.flat_map(|op| {
        let written = op.written().map(|(object, _)| object);
        let removed = op.removed().map(|(object, _)| object);
        written.into_iter().chain(removed)
    });
    let mut objects: Vec<Object> = touched
        .filter(|object| !before.same(*object, after))
        .collect();
    objects.sort_unstable();
    objects.dedup();
    objects
}
