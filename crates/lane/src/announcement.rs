//! What comes of an announcement, and where a process notes those that no stripe has room for.

use crate::word::Word;

/// What came of an announcement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Announced {
    /// The transaction stood there before.
    Before,
    /// It does now.
    Now,
}

/// Where a process notes the announcements of its transaction that stripes have no room for.
#[derive(Debug, Default)]
pub(crate) struct Surplus {
    id: Word,
    /// A bit for some of the stripes each.
    stripes: Word,
}

impl Surplus {
    pub(crate) fn announce(&self, id: u64, bit: u64) -> Announced {
        if self.id.get() != id {
            self.stripes.set(0);
            self.id.set(id);
        }
        let stripes = self.stripes.get();
        self.stripes.set(stripes | bit);
        if stripes & bit == 0 {
            Announced::Now
        } else {
            Announced::Before
        }
    }

    pub(crate) fn take_back(&self, id: u64, bit: u64) {
        if self.id.get() == id {
            self.stripes.set(self.stripes.get() & !bit);
        }
    }

    /// The transaction that has noted any.
    pub(crate) fn any(&self) -> Option<u64> {
        self.id(u64::MAX)
    }

    /// The transaction that has noted a stripe with that bit.
    pub(crate) fn id(&self, bit: u64) -> Option<u64> {
        (self.stripes.get() & bit != 0).then(|| self.id.get())
    }
}
