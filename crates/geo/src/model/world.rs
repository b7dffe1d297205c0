//! Nodes, coordinator and the lines between them.

use super::coordinator::Coordinator;
use super::node::{Node, Reply};
use super::{NODES, Weather};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread::{self, JoinHandle};
use std::sync::OnceLock;

pub struct World {
    pub coordinator: Coordinator,
    pub nodes: [Node; NODES],
    pub weather: Weather,
    /// Nothing is lost any more.
    calm: Mutex<bool>,
    /// Messages whose sender does not wait for them.
    late: Mutex<Vec<JoinHandle<Reply>>>,
    /// The first thing that was wrong.
    violation: OnceLock<&'static str>,
}

/// A message on its way, or the reply to it.
pub struct Flight<'a>(&'a World, JoinHandle<Reply>);

impl World {
    pub fn new(weather: Weather) -> Arc<World> {
        Arc::new(World {
            coordinator: Coordinator::new(weather.sessions),
            nodes: std::array::from_fn(|_| Node::new()),
            weather,
            calm: Mutex::new(false),
            late: Mutex::default(),
            violation: OnceLock::new(),
        })
    }

    /// Notes what is wrong unless this holds.
    pub fn check(&self, holds: bool, otherwise: &'static str) {
        if !holds {
            self.violation.get_or_init(|| otherwise);
        }
    }

    /// The first thing that was wrong.
    pub fn violation(&self) -> Option<&'static str> {
        self.violation.get().copied()
    }

    /// Whether something goes wrong.
    pub fn mishap(&self, chance: f64) -> bool {
        !*self.calm.lock().unwrap() && thread_rng().gen_bool(chance)
    }

    /// Lets others run for a while, sometimes.
    pub fn pause(&self) {
        if self.mishap(0.3) {
            for _ in 0..thread_rng().gen_range(0..30) {
                thread::yield_now();
            }
        }
    }

    /// Sends a command to a node. It arrives at any time.
    pub fn send(
        self: &Arc<Self>,
        command: impl FnOnce(&World) -> Reply + Send + 'static,
    ) -> Flight<'_> {
        let world = self.clone();
        Flight(self, thread::spawn(move || command(&world)))
    }

    /// Waits until no message is under way, and none gets lost from now on.
    pub fn calm_down(&self) {
        *self.calm.lock().unwrap() = true;
        loop {
            let late = std::mem::take(&mut *self.late.lock().unwrap());
            if late.is_empty() {
                return;
            }
            for message in late {
                message.join().unwrap();
            }
        }
    }
}

impl Flight<'_> {
    /// The reply. It may be lost, and the message may be delayed for longer than the sender waits.
    pub fn reply(self) -> Reply {
        let Flight(world, message) = self;
        if world.mishap(world.weather.delays) {
            world.late.lock().unwrap().push(message);
            return Reply::default();
        }
        let reply = message.join().unwrap();
        if world.mishap(world.weather.losses) {
            return Reply::default();
        }
        reply
    }
}
