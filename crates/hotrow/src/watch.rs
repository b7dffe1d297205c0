//! Tables that followers read beside running predecessors, and when they were last written.
//!
//! A follower's snapshot is older than the commits of its predecessors. What it reads with that
//! snapshot is right if it is what it would read after these commits: if nobody, predecessor or
//! not, has committed a write of the table in between. Each table that is read so is *watched*: a
//! transaction that commits a write of it notes that here, while it still runs. The reader compares
//! before its own commit. (Backward validation: Kung, Robinson, TODS 1981. The read set is whole
//! tables.)
//!
//! Two kinds of writers need a second rule: who looked whether the table is watched just before it
//! was, and who has noted its write and still runs. Both had their transaction id by then. So each
//! table has a *horizon*, an id that was not yet given out at the last such moment. A snapshot is
//! good for the table if every transaction below the horizon had ended when it was taken. That also
//! covers prepared transactions, which note their writes when they are prepared.
//!
//! All functions want the lock of these tables held, but for those marked lock-free.

use crate::{Word32, Word64};

/// Tables that are watched at a time.
pub const WATCHED_TABLES: usize = 16;

/// A table that nobody has asked for so long is not watched any more, in microseconds.
const UNUSED: u64 = 60_000_000;

/// How long a table is watched before it is read beside predecessors, in microseconds: whether it
/// is written all the time is not known before.
const PROBATION: u64 = 1_000_000;

/// A table of a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Table {
    pub database: u32,
    pub relation: u32,
}

impl Table {
    fn word(self) -> u64 {
        u64::from(self.database) << 32 | u64::from(self.relation)
    }
}

/// The watched tables of the server.
#[derive(Debug, Default)]
#[repr(C)]
pub struct WatchedTables {
    /// lock-free: places up to the last one that is in use.
    used: Word32,
    /// Counts what is noted.
    clock: Word64,
    places: [Place; WATCHED_TABLES],
}

#[derive(Debug, Default)]
#[repr(C)]
struct Place {
    /// lock-free: the table's word, 0 for none.
    table: Word64,
    /// `WatchedTables::clock` when it last was written, or took the place.
    noted: Word64,
    horizon: Word32,
    /// lock-free: transactions that have read it and not ended.
    readers: Word32,
    /// When it took the place, last was written, and last was asked for, in microseconds.
    watched_at: Word64,
    written_at: Word64,
    used_at: Word64,
}

/// A table that a follower reads beside predecessors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watched {
    place: u32,
    table: Table,
    noted: u64,
    /// The transaction id below which all must have ended when the reader takes its snapshot.
    pub horizon: u32,
}

impl Place {
    fn is_unused(&self, now: u64) -> bool {
        self.table.get() != 0 && self.readers.get() == 0 && self.used_at.get() + UNUSED <= now
    }
}

impl WatchedTables {
    /// A follower wants to read that table at `now`, with a snapshot that it takes next. `next_xid`
    /// tells the transaction id that is given out next. None if it is to let its predecessors end:
    /// the table has not been watched long enough, was written within the last `backoff`
    /// microseconds, or there is no room.
    pub fn watch(
        &self,
        table: Table,
        now: u64,
        backoff: u64,
        next_xid: impl FnOnce() -> u32,
    ) -> Option<Watched> {
        let n = match self.find(table) {
            Some(n) => n,
            None => self.take_place(table, now, next_xid)?,
        };
        let place = &self.places[n];
        place.used_at.set(now);
        let since = |moment: &Word64| now.saturating_sub(moment.get());
        let is_trusted = since(&place.written_at) >= backoff
            && since(&place.watched_at) >= PROBATION.min(backoff);
        is_trusted.then(|| Watched {
            place: n as u32,
            table,
            noted: place.noted.get(),
            horizon: place.horizon.get(),
        })
    }

    fn find(&self, table: Table) -> Option<usize> {
        (0..self.used()).find(|&n| self.places[n].table.get() == table.word())
    }

    /// The table's new place, if one is free.
    fn take_place(&self, table: Table, now: u64, next_xid: impl FnOnce() -> u32) -> Option<usize> {
        self.forget_unused(now);
        let n = self.places.iter().position(|p| p.table.get() == 0)?;
        let place = &self.places[n];
        place.noted.set(self.tick());
        place.watched_at.set(now);
        place.written_at.set(0);
        place.table.publish(table.word());
        self.used.publish(self.used().max(n + 1) as u32);
        // A writer that has not seen it in its place had its transaction id before this.
        place.horizon.set(next_xid());
        Some(n)
    }

    /// Watches no tables any more that nobody has asked for of late.
    pub fn forget_unused(&self, now: u64) {
        for place in &self.places[..self.used()] {
            if place.is_unused(now) {
                place.table.publish(0);
            }
        }
        let last = self.places.iter().rposition(|p| p.table.get() != 0);
        self.used.publish(last.map_or(0, |n| n as u32 + 1));
    }

