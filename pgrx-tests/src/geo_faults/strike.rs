//! The faults: what they do, and how everything comes back.
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use pgserver::{Server, StopMode, signal};
use postgres::Client;
use rand::Rng;
use rand::rngs::SmallRng;

use super::client::NAME;
use super::plan::{Fault, Meanwhile, POINTS, Plan};
use crate::faults::rng;
use crate::geo::Cluster;
use crate::int;

const TICK: Duration = Duration::from_millis(5);
/// How long somebody may take to come to where we lie in wait.
const LIES_IN_WAIT: Duration = Duration::from_secs(5);
/// How long a server may take to be there again, or to notice a killed process.
const PATIENCE: Duration = Duration::from_secs(60);
/// For the random numbers of the strike.
const STRIKER: u64 = u64::MAX - 1;

/// Strikes. When it returns all servers take connections, all lines are whole, and nobody is held.
/// What was struck, for the record.
pub fn strike(cluster: &mut Cluster, plan: &Plan) -> Result<String> {
    let mut rng = rng(plan.seed, plan.cycle, STRIKER);
    let node = plan.node;
    cluster.dog.progress();
    let how = match plan.fault {
        Fault::KillCoordinator => {
            cluster.coordinator.kill9_all()?;
            sleep(plan.pause);
            cluster.coordinator.start_again()?;
            String::new()
        }
        Fault::KillPostmaster => {
            cluster.coordinator.kill9()?;
            cluster.coordinator.start_again()?;
            String::new()
        }
        Fault::KillBackend => {
            let pid = random_session(&cluster.coordinator, &mut rng)?;
            kill_process(cluster, pid)?.to_owned()
        }
        Fault::KillResolver => kill_resolver(cluster)?,
        Fault::KillNode => {
            cluster.kill_node(node, false)?;
            sleep(plan.pause);
            cluster.start_node(node)?;
            String::new()
        }
        Fault::RestartNode => {
            let mode = match plan.is_immediate {
                true => StopMode::Immediate,
                false => StopMode::Fast,
            };
            cluster.nodes[node].stop(mode)?;
            sleep(plan.pause);
            cluster.start_node(node)?;
            format!("{mode:?}").to_lowercase()
        }
        Fault::Cut => {
            cluster.line(node).cut();
            sleep(plan.pause);
            cluster.line(node).heal();
            String::new()
        }
        Fault::CutPrepare => cut_prepare(cluster, plan)?,
        Fault::Break => {
            let times = rng.random_range(1..=5);
            for _ in 0..times {
                cluster.line(node).break_connections();
                sleep(Duration::from_millis(rng.random_range(1..=50)));
            }
            String::new()
        }
        Fault::Signal => signals(cluster, &mut rng)?,
        Fault::Stop => stop(cluster, plan)?,
    };
    wait_until_back(cluster)?;
    Ok(format!("{} {how}", plan.fault).trim_end().to_owned())
}

/// Waits until all servers take connections.
fn wait_until_back(cluster: &Cluster) -> Result<()> {
    let servers = cluster.nodes.iter().chain([&cluster.coordinator]);
    for server in servers {
        let began = Instant::now();
        loop {
            cluster.dog.progress();
            let answer = server
                .connect()
                .and_then(|mut client| int(&mut client, "SELECT 1"));
            match answer {
                Ok(_) => break,
                Err(error) if began.elapsed() > PATIENCE => {
                    return Err(error).context("a server has not come back");
                }
                Err(_) => sleep(TICK),
            }
        }
    }
    Ok(())
}

/// A session of the load, or at a node one of the coordinator's, that is busy if there is one.
fn random_session(server: &Server, rng: &mut SmallRng) -> Result<Option<i32>> {
    let mut client = server.connect()?;
    let rows = client.query(
        "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' \
         AND pid <> pg_backend_pid() ORDER BY state = 'idle', pid",
        &[],
    )?;
    let most = rows.len().min(6);
    Ok((most > 0).then(|| rows[rng.random_range(0..most)].get(0)))
}

/// kill -9 of a process of the coordinator, which then restarts by itself.
fn kill_process(cluster: &Cluster, pid: Option<i32>) -> Result<&'static str> {
    let Some(pid) = pid else {
        return Ok("nobody");
    };
    let mut control = cluster.session()?;
    if signal(pid, libc::SIGKILL).is_err() {
        return Ok("nobody");
    }
    let began = Instant::now();
    while control.simple_query("SELECT 1").is_ok() {
        ensure!(
            began.elapsed() < PATIENCE,
            "nobody has noticed that {pid} was killed"
        );
        sleep(TICK);
    }
    wait_until_back(cluster)?;
    Ok("")
}

