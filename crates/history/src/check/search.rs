//! From observations to a verdict, by way of an order in which rows came and went.
//!
//! Whatever the order, the dependencies that `edges` finds are there. The order adds more. If the
//! order that the times suggest has no forbidden cycle, the promise is kept: the order is the
//! proof. If it has a cycle, the order has decided some of the pairs in it. In any order that is
//! right at least one of these pairs stands the other way round. That is remembered (`choice`),
//! and the next order satisfies all that was found, until there is no cycle, or no order left.
use crate::check::choice::Choice;
use crate::check::cycles::{self, Cycle};
use crate::check::edges;
use crate::check::gaps::{Pin, Slots};
use crate::check::graph::{Edge, Graph, Why};
use crate::check::observe::{Observations, observe};
use crate::check::report::Report;
use crate::check::store::Store;
use crate::check::tell;
use crate::check::verdict::{Anomaly, Promise, Verdict};
use crate::model::History;

/// Edges that the search may look at in all before it gives up.
const WORK: usize = 20_000_000;

/// The verdict when exactly the `counted` transactions have committed.
pub fn search(history: &History, counted: &[bool], promise: Promise) -> Verdict {
    let mut report = Report::default();
    let mut store = Store::new(history, counted);
    let seen = observe(history, counted, &mut store, &mut report);
    let (graph, slots) = build(history, counted, promise, &store, &seen, &mut report);
    if !report.is_empty() {
        return Verdict {
            anomalies: report.into_anomalies(),
            certain: true,
        };
    }
    let nodes = graph.nodes.count();
    let mut told: Option<Anomaly> = None;
    let mut left = WORK;
    let mut choice = Choice::default();
    let suggested = slots.suggested();
    let mut certain = true;
    while let Some(pins) = choice.next() {
        let all = match order(&graph, &slots, &suggested, &pins) {
            Ok(all) => all,
            Err(contradiction) => {
                choice.refuse(&slots, &contradiction);
                continue;
            }
        };
        let cycles = cycles::forbidden(nodes, &all, &store, promise.level);
        let Some(worst) = cycles.first() else {
            return Verdict {
                anomalies: Vec::new(),
                certain: true,
            };
        };
        let free = cycles.iter().map(|cycle| free(cycle, &all, &slots));
        let free: Vec<Vec<Pin>> = free.collect();
        let fixed = free.iter().position(Vec::is_empty);
        // What is worse is the fault of an order that is not the right one.
        if told.as_ref().is_none_or(|told| told.class < worst.class) || fixed.is_some() {
            let cycle = fixed.map_or(worst, |place| &cycles[place]);
            told = Some(tell::cycle(history, &store, &graph, &slots, cycle, &all));
        }
        if fixed.is_some() {
            break;
        }
        for pins in &free {
            choice.refuse(&slots, pins);
        }
        left = left.saturating_sub(all.len() + nodes);
        if left == 0 {
            certain = false;
            break;
        }
    }
    Verdict {
        anomalies: told.into_iter().collect(),
        certain,
    }
}

/// The dependencies that are certain, and the keys whose order is to be found. What is wrong with
/// them already goes to `report`.
fn build(
    history: &History,
    counted: &[bool],
    promise: Promise,
    store: &Store,
    seen: &Observations,
    report: &mut Report,
) -> (Graph, Slots) {
    let mut graph = Graph::new(history, promise);
    let next = edges::versions(&mut graph, store, seen, report);
    let unseen = edges::lists(&mut graph, history, counted, store, &seen.lists, report);
    let mut slots = Slots::new(history, promise, store, seen, &next, &unseen, report);
    slots.place(&mut graph);
    if promise.real_time {
        graph.add_real_time(history, counted);
    }
    (graph, slots)
}

/// All edges with the order as it is with `pins`; or those pins that contradict each other.
fn order(
    graph: &Graph,
    slots: &Slots,
    suggested: &[Edge],
    pins: &[Pin],
) -> Result<Vec<Edge>, Vec<Pin>> {
    let mut changed: Vec<u32> = pins.iter().map(|pin| pin.slot).collect();
    changed.sort_unstable();
    changed.dedup();
    let keep = |edge: &&Edge| match edge.why {
        Why::Order { slot, .. } => changed.binary_search(&slot).is_err(),
        _ => true,
    };
    let mut all = graph.edges.clone();
    all.extend(suggested.iter().filter(keep));
    for slot in &changed {
        slots.pinned(*slot, pins, &mut all)?;
    }
    Ok(all)
}

/// The pairs in the cycle that the order decided, and could have decided otherwise.
fn free(cycle: &Cycle, edges: &[Edge], slots: &Slots) -> Vec<Pin> {
    let mut pins: Vec<Pin> = Vec::new();
    for id in &cycle.edges {
        if let Why::Order {
            slot,
            first,
            second,
        } = edges[*id as usize].why
        {
            let pin = Pin {
                slot,
                first,
                second,
            };
            if slots.can_swap(pin) && !pins.contains(&pin) {
                pins.push(pin);
            }
        }
    }
    pins
}
