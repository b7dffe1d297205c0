//! Each transition, from each state from which it leads, and the refusals.

use super::*;

const OLD: Address = 7;
const SEEN: Address = 8;
const COMMAND: u32 = 3;
const OWN: Address = 9;
const WRITER: u32 = 100;
const QUERY: Statement = 0x1000;
const BASE: Base = Base {
    version: SEEN,
    xid: WRITER,
};

fn asking() -> Membership {
    Membership::begin(3, 16_400, 1)
}

fn holding() -> Membership {
    asking().queued().granted()
}

fn unused() -> Membership {
    holding().claimed_by(Some(QUERY)).came_with(OLD)
}

fn offered() -> Membership {
    unused().offered(SEEN, WRITER, COMMAND)
}

fn restarting() -> Membership {
    offered().handed_out().starts_again()
}

fn lent() -> Membership {
    offered().lends(SEEN)
}

fn follower() -> Membership {
    offered().reserves(BASE).follows(OWN, 1, COMMAND)
}

fn kept() -> Membership {
    unused().goes_heaps_way().writes(OWN, 1)
}

fn all() -> Vec<(&'static str, Membership)> {
    vec![
        ("asking", asking()),
        ("queued", asking().queued()),
        ("holding", holding()),
        ("unused", unused()),
        ("locked", unused().locked()),
        ("offered", offered()),
        ("handed", offered().handed_out()),
        ("restarting", restarting()),
        ("lent", lent()),
        ("lent and offered", lent().offered(SEEN, WRITER, COMMAND)),
        ("reserved", offered().reserves(BASE)),
        ("reserved of a lender", lent().reserves(BASE)),
        ("kept", kept()),
        ("leader", kept().leads()),
        ("follower", follower()),
        ("reader", offered().reads(true)),
        ("reader out of the list", offered().reads(false)),
        ("failed reader", offered().fails(true)),
    ]
}

#[test]
fn a_ticket_is_asked_for_queued_for_and_granted() {
    let queued = asking().queued();
    assert!(queued.is_in_queue() && !queued.has_ticket());
    assert!(!asking().is_in_queue() && !queued.served().is_in_queue());
    for held in [asking().granted(), queued.granted()] {
        assert!(held.has_ticket() && !held.is_listed() && !held.depends());
        assert_eq!((held.slot(), held.relation()), (3, 16_400));
    }
}

#[test]
fn a_ticket_is_that_of_the_first_statement_until_it_is_used() {
    let other = Some(QUERY + 1);
    assert!(unused().is_unused_by(QUERY));
    assert!(unused().claimed_by(other).is_unused_by(QUERY));
    assert!(unused().taken_over_by(other).is_unused_by(QUERY + 1));
    assert_eq!(holding().claimed_by(None), holding());
    for used in [unused().locked(), lent(), kept(), follower()] {
        assert_eq!(used.claimed_by(other), used);
        assert_eq!(used.taken_over_by(other), used);
        assert!(!used.is_unused_by(QUERY) && !used.is_unused_by(QUERY + 1));
    }
}

#[test]
fn only_the_first_version_is_the_origin() {
    assert_eq!(unused().came_with(SEEN).origin(), Some(OLD));
    assert_eq!(offered().came_with(SEEN).origin(), Some(OLD));
    assert_eq!(kept().came_with(OLD), kept());
}

#[test]
fn an_offer_is_a_dependency_that_can_be_looked_for_where_the_executor_is() {
    let offered = offered();
    assert_eq!(offered.predecessor(), Some(WRITER));
    assert!(offered.is_looked_for_at(OLD) && !offered.is_looked_for_at(SEEN));
    assert!(offered.handed_out().is_looked_for_at(SEEN));
    assert!(offered.has_looked_at(SEEN) && offered.is_pending() && offered.has_in_hand(SEEN));
    let next = offered.handed_out().offered(OWN, WRITER + 1, COMMAND);
    assert!(next.is_looked_for_at(SEEN) && next.has_in_hand(SEEN) && next.has_looked_at(OWN));
    assert_eq!(next.predecessor(), Some(WRITER + 1));
}

