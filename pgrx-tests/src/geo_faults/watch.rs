//! How long transactions stay prepared at the nodes after the last server is back.
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use postgres::{Client, Config, NoTls};

/// How often the nodes are asked.
const TICK: Duration = Duration::from_millis(20);

/// All of ours at a node.
const PREPARED: &str = "SELECT gid FROM pg_prepared_xacts WHERE gid LIKE 'txn/%'";

/// What was seen at the nodes.
#[derive(Debug, Default)]
pub struct Stay {
    /// Of those that were there in the beginning: when the last one was gone.
    pub old: Duration,
    /// The longest that any was seen, from the beginning or from when it came.
    pub longest: Duration,
}

/// Looks until told that it is over.
pub fn watch(nodes: &[Config], over: &AtomicBool) -> Stay {
    let began = Instant::now();
    let mut clients: Vec<Option<Client>> = nodes
        .iter()
        .map(|config| config.connect(NoTls).ok())
        .collect();
    let mut seen: BTreeMap<String, (Duration, Duration)> = BTreeMap::new();
    let mut first_look = None;
    while !over.load(Ordering::Relaxed) {
        for (config, slot) in nodes.iter().zip(&mut clients) {
            let Some(client) = slot else {
                *slot = config.connect(NoTls).ok();
                continue;
            };
            let Ok(rows) = client.query(PREPARED, &[]) else {
                *slot = None;
                continue;
            };
            let now = began.elapsed();
            for row in rows {
                seen.entry(row.get(0)).or_insert((now, now)).1 = now;
            }
        }
        first_look.get_or_insert(began.elapsed());
        sleep(TICK);
    }
    let first_look = first_look.unwrap_or_default();
    let mut stay = Stay::default();
    for (from, to) in seen.into_values() {
        stay.longest = stay.longest.max(to - from);
        if from <= first_look {
            stay.old = stay.old.max(to);
        }
    }
    stay
}
