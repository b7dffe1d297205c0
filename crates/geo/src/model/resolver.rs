//! The resolver: passes over all nodes.

use super::NODES;
use super::coordinator::{Fate, Held, Memory, Row, scope};
use super::node::Reply;
use super::world::World;
use crate::fault::{Fault, planted};
use crate::{Action, Asked, Decision, Gid, Judged, Pass, applied, judge};
use shuttle::sync::Arc;

/// One pass over each node. Ends early if the coordinator dies.
pub fn pass(world: &Arc<World>) {
    let memory = world.coordinator.memory();
    let over = |node| pass_over(world, &memory, node).is_some();
    let _is_alive = (0..NODES).all(over);
}

fn pass_over(world: &Arc<World>, memory: &Memory, node: usize) -> Option<()> {
    let early_active = planted(Fault::ActiveBeforePrepared).then(|| memory.active());
    world.pause();
    let p = world.nodes[node].prepared();
    world.pause();
    let early_rows = if planted(Fault::DecidedBeforeActive) {
        Some(rows(world, memory)?)
    } else {
        None
    };
    world.pause();
    let a = early_active.unwrap_or_else(|| memory.active());
    world.pause();
    let t = match early_rows {
        Some(rows) => rows,
        None => rows(world, memory)?,
    };
    world.pause();
    let q = world.nodes[node].prepared();
    let decisions: Vec<Decision> = t.iter().map(|row| row.decision).collect();
    let actions = Pass::of(scope(node, memory))
        .prepared(p)
        .active(a)
        .decided(decisions)
        .prepared_again(q);
    for action in actions {
        act(world, memory, node, action, &t)?;
    }
    Some(())
}

/// T. What is only visible is confirmed, unless the resolver's wait for the standby is cancelled.
fn rows(world: &World, memory: &Memory) -> Option<Vec<Row>> {
    let confirms = !world.mishap(0.5);
    world.coordinator.alive(memory, |held| {
        if confirms {
            held.flush();
        }
        held.rows().to_vec()
    })
}

fn act(world: &Arc<World>, memory: &Memory, node: usize, action: Action, t: &[Row]) -> Option<()> {
    match action {
        Action::RollBack(gid) => finish(world, memory, node, gid, false),
        Action::Commit(gid) => finish(world, memory, node, gid, true),
        Action::Erase(gid) => world.coordinator.alive(memory, |held| held.erase(gid)),
        Action::AskStatus(gid) => {
            let row = t.iter().find(|row| row.decision.gid == gid).unwrap();
            match ask(world, node, row) {
                Judged::Erase => world.coordinator.alive(memory, |held| held.erase(gid)),
                Judged::Wait => Some(()),
                Judged::Lost => {
                    world.check(false, "a participant is lost");
                    Some(())
                }
            }
        }
    }
}

/// Ends a prepared transaction, which nobody may bring to another end.
fn finish(world: &Arc<World>, memory: &Memory, node: usize, gid: Gid, commit: bool) -> Option<()> {
    let reply = end(world, memory, node, gid, commit)?;
    if applied(&reply.answer(), true) {
        let acknowledge = |held: &mut Held| held.acknowledge(gid);
        world.coordinator.alive(memory, acknowledge)?;
    }
    Some(())
}

fn end(world: &Arc<World>, memory: &Memory, node: usize, gid: Gid, commit: bool) -> Option<Reply> {
    let cancelled = world.mishap(world.weather.cancels);
    let flight = world.coordinator.alive(memory, |held| {
        let right = if commit { Fate::Durable } else { Fate::Failed };
        let is_right = held.fate_of(gid) == right;
        world.check(is_right, "the resolver ends a transaction otherwise");
        world.send(move |world| world.nodes[node].finish(gid, commit, cancelled))
    })?;
    Some(flight.reply())
}

/// Commits what sessions have handed over. What is not acknowledged is left to a pass. Ends early
/// if the coordinator dies.
pub fn apply_handed(world: &Arc<World>) {
    let memory = world.coordinator.memory();
    for (node, gid) in memory.handed() {
        let Some(reply) = end(world, &memory, node, gid, true) else {
            return;
        };
        let mut answer = reply.answer();
        answer.standby_wait_cancelled &= !planted(Fault::HandedUnwarned);
        let told = world.coordinator.alive(&memory, |held| {
            if applied(&answer, true) {
                held.acknowledge(gid);
            }
            memory.take_back(node, gid);
        });
        if told.is_none() {
            return;
        }
    }
}

fn ask(world: &World, node: usize, row: &Row) -> Judged {
    // Both on one connection: after a failover the status may be that of what was lost.
    let connection = world.nodes[node].connect();
    let (status, history) = world.nodes[node].status(row.prepared);
    world.pause();
    let cancelled = world.mishap(world.weather.cancels);
    let confirmed = world.nodes[node].confirm(connection, cancelled);
    let confirmed = confirmed || planted(Fault::StatusUnconfirmed);
    judge(&Asked {
        status,
        confirmed,
        prepared: row.prepared,
        history,
    })
}
