//! The dependency list of a hot row: the running transactions that updated it, in update order.
//!
//! The list says whom to wait for and whom to wake. It is never the permission to commit: that is
//! PostgreSQL's own record of the predecessor's transaction id. A *reader* looked at an uncommitted
//! version and changed nothing; it depends on the writer before it, and nobody depends on it.
//!
//! All functions want the row's lock held.

use crate::row::{Member, Members, Row, Tail, load, store};
use crate::{BackendId, MEMBERS, MemberId, Slot, backend_of};

impl Members<'_> {
    /// The transaction of that membership has ended: the next one begins without its doom.
    pub fn forgive(&self, me: MemberId) {
        let node = self.member(me);
        node.doomed.publish(0);
        node.patient.publish(0);
    }
}

impl Row {
    /// The last writer of the list, on whose version a follower would build.
    pub fn tail(&self, members: Members) -> Option<Tail> {
        let mut at = load(&self.chain_last);
        while let Some(id) = at {
            let node = members.member(id);
            if node.reader.get() == 0 {
                return Some(Tail {
                    member: id,
                    xid: node.xid.get(),
                    tid: node.tid.get(),
                    open: node.closed.get() == 0 && self.group_ended.get() == 0,
                });
            }
            at = load(&node.chain_prev);
        }
        None
    }

    /// The first writer of the list, the id with which it writes, and how many of the list wait for
    /// it in the lock manager.
    pub fn head(&self, members: Members) -> Option<(MemberId, u32, u32)> {
        let mut head = None;
        let mut patient = 0;
        let mut at = load(&self.chain_first);
        while let Some(id) = at {
            let node = members.member(id);
            let reads = node.reader.get() != 0;
            if head.is_some() {
                patient += u32::from(node.patient.get() != 0);
                if !reads {
                    break;
                }
            } else if !reads {
                head = Some((id, node.xid.get()));
            }
            at = load(&node.chain_next);
        }
        head.map(|(id, xid)| (id, xid, patient))
    }

    /// Appends a writer whose version is not written yet (a reservation: its predecessor must know
    /// of it before the page changes), or, with `tid`, the leader whose version is. A reader that
    /// has kept the ticket is the last of the list, and becomes a writer in its place.
    pub fn link_writer(&self, members: Members, me: MemberId, xid: u32, tid: u64) {
        let node = members.member(me);
        node.closed.set(0);
        node.tid.set(tid);
        node.reader.set(0);
        if node.linked.get() != 0 {
            node.xid.set(xid);
            self.group_length.add(1);
            return;
        }
        node.doomed.publish(0);
        self.group_length.add(1);
        self.append(members, me, xid);
    }

    /// Appends a reader behind the last writer, unless it stands in the list.
    pub fn link_reader(&self, members: Members, me: MemberId, xid: u32) {
        if members.member(me).linked.get() == 0 {
            members.member(me).reader.set(1);
            self.append(members, me, xid);
        }
    }

    /// The version of a reserved writer is on the page.
    pub fn publish(&self, members: Members, me: MemberId, tid: u64) {
        members.member(me).tid.set(tid);
    }

    /// Ends the group: nobody follows until there is no writer in the list.
    pub fn end_group(&self, members: Members) {
        if self.group_ended.get() == 0 && self.has_writer(members) {
            self.group_ended.set(1);
        }
    }

    /// Writers that joined since there was last none in the list.
    pub fn group_length(&self) -> u32 {
        self.group_length.get()
    }

    /// The writer that `me` must wait for, if it is still in the list.
    pub fn predecessor(&self, members: Members, me: MemberId) -> Option<MemberId> {
        let node = members.member(me);
        if node.linked.get() == 0 {
            return None;
        }
        let mut at = load(&node.chain_prev);
        while let Some(id) = at {
            let node = members.member(id);
            if node.reader.get() == 0 {
                return Some(id);
            }
            at = load(&node.chain_prev);
        }
        None
    }

    /// Whether somebody built on `me`, reservations and readers included.
    pub fn has_successor(&self, members: Members, me: MemberId) -> bool {
        let node = members.member(me);
        node.linked.get() != 0 && node.chain_next.get() != 0
    }

