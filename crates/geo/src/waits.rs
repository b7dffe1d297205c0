//! What a server says of its waits, as edges of the waits-for graph.

use crate::deadlock::{Edge, HERE, Look, Party};
use crate::gid::Gid;
use crate::name::{Id, Name};
use crate::running::Session;

/// The conflicts of lock modes (lock.c: LockConflicts), each mode with those that it conflicts
/// with.
const CONFLICTS: [(&str, &[u8]); 8] = [
    ("AccessShareLock", &[7]),
    ("RowShareLock", &[6, 7]),
    ("RowExclusiveLock", &[4, 5, 6, 7]),
    ("ShareUpdateExclusiveLock", &[3, 4, 5, 6, 7]),
    ("ShareLock", &[2, 3, 5, 6, 7]),
    ("ShareRowExclusiveLock", &[2, 3, 4, 5, 6, 7]),
    ("ExclusiveLock", &[1, 2, 3, 4, 5, 6, 7]),
    ("AccessExclusiveLock", &[0, 1, 2, 3, 4, 5, 6, 7]),
];

/// Whether locks of these modes exclude each other. Unknown ones do.
fn conflict(one: &str, other: &str) -> bool {
    let place = |mode| CONFLICTS.iter().position(|known| known.0 == mode);
    match (place(one), place(other)) {
        (Some(one), Some(other)) => CONFLICTS[one].1.contains(&(other as u8)),
        _ => true,
    }
}

/// One process that waits for a lock, and one who holds it or is before it in the queue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wait {
    /// The process that waits, or its leader if it is a parallel worker.
    pub pid: i32,
    /// When it began to wait, as the server's text.
    pub since: String,
    /// Its `application_name`.
    pub name: Option<String>,
    /// The process that it waits for; 0: a prepared transaction.
    pub holder: i32,
    /// Its `application_name`.
    pub holder_name: Option<String>,
    /// The prepared transaction's name.
    pub gid: Option<String>,
    /// The modes that are wanted and held, where they have to be compared.
    pub modes: Option<(String, String)>,
}

impl Wait {
    /// What a row says: pid, since, name, pid, name and gid of the holder, both modes.
    pub fn of_row(row: Vec<Option<String>>) -> Option<Wait> {
        let mut fields = row.into_iter();
        let mut next = || fields.next().flatten();
        Some(Wait {
            pid: next()?.parse().ok()?,
            since: next()?,
            name: next(),
            holder: next()?.parse().ok()?,
            holder_name: next(),
            gid: next(),
            modes: next().zip(next()),
        })
    }
}

impl Look {
    /// Adds what a server says. `HERE` is this one, at which the processes of the sessions are.
    pub fn add(&mut self, place: u32, waits: &[Wait], sessions: &[Session]) {
        for wait in waits {
            let (waiter, has_name) = self.party(place, wait.pid, wait.name.as_deref(), sessions);
            let holder = match &wait.gid {
                None if wait.holder == 0 => continue,
                None => {
                    self.party(place, wait.holder, wait.holder_name.as_deref(), sessions)
                        .0
                }
                // A prepared transaction that is none of a coordinator's waits for nobody.
                Some(gid) => match Gid::parse(gid) {
                    Some(gid) => Party::Transaction(id_of(&gid)),
                    None => continue,
                },
            };
            let is_it = |modes: &(String, String)| conflict(&modes.0, &modes.1);
            if !wait.modes.as_ref().is_none_or(is_it) {
                continue;
            }
            let is_protected = |id: Id| {
                sessions
                    .iter()
                    .any(|one| one.name.id == id && one.is_protected)
            };
            let may_fail = match waiter {
                Party::Transaction(id) => has_name && !is_protected(id),
                Party::Process { .. } => false,
            };
            self.edges.insert(Edge {
                waiter,
                holder,
                place,
                pids: (wait.pid, wait.holder),
                since: wait.since.clone(),
                may_fail,
            });
        }
    }

    /// The party of that process, and whether it is a node's process that acts for a transaction.
    fn party(
        &mut self,
        place: u32,
        pid: i32,
        name: Option<&str>,
        sessions: &[Session],
    ) -> (Party, bool) {
        let session = sessions.iter().find(|one| place == HERE && one.pid == pid);
        if let Some(session) = session {
            self.begun.insert(session.name.id, session.name.begun);
            return (Party::Transaction(session.name.id), false);
        }
        match name.and_then(Name::parse) {
            Some(name) => {
                self.begun.insert(name.id, name.begun);
                (Party::Transaction(name.id), true)
            }
            None => (Party::Process { place, pid }, false),
        }
    }
}

