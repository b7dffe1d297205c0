//! Prepared transactions in the dependency list.
//!
//! The session that prepares a transaction goes on to others. The transaction's place in the list
//! goes to a membership of its own, the *heir*, so that others can follow its version. It waits for
//! nobody any more: its predecessors have committed.
//!
//! All functions want the row's lock held.

use crate::row::{Members, Row, Slot, load, store};
use crate::{BackendId, MemberId};

impl Row {
    /// The transaction of `me` is prepared. This row is `slot`, and `heir` is in no list. If `me`
    /// is a writer in the row's list, `heir` gets its place, and is a member of the row in its
    /// stead. Returns whether that is so.
    pub fn hand_over(&self, members: Members, slot: Slot, me: MemberId, heir: MemberId) -> bool {
        let (from, to) = (members.member(me), members.member(heir));
        if from.linked.get() == 0 || from.reader.get() != 0 {
            return false;
        }
        let (prev, next) = (load(&from.chain_prev), load(&from.chain_next));
        to.begin(slot);
        to.xid.set(from.xid.get());
        to.tid.set(from.tid.get());
        to.closed.set(from.closed.get());
        to.reader.set(0);
        to.waiting.set(0);
        store(&to.chain_prev, prev);
        store(&to.chain_next, next);
        match prev {
            Some(prev) => store(&members.member(prev).chain_next, Some(heir)),
            None => store(&self.chain_first, Some(heir)),
        }
        match next {
            Some(next) => store(&members.member(next).chain_prev, Some(heir)),
            None => store(&self.chain_last, Some(heir)),
        }
        from.chain_prev.set(0);
        from.chain_next.set(0);
        from.linked.set(0);
        to.linked.set(1);
        self.prepared.add(1);
        true
    }

    /// The prepared transaction that has written as `xid` has ended, and had the place of `heir` in
    /// the list of this row, which is `slot`: takes that off the list. Whoever stands behind one
    /// that has rolled back is doomed, as by `roll_back`. Returns how many these are; None if the
    /// place has been taken off before.
    pub fn settle(
        &self,
        members: Members,
        slot: Slot,
        heir: MemberId,
        xid: u32,
        has_committed: bool,
        wake: impl FnMut(BackendId),
    ) -> Option<u32> {
        let place = members.member(heir);
        if !place.is_of(slot) || place.linked.get() == 0 || place.xid.get() != xid {
            return None;
        }
        let doomed = if has_committed {
            self.depart(members, heir, wake);
            0
        } else {
            self.roll_back(members, heir, wake)
        };
        self.prepared.sub(1);
        self.part();
        Some(doomed)
    }
}

