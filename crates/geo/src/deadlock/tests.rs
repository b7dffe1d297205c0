use super::*;
use proptest::prelude::*;

fn id(sequence: u64) -> Id {
    Id {
        coordinator: 1,
        incarnation: 1,
        sequence,
    }
}

fn transaction(sequence: u64) -> Party {
    Party::Transaction(id(sequence))
}

/// Transaction `waiter` waits for `holder` at a place: each has one process there.
fn edge(waiter: u64, holder: u64, place: u32) -> Edge {
    Edge {
        waiter: transaction(waiter),
        holder: transaction(holder),
        place,
        pids: (waiter as i32, holder as i32),
        since: "then".to_owned(),
        may_fail: place != HERE,
    }
}

/// Transactions began in the order of their numbers.
fn look(edges: impl IntoIterator<Item = Edge>) -> Look {
    Look {
        edges: edges.into_iter().collect(),
        begun: (0..10).map(|n| (id(n), 100 + n)).collect(),
        left_out: BTreeMap::new(),
    }
}

/// All can be told.
fn all(_: Id, _: bool) -> bool {
    true
}

fn victims(edges: impl IntoIterator<Item = Edge>) -> Vec<u64> {
    let look = look(edges);
    let found = deadlocks(&look, &look, all);
    found.iter().map(|one| one.victim.sequence).collect()
}

#[test]
fn opposite_orders_at_two_nodes() {
    assert_eq!(victims([edge(1, 2, 7), edge(2, 1, 8)]), [2]);
    assert_eq!(victims([edge(1, 2, 7), edge(2, 3, 8), edge(3, 1, 9)]), [3]);
}

#[test]
fn long_waits_are_no_deadlock() {
    assert!(victims([]).is_empty());
    let waits = [
        edge(1, 2, 7),
        edge(2, 3, 8),
        edge(1, 3, 8),
        edge(4, 1, 9),
        edge(4, 2, 7),
    ];
    assert!(victims(waits).is_empty());
}

#[test]
fn a_cycle_within_a_server_is_left_to_it() {
    assert!(victims([edge(1, 2, 7), edge(2, 1, 7)]).is_empty());
    // Two processes of one transaction there: the server does not know that.
    let mut other = edge(2, 1, 7);
    other.pids.0 = 22;
    assert_eq!(victims([edge(1, 2, 7), other]), [2]);
}

/// A transaction that waits here for a lock cannot be told, so the other one is.
#[test]
fn the_victim_waits_at_a_node() {
    assert_eq!(victims([edge(1, 2, 7), edge(2, 1, HERE)]), [1]);
    let mut protected = edge(2, 1, 8);
    protected.may_fail = false;
    assert_eq!(victims([edge(1, 2, 7), protected.clone()]), [1]);
    let mut other = edge(1, 2, 7);
    other.may_fail = false;
    assert!(victims([other, protected]).is_empty());
}

/// If the youngest cannot be told, another one is; and one of another coordinator only if that one
/// sees all of the cycle.
#[test]
fn somebody_who_hears_it_gives_way() {
    let chosen = |edges: [Edge; 2], hears: fn(Id, bool) -> bool| {
        let look = look(edges);
        let found = deadlocks(&look, &look, hears);
        found.first().map(|one| one.victim.sequence)
    };
    let at_nodes = [edge(1, 2, 7), edge(2, 1, 8)];
    assert_eq!(chosen(at_nodes.clone(), |id, _| id.sequence == 1), Some(1));
    assert_eq!(chosen(at_nodes.clone(), |_, _| false), None);
    assert_eq!(chosen(at_nodes, |_, is_seen| is_seen), Some(2));
    let mut partly = [edge(1, 2, 7), edge(2, 1, HERE)];
    partly[1].may_fail = true;
    assert_eq!(chosen(partly, |_, is_seen| is_seen), None);
}

/// A long line for one row: most of it is taken away at once.
#[test]
fn long_lines_are_looked_at_fast() {
    let ahead = |n: u64| n.saturating_sub(20).max(1)..n;
    let line = (1..400).flat_map(|n| ahead(n).map(move |m| edge(n, m, 7)));
    let edges: Vec<Edge> = line.chain([edge(1, 2, 8)]).collect();
    let found = victims(edges);
    assert_eq!(found, [2]);
}

#[test]
fn the_youngest_fails_whatever_its_number() {
    let mut look = look([edge(1, 2, 7), edge(2, 1, 8)]);
    look.begun.insert(id(1), 999);
    let found = deadlocks(&look, &look, all);
    assert_eq!(found[0].victim, id(1));
}

