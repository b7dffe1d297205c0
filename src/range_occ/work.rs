//! A transaction's reads and writes in tables of `txn_heap`, as they are collected. Nothing of
//! PostgreSQL's is called here.

use super::key::{self, Table};
use keyrange::{
    Conflict, Csn, DEFINITION, Entry, Interval, Predicates, RangeMap, Refusal, Relation, RingCopy,
    WriteSet,
};
use litemap::LiteMap;
use pgrx::pg_sys::Oid;
use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Intervals kept for a relation; more are joined. About 50 bytes each.
const MOST_INTERVALS: usize = 1 << 14;
/// Ranges that a transaction registers for a relation; with more, it is the whole relation.
const MOST_RANGES: usize = 128;

/// Why a transaction counts as having read a whole table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whole {
    SequentialScan,
    SampleScan,
    TidScan,
    /// The index, or its operators, say nothing of the range key.
    OtherIndex,
    NoKey,
    /// A subtransaction that had written rolled back: an error may have told of rows that nobody
    /// has read.
    Rollback,
    /// An index scan whose keys could not be seen.
    Unseen,
    /// The transaction itself has changed the table's definition.
    Redefined,
}

impl Whole {
    pub fn text(self) -> &'static str {
        match self {
            Whole::SequentialScan => "sequential scan",
            Whole::SampleScan => "sample scan",
            Whole::TidScan => "scan by tuple identifier",
            Whole::OtherIndex => "index or operator that says nothing of the range key",
            Whole::NoKey => "no range key",
            Whole::Rollback => "rolled back subtransaction",
            Whole::Unseen => "index scan with unknown keys",
            Whole::Redefined => "definition changed by this transaction",
        }
    }
}

/// A table as the transaction knows it.
pub struct Known {
    pub table: Rc<Table>,
    /// How many invalidations there had been when that was last made sure of.
    pub as_of: u64,
    /// The definitions by which the transaction has used it before.
    pub before: Vec<Rc<Table>>,
}

/// What a transaction was told when it was refused.
#[derive(Clone, Copy)]
pub enum Refused {
    ByValidation(Refusal),
    /// It does not see the definition of that table.
    Redefined(Oid),
}

/// How a transaction has changed the definition of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Nobody else could use the table meanwhile; what others registered there before is not to be
    /// found any more, so that all rows count as written.
    Rows,
    /// As `Rows`, of a table that has no rows of its own, or none that others could have seen; or
    /// the list of partitions has changed.
    Whole,
    /// Others could use the table: an index, a constraint that has been made sure of.
    Beside,
}

/// What stands for a definition's parts in the rings: the list of partitions, and what others can
/// change beside those who use the table.
pub const LIST: Interval = Interval::point(0);
const BESIDE: Interval = Interval::point(1);

impl Change {
    /// Whether the change in an entry of the rings was one after which an older snapshot cannot use
    /// the table.
    pub fn is_whole(entry: &Entry) -> bool {
        entry.keys.covers(&LIST)
    }
}

/// A transaction's work, from its first touch of such a table on.
pub struct Work {
    pub tables: LiteMap<Relation, Known>,
    /// Partitioned tables whose partitions it sees, with the number of invalidations as of which
    /// that was made sure of.
    pub parents: BTreeMap<Relation, u64>,
    /// Partitions to which rows have come, as of which invalidation and statement the lists on the
    /// way were noted.
    pub routes: BTreeMap<Relation, (u64, u64)>,
    /// Those to which rows were on their way in statements that failed.
    pub routed: BTreeSet<Relation>,
    /// Targets of statements in subtransactions, and all that is below them: rows may be on their
    /// way there when one fails.
    pub targets: BTreeMap<Relation, Rc<[Relation]>>,
    /// What is below a target, as far as that has been looked at.
    pub walked: Vec<Relation>,
    /// Those of which it knows a definition of its own making: others have registered by another
    /// one.
    own: BTreeSet<Relation>,
    /// Those that it has read by a newer snapshot while nobody else could write there: it has
    /// missed nothing.
    pub seen_whole: BTreeSet<Relation>,
    pub writes: WriteSet,
    /// Those that it has redefined, should only a savepoint remain of that.
    redefined: BTreeSet<Relation>,
    /// Definitions that it has changed.
    changed: Vec<(Relation, Change)>,
    pub predicates: Predicates,
    /// Those that have not been validated yet, unless all are validated at the end.
    pub fresh: Predicates,
    /// The transaction has an id, and so will take a CSN.
    pub has_id: bool,
    pub whole: BTreeMap<Relation, Whole>,
    /// A key whose row's existence is asked for. If it is found and locked, that is no read.
    looked_for: Option<(Relation, Interval)>,
    /// Those that were found in subtransactions, with their depth: their locks go when these roll
    /// back.
    pub found: Vec<(u32, Relation, Interval)>,
    /// The transaction has learned of what its snapshot does not see.
    pub saw_beyond: bool,
    /// It is READ ONLY, and has come to a table of another access method.
    pub reads_others: bool,
    /// What it was refused for, should it have survived that by a savepoint.
    pub refused: Option<Refused>,
    /// A transaction without writes comes after those with CSNs below this one.
    pub before: Option<Csn>,
    /// Transactions with CSNs below `before` that wrote what was read, and were not seen: by id,
    /// with one conflict each.
    pub missed: RefCell<BTreeMap<u64, Conflict>>,
    /// The first of these in CSN order.
    pub first_missed: Cell<Option<Conflict>>,
    /// Everything read, but what is fresh, has been found to be older than this one of those that
    /// it missed.
    pub stands_before: Option<Csn>,
    /// Something of a later one than the first of these was seen.
    pub is_between: bool,
    pub history: Copied,
    /// Pages of tables that `versions.rs` has looked at.
    pub pages: Cell<u32>,
}

