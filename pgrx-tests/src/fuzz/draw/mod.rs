//! Draws a schedule from its seed: its tables, its sessions, and the order of all steps; and what
//! every drawing of a statement uses: rows, bits, chances.
mod program;

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, IteratorRandom, SliceRandom};
use rand::{Rng, SeedableRng};

use super::grammar::{PRODUCTIONS, Production};
use super::schedule::{Kind, Mode, Protocol, Schedule, Step, Write};
use super::schema::{Schema, Table};
use super::theme::{Theme, theme};

/// So many schedules in a row have the same tables; keys differ.
pub const SAME_TABLES: u64 = 16;
/// Bits of a bigint that is never negative.
const BITS: u32 = 60;
/// The advisory lock behind which functions wait.
pub const GATE: i32 = 77;

/// How a declaration begins.
pub const DECLARES: &str = "SELECT txn.declare";

/// What the server has besides.
#[derive(Clone, Copy, Debug, Default)]
pub struct Abilities {
    pub xml: bool,
}

/// Where a statement will stand.
#[derive(Clone, Copy)]
pub struct At {
    pub session: usize,
    pub unit: usize,
    pub mode: Mode,
    /// It is a transaction of its own.
    pub alone: bool,
}

pub struct Draw<'a> {
    pub rng: StdRng,
    pub schema: &'a Schema,
    pub base: u32,
    pub abilities: Abilities,
    mix: Vec<(u32, Production)>,
    ids: usize,
    units: Vec<Mode>,
    bits: u32,
    /// What was drawn so far, by session: table, row, bit.
    written: Vec<(usize, char, u32, u32)>,
    /// Draws the first row of the first table only.
    first: bool,
    theme: &'static Theme,
}

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
    let mut draw = Draw {
        rng,
        schema: &schema,
        base: 1 + (seed % SAME_TABLES) as u32 * 1000,
        abilities,
        mix,
        ids: 0,
        units: Vec::new(),
        bits: 0,
        written: Vec::new(),
        first: false,
        theme,
    };
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
    let (base, modes) = (draw.base, std::mem::take(&mut draw.units));
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

/// The same schedule for stock PostgreSQL's own behaviour: none of the extension's settings is on.
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
    pub fn step(&mut self, session: usize, unit: usize, kind: Kind) -> Step {
        self.ids += 1;
        Step {
            id: self.ids,
            session,
            unit,
            kind,
            sql: String::new(),
            protocol: Protocol::Simple,
            parameter: None,
            writes: Vec::new(),
            log: None,
            removes: Vec::new(),
            whole: Vec::new(),
            needs: None,
            defines: false,
            aside: false,
            snapshot: false,
            errors: Vec::new(),
            blames: None,
            parts: Vec::new(),
        }
    }

    /// A statement of the transaction.
    pub fn statement(&mut self, at: At, sql: String) -> Step {
        let kind = if at.alone {
            Kind::Whole
        } else {
            Kind::Statement
        };
        Step {
            sql,
            ..self.step(at.session, at.unit, kind)
        }
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.rng.random_bool(probability)
    }

    pub fn one<'b, T>(&mut self, of: &'b [T]) -> &'b T {
        of.choose(&mut self.rng).expect("something to choose from")
    }

    /// The number that the next step will have.
    pub fn next_id(&self) -> usize {
        self.ids + 1
    }

    pub fn rng_below(&mut self, limit: u32) -> u32 {
        self.rng.random_range(0..limit)
    }

    /// A bit that nobody has.
    pub fn bit(&mut self) -> Option<u32> {
        let bit = self.bits;
        self.bits += 1;
        (bit < BITS).then_some(bit)
    }

    /// A transaction beside the present one, of a procedure.
    pub fn unit(&mut self, mode: Mode) -> usize {
        self.units.push(mode);
        self.units.len() - 1
    }

    /// A table; mostly the first.
    pub fn table(&mut self) -> Table {
        let at = match self.first || self.chance(self.theme.hottest.0) {
            true if self.theme.apart => self.schema.tables.len() - 1,
            true => 0,
            false => self.rng.random_range(0..self.schema.tables.len()),
        };
        self.schema.tables[at].clone()
    }

    /// A row of it; mostly the first.
    pub fn row(&mut self, table: &Table) -> u32 {
        match self.first || self.chance(self.theme.hottest.1) {
            true => 1,
            false => self.rng.random_range(1..=table.rows),
        }
    }

    pub fn write(
        &mut self,
        table: &Table,
        n: Option<u32>,
        bit: u32,
        at: At,
        known: super::schedule::Known,
    ) -> Write {
        let written = n.map(|n| (at.session, table.name, n, bit));
        self.written.extend(written);
        Write {
            table: table.name,
            n,
            bit,
            unit: at.unit,
            known,
        }
    }

    /// A row to which another session adds a bit: its table, its number, and the bit.
    pub fn written(&mut self, session: usize) -> Option<(Table, u32, u32)> {
        let others = self.written.iter().filter(|written| written.0 != session);
        let (_, name, n, bit) = *others.choose(&mut self.rng)?;
        Some((self.schema.table(name)?.clone(), n, bit))
    }

    pub fn simple(&mut self, at: At, kind: Kind, sql: &str) -> Step {
        Step {
            sql: sql.to_owned(),
            ..self.step(at.session, at.unit, kind)
        }
    }

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
