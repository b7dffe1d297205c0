//! When a page with versions that nobody sees any more is to be pruned.

/// The size of a page.
const PAGE: u16 = 8192;
/// Versions of an average length for which there is to be room on a page.
const ROOM: u16 = 4;
/// Versions of an average length that pruning is put off for, where it has more room.
const PUT_OFF: u16 = 8;

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
    /// Whether heap would prune the page for those who come upon it; pruneheap.c: heap_page_prune_opt.
    #[inline]
    pub fn is_scarce(&self) -> bool {
        self.free < self.reserved.max(PAGE / 10)
    }

    /// Whether there still is room for the next updates of its rows, and pruning can be put off.
    #[inline]
    pub fn is_enough(&self) -> bool {
        let average = self.taken / self.line_pointers.max(1);
        let wanted = self.reserved.max(PAGE / 10);
        let least = wanted.saturating_sub(PUT_OFF.saturating_mul(average));
        self.free >= least.max(ROOM.saturating_mul(average)).min(wanted)
    }
}