    /// Whether a writer built on `me`.
    pub fn writer_behind(&self, members: Members, me: MemberId) -> Option<MemberId> {
        let node = members.member(me);
        if node.linked.get() == 0 {
            return None;
        }
        let mut at = load(&node.chain_next);
        while let Some(id) = at {
            if members.member(id).reader.get() == 0 {
                return Some(id);
            }
            at = load(&members.member(id).chain_next);
        }
        None
    }

    /// Whether `me` still stands in the list.
    pub fn is_linked(&self, members: Members, me: MemberId) -> bool {
        members.member(me).linked.get() != 0
    }

    /// Whether that process has the row's ticket, or `has_updated`: it is before whoever comes now,
    /// if it does not give the ticket back. A reader that has not kept the ticket may still come to
    /// update.
    pub fn has_before(&self, members: Members, slot: Slot, backend: BackendId, xid: u32) -> bool {
        load(&self.holder).map(backend_of) == Some(backend)
            || self.has_updated(members, slot, backend, xid)
    }

    /// Whether that process has updated this row, which is `slot`, as the transaction `xid`: not in
    /// a savepoint of it, to which it may roll back and come to the row again.
    pub fn has_updated(&self, members: Members, slot: Slot, backend: BackendId, xid: u32) -> bool {
        let first = backend * MEMBERS as MemberId;
        (first..first + MEMBERS as MemberId)
            .map(|id| members.member(id))
            .filter(|node| node.is_of(slot) && node.linked.get() != 0 && node.reader.get() == 0)
            .any(|node| node.tid.get() != 0 && node.xid.get() == xid)
    }

    /// The holder is about to look at the version of `writer`, the tail. The writer cannot change
    /// that version until the offer is taken back or the ticket goes on: what comes of the look
    /// must not come from a version that was changed. A place in the list behind `writer` does the
    /// same.
    pub fn offer_tail(&self, writer: MemberId) {
        store(&self.tail_offered, Some(writer));
    }

    /// What has been looked at, if anything, counts for nothing.
    pub fn take_back_tail(&self) {
        self.tail_offered.set(0);
    }

    /// Nobody may follow `me` from now on. False, and nothing changed, when somebody already does,
    /// or looks at its version to do so.
    pub fn close(&self, members: Members, me: MemberId) -> bool {
        if self.has_successor(members, me) || load(&self.tail_offered) == Some(me) {
            return false;
        }
        members.member(me).closed.set(1);
        true
    }

    /// The xid of the writer that has followed `me`, if there is one.
    pub fn follower(&self, members: Members, me: MemberId) -> Option<u32> {
        if members.member(me).linked.get() == 0 {
            return None;
        }
        self.writer_behind(members, me)
            .map(|id| members.member(id).xid.get())
    }

    /// Asks to be woken (through the process latch) when the writer before `me` leaves. False when
    /// there is none.
    pub fn await_predecessor(&self, members: Members, me: MemberId) -> bool {
        let waits = self.predecessor(members, me).is_some();
        members.member(me).waiting.set(u32::from(waits));
        waits
    }

    /// `me` committed (or is prepared): leaves the list. `wake` hears of those that waited for it.
    pub fn depart(&self, members: Members, me: MemberId, mut wake: impl FnMut(BackendId)) {
        let node = members.member(me);
        if node.linked.get() == 0 {
            return;
        }
        if node.reader.get() == 0 {
            self.each_dependent(members, me, |id, node| {
                if node.waiting.get() != 0 {
                    node.waiting.set(0);
                    wake(backend_of(id));
                }
            });
        }
        self.unlink(members, me);
    }

    /// `me` rolled back. If it wrote, everybody behind it is doomed and leaves the list with it, so
    /// that the next updater starts from the last good version. Returns how many were doomed.
    pub fn roll_back(&self, members: Members, me: MemberId, wake: impl FnMut(BackendId)) -> u32 {
        let doomed = self.doom_behind(members, me, wake);
        self.unlink_if_linked(members, me);
        doomed
    }

    fn unlink_if_linked(&self, members: Members, me: MemberId) {
        if members.member(me).linked.get() != 0 {
            self.unlink(members, me);
        }
    }