impl Members<'_> {
    /// lock-free: the row and the transaction id of a membership that stands in a list, which may
    /// be over by the time the answer is used.
    pub fn place(&self, member: MemberId) -> Option<(Slot, u32)> {
        let node = self.member(member);
        let slot = node.slot()?;
        (node.linked.get() != 0).then(|| (slot, node.xid.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Member;
    use crate::{MEMBERS, backend_of};

    const SLOT: Slot = 3;

    fn id(backend: u32) -> MemberId {
        backend * MEMBERS as MemberId
    }

    fn setup() -> (Row, Vec<Member>) {
        let members = (0..6 * MEMBERS).map(|_| Member::default()).collect();
        (Row::default(), members)
    }

    /// A list of writers, the number of each process its transaction's less 100.
    fn list(row: &Row, w: Members, backends: &[u32]) {
        for &backend in backends {
            w.member(id(backend)).begin(SLOT);
            row.members.add(1);
            row.link_writer(w, id(backend), 100 + backend, u64::from(backend));
        }
    }

    #[test]
    fn the_heir_stands_where_the_session_stood() {
        for me in 0..3 {
            let (row, members) = setup();
            let w = Members { all: &members };
            list(&row, w, &[0, 1, 2]);
            let before = row.tail(w).expect("three writers");
            assert!(row.hand_over(w, SLOT, id(me), id(5)));
            assert!(!row.is_linked(w, id(me)) && row.is_linked(w, id(5)));
            assert_eq!(w.place(id(5)), Some((SLOT, 100 + me)));
            assert_eq!(row.listed(), 3);
            assert!(row.has_prepared());
            let order: Vec<_> = (0..3).map(|n| if n == me { 5 } else { n }).collect();
            for pair in order.windows(2) {
                assert_eq!(row.predecessor(w, id(pair[1])), Some(id(pair[0])));
                assert_eq!(row.writer_behind(w, id(pair[0])), Some(id(pair[1])));
            }
            let after = row.tail(w).expect("three writers");
            assert_eq!((after.xid, after.tid), (before.xid, before.tid));
            assert_eq!(backend_of(after.member), order[2]);
            assert!(after.open);
            // The session's next transaction comes to the row anew.
            row.link_writer(w, id(me), 200, 7);
            assert_eq!(row.predecessor(w, id(me)), Some(after.member));
        }
    }

    #[test]
    fn only_a_writer_of_the_list_has_an_heir() {
        let (row, members) = setup();
        let w = Members { all: &members };
        list(&row, w, &[0]);
        row.link_reader(w, id(1), 101);
        for other in [1, 2] {
            assert!(!row.hand_over(w, SLOT, id(other), id(5)));
        }
        assert!(!row.has_prepared() && w.place(id(5)).is_none());
        assert_eq!(row.tail(w).map(|tail| tail.member), Some(id(0)));
    }

    #[test]
    fn a_closed_version_stays_closed() {
        let (row, members) = setup();
        let w = Members { all: &members };
        list(&row, w, &[0]);
        assert!(row.close(w, id(0)));
        row.hand_over(w, SLOT, id(0), id(5));
        assert!(!row.tail(w).expect("a writer").open);
    }

    #[test]
    fn a_commit_wakes_those_behind_and_dooms_nobody() {
        let (row, members) = setup();
        let w = Members { all: &members };
        list(&row, w, &[0, 1, 2]);
        row.hand_over(w, SLOT, id(0), id(5));
        assert!(row.await_predecessor(w, id(1)) && row.await_predecessor(w, id(2)));
        let mut woken = Vec::new();
        let wake = |backend| woken.push(backend);
        assert_eq!(row.settle(w, SLOT, id(5), 100, true, wake), Some(0));
        assert_eq!(woken, [1]);
        assert_eq!(row.listed(), 2);
        assert!(!members[id(1) as usize].is_doomed());
        assert!(!row.await_predecessor(w, id(1)));
    }

    #[test]
    fn a_rollback_dooms_all_behind() {
        let (row, members) = setup();
        let w = Members { all: &members };
        list(&row, w, &[0, 1, 2]);
        row.hand_over(w, SLOT, id(0), id(5));
        let mut woken = Vec::new();
        let wake = |backend| woken.push(backend);
        assert_eq!(row.settle(w, SLOT, id(5), 100, false, wake), Some(2));
        assert_eq!(woken, [2, 1]);
        assert_eq!(row.listed(), 0);
        for backend in [1, 2] {
            assert!(members[id(backend) as usize].is_doomed());
        }
    }

    #[test]
    fn a_place_is_taken_off_once_and_by_its_own_name() {
        let (row, members) = setup();
        let w = Members { all: &members };
        list(&row, w, &[0, 1]);
        row.hand_over(w, SLOT, id(0), id(5));
        row.part();
        let never = |_| panic!("nobody waits");
        assert_eq!(row.settle(w, SLOT, id(5), 99, false, never), None);
        assert_eq!(row.settle(w, SLOT + 1, id(5), 100, false, never), None);
        assert!(!row.is_idle());
        assert_eq!(row.settle(w, SLOT, id(5), 100, true, never), Some(0));
        assert!(row.is_idle() && !row.has_prepared());
        assert_eq!(row.settle(w, SLOT, id(5), 100, true, never), None);
        assert_eq!(w.place(id(5)), None);
    }
}