#[test]
fn others_may_stand_between() {
    let local = Party::Process { place: 7, pid: 50 };
    let into = Edge {
        holder: local,
        pids: (1, 50),
        ..edge(1, 0, 7)
    };
    let out = Edge {
        waiter: local,
        pids: (50, 2),
        may_fail: false,
        ..edge(0, 2, 7)
    };
    assert_eq!(victims([into.clone(), out.clone(), edge(2, 1, 8)]), [2]);
    // Another process with that number, elsewhere.
    let elsewhere = Edge {
        waiter: Party::Process { place: 9, pid: 50 },
        place: 9,
        ..out
    };
    assert!(victims([into, elsewhere, edge(2, 1, 8)]).is_empty());
}

#[test]
fn a_prepared_holder_is_its_transaction() {
    let mut prepared = edge(2, 1, 7);
    prepared.pids.1 = 0;
    assert_eq!(victims([edge(1, 2, 8), prepared]), [2]);
}

#[test]
fn a_transaction_may_wait_for_itself() {
    let mut own = edge(1, 1, 7);
    assert!(victims([own.clone()]).is_empty());
    own.pids = (1, 2);
    assert_eq!(victims([own]), [1]);
}

#[test]
fn each_deadlock_has_a_victim_and_one_is_enough_for_two() {
    let two = [edge(1, 2, 7), edge(2, 1, 8), edge(3, 4, 7), edge(4, 3, 8)];
    assert_eq!(victims(two), [2, 4]);
    let joined = [edge(1, 3, 7), edge(3, 1, 8), edge(2, 3, 9), edge(3, 2, 8)];
    assert_eq!(victims(joined), [3]);
}

/// What was seen at different times, and never at one.
#[test]
fn both_looks_have_to_show_the_same_waits() {
    let first = look([edge(1, 2, 7), edge(2, 1, 8)]);
    let other = |edges: [Edge; 2]| look(edges);
    let mut later = edge(2, 1, 8);
    later.since = "later".to_owned();
    assert!(deadlocks(&first, &other([edge(1, 2, 7), later]), all).is_empty());
    assert!(deadlocks(&first, &other([edge(1, 2, 7), edge(2, 3, 8)]), all).is_empty());
    assert!(deadlocks(&first, &look([edge(1, 2, 7)]), all).is_empty());
    assert!(deadlocks(&look([]), &first, all).is_empty());
    assert_eq!(deadlocks(&first, &first, all).len(), 1);
}

#[test]
fn the_victim_is_told_all_of_it() {
    let local = Party::Process { place: 7, pid: 50 };
    let foreign = Id {
        coordinator: 2,
        incarnation: 1,
        sequence: 33,
    };
    let deadlock = Deadlock {
        cycle: vec![
            Edge {
                holder: local,
                ..edge(1, 0, 7)
            },
            Edge {
                waiter: local,
                holder: Party::Transaction(foreign),
                ..edge(0, 0, 7)
            },
            Edge {
                waiter: Party::Transaction(foreign),
                ..edge(0, 2, 8)
            },
            edge(2, 1, HERE),
        ],
        victim: id(1),
    };
    let server = |place| format!("node{place}");
    let process = |id: Id| (id.coordinator == 1).then_some(id.sequence as i32 * 11);
    assert_eq!(
        deadlock.told(server, process),
        "Process 11 waits for process 50 of server \"node7\" at server \"node7\".\n\
         Process 50 of server \"node7\" waits for process of another coordinator, transaction 33 \
         at server \"node7\".\n\
         Process of another coordinator, transaction 33 waits for process 22 at server \"node8\".\n\
         Process 22 waits for process 11 at the coordinator."
    );
}

/// All ways of three transactions at two nodes.
const PAIRS: [(u64, u64); 6] = [(1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2)];

fn graph(bits: u32) -> Vec<Edge> {
    let one = |n: u32| {
        let (waiter, holder) = PAIRS[n as usize / 2];
        edge(waiter, holder, 7 + n % 2)
    };
    (0..12).filter(|n| bits >> n & 1 == 1).map(one).collect()
}

/// Whether there is a cycle with a seam, looked for in the plainest way.
fn has_deadlock(edges: &[Edge]) -> bool {
    let orders: [&[u64]; 5] = [&[1, 2], &[1, 3], &[2, 3], &[1, 2, 3], &[1, 3, 2]];
    orders.iter().any(|order| {
        let places: Vec<BTreeSet<u32>> = (0..order.len())
            .map(|n| {
                let (from, to) = (order[n], order[(n + 1) % order.len()]);
                let is_it = |edge: &&Edge| {
                    edge.waiter == transaction(from) && edge.holder == transaction(to)
                };
                edges.iter().filter(is_it).map(|edge| edge.place).collect()
            })
            .collect();
        let is_closed = places.iter().all(|places| !places.is_empty());
        is_closed && places.iter().flatten().collect::<BTreeSet<_>>().len() > 1
    })
}

