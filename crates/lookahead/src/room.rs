//! Whether a page has room for the next updates of its rows, so that its pruning can be put off.

use crate::MOST_ROWS;

/// The size of a page.
pub const PAGE: u16 = 8192;
const LINE_POINTER: u16 = 4;
/// There is to be room for so many more versions of a row.
const LEAST: u16 = 2;
/// Pruning is put off for so many versions, where there is more room.
const MOST: u16 = 8;

/// How full a page is, in bytes; bufpage.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Between its line pointers and its tuples.
    pub free: u16,
    pub line_pointers: u16,
    /// What the table's fillfactor keeps free.
    pub reserved: u16,
}

impl Room {
    /// From how many free bytes on heap leaves a page alone; pruneheap.c: heap_page_prune_opt.
    #[inline]
    fn wanted(&self) -> u16 {
        self.reserved.max(PAGE / 10)
    }

    /// Whether heap would prune the page.
    #[inline]
    pub fn is_scarce(&self) -> bool {
        self.has_all_rows() || self.usable() < self.wanted()
    }

    /// What is left for a tuple; bufpage.c: PageGetHeapFreeSpace.
    #[inline]
    fn usable(&self) -> u16 {
        self.free.saturating_sub(LINE_POINTER)
    }

    /// Whether there is no line pointer for another version, as far as can be told without a look
    /// at them.
    #[inline]
    fn has_all_rows(&self) -> bool {
        self.line_pointers >= MOST_ROWS
    }

    /// Whether pruning can be put off, if versions to come have up to so many bytes.
    #[inline]
    pub fn is_enough(&self, longest: u16) -> bool {
        if self.has_all_rows() {
            return false;
        }
        let version = longest.saturating_add(7) / 8 * 8 + LINE_POINTER;
        let after_many = self.wanted().saturating_sub(version.saturating_mul(MOST));
        let for_some = version.saturating_mul(LEAST);
        self.usable() >= after_many.max(for_some).min(self.wanted())
    }
}

/// Updates of a table in a row that a session has seen stay on their pages, before it puts pruning
/// off there.
const FIRST: u32 = 64;
/// So many times as many each time that it was put off and a row left its page, but no more than
/// `LONGEST`.
const LONGER: u32 = 8;
const LONGEST: u32 = 1 << 16;

/// How a session fares with the updates of a table. Where rows leave their pages (statements that
/// update several of one page, rows that grow), heap's reserve is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trust {
    stayed: u32,
    wanted: u32,
    /// In bytes, of the versions that it has written.
    longest: u16,
}

impl Trust {
    /// Nothing has been updated yet.
    pub const NEW: Trust = Trust {
        stayed: 0,
        wanted: FIRST,
        longest: 0,
    };

    /// This session's trust in a table of which nothing is known: what it has lost elsewhere
    /// counts.
    pub fn of_another_table(self) -> Self {
        Trust {
            wanted: self.wanted,
            ..Trust::NEW
        }
    }

    /// A row has been updated: its new version has so many bytes (0 if that is not known), and is
    /// on the same page or not. Only who has put pruning off is to blame for a row that leaves:
    /// while a long snapshot keeps all versions, or a statement fills page after page, they leave
    /// heap's pages, too.
    #[inline]
    pub fn updated(&mut self, length: u16, has_stayed: bool) {
        self.longest = self.longest.max(length);
        if has_stayed {
            self.stayed = self.stayed.saturating_add(1);
        } else {
            if self.is_earned() {
                self.wanted = (self.wanted * LONGER).min(LONGEST);
            }
            self.stayed = 0;
        }
    }

    /// Whether pruning can be put off in the table.
    #[inline]
    pub fn is_earned(&self) -> bool {
        self.stayed >= self.wanted
    }

    /// The longest version that the session has written there, in bytes.
    #[inline]
    pub fn longest(&self) -> u16 {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many updates heap would prune a page, and after how many we do. The page was
    /// filled up to its reserve, and pruned each time when it was due.
    fn updates(rows: u16, row: u16, reserved: u16) -> (u16, u16) {
        // Rows that have been updated have a line pointer that leads to another.
        let line_pointers = 2 * rows;
        let room = |versions: u16| {
            let taken = rows * row + versions * row;
            let used = taken + 24 + 4 * (line_pointers + versions);
            Room {
                free: PAGE.saturating_sub(used),
                line_pointers: line_pointers + versions,
                reserved,
            }
        };
        let first = |is_due: &dyn Fn(Room) -> bool| (0..).find(|&n| is_due(room(n))).unwrap();
        let heap = first(&|room| room.is_scarce());
        let ours = first(&|room| room.is_scarce() && !room.is_enough(row));
        let fits = PAGE - 24 - 4 * line_pointers - rows * row;
        assert!(
            heap >= ours || (ours + 1) * (row + 4) <= fits,
            "no room for the next one"
        );
        (heap, ours)
    }

    #[test]
    fn there_is_room_for_the_next_update_and_several_share_a_pruning() {
        assert_eq!(updates(54, 128, 819), (1, 5));
        assert_eq!(updates(30, 200, 819), (6, 8));
        assert_eq!(updates(100, 60, 819), (9, 18));
        assert_eq!(updates(140, 40, 819), (11, 11)); // all line pointers
        assert_eq!(updates(7, 1000, 819), (1, 1)); // no room for more anyhow
        assert_eq!(updates(30, 128, 4096), (0, 8));
        assert_eq!(updates(1, 64, 4096), (59, 67));
    }

    #[test]
    fn a_page_without_line_pointers_has_room() {
        let room = Room {
            free: 8168,
            line_pointers: 0,
            reserved: 0,
        };
        assert!(!room.is_scarce() && room.is_enough(0));
    }

    #[test]
    fn a_page_without_a_free_line_pointer_has_no_room() {
        let room = Room {
            free: 4000,
            line_pointers: MOST_ROWS,
            reserved: 0,
        };
        assert!(room.is_scarce() && !room.is_enough(30));
    }

    #[test]
    fn nothing_is_put_off_beyond_what_heap_wants() {
        for free in 0..PAGE {
            for longest in [0, 30, 200, 2000, 8000, u16::MAX] {
                let room = Room {
                    free,
                    line_pointers: 50,
                    reserved: 819,
                };
                assert!(room.is_enough(longest) || room.is_scarce());
            }
        }
    }

    #[test]
    fn trust_is_lost_at_once_and_takes_longer_each_time() {
        let mut trust = Trust::NEW;
        for wanted in [64, 512, 4096, 32_768, 65_536, 65_536] {
            for _ in 1..wanted {
                trust.updated(100, true);
                assert!(!trust.is_earned());
            }
            trust.updated(100, true);
            assert!(trust.is_earned());
            // More that leave while nothing is put off change nothing.
            (0..100).for_each(|_| trust.updated(100, false));
            assert!(!trust.is_earned());
        }
        trust.updated(30, true);
        assert_eq!(trust.longest(), 100);
        let other = trust.of_another_table();
        assert_eq!(
            (other.wanted, other.stayed, other.longest()),
            (65_536, 0, 0)
        );
    }
}
