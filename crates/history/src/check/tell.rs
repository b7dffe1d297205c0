//! Cycles in words.
use crate::check::cycles::Cycle;
use crate::check::gaps::Slots;
use crate::check::graph::{Edge, Graph, Kind, Node, Why};
use crate::check::store::{Store, Version};
use crate::check::verdict::Anomaly;
use crate::model::{History, Object, Op, Value};

/// A cycle, told edge by edge.
pub fn cycle(
    history: &History,
    store: &Store,
    graph: &Graph,
    slots: &Slots,
    cycle: &Cycle,
    edges: &[Edge],
) -> Anomaly {
    let teller = Teller {
        history,
        store,
        graph,
        slots,
    };
    let mut circle: Vec<&Edge> = cycle.edges.iter().map(|id| &edges[*id as usize]).collect();
    // Begin with a transaction, not in the middle of a stretch of time.
    let begin = circle
        .iter()
        .position(|edge| teller.transaction(edge.from).is_some());
    circle.rotate_left(begin.unwrap_or(0));
    let mut transactions: Vec<usize> = Vec::new();
    let mut lines = Vec::new();
    let mut stretch = None;
    for edge in circle {
        if let Some(transaction) = teller.transaction(edge.from)
            && transactions.last() != Some(&transaction)
        {
            transactions.push(transaction);
        }
        if edge.kind != Kind::Time {
            lines.push(teller.edge(edge));
            continue;
        }
        let from = *stretch.get_or_insert(edge.from);
        if teller.transaction(edge.to).is_some() {
            stretch = None;
            let (from, to) = (teller.name(from), teller.name(edge.to));
            lines.push(format!("{from} was completed before {to} was invoked"));
        }
    }
    Anomaly {
        class: cycle.class,
        transactions,
        text: format!("a circle of {}\n  {}", lines.len(), lines.join("\n  ")),
    }
}

/// What is needed to tell an edge.
struct Teller<'a> {
    history: &'a History,
    store: &'a Store,
    graph: &'a Graph,
    slots: &'a Slots,
}

impl Teller<'_> {
    fn transaction(&self, node: u32) -> Option<usize> {
        match self.graph.nodes.node(node) {
            Node::Transaction(number) => Some(number as usize),
            Node::Statement(place) => Some(place.transaction as usize),
            Node::Point => None,
        }
    }

    fn name(&self, node: u32) -> String {
        let Some(number) = self.transaction(node) else {
            return "a point in time".to_owned();
        };
        let client = self.history.transactions[number].client;
        match self.graph.nodes.node(node) {
            Node::Statement(place) => {
                format!("operation {} of T{number} (client {client})", place.op)
            }
            _ => format!("T{number} (client {client})"),
        }
    }

    /// The first operation of a node that is about `object`, and `sees` the value, if any.
    fn operation(&self, node: u32, object: Object, sees: Option<Value>) -> String {
        let Some(number) = self.transaction(node) else {
            return String::new();
        };
        let events = &self.history.transactions[number].events;
        let found = events.iter().position(|event| match sees {
            Some(value) => {
                let mut found = false;
                event.op.for_each_seen(|seen| found |= seen == value);
                found
            }
            None => touches(&event.op, object),
        });
        match found {
            Some(op) => format!(" ({} {op})", verb(&events[op].op)),
            None => String::new(),
        }
    }

    fn edge(&self, edge: &Edge) -> String {
        let (from, to) = (self.name(edge.from), self.name(edge.to));
        match edge.why {
            Why::Version(id) => self.by_version(edge, self.store.version(id)),
            Why::Element(id) => self.by_element(edge, self.store.version(id)),
            Why::Order { slot, .. } => self.by_order(edge, self.slots.object(slot)),
            Why::Time => format!("{from} was completed before {to} was invoked"),
        }
    }

    fn by_version(&self, edge: &Edge, version: &Version) -> String {
        let (from, to) = (self.name(edge.from), self.name(edge.to));
        let (object, value) = (version.object, version.value);
        let told = value.map_or("nothing".to_owned(), |value| value.to_string());
        let by = |node| self.operation(node, object, value);
        let wrote = format!("{from} wrote {object} = {told}, {to}");
        match edge.kind {
            Kind::Write => format!("{wrote} replaced it{}", by(edge.to)),
            Kind::Read => format!("{wrote} saw it{}", by(edge.to)),
            _ => format!(
                "{from} saw {object} = {told}{}, {to} replaced it{}",
                by(edge.from),
                by(edge.to)
            ),
        }
    }

    fn by_element(&self, edge: &Edge, version: &Version) -> String {
        let (from, to) = (self.name(edge.from), self.name(edge.to));
        let (object, value) = (version.object, version.value.unwrap_or_default());
        let by = |node| self.operation(node, object, None);
        match edge.kind {
            Kind::Write => format!(
                "{from} appended to {object}{}, then {to} {value}",
                by(edge.from)
            ),
            Kind::Read => format!(
                "{from} appended {value} to {object}, {to} saw it{}",
                by(edge.to)
            ),
            _ => format!(
                "{from} saw {object} without {value}{}, {to} appended it",
                by(edge.from)
            ),
        }
    }

    fn by_order(&self, edge: &Edge, object: Object) -> String {
        let (from, to) = (self.name(edge.from), self.name(edge.to));
        let by = |node| self.operation(node, object, None);
        match edge.kind {
            Kind::Write if matches!(object, Object::List(_)) => {
                format!("{from} appended to {object}, then {to}, as their times suggest")
            }
            Kind::Write => format!(
                "{from} left {object} without a row{}, then {to} put one there{}",
                by(edge.from),
                by(edge.to)
            ),
            Kind::Read => format!(
                "{from} removed the row of {object}{}, {to} saw none{}",
                by(edge.from),
                by(edge.to)
            ),
            _ => format!(
                "{from} saw no row of {object}{}, {to} put one there{}",
                by(edge.from),
                by(edge.to)
            ),
        }
    }
}

/// Whether the operation is about `object`, even if it found nothing there.
fn touches(op: &Op, object: Object) -> bool {
    let by_key = match (op, object) {
        (Op::ReadList { list, .. }, Object::List(of)) => *list == of,
        (Op::Scan { table, range, .. }, Object::Key(of, key)) => {
            *table == of && range.contains(key)
        }
        (Op::Delete { table, key, .. }, Object::Key(of, at)) => (*table, *key) == (of, at),
        (Op::Rekey { table, from, .. }, Object::Key(of, at)) => (*table, *from) == (of, at),
        _ => false,
    };
    by_key || op.written().is_some_and(|(written, _)| written == object)
}

fn verb(op: &Op) -> String {
    match op {
        Op::Append { .. } => "append in operation".to_owned(),
        Op::ReadList { .. } | Op::Read { .. } => "read in operation".to_owned(),
        Op::Write { .. } => "write in operation".to_owned(),
        Op::Scan { range, .. } => format!("scan of {range} in operation"),
        Op::Insert { .. } => "insert in operation".to_owned(),
        Op::Upsert { .. } => "upsert in operation".to_owned(),
        Op::Update { .. } => "update in operation".to_owned(),
        Op::Delete { .. } => "delete in operation".to_owned(),
        Op::Rekey { .. } => "key change in operation".to_owned(),
    }
}