fn id_of(gid: &Gid) -> Id {
    Id {
        coordinator: gid.coordinator,
        incarnation: gid.incarnation,
        sequence: gid.sequence,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(sequence: u64) -> Id {
        Id {
            coordinator: 5,
            incarnation: 1,
            sequence,
        }
    }

    fn name(sequence: u64) -> Name {
        let begun = 100 + sequence;
        Name {
            id: id(sequence),
            begun,
        }
    }

    fn wait(pid: i32, holder: i32) -> Wait {
        Wait {
            pid,
            since: "then".to_owned(),
            holder,
            ..Wait::default()
        }
    }

    fn only(look: &Look) -> Edge {
        assert_eq!(look.edges.len(), 1, "{look:?}");
        look.edges.iter().next().unwrap().clone()
    }

    #[test]
    fn modes_conflict_both_ways() {
        for (one, _) in CONFLICTS {
            for (other, _) in CONFLICTS {
                assert_eq!(conflict(one, other), conflict(other, one), "{one} {other}");
            }
        }
        assert!(!conflict("ShareLock", "RowShareLock"));
        assert!(conflict("ShareLock", "RowExclusiveLock"));
        assert!(conflict("ExclusiveLock", "none of these"));
    }

    #[test]
    fn a_row_is_read() {
        let text = |text: &str| Some(text.to_owned());
        let row = vec![
            text("1"),
            text("now"),
            text("a"),
            text("2"),
            text("b"),
            None,
            None,
            None,
        ];
        let expected = Wait {
            pid: 1,
            since: "now".to_owned(),
            name: text("a"),
            holder: 2,
            holder_name: text("b"),
            gid: None,
            modes: None,
        };
        assert_eq!(Wait::of_row(row), Some(expected));
        assert_eq!(Wait::of_row(vec![text("1"), None]), None);
        assert_eq!(Wait::of_row(Vec::new()), None);
    }

    #[test]
    fn processes_at_nodes_are_known_by_their_names() {
        let mut look = Look::default();
        let mut one = wait(10, 11);
        one.name = Some(name(1).to_string());
        look.add(7, &[one], &[]);
        let edge = only(&look);
        assert_eq!(edge.waiter, Party::Transaction(id(1)));
        assert_eq!(edge.holder, Party::Process { place: 7, pid: 11 });
        assert!(edge.may_fail);
        assert_eq!(look.begun.get(&id(1)), Some(&101));
    }

    #[test]
    fn sessions_are_known_by_their_processes_and_only_here() {
        let session = Session {
            name: name(1),
            pid: 10,
            wait: 0,
            is_protected: false,
        };
        for (place, is_known) in [(HERE, true), (7, false)] {
            let mut look = Look::default();
            look.add(place, &[wait(10, 11)], &[session]);
            let edge = only(&look);
            assert_eq!(edge.waiter == Party::Transaction(id(1)), is_known);
            // Nobody can end its wait in the lock manager.
            assert!(!edge.may_fail);
        }
    }

    #[test]
    fn a_protected_transaction_may_not_fail() {
        let session = Session {
            name: name(1),
            pid: 99,
            wait: 1,
            is_protected: true,
        };
        let mut look = Look::default();
        let mut one = wait(10, 11);
        one.name = Some(name(1).to_string());
        look.add(7, &[one], &[session]);
        assert!(!only(&look).may_fail);
    }

    #[test]
    fn prepared_holders_are_known_by_their_gids() {
        let gid = Gid {
            coordinator: 5,
            incarnation: 1,
            sequence: 3,
            mapping: 4,
        };
        let modes = |wanted: &str, held: &str| Some((wanted.to_owned(), held.to_owned()));
        let mut one = wait(10, 0);
        one.gid = Some(gid.to_string());
        one.modes = modes("ShareLock", "ExclusiveLock");
        let mut look = Look::default();
        look.add(7, &[one.clone()], &[]);
        assert_eq!(only(&look).holder, Party::Transaction(id(3)));
        // Another one that it does not wait for, one of others, and one that is not known.
        one.modes = modes("ShareLock", "RowShareLock");
        let mut other = wait(10, 0);
        other.gid = Some("theirs".to_owned());
        let mut look = Look::default();
        look.add(7, &[one, other, wait(10, 0)], &[]);
        assert!(look.edges.is_empty());
    }
}