fn check(edges: &[Edge]) {
    let look = look(edges.iter().cloned());
    let found = deadlocks(&look, &look, all);
    assert_eq!(!found.is_empty(), has_deadlock(edges), "{edges:?}");
    for one in &found {
        let cycle = &one.cycle;
        for (n, edge) in cycle.iter().enumerate() {
            assert!(look.edges.contains(edge));
            assert_eq!(edge.holder, cycle[(n + 1) % cycle.len()].waiter);
        }
        let youngest = cycle.iter().map(|edge| edge.waiter).max();
        assert_eq!(youngest, Some(Party::Transaction(one.victim)));
    }
    let is_gone = |edge: &Edge| {
        found.iter().any(|one| {
            let gone = Party::Transaction(one.victim);
            edge.waiter == gone || edge.holder == gone
        })
    };
    let left: Vec<Edge> = edges
        .iter()
        .filter(|edge| !is_gone(edge))
        .cloned()
        .collect();
    assert!(!has_deadlock(&left), "{edges:?}: {found:?}");
}

#[test]
fn all_graphs_of_three_transactions_at_two_nodes() {
    (0..1 << 12).for_each(|bits| check(&graph(bits)));
}

/// Transactions that take locks in some order, one after the other, at three nodes.
fn taken() -> impl Strategy<Value = Vec<Vec<usize>>> {
    let order = Just((0..6).collect::<Vec<usize>>()).prop_shuffle();
    prop::collection::vec(order, 2..6)
}

/// The waits when nobody can go on, and who waits.
fn run(orders: &[Vec<usize>], turns: &[usize]) -> Vec<Edge> {
    let mut owner = [None; 6];
    let mut at = vec![0; orders.len()];
    let mut step = |who: usize| {
        let Some(&lock) = orders[who].get(at[who]) else {
            // It ends.
            owner
                .iter_mut()
                .filter(|one| **one == Some(who))
                .for_each(|one| *one = None);
            return None;
        };
        if owner[lock].is_none_or(|one| one == who) {
            owner[lock] = Some(who);
            at[who] += 1;
            return None;
        }
        let (waiter, holder) = (who as u64, owner[lock]? as u64);
        Some(edge(waiter, holder, 7 + lock as u32 % 3))
    };
    turns
        .iter()
        .for_each(|turn| drop(step(turn % orders.len())));
    // Until all have ended or wait.
    for _ in 0..100 {
        (0..orders.len()).for_each(|who| drop(step(who)));
    }
    (0..orders.len()).filter_map(step).collect()
}

proptest! {
    /// A party that waits for ever does so within one server, or is found.
    #[test]
    fn whoever_waits_for_ever_is_found(
        orders in taken(), turns in prop::collection::vec(0_usize..6, 0..30)
    ) {
        let edges = run(&orders, &turns);
        let look = look(edges.iter().cloned());
        let found = deadlocks(&look, &look, all);
        prop_assert_eq!(found.is_empty(), is_within(&edges), "{:?}", edges);
    }

    /// An edge that only one of the looks shows is in no deadlock.
    #[test]
    fn nothing_but_what_both_show(first: u16, second: u16) {
        let (one, two) = (graph(u32::from(first) & 0xfff), graph(u32::from(second) & 0xfff));
        let (one, two) = (look(one), look(two));
        for found in deadlocks(&one, &two, all) {
            prop_assert!(found.cycle.iter().all(|edge| one.edges.contains(edge)));
            prop_assert!(found.cycle.iter().all(|edge| two.edges.contains(edge)));
        }
    }
}

/// Whether each cycle is at one server: each waits for one other, so they are followed.
fn is_within(edges: &[Edge]) -> bool {
    let next = |edge: &Edge| edges.iter().find(|one| one.waiter == edge.holder);
    edges.iter().all(|start| {
        let mut places = BTreeSet::from([start.place]);
        let mut at = start;
        for _ in 0..edges.len() {
            match next(at) {
                Some(edge) if edge == start => return places.len() == 1,
                Some(edge) => {
                    places.insert(edge.place);
                    at = edge;
                }
                None => return true,
            }
        }
        true
    })
}