    fn doom_behind(&self, members: Members, me: MemberId, mut wake: impl FnMut(BackendId)) -> u32 {
        let node = members.member(me);
        let mut doomed = 0;
        if node.linked.get() != 0 && node.reader.get() == 0 {
            while let Some(last) = load(&self.chain_last).filter(|&last| last != me) {
                let victim = members.member(last);
                victim.doomed.publish(1);
                doomed += 1;
                self.unlink(members, last);
                victim.waiting.set(0);
                wake(backend_of(last));
            }
        }
        doomed
    }

    /// `me` has rolled its version back and goes on. Those behind it are doomed, as by `roll_back`.
    /// It stays as a reader if it has seen a predecessor's version: that one must not change it any
    /// more.
    pub fn roll_back_version(
        &self,
        members: Members,
        me: MemberId,
        stays: bool,
        wake: impl FnMut(BackendId),
    ) -> u32 {
        let doomed = self.doom_behind(members, me, wake);
        if !stays {
            self.unlink_if_linked(members, me);
        } else if members.member(me).linked.get() != 0 {
            members.member(me).reader.set(1);
            self.renew_group(members);
        }
        doomed
    }

    /// Forgets a reservation whose version could not be written, or a reader that has seen nothing
    /// after all.
    pub fn withdraw(&self, members: Members, me: MemberId) {
        let node = members.member(me);
        if node.linked.get() != 0 {
            if node.reader.get() == 0 {
                self.group_length.sub(1);
            }
            self.unlink(members, me);
        }
        node.doomed.publish(0);
    }

    /// Makes a reservation whose version could not be written the reader that it was.
    pub fn step_back(&self, members: Members, me: MemberId) {
        let node = members.member(me);
        if node.linked.get() != 0 {
            self.group_length.sub(1);
            node.reader.set(1);
            self.renew_group(members);
        }
    }

    fn append(&self, members: Members, me: MemberId, xid: u32) {
        let node = members.member(me);
        let last = load(&self.chain_last);
        node.xid.set(xid);
        node.waiting.set(0);
        node.chain_next.set(0);
        store(&node.chain_prev, last);
        match last {
            Some(last) => store(&members.member(last).chain_next, Some(me)),
            None => store(&self.chain_first, Some(me)),
        }
        store(&self.chain_last, Some(me));
        node.linked.set(1);
        self.chain_length.add(1);
    }

    /// Hands those behind `me` to `wake` that wait for it: readers, and the first writer.
    pub fn wake_those_behind(
        &self,
        members: Members,
        me: MemberId,
        mut wake: impl FnMut(BackendId),
    ) {
        self.each_dependent(members, me, |id, node| {
            if node.waiting.get() != 0 {
                wake(backend_of(id));
            }
        });
    }

    /// Everybody whose nearest writer in front is `me`.
    fn each_dependent(
        &self,
        members: Members,
        me: MemberId,
        mut body: impl FnMut(MemberId, &Member),
    ) {
        let mut at = load(&members.member(me).chain_next);
        while let Some(id) = at {
            let node: &Member = members.member(id);
            body(id, node);
            if node.reader.get() == 0 {
                return;
            }
            at = load(&node.chain_next);
        }
    }

    fn unlink(&self, members: Members, me: MemberId) {
        let node = members.member(me);
        let (prev, next) = (load(&node.chain_prev), load(&node.chain_next));
        match prev {
            Some(prev) => store(&members.member(prev).chain_next, next),
            None => store(&self.chain_first, next),
        }
        match next {
            Some(next) => store(&members.member(next).chain_prev, prev),
            None => store(&self.chain_last, prev),
        }
        node.chain_prev.set(0);
        node.chain_next.set(0);
        // The last: from here on another process may take the place of a prepared transaction, for
        // another row.
        node.linked.set(0);
        self.chain_length.sub(1);
        self.renew_group(members);
    }

    /// Without a writer in the list a new group may begin.
    fn renew_group(&self, members: Members) {
        if !self.has_writer(members) {
            self.group_length.set(0);
            self.group_ended.set(0);
        }
    }

    /// Whether there is a writer in the list. Readers stay until their transactions end, long after
    /// those whose versions they have read.
    fn has_writer(&self, members: Members) -> bool {
        let mut at = load(&self.chain_first);
        while let Some(id) = at {
            let node = members.member(id);
            if node.reader.get() == 0 {
                return true;
            }
            at = load(&node.chain_next);
        }
        false
    }
}

#[cfg(test)]
mod tests;