#[test]
fn a_forgotten_offer_leaves_no_dependency_but_of_what_was_shown() {
    let forgotten = offered().handed_out().offer_forgotten();
    assert_eq!(forgotten, unused());
    let shown = lent().offered(OWN, WRITER + 1, COMMAND).offer_forgotten();
    assert_eq!(shown.predecessor(), Some(WRITER + 1));
    assert!(shown.has_locked() && shown.lent() == Some(SEEN) && shown.offer().is_none());
}

#[test]
fn a_restart_goes_back_to_the_origin_and_depends_on_nobody() {
    let again = restarting();
    assert!(again.is_restarting() && !again.depends() && again.has_ticket());
    assert!(again.is_looked_for_at(OLD) && again.is_looked_for_at(SEEN));
    assert!(again.is_pending() && !again.has_looked_at(SEEN));
    assert_eq!(again.offer_forgotten(), unused());
    assert!(again.hands_emptied().is_restarting() && !again.hands_emptied().is_pending());
}

#[test]
fn what_is_lent_is_locked_and_listed_until_it_is_built_on_or_its_writer_ends() {
    let lent = lent();
    assert!(lent.has_locked() && lent.is_listed() && lent.has_ticket() && lent.has_looked_at(SEEN));
    assert!(!lent.is_unused_by(QUERY));
    assert_eq!(lent.offered(SEEN, WRITER, COMMAND).lends(SEEN), lent);
    let after = lent.predecessor_committed().hands_emptied();
    assert!(after.has_locked() && after.is_listed() && !after.is_pending() && !after.depends());
    let written = after.writes(OWN, 1);
    assert!(written.has_locked() && written.is_listed() && written.has_ticket());
    assert!(!written.leads().has_ticket());
}

#[test]
fn a_reservation_becomes_a_follower_or_what_it_was() {
    for before in [
        offered().handed_out(),
        lent(),
        lent().offered(SEEN, WRITER, COMMAND),
    ] {
        let reserved = before.reserves(BASE);
        assert!(reserved.is_listed() && reserved.has_ticket() && !reserved.has_version());
        assert_eq!(reserved.predecessor(), before.predecessor());
        assert_eq!(reserved.has_locked(), before.has_locked());
        assert_eq!(reserved.steps_back(), before);
        let follower = reserved.follows(OWN, 1, COMMAND);
        assert_eq!(follower.base(), Some(BASE));
        assert_eq!(follower.predecessor(), Some(WRITER));
        assert!(follower.is_listed() && !follower.has_ticket() && !follower.is_pending());
    }
}

#[test]
fn a_base_is_confirmed_or_lost() {
    let confirmed = follower().predecessor_committed().base_confirmed();
    assert!(confirmed.base().is_none() && !confirmed.has_lost_base());
    let lost = follower().predecessor_committed().base_taken();
    assert!(lost.base().is_none() && lost.has_lost_base());
    assert!(lost.writes_again(20, 2, false).has_lost_base());
    assert!(!follower().has_lost_base());
    assert!(!follower().predecessor_committed().has_lost_base());
}

#[test]
fn a_leader_has_no_base_and_one_that_keeps_the_ticket_is_not_listed() {
    assert!(kept().has_ticket() && !kept().is_listed() && kept().base().is_none());
    assert!(!kept().is_unused_by(QUERY));
    let leader = kept().leads();
    assert!(!leader.has_ticket() && leader.is_listed() && leader.base().is_none());
    assert_eq!(leader.version(), Some(OWN));
}

#[test]
fn a_reader_depends_and_has_nothing_else() {
    for listed in [true, false] {
        let reader = offered().reads(listed);
        assert_eq!(reader.predecessor(), Some(WRITER));
        assert_eq!(reader.is_listed(), listed);
        assert!(!reader.has_ticket() && !reader.is_pending() && !reader.is_in_queue());
        assert!(!reader.predecessor_committed().depends());
    }
}

#[test]
fn a_committed_predecessor_is_none() {
    for (name, membership) in all() {
        if !name.starts_with("reserved") {
            let after = membership.predecessor_committed();
            assert!(!after.depends(), "{name}");
            assert_eq!(after.is_listed(), membership.is_listed(), "{name}");
            assert_eq!(after.has_ticket(), membership.has_ticket(), "{name}");
            assert_eq!(after.has_locked(), membership.has_locked(), "{name}");
        }
    }
}

