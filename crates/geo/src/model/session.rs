//! A session of the coordinator: transfers between the two nodes.

use super::NODES;
use super::coordinator::{Memory, gid_at};
use super::node::Reply;
use super::world::World;
use crate::fault::{Fault, planted};
use crate::{Prepared, Slot, Vote, applied, vote};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Arc;

/// One transaction of a session.
struct Transfer<'a> {
    world: &'a Arc<World>,
    memory: &'a Memory,
    slot: &'a Slot,
    number: usize,
    sequence: (u64, u64),
}

/// Runs a transaction as session `me`. None if the coordinator has died amid it.
pub fn transfer(world: &Arc<World>, me: usize) -> Option<()> {
    let memory = &*world.coordinator.memory();
    let (number, sequence) = world.coordinator.alive(memory, |held| held.begin())?;
    let slot = &memory.slots[me];
    let transfer = Transfer {
        world,
        memory,
        slot,
        number,
        sequence,
    };
    match transfer.vote()? {
        Some(prepared) => transfer.commit(prepared)?,
        None => transfer.roll_back()?,
    }
    slot.close();
    Some(())
}

impl Transfer<'_> {
    /// Prepares at all nodes. Where they stand then if all have voted YES.
    fn vote(&self) -> Option<Option<[Prepared; NODES]>> {
        let is_late = planted(Fault::SlotOpenedLate);
        if !is_late {
            self.slot.open(self.sequence.1);
        }
        let mut flights = Vec::new();
        for node in 0..NODES {
            let connection = self.world.nodes[node].connect();
            let named = (gid_at(node, self.sequence), self.number);
            let failed = self.world.mishap(self.world.weather.failures);
            let cancelled = self.world.mishap(self.world.weather.cancels);
            let send = move |world: &World| {
                let node = &world.nodes[node];
                node.prepare(connection, named, failed, cancelled)
            };
            flights.push(self.alive(|| self.world.send(send))?);
        }
        if is_late {
            self.slot.open(self.sequence.1);
        }
        let replies = flights.into_iter().map(|flight| flight.reply());
        let replies: Vec<Reply> = replies.collect();
        let all = replies
            .iter()
            .all(|reply| vote(&reply.answer()) == Vote::Yes);
        let somewhere = Prepared {
            timeline: 1,
            lsn: 1,
        };
        let prepared = std::array::from_fn(|node| replies[node].prepared.unwrap_or(somewhere));
        // A validation may still fail.
        let fails = self.world.mishap(self.world.weather.failures);
        Some((all && !fails).then_some(prepared))
    }

    /// Does something unless the coordinator has died.
    fn alive<R>(&self, body: impl FnOnce() -> R) -> Option<R> {
        self.world.coordinator.alive(self.memory, |_| body())
    }

    fn commit(&self, prepared: [Prepared; NODES]) -> Option<()> {
        let coordinator = &self.world.coordinator;
        if planted(Fault::SlotClosedUndecided) {
            self.slot.close();
        }
        coordinator.alive(self.memory, |held| held.decide(self.number, prepared))?;
        if planted(Fault::SlotClosedUnapplied) {
            self.slot.close();
        }
        if planted(Fault::SentBeforeDurable) {
            self.apply()?;
        }
        if planted(Fault::HandedBeforeDurable) {
            return coordinator.alive(self.memory, |_| self.hand_over());
        }
        if planted(Fault::ToldBeforeDurable) {
            coordinator.alive(self.memory, |held| held.tell(self.number))?;
        }
        if self.world.mishap(self.world.weather.cancels) {
            // The wait for the coordinator's standby is cancelled: the rest is the resolver's.
            return Some(());
        }
        coordinator.alive(self.memory, |held| held.flush())?;
        coordinator.alive(self.memory, |held| held.tell(self.number))?;
        if thread_rng().gen_bool(0.3) {
            return coordinator.alive(self.memory, |_| self.hand_over());
        }
        self.apply()
    }

    /// The client does not wait for the nodes: the resolver sends COMMIT PREPARED.
    fn hand_over(&self) {
        (0..NODES).for_each(|node| self.memory.hand_over(node, gid_at(node, self.sequence)));
    }

    /// COMMIT PREPARED at all nodes.
    fn apply(&self) -> Option<()> {
        for (gid, reply) in self.finish(true)? {
            if applied(&reply.answer(), true) {
                let acknowledge = |held: &mut super::coordinator::Held| held.acknowledge(gid);
                self.world.coordinator.alive(self.memory, acknowledge)?;
            }
        }
        Some(())
    }

    fn roll_back(&self) -> Option<()> {
        let coordinator = &self.world.coordinator;
        coordinator.alive(self.memory, |held| held.fail(self.number))?;
        // A session may leave it to the resolver.
        if !self.world.mishap(0.3) {
            self.finish(false)?;
        }
        Some(())
    }

    fn finish(&self, commit: bool) -> Option<Vec<(crate::Gid, Reply)>> {
        let mut flights = Vec::new();
        for node in 0..NODES {
            let gid = gid_at(node, self.sequence);
            let cancelled = self.world.mishap(self.world.weather.cancels);
            let send = move |world: &World| world.nodes[node].finish(gid, commit, cancelled);
            flights.push((gid, self.alive(|| self.world.send(send))?));
        }
        let flights = flights.into_iter();
        Some(flights.map(|(gid, flight)| (gid, flight.reply())).collect())
    }
}
