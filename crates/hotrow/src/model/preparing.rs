//! Prepared transactions in the model of whole transactions: others than their session end them,
//! and take their places off the list late.

use super::check_pct;
use super::prepared::Left;
use super::server::{Fate, Server};
use super::transactions::Transaction;
use crate::{BackendId, MEMBERS, Member, MemberId, Members, Row, backend_of};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;

const SLOT: u32 = 0;

fn membership(standing: BackendId) -> MemberId {
    standing * MEMBERS as MemberId
}

impl Server {
    /// Takes the place off the list if its transaction has ended.
    fn settle(&self, member: MemberId, xid: u32) {
        let fate = self.fate(xid);
        if fate == Fate::Running {
            return;
        }
        let mut woken = Vec::new();
        self.with_row(|row, w| {
            let wake = |backend| woken.push(backend);
            row.settle(w, SLOT, member, xid, fate == Fate::Committed, wake);
        });
        woken.into_iter().for_each(|backend| self.wake(backend));
    }

    /// Before somebody builds on the list's tail.
    pub fn settle_tail(&self) {
        let tail = self.with_row(|row, w| row.tail(w));
        if let Some(tail) = tail.filter(|tail| self.stands_for_prepared(tail.member)) {
            self.settle(tail.member, tail.xid);
        }
    }

    fn stands_for_prepared(&self, member: MemberId) -> bool {
        backend_of(member) as usize >= self.sessions()
    }

    fn settle_places(&self, standing: BackendId) {
        let member = membership(standing);
        let place = self.with_row(|_, w| w.place(member));
        if let Some((slot, xid)) = place {
            assert_eq!(slot, SLOT);
            self.settle(member, xid);
        }
    }

    /// Another session ends what is prepared, one after the other.
    pub fn finish_prepared(&self, rollbacks: bool) {
        while let Some(left) = self.prepared.next() {
            let commits = !rollbacks || thread_rng().gen_bool(0.6);
            let member = membership(left.standing);
            assert!(
                !self.members[member as usize].is_doomed(),
                "a prepared transaction is doomed"
            );
            let fate = if commits {
                Fate::Committed
            } else {
                Fate::RolledBack
            };
            self.end(&left.xids, fate);
            // What stood for it may stand for another one before its place is free.
            self.prepared.free.lock().unwrap().push(left.standing);
            self.settle(member, left.writer);
        }
    }
}

impl Transaction<'_> {
    /// PREPARE TRANSACTION. False if there is no room.
    pub fn prepare(&self, writer: u32) -> bool {
        let server = self.server;
        let Some(standing) = server.prepared.free.lock().unwrap().pop() else {
            return false;
        };
        server.settle_places(standing);
        server.with_row(|row, w| {
            assert!(row.hand_over(w, SLOT, self.me, membership(standing)));
            w.forgive(self.me);
        });
        let left = Left {
            standing,
            writer,
            xids: self.ids(writer),
        };
        server.prepared.leave(left);
        true
    }
}

/// A member that stood for a prepared transaction in one row's list is given to another
/// transaction, in another row's list. Meanwhile the first place is being taken off.
#[test]
fn a_place_serves_another_row_when_it_is_free() {
    check_pct(
        || {
            const HEIR: MemberId = 3 * MEMBERS as MemberId;
            let id = |session: usize| (session * MEMBERS) as MemberId;
            let members: Vec<_> = (0..4 * MEMBERS).map(|_| Member::default()).collect();
            let shared = Arc::new(([Row::default(), Row::default()], members));
            let locks = Arc::new([Mutex::new(()), Mutex::new(())]);
            let settle = |(rows, members): &([Row; 2], Vec<Member>), locks: &[Mutex<()>; 2]| {
                let members = Members { all: members };
                // The other one has not ended.
                if let Some((slot, xid @ 100)) = members.place(HEIR) {
                    let _held = locks[slot as usize].lock().unwrap();
                    rows[slot as usize].settle(members, slot, HEIR, xid, true, |_| ());
                }
            };
            let (rows, members) = (&shared.0, Members { all: &shared.1 });
            for (row, session, xid) in [(0, 0, 100), (1, 1, 101), (1, 2, 102)] {
                rows[row].members.add(1);
                rows[row].link_writer(members, id(session), xid, 1);
            }
            assert!(rows[0].hand_over(members, 0, id(0), HEIR));
            let ending = {
                let (shared, locks) = (shared.clone(), locks.clone());
                thread::spawn(move || settle(&shared, &locks))
            };
            settle(&shared, &locks);
            {
                let _held = locks[1].lock().unwrap();
                assert!(rows[1].hand_over(members, 1, id(1), HEIR));
            }
            ending.join().unwrap();
            assert_eq!(rows[1].predecessor(members, id(2)), Some(HEIR));
            assert_eq!(rows[1].writer_behind(members, HEIR), Some(id(2)));
            assert!(rows[0].is_idle() && !rows[1].is_idle());
        },
        4000,
        3,
    );
}