#[test]
fn a_subtransactions_membership_ends_with_it() {
    let inner = |membership: Membership| Membership {
        level: 2,
        ..membership
    };
    assert_eq!(inner(unused()).subtransaction_rolled_back(2), None);
    assert_eq!(inner(kept()).subtransaction_rolled_back(2), None);
    assert_eq!(unused().subtransaction_rolled_back(2), Some(unused()));
    let kept_by_parent = inner(unused().locked()).subtransaction_committed(2);
    assert!(kept_by_parent.is_passed_up());
    assert_eq!(
        kept_by_parent.subtransaction_rolled_back(2),
        Some(kept_by_parent)
    );
    assert!(!inner(unused()).subtransaction_committed(2).is_passed_up());
}

#[test]
fn a_version_rolls_back_to_the_one_that_it_replaced() {
    let address = |membership: Option<Membership>| membership.and_then(|m| m.version());
    let twice = follower().writes_again(20, 2, false);
    assert_eq!(address(twice.subtransaction_rolled_back(2)), Some(OWN));
    assert_eq!(address(twice.subtransaction_rolled_back(3)), Some(20));
    // Released, it is the one to come back to.
    let released = twice.subtransaction_committed(2);
    let third = released.writes_again(21, 2, false);
    assert_eq!(address(third.subtransaction_rolled_back(2)), Some(20));
    // One that was the first: the lock stays.
    let first = unused()
        .locked()
        .writes(OWN, 2)
        .subtransaction_rolled_back(2);
    assert!(first.is_some_and(|m| m.has_locked() && m.has_ticket() && !m.has_version()));
}

#[test]
fn a_place_in_the_list_goes_with_the_subtransaction_that_has_taken_it() {
    let inner = |m: Membership| Membership { level: 2, ..m };
    let leader = inner(unused().writes(OWN, 2).leads());
    assert!(leader.loses_place(2) && !leader.loses_place(3));
    assert_eq!(leader.subtransaction_rolled_back(2), None);
    assert_eq!(leader.subtransaction_rolled_back(3), Some(leader));
    // Released, it is the whole transaction's.
    let released = leader.subtransaction_committed(2);
    assert!(!released.loses_place(2));
    // A second version above the first one.
    let twice = leader.writes_again(20, 3, false);
    assert!(!twice.loses_place(3) && twice.loses_place(2));
    // A follower has seen its predecessor, whatever becomes of the subtransaction.
    let State::Written(written) = *follower().state() else {
        panic!("a follower has written");
    };
    let version = Version {
        level: 2,
        ..written.version
    };
    let inner_follower = inner(follower().to(State::Written(Written { version, ..written })));
    assert!(inner_follower.loses_place(2));
    let reader = inner_follower.subtransaction_rolled_back(2);
    assert!(reader.is_some_and(|m| m.depends() && !m.has_version() && m.is_listed()));
    let still = reader.and_then(|m| m.subtransaction_rolled_back(1));
    assert!(still.is_some_and(|m| m.depends()));
    // So has one whose statement has come to nothing, or that has locked a version.
    let unlisted = inner(offered().reads(false)).subtransaction_rolled_back(2);
    assert!(unlisted.is_some_and(|m| m.depends()));
    let lent_version = lent;
    let lent = inner(lent_version()).subtransaction_rolled_back(2);
    assert!(lent.is_some_and(|m| m.depends() && m.is_listed() && !m.has_ticket()));
    assert_eq!(inner(offered()).subtransaction_rolled_back(2), None);
    // What a failed statement has looked at goes with it; what another one has looked at does not.
    let failed = offered().fails(true);
    assert!(failed.depends() && failed.is_listed());
    for failed in [failed, failed.predecessor_committed()] {
        assert_eq!(inner(failed).subtransaction_rolled_back(2), None);
    }
    for told in [failed.reads(true), offered().reads(true).fails(true)] {
        assert!(inner(told).subtransaction_rolled_back(2).is_some());
    }
    // A reservation goes, with the ticket.
    let reserved = inner(offered().reserves(BASE));
    assert!(reserved.loses_place(2) && !reserved.loses_place(3));
    assert_eq!(reserved.subtransaction_rolled_back(2), None);
    let reserved_lent = inner(lent_version().reserves(BASE)).subtransaction_rolled_back(2);
    assert!(reserved_lent.is_some_and(|m| m.depends() && m.is_listed() && !m.has_ticket()));
    assert_eq!(reserved.subtransaction_rolled_back(3), Some(reserved));
}

