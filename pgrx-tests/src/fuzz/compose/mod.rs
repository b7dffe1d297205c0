//! Composes a schedule from its seed: its tables, its sessions, and the order of all steps.
mod program;

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};

use super::draw::{Abilities, Draw, GATE, Production, Theme};
use super::grammar::PRODUCTIONS;
use super::schedule::{Kind, Schedule, Step};
use super::schema::Schema;
use super::theme::theme;

/// So many schedules in a row have the same tables; keys differ.
pub const SAME_TABLES: u64 = 16;
/// How a declaration begins.
pub const DECLARES: &str = "SELECT txn.declare";

/// The tables of schedule `seed`, and what it leans to.
fn scene(seed: u64) -> (Schema, &'static Theme) {
    let group = seed / SAME_TABLES;
    let mut rng = StdRng::seed_from_u64(group ^ 0x7461_626c_6573);
    let theme = theme(rng.random());
    let range = rng.random_bool(theme.range);
    let mut schema = Schema::draw(&mut rng, range);
    if theme.crowded {
        schema.crowd();
    }
    if theme.apart {
        schema.set_apart();
    }
    schema.warm = theme.warm;
    (schema, theme)
}

/// The kinds of statements of a schedule with their weights: few each time, so that they meet in
/// all combinations.
fn mix(rng: &mut StdRng, theme: &Theme) -> Vec<(u32, Production)> {
    if rng.random_bool(theme.leaning) {
        return theme.mixes.choose(rng).expect("some mixes").to_vec();
    }
    let mut mix = PRODUCTIONS.to_vec();
    for (weight, _) in &mut mix {
        *weight *= [0, 0, 0, 1, 4].choose(rng).expect("five");
    }
    mix.retain(|(weight, _)| *weight > 0);
    match mix.is_empty() {
        true => PRODUCTIONS.to_vec(),
        false => mix,
    }
}

pub fn schedule(seed: u64, abilities: Abilities) -> Schedule {
    let (schema, theme) = scene(seed);
    let mut rng = StdRng::seed_from_u64(seed);
    let mix = mix(&mut rng, theme);
    let base = 1 + (seed % SAME_TABLES) as u32 * 1000;
    let mut draw = Draw::new(rng, &schema, base, abilities, mix, theme);
    let sessions = *theme.sessions.choose(&mut draw.rng).expect("some");
    let mut programs: Vec<Vec<Step>> = (0..sessions).map(|session| draw.program(session)).collect();
    let gated = programs
        .iter()
        .flatten()
        .any(|step| step.sql.contains(&format!(", {GATE})")));
    let mut steps = draw.interleave(&mut programs);
    if gated {
        let gate = |draw: &mut Draw, name: &str| {
            let mut step = draw.step(sessions, usize::MAX, Kind::Outside);
            step.sql = format!("SELECT {name}({GATE})");
            step
        };
        let close = gate(&mut draw, "pg_advisory_lock");
        let open = gate(&mut draw, "pg_advisory_unlock");
        let from = match theme.gate {
            1 => steps.len() / 3,
            parts => steps.len() - steps.len() / parts,
        };
        let at = draw.rng.random_range(from..=steps.len());
        steps.insert(at, open);
        steps.insert(0, close);
    }
    // The session that keeps the versions has read all tables.
    let churn = match steps.iter().any(|step| step.sql.starts_with("ALTER TABLE")) {
        true => Vec::new(),
        false => draw.churn(),
    };
    let modes = std::mem::take(&mut draw.units);
    Schedule {
        seed,
        base,
        sessions: sessions + usize::from(gated),
        modes,
        churn,
        steps,
        schema,
    }
}

/// The schedule with none of the extension's settings on: stock PostgreSQL's own behaviour.
pub fn switched_off(mut schedule: Schedule) -> Schedule {
    schedule.schema.forget_labels();
    for mode in &mut schedule.modes {
        mode.on = false;
        mode.immediate = false;
        mode.asks_again = false;
        mode.validated = false;
    }
    let is_ours = |set: &&str| set.starts_with("SET txn.");
    for step in &mut schedule.steps {
        if is_ours(&step.sql.as_str()) || step.sql.starts_with(DECLARES) {
            "SELECT 1".clone_into(&mut step.sql);
        } else if step.sql.starts_with("RESET") {
            let others = step.sql.split("; ").filter(|set| !is_ours(set));
            step.sql = others.collect::<Vec<_>>().join("; ");
        }
    }
    schedule
}

impl Draw<'_> {
    /// Versions that an old snapshot keeps, of a row with an index on what changes.
    fn churn(&mut self) -> Vec<String> {
        let with_index = self
            .schema
            .tables
            .iter()
            .filter(|table| table.indexed && table.rows > 1);
        let Some(table) = with_index.map(|table| table.name).next() else {
            return Vec::new();
        };
        match self.theme.crowded || self.chance(0.6) {
            true => vec![format!("CALL churn('{table}', 2, 20)")],
            false => Vec::new(),
        }
    }

    /// All steps in one order, each session's in its own.
    fn interleave(&mut self, programs: &mut [Vec<Step>]) -> Vec<Step> {
        let mut order: Vec<usize> = programs
            .iter()
            .enumerate()
            .flat_map(|(session, steps)| std::iter::repeat_n(session, steps.len()))
            .collect();
        order.shuffle(&mut self.rng);
        let mut iterators: Vec<_> = programs.iter_mut().map(|steps| steps.drain(..)).collect();
        order
            .into_iter()
            .filter_map(|session| iterators[session].next())
            .collect()
    }
}
