//! How far an index scan looks ahead on a table's page, and when the page is to be pruned. The
//! README has the ideas.

mod room;

pub use room::{PAGE, Room, Trust};

/// The most rows that a page can have: MaxHeapTuplesPerPage (access/htup_details.h) of a page of 8
/// kB.
pub const MOST_ROWS: u16 = 291;

/// No look is for more: one for a whole page waits for the memory of all of its rows at once.
const MOST: u16 = 16;
/// Pages that give fewer rows are not worth a look.
const FEW: u16 = 8;
/// More than a page can give.
const NEVER: u16 = 512;

/// How a scan fares on the pages that it comes to, and how many rows it therefore looks for at a
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Rows of this page that were asked for after the first.
    asked: u16,
    /// Rows of the page before that were asked for after the first.
    expected: u16,
    /// Rows of this page that were looked for, and those of them that were asked for and of which a
    /// version was seen.
    looked_for: u16,
    served: u16,
    /// So many rows a page must give.
    least: u16,
    /// How many rows the last look was for.
    ahead: u16,
    last: u16,
    goes_down: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            asked: 0,
            expected: 0,
            looked_for: 0,
            served: 0,
            least: FEW,
            ahead: MOST,
            last: 0,
            goes_down: false,
        }
    }
}

impl Pace {
    /// A row of the present page is asked for, and its version known.
    #[inline]
    pub fn serve(&mut self, row: u16) {
        self.served = self.served.saturating_add(1);
        self.asked = self.asked.saturating_add(1);
        self.last = row;
    }

    /// A row of the present page is asked for, and no version of it known.
    #[inline]
    pub fn miss(&mut self, row: u16) {
        self.asked = self.asked.saturating_add(1);
        self.goes_down = row < self.last;
        self.last = row;
    }

    /// Whether a look is worth while: pages give enough rows, and those that were looked for on
    /// this one were asked for.
    #[inline]
    pub fn is_worthwhile(&self) -> bool {
        (self.expected >= self.least || self.asked >= 2 * self.least) && !self.is_poor()
    }

    /// The rows to be looked for, if a look is worth while: `row`, which was missed just now, and
    /// those that come next, of a page with line pointers 1 to `last_row`.
    pub fn rows_ahead(&mut self, row: u16, last_row: u16) -> Option<std::ops::RangeInclusive<u16>> {
        let last_row = last_row.min(MOST_ROWS);
        if !self.is_worthwhile() || row == 0 || row > last_row {
            return None;
        }
        let rest = self.expected.saturating_sub(self.asked) + 1;
        self.ahead = if self.asked >= FEW {
            MOST
        } else {
            rest.min(MOST)
        };
        let rows = if self.goes_down {
            row.saturating_sub(self.ahead - 1).max(1)..=row
        } else {
            row..=last_row.min(row + self.ahead - 1)
        };
        Some(rows)
    }

    /// A row has been looked for.
    #[inline]
    pub fn looked(&mut self) {
        self.looked_for = self.looked_for.saturating_add(1);
    }

    /// The version of the row that was missed has been found by the look.
    pub fn found(&mut self) {
        self.served = self.served.saturating_add(1);
    }

    /// The row that is as far ahead of `row` as looks go: its memory will be wanted. Perhaps there
    /// is none.
    #[inline]
    pub fn upcoming(&self, row: u16) -> u16 {
        if self.goes_down {
            row.saturating_sub(self.ahead)
        } else {
            row.saturating_add(self.ahead)
        }
    }

    /// Whether more than a quarter of the rows that were looked for have not been asked for yet, or
    /// in vain.
    #[inline]
    fn is_poor(&self) -> bool {
        u32::from(self.served) * 4 < u32::from(self.looked_for) * 3
    }

    /// The scan goes to a page, from whose row `row` it is given. Whether rows of the page before
    /// were looked for.
    pub fn turn_to_page(&mut self, row: u16) -> bool {
        let has_looked = self.looked_for > 0;
        if has_looked {
            self.least = if self.is_poor() {
                (self.least * 2).min(NEVER)
            } else {
                FEW
            };
        }
        self.expected = self.asked;
        (self.asked, self.looked_for, self.served) = (0, 0, 0);
        self.last = row;
        has_looked
    }
}

/// What is known of a row of the page, by the number of its line pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It has not been looked for.
    Nothing,
    /// The line pointer of the version that the scan sees.
    Version(u16),
    /// It has been looked for, and there is none.
    NoVersion,
}

/// What a scan knows of the page that it is on: by line pointers; 0 is nothing, `NO_VERSION` that
/// there is none.
#[derive(Debug)]
pub struct Versions([u16; MOST_ROWS as usize + 1]);

const NO_VERSION: u16 = u16::MAX;

impl Default for Versions {
    fn default() -> Self {
        Versions([0; MOST_ROWS as usize + 1])
    }
}

impl Versions {
    #[inline]
    pub fn known(&self, row: u16) -> Known {
        match self.0.get(usize::from(row)) {
            None | Some(0) => Known::Nothing,
            Some(&NO_VERSION) => Known::NoVersion,
            Some(&version) => Known::Version(version),
        }
    }

    /// Looks for the version of a row, 1 to `MOST_ROWS`, unless it is known. Whether `find` was
    /// asked.
    #[inline]
    pub fn look(&mut self, row: u16, find: impl FnOnce(u16) -> Option<u16>) -> bool {
        let version = &mut self.0[usize::from(row)];
        let is_new = *version == 0;
        if is_new {
            *version = find(row).filter(|&found| found != 0).unwrap_or(NO_VERSION);
        }
        is_new
    }

