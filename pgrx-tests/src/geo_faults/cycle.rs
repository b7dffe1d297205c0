//! One cycle: servers, a load, its fault, and everything that has to hold afterwards.
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use pgserver::{PgInstall, Server, ServerOptions};
use postgres::Config;
use serde::Serialize;

use super::Options;
use super::book::{Found, judge};
use super::client::{Load, is_expected};
use super::plan::{POINTS, Plan};
use super::strike::strike;
use super::transaction::{Entry, Fate, TRIGGER};
use super::watch::{Stay, watch};
use crate::faults::{PREFIX, is_problem};
use crate::geo::Cluster;
use crate::{int, text};

const TICK: Duration = Duration::from_millis(10);
/// Transactions after the fault.
const TAIL: usize = 100;
/// How long the clients may take to end, and the resolver to end what is left. The aim is 5 s:
/// the time is recorded, and not judged.
const PATIENCE: Duration = Duration::from_secs(90);
/// Findings that are told of a cycle.
const MOST_WRONG: usize = 20;

/// What is kept of a cycle.
#[derive(Debug, Default, Serialize)]
pub struct Cycle {
    pub cycle: u64,
    /// In the report, once for all cycles.
    #[serde(skip)]
    pub build: String,
    pub settings: String,
    /// The fault, and what it has met.
    pub fault: String,
    pub seconds: f64,
    pub acknowledged: usize,
    /// Failed, or rolled back on purpose.
    pub refused: usize,
    pub in_doubt: usize,
    /// Of those in doubt, the ones that are there.
    pub present_in_doubt: usize,
    /// By SQLSTATE.
    pub errors: BTreeMap<String, u64>,
    /// Until the transactions were gone that were prepared when the last server came back.
    pub old_gid_ms: u64,
    /// The longest that any transaction was prepared at a node from then on.
    pub longest_gid_ms: u64,
    /// Until nothing was prepared and decided any more, after the clients had ended.
    pub resolved_ms: u64,
    /// Empty if all is well.
    pub wrong: Vec<String>,
}

/// Runs the cycle. If something is wrong the servers' logs are written to `home`.
pub fn run(install: &PgInstall, options: &Options, plan: &Plan, home: &Path) -> Cycle {
    let mut cycle = Cycle {
        cycle: plan.cycle,
        fault: plan.fault.to_string(),
        settings: plan.settings(),
        ..Cycle::default()
    };
    let began = Instant::now();
    match start(install, options, plan) {
        Err(error) => cycle.wrong.push(format!("{error:#}")),
        Ok(mut cluster) => {
            if let Err(error) = attempt(&mut cluster, plan, &mut cycle) {
                cycle.wrong.push(format!("{error:#}"));
            }
            cycle.wrong.extend(problems(&cluster));
            if !cycle.wrong.is_empty()
                && let Err(error) = keep(&cluster, &cycle, home)
            {
                cycle.wrong.push(format!("{error:#}"));
            }
        }
    }
    cycle.wrong.truncate(MOST_WRONG);
    cycle.seconds = began.elapsed().as_secs_f64();
    cycle
}

/// Servers and tables of a cycle.
fn start(install: &PgInstall, options: &Options, plan: &Plan) -> Result<Cluster> {
    let with_library = ServerOptions {
        library_dir: options.library_dir.clone(),
        ..ServerOptions::default()
    };
    let common = |options: ServerOptions| {
        options
            .set("max_connections", 100)
            .set("shared_buffers", "16MB")
            .set("deadlock_timeout", "100ms")
            .set("log_line_prefix", PREFIX)
    };
    let plain = match plan.grouped && !options.is_control {
        true => common(with_library.clone())
            .set("txn.group_lock", "on")
            .set("txn.hot_threshold", 0),
        false => common(ServerOptions::stock()),
    };
    let with_library = common(with_library)
        .set("txn.stop_at", POINTS.join(", "))
        // Deadlocks over several nodes end soon.
        .set("txn.geo_lock_timeout", "500ms")
        .set("txn.geo_apply_timeout", plan.apply_timeout);
    let coordinator = Server::start(install, with_library)?;
    let mut node = plain
        .set("max_prepared_transactions", 64)
        .set("log_statement", "all");
    let mut wrapper = "txn_fdw";
    if options.is_control {
        wrapper = "postgres_fdw";
        coordinator
            .connect()?
            .batch_execute("CREATE EXTENSION postgres_fdw")?;
        node = node.set("lock_timeout", "500ms");
    }
    let nodes = (0..plan.nodes).map(|_| Server::start(install, node.clone()));
    let nodes: Vec<Server> = nodes.collect::<Result<_>>()?;
    let cluster = Cluster::between(coordinator, nodes, wrapper)?;
    for node in &cluster.nodes {
        node.connect()?.batch_execute(TRIGGER)?;
    }
    Ok(cluster)
}

