//! What the running transactions tell: surveys, and snapshots that were overtaken.

use keyrange::{Survey, overtaken};

use crate::memory::{Memory, View, since};

/// A committer of each of four processes; 1 runs transaction 11, and so on.
fn survey(memory: &Memory, running: &[u64], run_by: [u64; 4], aborted: &[u64]) -> Survey {
    Survey::of(
        &memory.clock,
        &memory.committers,
        running.iter().copied(),
        50,
        |process| run_by[process],
        |fxid| aborted.contains(&fxid),
    )
}

#[test]
fn who_idles_has_left_nothing_that_could_be_missing() {
    let memory = Memory::new(4, 4);
    let csn = memory.write(12, &[5]); // by process 0
    let idle = [0, 0, 10, 0];
    let all = |running, aborted| survey(&memory, running, idle, aborted);
    let nobody = all(&[10], &[]);
    assert_eq!((nobody.first, nobody.end), (50, 50));
    assert_eq!(nobody.lasting_prefix, csn);
    // 12 had its CSN, and had not ended.
    let one = all(&[10, 12], &[]);
    assert_eq!(
        (one.first, one.prefix, one.lasting_prefix),
        (12, csn - 1, csn - 1)
    );
    assert_eq!(all(&[10, 12], &[12]).first, 50);
    // Nobody runs 8: it has ended, or is prepared.
    let unknown = all(&[8, 10], &[]);
    assert_eq!(
        (unknown.first, unknown.prefix, unknown.lasting_prefix),
        (8, 0, 0)
    );
}

/// Transactions 1 to 4, each of a process of its own, have CSNs in this order.
#[test]
fn a_snapshot_that_sees_a_later_one_only_has_been_overtaken() {
    let memory = Memory::new(4, 8);
    let view = |running: &[u64]| View {
        ended: (1..20).filter(|fxid| !running.contains(fxid)).collect(),
        ..since(1)
    };
    let of = |running: &[u64]| {
        overtaken(
            memory.space().committers,
            &view(running),
            |_| true,
            |_, _| true,
        )
    };
    assert_eq!(of(&[]), None, "nobody has written");
    for fxid in 1..=4 {
        memory.write(fxid, &[10]);
    }
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[4]), None);
    assert_eq!(of(&[3, 4]), None);
    assert_eq!(of(&[1, 2, 3, 4]), None);
    assert_eq!(of(&[3]), Some(3));
    assert_eq!(of(&[1, 4]), Some(1));
    let committers = memory.space().committers;
    let elsewhere = overtaken(
        committers,
        &view(&[1, 4]),
        |process| process != 1,
        |_, _| true,
    );
    assert_eq!(elsewhere, None);
    let not_first = overtaken(committers, &view(&[1, 3]), |_| true, |_, fxid| fxid != 1);
    assert_eq!(not_first, Some(3));
    // What a process ran before is known until it has ended two more.
    memory.write(8, &[10]);
    assert_eq!(of(&[3, 8]), Some(3));
    memory.write(7, &[10]);
    assert_eq!(of(&[3]), Some(3));
    assert_eq!(of(&[8]), Some(8));
    memory.write(11, &[10]);
    assert_eq!(of(&[3]), None);
}