impl Work {
    /// Nothing read or written yet.
    pub fn new() -> Self {
        Work {
            tables: LiteMap::new(),
            parents: BTreeMap::new(),
            routes: BTreeMap::new(),
            routed: BTreeSet::new(),
            targets: BTreeMap::new(),
            walked: Vec::new(),
            own: BTreeSet::new(),
            seen_whole: BTreeSet::new(),
            writes: WriteSet::new(MOST_RANGES),
            redefined: BTreeSet::new(),
            changed: Vec::new(),
            predicates: Predicates::new(MOST_INTERVALS),
            fresh: Predicates::new(MOST_INTERVALS),
            has_id: false,
            whole: BTreeMap::new(),
            looked_for: None,
            found: Vec::new(),
            saw_beyond: false,
            reads_others: false,
            refused: None,
            before: None,
            missed: RefCell::default(),
            first_missed: Cell::new(None),
            stands_before: None,
            is_between: false,
            history: Copied::default(),
            pages: Cell::new(0),
        }
    }

    /// Forgets all but the memory, for the next transaction.
    pub fn reset(&mut self) {
        let Work {
            tables,
            parents,
            routes,
            routed,
            targets,
            walked,
            own,
            seen_whole,
            writes,
            redefined,
            changed,
            predicates,
            fresh,
            has_id,
            whole,
            looked_for,
            found,
            saw_beyond,
            reads_others,
            refused,
            before,
            missed,
            first_missed,
            stands_before,
            is_between,
            history,
            pages,
        } = self;
        pages.set(0);
        tables.clear();
        clear_map(parents);
        clear_map(routes);
        clear_set(routed);
        clear_map(targets);
        walked.clear();
        clear_set(own);
        clear_set(seen_whole);
        writes.clear();
        clear_set(redefined);
        changed.clear();
        predicates.clear();
        fresh.clear();
        clear_map(whole);
        found.clear();
        clear_map(missed.get_mut());
        first_missed.set(None);
        *history = Copied::default();
        *stands_before = None;
        (*looked_for, *refused, *before) = (None, None, None);
        (*has_id, *saw_beyond, *is_between) = (false, false, false);
        *reads_others = false;
    }

    /// The table, if the transaction has touched it.
    pub fn table(&self, oid: Oid) -> Option<&Rc<Table>> {
        self.tables
            .get(&key::relation_of(oid))
            .map(|known| &known.table)
    }

    /// Whether that holds of any definition by which the transaction has used the table; `None` if
    /// it has not used it.
    pub fn any_definition(
        &self,
        relation: Relation,
        holds: impl Fn(&Table) -> bool,
    ) -> Option<bool> {
        let known = self.tables.get(&relation)?;
        let mut all = known.before.iter().chain([&known.table]);
        Some(all.any(|table| holds(table)))
    }

    /// The definition by which the transaction uses the table is its own.
    pub fn note_own(&mut self, relation: Relation) {
        self.own.insert(relation);
    }

    /// Notes a read by a newer snapshot than the transaction's, while nobody else can write to the
    /// table.
    pub fn see_whole(&mut self, relation: Relation) {
        self.seen_whole.insert(relation);
    }

