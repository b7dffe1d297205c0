//! What every drawing of a statement uses: rows, bits, chances.
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, IteratorRandom};

use super::schedule::{Kind, Known, Mode, Protocol, Step, Write};
use super::schema::Schema;
use super::table::Table;

/// Bits of a bigint that is never negative.
const BITS: u32 = 60;
/// The advisory lock behind which functions wait.
pub const GATE: i32 = 77;

/// Draws a statement, or a few that belong together.
pub type Production = fn(&mut Draw, At) -> Option<Vec<Step>>;
/// Kinds of statements with their weights.
pub type Mix = &'static [(u32, Production)];

/// What a block of schedules leans to.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    /// Among the themes.
    pub weight: u32,
    /// Kinds of statements; all schedules of `leaning` have one of these.
    pub mixes: &'static [Mix],
    /// The part of the schedules that has one of `mixes`.
    pub leaning: f64,
    /// The part of the transactions that follow others on hot rows, whatever else is drawn.
    pub follows: f64,
    /// The part of the transactions that use indexes, whatever else is drawn.
    pub by_index: f64,
    /// The part of the transaction blocks that begin with a write of the hottest row.
    pub first: f64,
    /// The part of the transactions without a block; of validated ones it is a fifth at most.
    pub alone: f64,
    /// How many of a hundred blocks are rolled back.
    pub rollbacks: u32,
    /// The gate opens in the last part of the schedule only: one of so many.
    pub gate: usize,
    /// The part of the blocks of schedules with validated transactions.
    pub range: f64,
    /// The part of the statements that use the hottest table, and that use its first row.
    pub hottest: (f64, f64),
    /// The part of the transactions that use one plan for all parameters.
    pub generic: f64,
    /// Numbers of sessions.
    pub sessions: &'static [usize],
    /// Row 1 of the first table stands on one page with many versions of another row that has
    /// an index of its own.
    pub crowded: bool,
    /// The hottest table is the last, to which no other refers.
    pub apart: bool,
    /// Row 1 of the first table is hot from the beginning.
    pub warm: bool,
}

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

/// Draws one statement after the other.
pub struct Draw<'a> {
    pub rng: StdRng,
    pub schema: &'a Schema,
    pub base: u32,
    pub abilities: Abilities,
    /// The kinds of statements of the schedule.
    pub mix: Vec<(u32, Production)>,
    ids: usize,
    /// The transactions so far.
    pub units: Vec<Mode>,
    bits: u32,
    /// What was drawn so far, by session: table, row, bit.
    written: Vec<(usize, char, u32, u32)>,
    /// Draws the first row of the first table only.
    pub first: bool,
    pub theme: &'static Theme,
}

impl<'a> Draw<'a> {
    pub fn new(
        rng: StdRng,
        schema: &'a Schema,
        base: u32,
        abilities: Abilities,
        mix: Vec<(u32, Production)>,
        theme: &'static Theme,
    ) -> Self {
        Draw {
            rng,
            schema,
            base,
            abilities,
            mix,
            ids: 0,
            units: Vec::new(),
            bits: 0,
            written: Vec::new(),
            first: false,
            theme,
        }
    }

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
        known: Known,
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
}
