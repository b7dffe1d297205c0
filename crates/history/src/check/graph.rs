//! The graph of dependencies between transactions.
use std::collections::HashMap;

use crate::check::store::{INITIAL, Place};
use crate::check::verdict::{Level, Promise};
use crate::model::{History, Outcome, Time};

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

    /// The reader at `place`: a statement or a transaction.
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

/// The dependencies. Those that depend on an order of rows under one key are added by the search.
pub struct Graph {
    pub nodes: Nodes,
    pub edges: Vec<Edge>,
}

impl Graph {
    /// All transactions, with nothing between them.
    pub fn new(history: &History, promise: Promise) -> Self {
        Graph {
            nodes: Nodes::new(history, promise),
            edges: Vec::new(),
        }
    }

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

    /// A chain of points, one for each completion: all that was completed comes before a point, and
    /// the point before all that was invoked later.
    pub fn add_real_time(&mut self, history: &History, counted: &[bool]) {
        let mut spans: Vec<(u32, Time, Option<Time>)> = Vec::new();
        for (number, transaction) in history.transactions.iter().enumerate() {
            if counted[number] {
                let sure = transaction.outcome == Outcome::Committed;
                let completed = sure.then_some(transaction.completed);
                spans.push((number as u32, transaction.invoked, completed));
            }
        }
        for (number, place) in (self.nodes.transactions..).zip(&self.nodes.statements) {
            let transaction = &history.transactions[place.transaction as usize];
            let event = &transaction.events[place.op as usize];
            spans.push((number, event.invoked, Some(event.completed)));
        }
        let completed = spans.iter().filter_map(|span| Some((span.2?, span.0)));
        let mut completed: Vec<(Time, u32)> = completed.collect();
        completed.sort_unstable();
        let first = self.nodes.count() as u32;
        self.nodes.points = completed.len() as u32;
        for (point, (_, node)) in (first..).zip(&completed) {
            self.add(*node, point, Kind::Time, Why::Time);
            if point > first {
                self.add(point - 1, point, Kind::Time, Why::Time);
            }
        }
        for (node, invoked, _) in spans {
            let before = completed.partition_point(|(time, _)| *time < invoked) as u32;
            if before > 0 {
                self.add(first + before - 1, node, Kind::Time, Why::Time);
            }
        }
    }
}