    /// lock-free: whether a table is watched that nobody has asked for of late.
    pub fn has_unused(&self, now: u64) -> bool {
        let mut places = self.places[..self.used()].iter();
        places.any(|place| place.is_unused(now))
    }

    fn tick(&self) -> u64 {
        self.clock.add(1) + 1
    }

    fn used(&self) -> usize {
        self.used.get() as usize
    }

    /// lock-free: whether any table is watched.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.used.get() != 0
    }

    /// lock-free: the watched tables of that database (not 0), with their places.
    pub fn of_database(&self, database: u32) -> impl Iterator<Item = (usize, u32)> + '_ {
        let words = self.places[..self.used()].iter().map(|p| p.table.get());
        let tables = words.map(|word| ((word >> 32) as u32, word as u32));
        tables
            .enumerate()
            .filter(move |(_, (of, _))| *of == database)
            .map(|(n, (_, relation))| (n, relation))
    }

    /// A transaction that may have changed what is found in the table, and found it in that place,
    /// commits or is prepared. It runs, and its id is below `next_xid`, which is asked for under
    /// the lock so that no horizon goes back. `written_at` is the time if it wrote rows, which is
    /// likely to happen again.
    pub fn note_change(
        &self,
        n: usize,
        table: Table,
        next_xid: impl FnOnce() -> u32,
        written_at: Option<u64>,
    ) {
        let place = &self.places[n];
        // If the table has another place by now, it took that when the writer had its id.
        if place.table.get() == table.word() {
            place.noted.set(self.tick());
            place.horizon.set(next_xid());
            if let Some(written_at) = written_at {
                place.written_at.set(written_at);
            }
        }
    }

    /// lock-free: a transaction keeps the table watched that it has just asked for, to its end.
    pub fn hold(&self, read: &Watched) {
        self.places[read.place as usize].readers.add(1);
    }

    /// lock-free: the transaction has ended.
    pub fn release(&self, read: &Watched) {
        self.places[read.place as usize].readers.sub(1);
    }

    /// All transactions below `oldest`, and below the horizon that the reader was told, have ended.
    pub fn advance(&self, read: &Watched, oldest: u32) {
        let place = &self.places[read.place as usize];
        if place.table.get() == read.table.word() && place.horizon.get() == read.horizon {
            place.horizon.set(oldest);
        }
    }

    /// Whether nobody has noted a change of the table since the reader asked for it.
    pub fn is_unwritten(&self, read: &Watched) -> bool {
        let place = &self.places[read.place as usize];
        place.table.get() == read.table.word() && place.noted.get() == read.noted
    }

    /// A change has refused the reader `now`. It counts as a write of the table, whatever it was:
    /// readers that come had better wait for a while.
    pub fn distrust(&self, read: &Watched, now: u64) {
        let place = &self.places[read.place as usize];
        if place.table.get() == read.table.word() && place.written_at.get() < now {
            place.written_at.set(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: u64 = 60_000_000;
    const SEVEN: Table = table(7);

    const fn table(relation: u32) -> Table {
        Table {
            database: 1,
            relation,
        }
    }

    /// A reader of the table at `now`, when transaction id 100 is the next.
    fn read(tables: &WatchedTables, of: Table, now: u64) -> Option<Watched> {
        tables.watch(of, now, LONG, || 100)
    }

    /// The table has been watched for long enough, at `PROBATION`.
    fn watching(of: Table) -> WatchedTables {
        let tables = WatchedTables::default();
        assert_eq!(read(&tables, of, 0), None, "not at first");
        tables
    }

    fn write(tables: &WatchedTables, of: Table, now: u64, next_xid: u32) {
        let places = tables.of_database(of.database);
        for (n, relation) in places {
            if relation == of.relation {
                tables.note_change(n, of, || next_xid, Some(now));
            }
        }
    }

    #[test]
    fn a_horizon_goes_on_with_the_transactions_and_never_back() {
        let tables = watching(SEVEN);
        let seven = read(&tables, SEVEN, LONG).expect("trusted");
        tables.advance(&seven, 150);
        let later = read(&tables, SEVEN, LONG).expect("trusted");
        assert_eq!(later.horizon, 150);
        assert!(tables.is_unwritten(&seven), "nobody has written it");
        write(&tables, SEVEN, LONG, 200);
        tables.advance(&later, 160);
        let last = read(&tables, SEVEN, 2 * LONG).expect("trusted again");
        assert_eq!(last.horizon, 200);
    }

    #[test]
    fn a_table_that_has_refused_a_reader_is_left_alone() {
        let tables = watching(SEVEN);
        let seven = read(&tables, SEVEN, LONG).expect("trusted");
        // A change of definitions is not likely to happen again, but it did.
        tables.note_change(0, SEVEN, || 150, None);
        assert!(read(&tables, SEVEN, LONG).is_some());
        assert!(!tables.is_unwritten(&seven));
        tables.distrust(&seven, LONG);
        assert_eq!(read(&tables, SEVEN, LONG + 1), None);
        assert!(read(&tables, SEVEN, 2 * LONG).is_some());
    }

    #[test]
    fn a_table_is_read_after_its_probation() {
        let tables = watching(SEVEN);
        assert_eq!(read(&tables, SEVEN, PROBATION - 1), None);
        // It was never written, so far as is known: the backoff is over long since.
        let seven = read(&tables, SEVEN, LONG).expect("trusted");
        assert_eq!(seven.horizon, 100);
        assert!(tables.is_unwritten(&seven));
        assert_eq!(tables.of_database(1).collect::<Vec<_>>(), [(0, 7)]);
        assert_eq!(tables.of_database(2).count(), 0);
    }

    #[test]
    fn a_write_refuses_the_reader_and_those_that_come_for_a_while() {
        let tables = watching(SEVEN);
        read(&tables, table(8), 0);
        let both = [SEVEN, table(8)];
        let [seven, eight] = both.map(|of| read(&tables, of, LONG).expect("trusted"));
        write(&tables, SEVEN, LONG, 200);
        assert!(!tables.is_unwritten(&seven) && tables.is_unwritten(&eight));
        assert_eq!(read(&tables, SEVEN, 2 * LONG - 1), None);
        let later = read(&tables, SEVEN, 2 * LONG).expect("trusted again");
        assert!(tables.is_unwritten(&later));
        assert_eq!(later.horizon, 200, "the writer may still run");
    }

    #[test]
    fn without_backoff_a_table_is_read_at_once() {
        let tables = WatchedTables::default();
        let first = tables.watch(SEVEN, 5, 0, || 100).expect("trusted");
        write(&tables, SEVEN, 5, 101);
        let second = tables.watch(SEVEN, 5, 0, || 102).expect("trusted");
        assert!(!tables.is_unwritten(&first) && tables.is_unwritten(&second));
        assert_eq!(second.horizon, 101);
    }

    #[test]
    fn a_table_keeps_its_place_while_it_is_used() {
        let tables = watching(table(1));
        let first = read(&tables, table(1), LONG).expect("trusted");
        for relation in 2..=WATCHED_TABLES as u32 {
            read(&tables, table(relation), LONG + u64::from(relation));
        }
        let later = LONG + UNUSED;
        read(&tables, table(99), later - 1);
        assert!(tables.is_unwritten(&first), "all are in use");
        assert!(!tables.has_unused(later - 1) && tables.has_unused(later));
        read(&tables, table(99), later);
        assert!(!tables.is_unwritten(&first), "nobody vouches for it");
        assert!(tables.of_database(1).all(|(_, relation)| relation != 1));
    }

    #[test]
    fn what_nobody_asks_for_is_forgotten() {
        let tables = watching(SEVEN);
        let seven = read(&tables, SEVEN, LONG).expect("trusted");
        tables.forget_unused(LONG + UNUSED - 1);
        assert!(tables.is_used() && tables.is_unwritten(&seven));
        tables.hold(&seven);
        tables.forget_unused(LONG + UNUSED);
        assert!(tables.is_unwritten(&seven), "its reader has not ended");
        tables.release(&seven);
        tables.forget_unused(LONG + UNUSED);
        assert!(!tables.is_used() && !tables.is_unwritten(&seven));
        assert_eq!(read(&tables, SEVEN, LONG + UNUSED), None, "as at first");
        assert!(!tables.is_unwritten(&seven));
    }

    #[test]
    fn a_write_noted_for_a_table_that_has_left_its_place_changes_nothing() {
        let tables = watching(table(1));
        for relation in 2..=WATCHED_TABLES as u32 {
            read(&tables, table(relation), 1);
        }
        read(&tables, table(99), 2 * UNUSED);
        let other = read(&tables, table(99), 2 * UNUSED + LONG).expect("trusted");
        tables.note_change(0, table(1), || 500, Some(3 * LONG));
        assert!(tables.is_unwritten(&other));
    }

    #[test]
    fn a_change_that_writes_no_rows_refuses_the_reader_only() {
        let tables = watching(SEVEN);
        let seven = read(&tables, SEVEN, LONG).expect("trusted");
        tables.note_change(0, SEVEN, || 200, None);
        assert!(!tables.is_unwritten(&seven));
        let next = read(&tables, SEVEN, LONG).expect("still trusted");
        assert_eq!(next.horizon, 200);
    }
}
