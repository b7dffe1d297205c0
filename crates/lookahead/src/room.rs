//! Whether a page has room for the next updates of its rows, so that its pruning can be put off.

use crate::MOST_ROWS;

/// The size of a page.
const PAGE: u16 = 8192;
/// There is to be room for so many versions of an average length, by line pointers: rows that have been updated have two.
const LEAST: u16 = 4;
/// Pruning is put off for so many versions of an average length, where there is more room.
const MOST: u16 = 8;

/// How full a page is, in bytes; bufpage.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Between its line pointers and its tuples.
    pub free: u16,
    /// Taken by tuples, seen or not.
    pub taken: u16,
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
        self.has_all_rows() || self.free < self.wanted()
    }

    /// Whether there is no line pointer for another version, as far as can be told without a look at them.
    #[inline]
    fn has_all_rows(&self) -> bool {
        self.line_pointers >= MOST_ROWS
    }

    /// Whether pruning can be put off.
    #[inline]
    pub fn is_enough(&self) -> bool {
        let average = self.taken / self.line_pointers.max(1);
        let after_many = self.wanted().saturating_sub(average.saturating_mul(MOST));
        let for_some = average.saturating_mul(LEAST);
        !self.has_all_rows() && self.free >= after_many.max(for_some).min(self.wanted())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many updates of a page that has been filled up to its reserve, and each time been pruned when it was due, heap would and we do.
    fn updates(rows: u16, row: u16, reserved: u16) -> (u16, u16) {
        // Rows that have been updated have a line pointer that leads to another.
        let line_pointers = 2 * rows;
        let room = |versions: u16| {
            let taken = rows * row + versions * row;
            let used = taken + 24 + 4 * (line_pointers + versions);
            Room {
                free: PAGE.saturating_sub(used),
                taken,
                line_pointers: line_pointers + versions,
                reserved,
            }
        };
        let first = |is_due: &dyn Fn(Room) -> bool| (0..).find(|&n| is_due(room(n))).unwrap();
        let heap = first(&|room| room.is_scarce());
        let ours = first(&|room| room.is_scarce() && !room.is_enough());
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
        assert_eq!(updates(100, 60, 819), (9, 13));
        assert_eq!(updates(140, 40, 819), (11, 11)); // all line pointers
        assert_eq!(updates(7, 1000, 819), (1, 1)); // no room for more anyhow
        assert_eq!(updates(30, 128, 4096), (0, 5));
        assert_eq!(updates(1, 64, 4096), (59, 67));
    }

    #[test]
    fn a_page_without_line_pointers_has_room() {
        let room = Room {
            free: 8168,
            taken: 0,
            line_pointers: 0,
            reserved: 0,
        };
        assert!(!room.is_scarce() && room.is_enough());
    }

    #[test]
    fn a_page_without_a_free_line_pointer_has_no_room() {
        let room = Room {
            free: 4000,
            taken: 3000,
            line_pointers: MOST_ROWS,
            reserved: 0,
        };
        assert!(room.is_scarce() && !room.is_enough());
    }

    #[test]
    fn nothing_is_put_off_beyond_what_heap_wants() {
        for free in 0..PAGE {
            for (taken, line_pointers) in
                [(0, 0), (6000, 1), (6000, 50), (6000, 291), (u16::MAX, 1)]
            {
                let room = Room {
                    free,
                    taken,
                    line_pointers,
                    reserved: 819,
                };
                assert!(room.is_enough() || room.is_scarce());
            }
        }
    }
}
