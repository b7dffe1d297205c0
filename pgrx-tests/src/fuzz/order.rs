//! Cycles: who committed before whom, and for validated transactions the serial order.
use std::collections::{BTreeMap, BTreeSet};

use super::account::{Account, Fate, bits};
use super::errors::CONCURRENT;
use super::finding::Finding;
use super::observe::How;
use super::session::Answer;

type Edges = BTreeMap<usize, BTreeSet<usize>>;

pub fn circles(account: &Account) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(circle) = circle(&commits(account)) {
        findings.push(finding(account, "commit order", &circle));
    }
    if account.schedule.schema.range
        && let Some(circle) = circle(&serial(account))
    {
        findings.push(finding(account, "no serial order", &circle));
    }
    findings
}

fn finding(account: &Account, rule: &'static str, circle: &[usize]) -> Finding {
    let step = account
        .schedule
        .steps
        .iter()
        .find(|step| Some(&step.unit) == circle.first());
    Finding {
        rule,
        text: format!("transactions {circle:?} stand before each other"),
        step: step.map(|step| step.id),
    }
}

/// The order of commits: a transaction that was seen or overwritten comes before the one that saw
/// or overwrote it. That holds at any level.
fn commits(account: &Account) -> Edges {
    let mut edges = Edges::new();
    for sight in account
        .sights
        .iter()
        .filter(|sight| account.is_committed(sight.unit))
    {
        for bit in bits(sight.mask & account.good) {
            edges
                .entry(account.owner(bit))
                .or_default()
                .insert(sight.unit);
        }
        if matches!(sight.how, How::Wrote | How::WroteBefore)
            && account.is_stable(sight.place)
            && !account.undone[sight.event]
        {
            for effect in account.committed(sight.place) {
                if sight.mask >> effect.bit & 1 == 0 {
                    edges.entry(sight.unit).or_default().insert(effect.unit);
                }
            }
        }
    }
    edges
}

/// Among validated transactions what they read counts, too; of others what they write.
fn serial(account: &Account) -> Edges {
    let mut edges = Edges::new();
    for sight in account
        .sights
        .iter()
        .filter(|sight| account.is_committed(sight.unit))
    {
        let validated = account.schedule.mode(sight.unit).validated;
        let wrote =
            matches!(sight.how, How::Wrote | How::WroteBefore) && !account.undone[sight.event];
        if !account.is_stable(sight.place) || sight.how == How::Old || !(validated || wrote) {
            continue;
        }
        for effect in account.committed(sight.place) {
            let (from, to) = match sight.mask >> effect.bit & 1 {
                1 => (effect.unit, sight.unit),
                _ => (sight.unit, effect.unit),
            };
            edges.entry(from).or_default().insert(to);
        }
    }
    learned(account, &mut edges);
    edges
}

/// An error that a savepoint has caught may tell a transaction of a later write: then it stands
/// after the writer.
fn learned(account: &Account, edges: &mut Edges) {
    for (number, event) in account.run.events.iter().enumerate() {
        let step = account.step(number);
        let told = matches!(&event.answer, Some(Answer::Failed { code, message, .. })
            if code == "40001" && CONCURRENT.iter().any(|text| message == text));
        if !told || !account.schedule.mode(step.unit).validated || !account.is_committed(step.unit)
        {
            continue;
        }
        for write in &step.writes {
            let Some(n) = write.n else {
                continue;
            };
            for effect in account.committed((write.table, n)) {
                if let Fate::Committed { told, .. } = account.fates[effect.unit]
                    && told < event.sent
                {
                    edges.entry(effect.unit).or_default().insert(step.unit);
                }
            }
        }
    }
}

/// A cycle, if there is one.
fn circle(edges: &Edges) -> Option<Vec<usize>> {
    fn visit(
        edges: &Edges,
        node: usize,
        path: &mut Vec<usize>,
        done: &mut BTreeSet<usize>,
    ) -> Option<Vec<usize>> {
        if let Some(at) = path.iter().position(|other| *other == node) {
            return Some(path[at..].to_vec());
        }
        if !done.insert(node) {
            return None;
        }
        path.push(node);
        for next in edges
            .get(&node)
            .into_iter()
            .flatten()
            .filter(|next| **next != node)
        {
            let found = visit(edges, *next, path, done);
            if found.is_some() {
                return found;
            }
        }
        path.pop();
        None
    }
    let mut done = BTreeSet::new();
    edges
        .keys()
        .find_map(|node| visit(edges, *node, &mut Vec::new(), &mut done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_found_and_only_they() {
        let edges = |pairs: &[(usize, usize)]| {
            let mut edges = Edges::new();
            for (from, to) in pairs {
                edges.entry(*from).or_default().insert(*to);
            }
            edges
        };
        assert_eq!(circle(&edges(&[(1, 2), (2, 3), (1, 3), (3, 3)])), None);
        assert_eq!(circle(&edges(&[(1, 2), (2, 3), (3, 2)])), Some(vec![2, 3]));
    }
}