#[test]
fn a_row_is_gone_only_as_a_version() {
    assert!(follower().deletes().is_gone());
    assert!(follower().writes_again(20, 1, true).is_gone());
    assert!(!follower().writes_again(20, 1, false).is_gone());
    let rolled_back = kept().writes_again(20, 2, true);
    assert!(rolled_back.is_gone());
    let first = unused()
        .writes(OWN, 2)
        .deletes()
        .subtransaction_rolled_back(2);
    assert!(first.is_some_and(|m| !m.writes(20, 1).is_gone()));
}

/// Transitions that make no sense are refused.
#[cfg(debug_assertions)]
mod refusals {
    use super::*;

    const HELD: [&str; 6] = [
        "holding",
        "unused",
        "locked",
        "offered",
        "handed",
        "restarting",
    ];
    const LENT: [&str; 2] = ["lent", "lent and offered"];
    const WRITTEN: [&str; 3] = ["kept", "leader", "follower"];

    /// The states in which this transition is no mistake.
    fn allows(transition: impl Fn(Membership) -> Membership) -> Vec<&'static str> {
        let refuses = |membership| {
            let transition = std::panic::AssertUnwindSafe(|| transition(membership));
            std::panic::catch_unwind(transition).is_err()
        };
        all()
            .into_iter()
            .filter(|&(_, membership)| !refuses(membership))
            .map(|(name, _)| name)
            .collect()
    }

    /// Asserts that the transition is a mistake in all states but these.
    fn assert_allowed(
        name: &str,
        transition: impl Fn(Membership) -> Membership,
        states: &[&'static str],
    ) {
        assert_eq!(allows(transition), states, "{name}");
    }

    #[test]
    fn of_a_ticket() {
        assert_allowed("queued", Membership::queued, &["asking"]);
        assert_allowed("granted", Membership::granted, &["asking", "queued"]);
        assert_allowed("served", Membership::served, &["queued"]);
        let given = ["holding", "unused"];
        assert_allowed("queues_again", Membership::queues_again, &given);
        let any = [&HELD[..], &LENT, &WRITTEN].concat();
        assert_allowed("locked", Membership::locked, &any);
    }

    #[test]
    fn of_an_offer() {
        let any = [&HELD[..], &LENT].concat();
        assert_allowed("offered", |m| m.offered(SEEN, WRITER, COMMAND), &any);
        assert_allowed("offer_forgotten", Membership::offer_forgotten, &any);
        let offered = ["offered", "handed", "lent and offered"];
        assert_allowed("handed_out", Membership::handed_out, &offered);
        let own = ["offered", "handed"];
        assert_allowed("starts_again", Membership::starts_again, &own);
        let looking = ["offered", "handed", "lent", "lent and offered"];
        assert_allowed("lends", |m| m.lends(SEEN), &looking);
        assert_allowed("reserves", |m| m.reserves(BASE), &looking);
        let mut readers = HELD.to_vec();
        readers.retain(|&name| name != "locked");
        readers.extend(["reader", "reader out of the list", "failed reader"]);
        assert_allowed("reads", |m| m.reads(true), &readers);
        assert_allowed("fails", |m| m.fails(true), &readers);
    }

    #[test]
    fn of_a_reservation_and_of_versions() {
        let reserved = ["reserved", "reserved of a lender"];
        assert_allowed("follows", |m| m.follows(OWN, 1, COMMAND), &reserved);
        assert_allowed("steps_back", Membership::steps_back, &reserved);
        let writers = ["holding", "unused", "locked", "kept"];
        assert_allowed("writes", |m| m.writes(OWN, 1), &writers);
        assert_allowed("writes_again", |m| m.writes_again(20, 1, false), &WRITTEN);
        assert_allowed("deletes", Membership::deletes, &WRITTEN);
        assert_allowed("leads", Membership::leads, &["kept"]);
    }
}