fn attempt(cluster: &mut Cluster, plan: &Plan, cycle: &mut Cycle) -> Result<()> {
    let mut control = cluster.session()?;
    cycle.build = text(&mut control, "SELECT current_setting('txn.build_id')")?;
    drop(control);
    let book = under_load(cluster, plan, cycle)?;
    let count = |fate| book.iter().filter(|entry| entry.fate == fate).count();
    cycle.acknowledged = count(Fate::Acknowledged);
    cycle.refused = count(Fate::Refused);
    cycle.in_doubt = count(Fate::InDoubt);
    let verdict = judge(&book, &Found::look(cluster)?);
    cycle.present_in_doubt = verdict.present_in_doubt;
    cycle.wrong.extend(verdict.wrong);
    Ok(())
}

/// The load with its fault, until nothing is left in doubt; the clients' account.
fn under_load(cluster: &mut Cluster, plan: &Plan, cycle: &mut Cycle) -> Result<Vec<Entry>> {
    let dog = std::sync::Arc::clone(&cluster.dog);
    let config = cluster.coordinator.config("postgres", "postgres");
    let load = Load::new(plan, &dog, config);
    let load = &load;
    let over = AtomicBool::new(false);
    let book = scope(|threads| {
        let clients: Vec<_> = (0..plan.clients)
            .map(|number| threads.spawn(move || load.client(number)))
            .collect();
        let disturbed = disturb(cluster, load, cycle);
        let nodes: Vec<Config> = cluster
            .nodes
            .iter()
            .map(|node| node.config("postgres", "postgres"))
            .collect();
        let watcher = disturbed.is_ok().then(|| {
            let over = &over;
            threads.spawn(move || watch(&nodes, over))
        });
        let ended = disturbed.and_then(|()| load.pass(TAIL, "transactions after the fault"));
        load.stop.store(true, Ordering::Relaxed);
        let ended = ended.and_then(|()| {
            let is_over = || clients.iter().all(|client| client.is_finished());
            load.wait_for(is_over, "the end of the clients")
        });
        let resolved = match ended {
            Ok(()) => wait_until_resolved(cluster, cycle),
            Err(error) => {
                let error = error.context(who_hangs(cluster));
                set_free(cluster);
                Err(error)
            }
        };
        over.store(true, Ordering::Relaxed);
        if let Some(watcher) = watcher {
            let stay: Stay = watcher
                .join()
                .map_err(|_| anyhow!("the watcher panicked"))?;
            cycle.old_gid_ms = stay.old.as_millis() as u64;
            cycle.longest_gid_ms = stay.longest.as_millis() as u64;
        }
        let mut book = Vec::new();
        for client in clients {
            book.extend(client.join().map_err(|_| anyhow!("a client panicked"))?);
        }
        resolved.map(|()| book)
    })?;
    let errors = load.errors.lock().expect("no client panics with it");
    for (code, (count, message)) in errors.iter() {
        cycle.errors.insert(code.clone(), *count);
        if !is_expected(code) {
            let wrong = format!("{count} unexpected errors {code}, the first: {message}");
            cycle.wrong.push(wrong);
        }
    }
    Ok(book)
}

fn disturb(cluster: &mut Cluster, load: &Load, cycle: &mut Cycle) -> Result<()> {
    load.pass(load.plan.before, "transactions before the fault")?;
    cycle.fault = strike(cluster, load.plan).with_context(|| load.plan.fault.to_string())?;
    Ok(())
}