    pub fn clear(&mut self) {
        self.0.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    /// Pages with so many rows each; odd rows have a version one further on. Of some, nobody sees
    /// any.
    struct Scan {
        pace: Pace,
        versions: Versions,
        page: Option<u32>,
        last_row: u16,
        invisible: u16,
        asked: u64,
        looks: u64,
        /// Locks of the page: heap's and ours.
        locks: u64,
    }

    impl Scan {
        fn new(last_row: u16) -> Scan {
            Scan {
                pace: Pace::default(),
                versions: Versions::default(),
                page: None,
                last_row,
                invisible: NEVER,
                asked: 0,
                looks: 0,
                locks: 0,
            }
        }

        fn version(&self, row: u16) -> Option<u16> {
            (!row.is_multiple_of(self.invisible)).then_some(row + row % 2)
        }

        fn fetch(&mut self, page: u32, row: u16) {
            self.asked += 1;
            if self.page != Some(page) {
                self.page = Some(page);
                if self.pace.turn_to_page(row) {
                    self.versions.clear();
                }
                self.locks += 1;
                return;
            }
            if let Known::Version(version) = self.versions.known(row) {
                assert_eq!(Some(version), self.version(row));
                return self.pace.serve(row);
            }
            self.pace.miss(row);
            self.locks += 1;
            if self.versions.known(row) == Known::Nothing
                && let Some(rows) = self.pace.rows_ahead(row, self.last_row)
            {
                assert!(rows.contains(&row) && *rows.start() > 0 && *rows.end() <= self.last_row);
                for row in rows {
                    let version = self.version(row);
                    if self.versions.look(row, |_| version) {
                        self.pace.looked();
                        self.looks += 1;
                    }
                }
                match self.versions.known(row) {
                    Known::Version(_) => self.pace.found(),
                    _ => self.locks += 1, // heap is asked all the same
                }
            }
        }
    }

    #[test]
    fn a_scan_in_the_order_of_the_table_has_few_locks_and_looks_once_for_each_row() {
        for goes_down in [false, true] {
            let mut scan = Scan::new(60);
            for page in 0..1000 {
                for n in 1..=60 {
                    scan.fetch(page, if goes_down { 61 - n } else { n });
                }
            }
            assert!(scan.locks <= 5 * 1000 + 20, "{}", scan.locks);
            assert!(scan.looks < 60 * 1000);
        }
    }

    #[test]
    fn pages_that_give_few_rows_are_not_looked_at() {
        for run in 1..=8 {
            let mut scan = Scan::new(60);
            for page in 0..1000 {
                (20..20 + run).for_each(|row| scan.fetch(page, row));
            }
            assert_eq!(scan.looks, 0);
        }
    }

    #[test]
    fn runs_of_rows_are_looked_for_as_far_as_they_go() {
        for run in 9..=16 {
            let mut scan = Scan::new(60);
            for page in 0..1000 {
                (20..20 + run).for_each(|row| scan.fetch(page, row));
            }
            assert!(scan.locks <= 2 * 1000 + 20, "{run}: {}", scan.locks);
            assert!(scan.looks <= scan.asked + 20);
        }
    }

    #[test]
    fn looks_are_few_whatever_is_asked_for() {
        let mut rng = StdRng::seed_from_u64(1);
        for last_row in [1, 2, 7, 60, 291] {
            for most_of_a_page in [1, 2, 3, 4, 6, 10, 40, 300] {
                let mut scan = Scan::new(last_row);
                for page in 0..2000 {
                    for _ in 0..rng.random_range(1..=most_of_a_page) {
                        scan.fetch(page, rng.random_range(1..=last_row));
                    }
                }
                let (asked, looks) = (scan.asked as f64, scan.looks as f64);
                assert!(
                    looks <= 1.5 * asked,
                    "{last_row} {most_of_a_page}: {looks} looks for {asked} rows"
                );
            }
        }
    }

    #[test]
    fn what_nobody_sees_is_looked_for_in_vain_only_so_often() {
        for invisible in [1, 2, 3] {
            let mut scan = Scan::new(60);
            scan.invisible = invisible;
            for page in 0..1000 {
                (1..=60).for_each(|row| scan.fetch(page, row));
            }
            assert!(scan.looks <= 100, "{}", scan.looks);
        }
        let mut scan = Scan::new(60);
        scan.invisible = 10;
        for page in 0..1000 {
            (1..=60).for_each(|row| scan.fetch(page, row));
        }
        assert!(scan.looks >= 50 * 1000);
    }

    #[test]
    fn what_is_upcoming_lies_where_the_scan_goes() {
        let mut pace = Pace::default();
        pace.turn_to_page(100);
        (101..=116).for_each(|row| pace.miss(row));
        assert_eq!(pace.rows_ahead(116, 200), Some(116..=131));
        assert_eq!(pace.upcoming(116), 132);
        pace.turn_to_page(60);
        pace.miss(59);
        assert_eq!(pace.rows_ahead(59, 60), Some(44..=59));
        assert_eq!(pace.upcoming(59), 43);
        assert_eq!(pace.upcoming(3), 0);
        assert_eq!(pace.rows_ahead(61, 60), None);
        assert_eq!(pace.rows_ahead(0, 60), None);
    }

    #[test]
    fn nothing_is_known_of_what_was_not_looked_for() {
        let mut versions = Versions::default();
        assert_eq!(versions.known(400), Known::Nothing);
        assert!(versions.look(2, Some));
        assert!(versions.look(3, |_| None));
        assert!(!versions.look(2, |_| None));
        assert_eq!(versions.known(2), Known::Version(2));
        assert_eq!(versions.known(3), Known::NoVersion);
        assert_eq!(versions.known(4), Known::Nothing);
        versions.clear();
        assert_eq!(versions.known(2), Known::Nothing);
    }
}
