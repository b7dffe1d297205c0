//! Clients that move money.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use postgres::{Client, Error, NoTls, SimpleQueryMessage};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};

use super::form::Form;
use super::schema::SCHEMA;
use crate::geo::load::{self, Clock, Seen, Watched};
use crate::geo::site::Site;

/// What is not counted at the start of a run: the coordinator learns delays.
const WARM_UP: Duration = Duration::from_secs(3);
const SAMPLE_EVERY: Duration = Duration::from_millis(500);

/// The transactions of a run.
pub struct Load<'a> {
    pub site: &'a Site,
    /// What each session runs first.
    pub settings: String,
    pub form: Form,
    pub clients: usize,
    pub seconds: u64,
    /// Percent of the transactions that are over two nodes.
    pub distributed: u32,
    pub theta: f64,
    pub seed: u64,
}

impl Load<'_> {
    /// Runs all clients for the time.
    pub fn run(&self) -> Result<(Seen, Watched)> {
        let clients = load::connect(self.clients, |number| self.client(number))?;
        let clock = Clock::start(WARM_UP, Duration::from_secs(self.seconds));
        let watch = self.site.watch(&SCHEMA, SAMPLE_EVERY);
        watch.during(&clock, || load::run(clients, &clock))
    }

    /// A session that is connected to all nodes.
    fn client(&self, number: usize) -> Result<Mover> {
        let sizes = self.site.sizes;
        let (nodes, rows) = (sizes.nodes as i32, sizes.rows as i32);
        let mut client = self.site.cluster.config(number, 1).connect(NoTls)?;
        client.batch_execute(&self.settings)?;
        let firsts = (0..nodes).map(|node| (node * rows).to_string());
        let firsts: Vec<String> = firsts.collect();
        let first = format!(
            "SELECT balance FROM account WHERE id IN ({})",
            firsts.join(", ")
        );
        client
            .batch_execute(&first)
            .context("the first look at the nodes")?;
        Ok(Mover {
            client,
            form: self.form,
            draws: Draws {
                rng: SmallRng::seed_from_u64(self.seed ^ ((number as u64) << 32)),
                zipf: Zipf::new(f64::from(rows), self.theta)?,
                nodes,
                rows,
                distributed: self.distributed,
            },
            between: (0, 0),
            messages: Vec::new(),
            effects: vec![0; sizes.nodes],
        })
    }
}

struct Mover {
    client: Client,
    form: Form,
    draws: Draws,
    /// The rows of the transaction that was drawn.
    between: (i32, i32),
    messages: Vec<String>,
    /// What the acknowledged transactions have added to the balances of each node.
    effects: Vec<i64>,
}

impl load::Client for Mover {
    fn draw(&mut self) {
        self.between = self.draws.draw();
        self.messages = self.form.messages(self.between.0, self.between.1);
    }

    fn attempt(&mut self) -> Result<Result<(), Error>> {
        let mut changed = 0;
        for message in &self.messages {
            match self.client.simple_query(message) {
                Ok(answers) => changed += rows(&answers),
                Err(error) => return Ok(Err(error)),
            }
        }
        let messages = &self.messages;
        ensure!(changed == 2, "{changed} rows were changed by {messages:?}");
        for (row, added) in [(self.between.0, -1), (self.between.1, 1)] {
            self.effects[(row / self.draws.rows) as usize] += added;
        }
        Ok(Ok(()))
    }

    fn roll_back(&mut self) -> Result<()> {
        Ok(self.client.batch_execute("ROLLBACK")?)
    }

    fn effects(&self) -> Vec<i64> {
        self.effects.clone()
    }
}

struct Draws {
    rng: SmallRng,
    zipf: Zipf<f64>,
    nodes: i32,
    rows: i32,
    distributed: u32,
}

impl Draws {
    /// Two rows between which money moves.
    fn draw(&mut self) -> (i32, i32) {
        let (nodes, rows) = (self.nodes, self.rows);
        let first = self.rng.random_range(0..nodes);
        let from = self.row();
        let is_distributed = nodes > 1 && self.rng.random_range(0..100) < self.distributed;
        if is_distributed {
            let second = (first + self.rng.random_range(1..nodes)) % nodes;
            return (first * rows + from, second * rows + self.row());
        }
        let mut to = self.row();
        while to == from {
            to = self.row();
        }
        (first * rows + from, first * rows + to)
    }

    fn row(&mut self) -> i32 {
        (self.zipf.sample(&mut self.rng) as i32 - 1).clamp(0, self.rows - 1)
    }
}

/// Rows that the statements have changed; BEGIN and COMMIT change none.
fn rows(answers: &[SimpleQueryMessage]) -> u64 {
    let rows = answers.iter().map(|answer| match answer {
        SimpleQueryMessage::CommandComplete(rows) => *rows,
        _ => 0,
    });
    rows.sum()
}
