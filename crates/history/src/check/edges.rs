//! The dependencies between transactions that follow from what was seen, whatever the order of
//! rows under one key. Those come from `gaps`.
use std::collections::HashMap;

use crate::check::gaps::Slots;
use crate::check::observe::{ListRead, Observations, Place, Replaced};
use crate::check::report::Report;
use crate::check::store::{INITIAL, Store, Version};
use crate::check::verdict::{Class, Level, Promise};
use crate::model::{History, Object, Op, Outcome, Time, Value};

/// Why one comes before another (Adya's thesis, section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Replaced what the other wrote.
    Write,
    /// Saw what the other wrote.
    Read,
    /// Saw what the other replaced.
    AntiItem,
    /// Saw no row where the other put one.
    AntiPredicate,
    /// Was completed before the other was invoked.
    Time,
}

impl Kind {
    pub fn is_anti(self) -> bool {
        matches!(self, Kind::AntiItem | Kind::AntiPredicate)
    }
}

/// What the dependency is about, for the report.
#[derive(Clone, Copy, Debug)]
pub enum Why {
    /// The version of a register or row that was replaced or seen.
    Version(u32),
    /// The element of a list that was appended later, seen last, or missed.
    Element(u32),
    /// Two items of a key stand in this order.
    Order {
        slot: u32,
        first: u32,
        second: u32,
    },
    Time,
}

/// `from` comes before `to`; both are nodes.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    pub from: u32,
    pub to: u32,
    pub kind: Kind,
    pub why: Why,
}

/// The nodes of the graph: the transactions by their indexes, at READ COMMITTED then the
/// statements that read, then points in time.
pub struct Nodes {
    transactions: u32,
    statements: Vec<Place>,
    by_place: HashMap<(u32, u32), u32>,
    by_statement: bool,
    points: u32,
}

/// What a node stands for.
pub enum Node {
    Transaction(u32),
    Statement(Place),
    Point,
}

impl Nodes {
    fn new(history: &History, promise: Promise) -> Self {
        Nodes {
            transactions: history.transactions.len() as u32,
            statements: Vec::new(),
            by_place: HashMap::new(),
            by_statement: promise.level == Level::ReadCommitted,
            points: 0,
        }
    }

    pub fn count(&self) -> usize {
        self.transactions as usize + self.statements.len() + self.points as usize
    }

    pub fn node(&self, number: u32) -> Node {
        if number < self.transactions {
            return Node::Transaction(number);
        }
        match self.statements.get((number - self.transactions) as usize) {
            Some(place) => Node::Statement(*place),
            None => Node::Point,
        }
    }

    /// Who did the reading at `place`: the statement or the transaction.
    pub fn reader(&mut self, place: Place) -> u32 {
        if !self.by_statement {
            return place.transaction;
        }
        let next = self.transactions + self.statements.len() as u32;
        let key = (place.transaction, place.op);
        let node = *self.by_place.entry(key).or_insert(next);
        if node == next {
            self.statements.push(place);
        }
        node
    }
}

/// The graph but for what `gaps` adds.
pub struct Graph {
    pub nodes: Nodes,
    pub edges: Vec<Edge>,
}

impl Graph {
    pub fn add(&mut self, from: u32, to: u32, kind: Kind, why: Why) {
        if from != to && from != INITIAL {
            let edge = Edge {
                from,
                to,
                kind,
                why,
            };
            self.edges.push(edge);
        }
    }

    /// The reader at `place` saw what `writer` left.
    pub fn add_read(&mut self, writer: u32, place: Place, why: Why) {
        let reader = self.nodes.reader(place);
        self.add(writer, reader, Kind::Read, why);
        // At READ COMMITTED the transaction depends on it as well, through its statement.
        if reader != place.transaction {
            self.add(writer, place.transaction, Kind::Read, why);
        }
    }
}

/// Builds the graph; versions that two transactions replaced, or lists in two orders, go to
/// `report`.
pub fn build(
    history: &History,
    counted: &[bool],
    promise: Promise,
    store: &Store,
    seen: &Observations,
    report: &mut Report,
) -> (Graph, Slots) {
    let mut graph = Graph {
        nodes: Nodes::new(history, promise),
        edges: Vec::new(),
    };
    let next = versions(&mut graph, store, seen, report);
    let unseen = lists(&mut graph, history, counted, store, &seen.lists, report);
    let mut slots = Slots::new(history, promise, store, seen, &next, &unseen, report);
    slots.place(&mut graph);
    if promise.real_time {
        real_time(&mut graph, history, counted);
    }
    (graph, slots)
}

/// What became of each version of registers and rows.
pub type Next<'a> = Vec<Option<&'a Replaced>>;

fn versions<'a>(
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

/// Who appended to a list without anybody's reading it afterwards.
pub type Unseen = HashMap<u32, Vec<Place>>;

/// The longest read of each list.
type Longest<'a> = HashMap<u32, &'a ListRead>;

fn lists(
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

/// A chain of points, one for each completion: all that was completed comes before a point, and
/// the point before all that was invoked later.
fn real_time(graph: &mut Graph, history: &History, counted: &[bool]) {
    let mut spans: Vec<(u32, Time, Option<Time>)> = Vec::new();
    for (number, transaction) in history.transactions.iter().enumerate() {
        if counted[number] {
            let sure = transaction.outcome == Outcome::Committed;
            let completed = sure.then_some(transaction.completed);
            spans.push((number as u32, transaction.invoked, completed));
        }
    }
    for (number, place) in (graph.nodes.transactions..).zip(&graph.nodes.statements) {
        let transaction = &history.transactions[place.transaction as usize];
        let event = &transaction.events[place.op as usize];
        spans.push((number, event.invoked, Some(event.completed)));
    }
    let completed = spans.iter().filter_map(|span| Some((span.2?, span.0)));
    let mut completed: Vec<(Time, u32)> = completed.collect();
    completed.sort_unstable();
    let first = graph.nodes.count() as u32;
    graph.nodes.points = completed.len() as u32;
    for (point, (_, node)) in (first..).zip(&completed) {
        graph.add(*node, point, Kind::Time, Why::Time);
        if point > first {
            graph.add(point - 1, point, Kind::Time, Why::Time);
        }
    }
    for (node, invoked, _) in spans {
        let before = completed.partition_point(|(time, _)| *time < invoked) as u32;
        if before > 0 {
            graph.add(first + before - 1, node, Kind::Time, Why::Time);
        }
    }
}
