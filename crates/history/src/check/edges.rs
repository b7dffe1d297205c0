//! The dependencies between transactions that follow from what was seen, whatever the order of
//! rows under one key. Those come from `gaps`.
use std::collections::HashMap;

use crate::check::graph::{Graph, Kind, Why};
use crate::check::observe::{ListRead, Observations, Replaced};
use crate::check::report::Report;
use crate::check::store::{Place, Store, Version};
use crate::check::verdict::Class;
use crate::model::{History, Object, Op, Value};

/// What became of each version of registers and rows.
pub type Next<'a> = Vec<Option<&'a Replaced>>;

/// Adds what follows from versions that were replaced and seen; one that two transactions replaced
/// goes to `report`.
pub fn versions<'a>(
    graph: &mut Graph,
    store: &Store,
    seen: &'a Observations,
    report: &mut Report,
) -> Next<'a> {
    let mut next: Next = vec![None; store.versions.len()];
    for replaced in &seen.replaced {
        let version = store.version(replaced.version);
        if let Some(other) = next[replaced.version as usize].replace(replaced) {
            let text = format!("both replaced {} = {:?}", version.object, version.value);
            report.pair(Class::Fork, other.place, replaced.place, &text);
        }
        let why = Why::Version(replaced.version);
        graph.add(version.writer, replaced.place.transaction, Kind::Write, why);
    }
    for read in &seen.reads {
        let why = Why::Version(read.version);
        graph.add_read(store.version(read.version).writer, read.place, why);
        if let Some(replaced) = next[read.version as usize] {
            let reader = graph.nodes.reader(read.place);
            graph.add(reader, replaced.place.transaction, Kind::AntiItem, why);
        }
    }
    next
}

/// By list, the transactions whose appended values no transaction has read.
pub type Unseen = HashMap<u32, Vec<Place>>;

/// The longest read of each list.
type Longest<'a> = HashMap<u32, &'a ListRead>;

/// Adds what follows from lists that were read; those in two orders go to `report`.
pub fn lists(
    graph: &mut Graph,
    history: &History,
    counted: &[bool],
    store: &Store,
    reads: &[ListRead],
    report: &mut Report,
) -> Unseen {
    let values = |read: &ListRead| values_of(history, read.place);
    let mut longest = Longest::new();
    for read in reads {
        let best = longest.entry(read.list).or_insert(read);
        if values(read).len() > values(best).len() {
            *best = read;
        }
    }
    let observed = elements(graph, history, store, &longest, report);
    let mut unseen: HashMap<u32, Vec<u32>> = HashMap::new();
    for (id, version) in (0..).zip(&store.versions) {
        if let Object::List(list) = version.object
            && counted[version.writer as usize]
            && !observed[id as usize]
        {
            unseen.entry(list).or_default().push(id);
        }
    }
    for read in reads {
        let best = longest[&read.list];
        if !values(best).starts_with(values(read)) {
            let text = format!(
                "list {} was {:?} and {:?}",
                read.list,
                values(best),
                values(read)
            );
            report.pair(Class::IncompatibleOrder, best.place, read.place, &text);
            continue;
        }
        let missed = match values(best).get(read.length) {
            Some(value) => store.find(*value).into_iter().collect(),
            None => unseen.get(&read.list).cloned().unwrap_or_default(),
        };
        list_read(graph, history, store, read, &missed, report);
    }
    appenders(graph, history, store, &longest, &unseen)
}

/// Adds the order in which transactions wrote the elements of each list. Returns, by version,
/// whether it was observed.
fn elements(
    graph: &mut Graph,
    history: &History,
    store: &Store,
    longest: &Longest,
    report: &mut Report,
) -> Vec<bool> {
    let mut observed = vec![false; store.versions.len()];
    for best in longest.values() {
        let elements = values_of(history, best.place).iter();
        let elements: Vec<u32> = elements.filter_map(|value| store.find(*value)).collect();
        for element in &elements {
            if std::mem::replace(&mut observed[*element as usize], true) {
                let text = format!("list {} has an element twice", best.list);
                report.single(Class::Malformed, best.place, &text);
            }
        }
        for pair in elements.windows(2) {
            let (from, to) = (store.version(pair[0]).writer, store.version(pair[1]).writer);
            graph.add(from, to, Kind::Write, Why::Element(pair[1]));
        }
    }
    observed
}

/// Adds the transactions before and after the reader of a list.
fn list_read(
    graph: &mut Graph,
    history: &History,
    store: &Store,
    read: &ListRead,
    missed: &[u32],
    report: &mut Report,
) {
    if let Some(last) = read.length.checked_sub(1)
        && let Some(element) = store.find(values_of(history, read.place)[last])
    {
        let version = store.version(element);
        if !version.last {
            report.tainted(Class::G1b, read.place, version);
        }
        graph.add_read(version.writer, read.place, Why::Element(element));
    }
    let reader = graph.nodes.reader(read.place);
    for element in missed {
        let why = Why::Element(*element);
        graph.add(reader, store.version(*element).writer, Kind::AntiItem, why);
    }
}

/// The transactions that appended elements which nobody has read: after the writer of the last one
/// that was read.
fn appenders(
    graph: &mut Graph,
    history: &History,
    store: &Store,
    longest: &Longest,
    unseen: &HashMap<u32, Vec<u32>>,
) -> Unseen {
    let mut appenders = Unseen::new();
    for (list, elements) in unseen {
        let last = longest.get(list);
        let last = last.and_then(|best| values_of(history, best.place).last());
        let last = last.and_then(|value| store.find(*value));
        let places = appenders.entry(*list).or_default();
        for element in elements {
            let Version { writer, op, .. } = *store.version(*element);
            if let Some(last) = last {
                let why = Why::Element(*element);
                graph.add(store.version(last).writer, writer, Kind::Write, why);
            }
            places.push(Place {
                transaction: writer,
                op,
            });
        }
        places.dedup_by_key(|place| place.transaction);
    }
    appenders
}

/// The result of the ReadList at `place`.
fn values_of(history: &History, place: Place) -> &[Value] {
    let transaction = &history.transactions[place.transaction as usize];
    match &transaction.events[place.op as usize].op {
        Op::ReadList { values, .. } => values,
        _ => &[],
    }
}