fn kill_resolver(cluster: &Cluster) -> Result<String> {
    let pid = int(
        &mut cluster.session()?,
        "SELECT pid FROM txn.geo_resolver()",
    )?;
    let pid = (pid > 0).then_some(pid as i32);
    Ok(kill_process(cluster, pid)?.to_owned())
}

/// Cuts a line, waits until something is prepared at another node, and goes on from there.
fn cut_prepare(cluster: &mut Cluster, plan: &Plan) -> Result<String> {
    let node = plan.node;
    cluster.line(node).cut();
    let began = Instant::now();
    let elsewhere = |cluster: &Cluster| -> Result<bool> {
        Ok(cluster.prepared()?.iter().any(|(at, _)| *at != node))
    };
    // Three looks in a row: it is not one that is just being committed.
    let mut looks = 0;
    while looks < 3 && began.elapsed() < LIES_IN_WAIT {
        cluster.dog.progress();
        looks = if elsewhere(cluster)? { looks + 1 } else { 0 };
        sleep(TICK);
    }
    match plan.meanwhile {
        Meanwhile::KillCoordinator => {
            cluster.coordinator.kill9_all()?;
            cluster.coordinator.start_again()?;
        }
        Meanwhile::KillNode => {
            cluster.kill_node(node, false)?;
            cluster.line(node).heal();
        }
        _ => {}
    }
    sleep(plan.pause);
    cluster.line(node).heal();
    if plan.meanwhile == Meanwhile::KillNode {
        cluster.start_node(node)?;
    }
    let prepared = if looks < 3 { "nothing" } else { "prepared" };
    Ok(format!("{prepared} {:?}", plan.meanwhile))
}

/// Cancels and terminates sessions at all servers.
fn signals(cluster: &Cluster, rng: &mut SmallRng) -> Result<String> {
    let count = rng.random_range(4..=20);
    for _ in 0..count {
        cluster.dog.progress();
        let server = match rng.random_bool(0.7) {
            true => &cluster.coordinator,
            false => cluster.node(rng.random_range(0..cluster.nodes.len())),
        };
        let function = match rng.random_bool(0.5) {
            true => "pg_cancel_backend",
            false => "pg_terminate_backend",
        };
        if let Some(pid) = random_session(server, rng)? {
            server
                .connect()?
                .query(&format!("SELECT {function}($1)"), &[&pid])?;
        }
        sleep(Duration::from_millis(rng.random_range(0..=100)));
    }
    Ok(String::new())
}

/// The session that is held at a stop event: each point has a lock, of which one is ours.
fn held(control: &mut Client, point: &str) -> Result<Option<i32>> {
    let who = match point == POINTS[3] {
        true => "backend_type <> 'client backend'".to_owned(),
        false => format!("application_name = '{NAME}'"),
    };
    let sql = format!(
        "SELECT pid FROM pg_stat_activity WHERE wait_event IN ('advisory', 'PgSleep') AND {who}"
    );
    Ok(control.query(&sql, &[])?.first().map(|row| row.get(0)))
}

/// Holds whoever comes to the point, does what is to be done meanwhile, and lets go.
fn stop(cluster: &mut Cluster, plan: &Plan) -> Result<String> {
    let mut control = cluster.hold(plan.point)?;
    let began = Instant::now();
    let mut pid = None;
    while pid.is_none() && began.elapsed() < LIES_IN_WAIT {
        cluster.dog.progress();
        pid = held(&mut control, plan.point)?;
        sleep(TICK);
    }
    sleep(plan.pause / 4);
    let node = plan.node;
    let mut ask = |function: &str| -> Result<()> {
        if pid.is_some() {
            control.query(&format!("SELECT {function}($1)"), &[&pid])?;
        }
        Ok(())
    };
    match plan.meanwhile {
        Meanwhile::Nothing => {}
        Meanwhile::Cancel => ask("pg_cancel_backend")?,
        Meanwhile::Terminate => ask("pg_terminate_backend")?,
        Meanwhile::KillCoordinator => {
            cluster.coordinator.kill9_all()?;
            cluster.coordinator.start_again()?;
        }
        Meanwhile::KillHeld => {
            kill_process(cluster, pid)?;
        }
        Meanwhile::KillResolver => {
            kill_resolver(cluster)?;
        }
        Meanwhile::KillNode => cluster.kill_node(node, false)?,
    }
    sleep(plan.pause / 4);
    drop(control);
    if plan.meanwhile == Meanwhile::KillNode {
        sleep(plan.pause / 2);
        cluster.start_node(node)?;
    }
    let who = if pid.is_some() { "" } else { " nobody" };
    Ok(format!("{}{who} {:?}", plan.point, plan.meanwhile))
}
