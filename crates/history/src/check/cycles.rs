//! Cycles in the graph of dependencies, by their class.
use std::collections::VecDeque;

use petgraph::Direction;
use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

use crate::check::graph::{Edge, Kind, Why};
use crate::check::store::Store;
use crate::check::verdict::{Class, Level};

/// Arcs that the search for short cycles may follow in one graph.
const ARCS: usize = 20_000_000;

/// Nodes of one component from which a cycle is sought.
const STARTS: usize = 200;

/// A cycle: its edges in order, by their indexes.
pub struct Cycle {
    pub class: Class,
    pub edges: Vec<u32>,
}

/// Short cycles that `level` does not allow: one of the worst class first, and what else was met in
/// looking for it.
pub fn forbidden(nodes: usize, edges: &[Edge], store: &Store, level: Level) -> Vec<Cycle> {
    let classify = |circle: &[u32]| classify(circle, edges, store, level);
    let whole = match level {
        Level::RepeatableRead => Arcs::not_two_anti(nodes, edges),
        _ => Arcs::of(nodes, edges, |_| true),
    };
    let components = whole.circular();
    if components.is_empty() {
        return Vec::new();
    }
    let writes = |kind| matches!(kind, Kind::Write | Kind::Time);
    let stricter = [
        Arcs::of(nodes, edges, writes),
        Arcs::of(nodes, edges, |kind| !kind.is_anti()),
        Arcs::not_two_anti(nodes, edges),
    ];
    for arcs in &stricter {
        let found = arcs.short(&arcs.circular(), classify);
        if !found.is_empty() {
            return found;
        }
    }
    whole.short(&components, classify)
}

/// A part of the graph in which every cycle is one that is looked for.
struct Arcs {
    graph: DiGraph<(), u32>,
}

impl Arcs {
    /// The edges of the kinds that `wanted` takes.
    fn of(nodes: usize, edges: &[Edge], wanted: impl Fn(Kind) -> bool) -> Self {
        let numbered = (0..).zip(edges);
        let numbered = numbered.filter(|(_, edge)| wanted(edge.kind));
        Arcs::new(nodes, numbered.map(|(id, edge)| (edge.from, edge.to, id)))
    }

    /// The graph in which no two anti-dependencies can be taken in a row: each node is there
    /// twice, and who came to it by an anti-dependency is at its second self, from where no
    /// other one leaves.
    fn not_two_anti(nodes: usize, edges: &[Edge]) -> Self {
        let second = nodes as u32;
        let arcs = (0..).zip(edges).flat_map(|(id, edge)| {
            let (from, to) = (edge.from, edge.to);
            match edge.kind.is_anti() {
                true => [Some((from, to + second, id)), None],
                false => [Some((from, to, id)), Some((from + second, to, id))],
            }
        });
        Arcs::new(2 * nodes, arcs.flatten())
    }

    fn new(nodes: usize, arcs: impl Iterator<Item = (u32, u32, u32)>) -> Self {
        let mut graph = DiGraph::with_capacity(nodes, 0);
        for _ in 0..nodes {
            graph.add_node(());
        }
        for (from, to, id) in arcs {
            graph.add_edge(NodeIndex::from(from), NodeIndex::from(to), id);
        }
        Arcs { graph }
    }

    /// The strongly connected components in which there are cycles, small ones first.
    fn circular(&self) -> Vec<Vec<NodeIndex>> {
        let mut components = kosaraju_scc(&self.graph);
        components.retain(|component| component.len() > 1);
        components.sort_by_key(Vec::len);
        components
    }

    /// The cycles that a bounded search finds, those of the lowest class first, and of these the
    /// shortest; there is one if there is a component.
    fn short(
        &self,
        components: &[Vec<NodeIndex>],
        classify: impl Fn(&[u32]) -> Class,
    ) -> Vec<Cycle> {
        let mut left = ARCS;
        let mut cycles = Vec::new();
        let mut component_of = vec![0; self.graph.node_count()];
        for (component, number) in components.iter().zip(1..) {
            for node in component {
                component_of[node.index()] = number;
            }
        }
        let mut reached = vec![None; self.graph.node_count()];
        let starts = components.iter().flat_map(|one| one.iter().take(STARTS));
        for start in starts {
            if left == 0 && !cycles.is_empty() {
                break;
            }
            let inside =
                |node: NodeIndex| component_of[node.index()] == component_of[start.index()];
            if let Some(edges) = self.circle(*start, inside, &mut reached, &mut left) {
                let class = classify(&edges);
                cycles.push(Cycle { class, edges });
            }
        }
        cycles.sort_by_key(|cycle| (cycle.class, cycle.edges.len()));
        cycles
    }

    /// A shortest cycle through `start`, by breadth first search in its component.
    fn circle(
        &self,
        start: NodeIndex,
        inside: impl Fn(NodeIndex) -> bool,
        reached: &mut [Option<(NodeIndex, u32)>],
        left: &mut usize,
    ) -> Option<Vec<u32>> {
        let mut touched = Vec::new();
        let mut queue = VecDeque::from([start]);
        'search: while let Some(node) = queue.pop_front() {
            for arc in self.graph.edges_directed(node, Direction::Outgoing) {
                *left = left.saturating_sub(1);
                let to = arc.target();
                if !inside(to) || reached[to.index()].is_some() {
                    continue;
                }
                reached[to.index()] = Some((node, *arc.weight()));
                touched.push(to);
                if to == start {
                    break 'search;
                }
                queue.push_back(to);
            }
        }
        let mut circle = Vec::new();
        let mut node = start;
        while let Some((before, edge)) = reached[node.index()] {
            circle.push(edge);
            node = before;
            if node == start {
                break;
            }
        }
        circle.reverse();
        for node in touched {
            reached[node.index()] = None;
        }
        (!circle.is_empty()).then_some(circle)
    }
}

fn classify(circle: &[u32], edges: &[Edge], store: &Store, level: Level) -> Class {
    let circle: Vec<&Edge> = circle.iter().map(|id| &edges[*id as usize]).collect();
    let count = |wanted: fn(Kind) -> bool| circle.iter().filter(|edge| wanted(edge.kind)).count();
    let anti = count(Kind::is_anti);
    if anti == 0 {
        return match count(|kind| kind == Kind::Read) {
            0 => Class::G0,
            _ => Class::G1c,
        };
    }
    if level == Level::ReadCommitted {
        return Class::FracturedStatement;
    }
    if anti == 1 {
        return match lost_update(&circle, store) {
            true => Class::LostUpdate,
            false => Class::GSingle,
        };
    }
    let next = circle.iter().cycle().skip(1);
    let in_a_row = |(one, next): (&&Edge, &&Edge)| one.kind.is_anti() && next.kind.is_anti();
    if !circle.iter().zip(next).any(in_a_row) {
        return Class::GNonadjacent;
    }
    match count(|kind| kind == Kind::AntiPredicate) {
        0 => Class::G2Item,
        _ => Class::G2,
    }
}

/// A cycle of two in which both replaced a version of the same object that one of them read.
fn lost_update(circle: &[&Edge], store: &Store) -> bool {
    let object = |edge: &Edge| match edge.why {
        Why::Version(id) | Why::Element(id) => Some(store.version(id).object),
        _ => None,
    };
    match circle {
        [one, other] => {
            let written = one.kind == Kind::Write || other.kind == Kind::Write;
            written && object(one).is_some() && object(one) == object(other)
        }
        _ => false,
    }
}