impl Load<'_> {
    /// Waits until so many more transactions have ended.
    fn pass(&self, transactions: usize, what: &str) -> Result<()> {
        let until = self.done.load(Ordering::Relaxed) + transactions;
        self.wait_for(|| self.done.load(Ordering::Relaxed) >= until, what)
    }

    fn wait_for(&self, what: impl Fn() -> bool, name: &str) -> Result<()> {
        let began = Instant::now();
        while !what() {
            self.dog.progress();
            if began.elapsed() > PATIENCE {
                bail!("{name} have not come in {} s", PATIENCE.as_secs());
            }
            sleep(TICK);
        }
        Ok(())
    }
}

/// Waits until nothing is prepared or decided, and no session at a node is in a transaction.
fn wait_until_resolved(cluster: &Cluster, cycle: &mut Cycle) -> Result<()> {
    let began = Instant::now();
    let mut control = cluster.session()?;
    loop {
        cluster.dog.progress();
        let decided = int(&mut control, "SELECT count(*) FROM txn.geo_decision")?;
        let prepared = cluster.prepared()?;
        let mut open = 0;
        for node in &cluster.nodes {
            open += int(
                &mut node.connect()?,
                "SELECT count(*) FROM pg_stat_activity WHERE state <> 'idle' \
                 AND backend_type = 'client backend' AND application_name LIKE 'txn%'",
            )?;
        }
        if decided == 0 && prepared.is_empty() && open == 0 {
            cycle.resolved_ms = began.elapsed().as_millis() as u64;
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            let views = text(
                &mut control,
                "SELECT (SELECT string_agg(t::text, '; ') FROM txn.geo_transactions t) || ' | ' \
                 || (SELECT string_agg(r::text, '; ') FROM txn.geo_resolver() r)",
            );
            bail!(
                "after {} s {decided} are decided, {open} sessions are open at nodes, and \
                 prepared are {prepared:?}; {views:?}",
                PATIENCE.as_secs()
            );
        }
        sleep(TICK);
    }
}

/// What sessions do, when they do not end.
fn who_hangs(cluster: &Cluster) -> String {
    let sql = "SELECT string_agg(concat_ws(' ', pid, state, wait_event, left(query, 90)), '; ') \
               FROM pg_stat_activity WHERE state <> 'idle' AND pid <> pg_backend_pid()";
    let servers = [&cluster.coordinator].into_iter().chain(&cluster.nodes);
    let told = servers.map(|server| {
        let told = server
            .connect()
            .and_then(|mut client| text(&mut client, sql));
        told.unwrap_or_else(|error| format!("{error:#}"))
    });
    told.collect::<Vec<_>>().join("\n")
}

/// Lets all clients come back with an error, so that the cycle ends.
fn set_free(cluster: &mut Cluster) {
    cluster.lines.iter().for_each(|line| line.heal());
    let _ = cluster.coordinator.kill9_all();
}

/// What the logs may not say.
fn problems(cluster: &Cluster) -> Vec<String> {
    let mut found = Vec::new();
    for (name, log) in logs(cluster) {
        let lines = log.lines().filter(|line| is_problem(line, false)).take(5);
        found.extend(lines.map(|line| format!("the log of {name} says: {line}")));
    }
    found
}

fn logs(cluster: &Cluster) -> Vec<(String, String)> {
    let nodes = cluster.nodes.iter().enumerate();
    let nodes = nodes.map(|(number, node)| (format!("node{number}"), node));
    let servers = nodes.chain([("coordinator".to_owned(), &cluster.coordinator)]);
    servers
        .map(|(name, server)| {
            let log = server.log();
            (name, log.unwrap_or_else(|error| format!("{error:#}")))
        })
        .collect()
}

fn keep(cluster: &Cluster, cycle: &Cycle, home: &Path) -> Result<()> {
    fs::create_dir_all(home).with_context(|| home.display().to_string())?;
    for (name, log) in logs(cluster) {
        fs::write(home.join(format!("{name}.log")), log)?;
    }
    let told = format!("{}\n{}\n", cycle.settings, cycle.wrong.join("\n"));
    fs::write(home.join("wrong"), told)?;
    Ok(())
}