    /// The transaction has redefined the table. It has learned of what was there, whatever its
    /// snapshot shows.
    pub fn redefine(&mut self, relation: Relation, change: Change) {
        self.changed.push((relation, change));
        if change == Change::Rows {
            self.redefined.insert(relation);
        }
        self.saw_beyond = true;
    }

    /// Whether the transaction has redefined the table, or used it by more than one definition.
    /// What a savepoint has taken back counts, too.
    pub fn has_redefined(&self, relation: Relation) -> bool {
        self.own.contains(&relation)
            || self.redefined.contains(&relation)
            || self.changed.iter().any(|(of, _)| *of == relation)
            || (self.tables.get(&relation)).is_none_or(|known| !known.before.is_empty())
    }

    /// The definitions of the tables that it has used, by their names in the rings.
    pub fn definitions(&self) -> Predicates {
        let mut definitions = Predicates::new(1);
        let parents = self.parents.keys().copied();
        for definition in self
            .tables
            .keys()
            .map(|table| DEFINITION | table)
            .chain(parents)
        {
            definitions.read_all(definition);
        }
        definitions
    }

    /// What is registered as read: also what was redefined or seen as a whole, so that nobody moves
    /// before that who writes there.
    pub fn registered_reads(&self) -> Cow<'_, Predicates> {
        let mut reads = Cow::Borrowed(&self.predicates);
        for &relation in self.redefined.iter().chain(&self.seen_whole) {
            reads.to_mut().read_all(relation);
        }
        reads
    }

    /// Nothing is read or written any more. Whether the transaction has learned of later ones, so
    /// that it cannot stand where it first read.
    pub fn finish(&mut self) -> bool {
        self.read_looked_for();
        for &relation in &self.redefined {
            self.writes.write_all(0, relation);
        }
        for &(relation, change) in &self.changed {
            let definition = DEFINITION | relation;
            match change {
                Change::Beside => self.writes.write(0, definition, &RangeMap::WHOLE, BESIDE),
                Change::Rows | Change::Whole => self.writes.write_all(0, definition),
            }
        }
        self.saw_beyond
    }

    /// Notes that the existence of a row with that key is asked for.
    pub fn look_for(&mut self, relation: Relation, key: Interval) {
        self.read_looked_for();
        self.looked_for = Some((relation, key));
    }

    /// The row has been found and locked at that depth: it stays, and stays visible, as long as the
    /// lock does, whatever else is changed in it.
    pub fn found(&mut self, nesting: u32, relation: Relation) {
        if let Some((_, key)) = self.looked_for.take_if(|(of, _)| *of == relation)
            && nesting > 0
        {
            self.found.push((nesting, relation, key));
        }
    }

    /// What was looked for and not found was read.
    pub fn read_looked_for(&mut self) {
        if let Some((relation, key)) = self.looked_for.take() {
            self.read(relation, &[key]);
        }
    }

    /// Notes what was read; what is new is fresh, too.
    pub fn read(&mut self, relation: Relation, intervals: &[Interval]) {
        self.read_looked_for();
        let is_own = !intervals.is_empty() && self.own.contains(&relation);
        if is_own {
            self.whole.entry(relation).or_insert(Whole::Redefined);
        }
        let intervals = if is_own { &[Interval::ALL] } else { intervals };
        for interval in intervals {
            if !self.predicates.covers(relation, interval) {
                let is_widened = self.predicates.read_one(relation, *interval);
                if self.has_id {
                    continue;
                }
                if is_widened {
                    self.fresh.read_as(relation, &self.predicates);
                } else {
                    self.fresh.read_one(relation, *interval);
                }
            }
        }
    }

    /// Notes that a whole table was read.
    pub fn read_all(&mut self, relation: Relation, whole: Whole) {
        self.whole.entry(relation).or_insert(whole);
        self.read(relation, &[Interval::ALL]);
    }
}

/// BTreeMap::clear takes the map apart, also if there is nothing in it, as most often.
fn clear_map<K, V>(map: &mut BTreeMap<K, V>) {
    if !map.is_empty() {
        map.clear();
    }
}

fn clear_set<K>(set: &mut BTreeSet<K>) {
    if !set.is_empty() {
        set.clear();
    }
}

/// What a transaction has copied.
#[derive(Default)]
pub struct Copied {
    /// Once is enough: what is missing stays so.
    pub has_tried: Cell<bool>,
    /// So far. It is not borrowed while PostgreSQL is asked things.
    pub entries: RefCell<Vec<Entry>>,
    pub ring_copy: OnceCell<RingCopy>,
}
