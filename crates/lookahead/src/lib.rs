//! How far an index scan looks ahead on a table's page. The README has the idea.

/// The most rows that a page can have: MaxHeapTuplesPerPage (access/htup_details.h) of a page of 8 kB.
pub const MOST_ROWS: u16 = 291;

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

/// What a scan knows of the page that it is on.
#[derive(Debug)]
pub struct Lookahead {
    /// By line pointers; 0 is nothing known, `NO_VERSION` that there is none.
    versions: [u16; MOST_ROWS as usize + 1],
    /// How many rows the last look was for.
    ahead: u16,
    /// Rows of this page that were looked for, and those of them that were asked for.
    looked_for: u16,
    asked_for: u16,
    last: u16,
    goes_down: bool,
}

const NO_VERSION: u16 = u16::MAX;
/// The first look is for twice as many.
const FIRST: u16 = 2;
/// No look is for more: one for a whole page waits for the memory of all of its rows at once.
const MOST: u16 = 16;

impl Default for Lookahead {
    fn default() -> Self {
        Lookahead {
            versions: [0; MOST_ROWS as usize + 1],
            ahead: FIRST,
            looked_for: 0,
            asked_for: 0,
            last: 0,
            goes_down: false,
        }
    }
}

impl Lookahead {
    /// What is known of a row that is asked for.
    #[inline]
    pub fn ask(&mut self, row: u16) -> Known {
        let known = self.known(row);
        if known != Known::Nothing {
            self.asked_for = self.asked_for.saturating_add(1);
            self.last = row;
        }
        known
    }

    /// What is known of a row.
    #[inline]
    pub fn known(&self, row: u16) -> Known {
        match self.versions.get(usize::from(row)) {
            None | Some(0) => Known::Nothing,
            Some(&NO_VERSION) => Known::NoVersion,
            Some(&version) => Known::Version(version),
        }
    }

    /// The row that is as far ahead of `row` as looks go: its memory will be wanted. Perhaps there is none.
    #[inline]
    pub fn upcoming(&self, row: u16) -> u16 {
        if self.goes_down {
            row.saturating_sub(self.ahead)
        } else {
            row.saturating_add(self.ahead)
        }
    }

    /// Looks for `row`, of which nothing is known, and for those that come next, on a page with line pointers 1 to `last_row`, in the direction in
    /// which the scan goes. `find` is given a row and returns the version that the scan sees.
    pub fn look(&mut self, row: u16, last_row: u16, mut find: impl FnMut(u16) -> Option<u16>) {
        let last_row = last_row.min(MOST_ROWS);
        if row == 0 || row > last_row {
            return;
        }
        self.ahead = if self.was_of_use() {
            (self.ahead * 2).min(MOST)
        } else {
            FIRST
        };
        self.goes_down = row < self.last;
        let rows = if self.goes_down {
            row.saturating_sub(self.ahead - 1).max(1)..=row
        } else {
            row..=last_row.min(row + self.ahead - 1)
        };
        for row in rows {
            let version = &mut self.versions[usize::from(row)];
            if *version == 0 {
                *version = find(row).filter(|&found| found != 0).unwrap_or(NO_VERSION);
                self.looked_for += 1;
            }
        }
    }

    /// Whether enough of the rows of this page that were looked for have been asked for.
    fn was_of_use(&self) -> bool {
        self.looked_for == 0 || u32::from(self.asked_for) * 4 > u32::from(self.looked_for)
    }

    /// The scan goes to a page, from whose row `row` it has been given.
    pub fn turn_to_page(&mut self, row: u16) {
        if self.looked_for > 0 {
            if !self.was_of_use() {
                self.ahead = FIRST;
            }
            self.versions.fill(0);
        }
        self.looked_for = 0;
        self.asked_for = 0;
        self.last = row;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    /// Pages with so many rows each; odd rows have a version one further on, those divisible by 5 none.
    struct Scan {
        lookahead: Lookahead,
        page: Option<u32>,
        last_row: u16,
        asked: u64,
        looks: u64,
        locks: u64,
    }

    fn version(row: u16) -> Option<u16> {
        (!row.is_multiple_of(5)).then_some(row + row % 2)
    }

    impl Scan {
        fn new(last_row: u16) -> Scan {
            Scan {
                lookahead: Lookahead::default(),
                page: None,
                last_row,
                asked: 0,
                looks: 0,
                locks: 0,
            }
        }

        fn fetch(&mut self, page: u32, row: u16) {
            self.asked += 1;
            if self.page != Some(page) {
                self.page = Some(page);
                self.lookahead.turn_to_page(row);
                self.locks += 1;
                return;
            }
            if self.lookahead.ask(row) == Known::Nothing {
                let looks = &mut self.looks;
                self.lookahead.look(row, self.last_row, |row| {
                    *looks += 1;
                    version(row)
                });
                self.locks += 1;
                self.lookahead.ask(row);
            }
            let expected = version(row).map_or(Known::NoVersion, Known::Version);
            assert_eq!(self.lookahead.known(row), expected);
        }
    }

    #[test]
    fn a_scan_in_the_order_of_the_table_looks_once_for_each_row() {
        for goes_down in [false, true] {
            let mut scan = Scan::new(60);
            for page in 0..1000 {
                for n in 1..=60 {
                    scan.fetch(page, if goes_down { 61 - n } else { n });
                }
            }
            assert!(scan.locks <= 5 * 1000 + 5, "{}", scan.locks);
            assert!(scan.looks <= 60 * 1000);
        }
    }

    #[test]
    fn what_is_upcoming_lies_where_the_scan_goes() {
        let mut lookahead = Lookahead::default();
        lookahead.turn_to_page(20);
        lookahead.look(21, 60, Some);
        assert_eq!(lookahead.upcoming(21), 25);
        lookahead.turn_to_page(20);
        lookahead.look(19, 60, Some);
        assert_eq!(lookahead.upcoming(19), 15);
        assert_eq!(lookahead.upcoming(3), 0);
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
                    looks <= 6.0 * asked,
                    "{last_row} {most_of_a_page}: {looks} looks for {asked} rows"
                );
            }
        }
    }

    #[test]
    fn a_page_of_little_use_sets_the_number_back() {
        let mut scan = Scan::new(60);
        for page in 0..10 {
            (1..=60).for_each(|row| scan.fetch(page, row));
        }
        let before = scan.looks;
        for page in 10..1010 {
            scan.fetch(page, 1);
            scan.fetch(page, 30);
        }
        assert!(scan.looks - before <= 16 + 4 * 1000);
    }

    #[test]
    fn nothing_is_known_beyond_the_page_or_after_it() {
        let mut lookahead = Lookahead::default();
        lookahead.turn_to_page(1);
        lookahead.look(400, 500, |_| Some(1));
        lookahead.look(0, 500, |_| Some(1));
        assert_eq!(lookahead.known(400), Known::Nothing);
        assert_eq!(lookahead.known(0), Known::Nothing);
        lookahead.look(2, 500, Some);
        assert_eq!(lookahead.known(2), Known::Version(2));
        assert_eq!(lookahead.known(18), Known::Nothing);
        lookahead.turn_to_page(1);
        assert_eq!(lookahead.known(2), Known::Nothing);
    }
}
