//! Registering what a transaction wrote. The order is the proof's: entries published, CSN taken, validated, off the
//! running list; the types leave no other.

use crate::{
    csn::{Clock, Committer, Csn},
    fault::{Fault, planted},
    image::Interval,
    ring::{Entry, Place, Rings},
    write::WriteSet,
};

/// All shared memory of range OCC. Every part is valid when zeroed.
#[derive(Clone, Copy, Debug)]
pub struct Board<'a> {
    pub clock: &'a Clock,
    /// One for each process that can run a transaction.
    pub committers: &'a [Committer],
    /// Writes in a range.
    pub ranges: Rings<'a>,
    /// Writes anywhere in a relation.
    pub relations: Rings<'a>,
}

/// A transaction whose writes are all published, or counted as evicted; it has no CSN yet.
#[derive(Debug)]
#[must_use = "a transaction commits with a CSN"]
pub struct Registered<'a> {
    board: Board<'a>,
    process: u32,
    places: Vec<(Rings<'a>, Place)>,
    /// Buckets in which there was no place.
    unplaced: Vec<(Rings<'a>, usize)>,
    /// Of a planted fault.
    early_csn: Option<Csn>,
}

impl<'a> Board<'a> {
    /// Publishes the writes of a transaction at PRE_COMMIT or PRE_PREPARE, when it can write no more and whom it built on
    /// has left the running list. Once for a transaction.
    ///
    /// `fxid` is its top-level id; `is_running` tells of a top-level id whether it is still in progress.
    pub fn register(
        &self,
        process: u32,
        fxid: u64,
        writes: &WriteSet,
        is_running: &dyn Fn(u64) -> bool,
    ) -> Registered<'a> {
        let committer = &self.committers[process as usize];
        committer.enter(fxid);
        let mut registered = Registered {
            board: *self,
            process,
            places: Vec::new(),
            unplaced: Vec::new(),
            early_csn: planted(Fault::CsnBeforePublication).then(|| committer.take(self.clock)),
        };
        for written in writes.iter().filter(|_| !planted(Fault::NotRegistered)) {
            let (rings, range, keys) = match written.place {
                Some((range, keys)) => (self.ranges, range, keys),
                None => (self.relations, 0, Interval::ALL),
            };
            let entry = Entry {
                fxid,
                process,
                csn: None,
                relation: written.relation,
                range,
                keys,
            };
            let bucket = rings.bucket_of(written.relation, range);
            match rings.publish(bucket, &entry, is_running) {
                Some(place) => registered.places.push((rings, place)),
                None => registered.unplaced.push((rings, bucket)),
            }
        }
        registered
    }
}

impl Registered<'_> {
    /// Entries published.
    pub fn placed(&self) -> u64 {
        self.places.len() as u64
    }

    /// Writes for which there was no place in their ring.
    pub fn unplaced(&self) -> u64 {
        self.unplaced.len() as u64
    }

    /// Takes the transaction's CSN and puts it where validators look.
    pub fn take_csn(self) -> Csn {
        let committer = &self.board.committers[self.process as usize];
        let take = || committer.take(self.board.clock);
        let csn = self.early_csn.unwrap_or_else(take);
        for (rings, place) in self.places {
            rings.stamp(place, csn);
        }
        for (rings, bucket) in self.unplaced {
            rings.stamp_unplaced(bucket, csn);
        }
        csn
    }
}
