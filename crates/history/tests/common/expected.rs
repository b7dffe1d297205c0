//! What the verdict on a history must be at each level.

use Level::{ReadCommitted, RepeatableRead, Serializable};
use history::{Class, History, Level, Promise, Verdict, check};

const LEVELS: [Level; 3] = [ReadCommitted, RepeatableRead, Serializable];

pub fn verdict(history: &History, promise: Promise) -> Verdict {
    let verdict = check(history, promise).expect("no value is written twice");
    assert!(verdict.certain, "{verdict}");
    verdict
}

/// Accepted at every level below `level`; there and above refused for `class`.
#[track_caller]
pub fn refused_from(level: Level, class: Class, history: &History) {
    for tried in LEVELS {
        let verdict = verdict(history, tried.into());
        if tried < level {
            assert!(verdict.holds(), "at {tried:?}: {verdict}");
        } else {
            assert!(verdict.has(class), "at {tried:?}, not {class}: {verdict}");
        }
    }
}

#[track_caller]
pub fn accepted(history: &History) {
    for level in LEVELS {
        let verdict = verdict(history, level.into());
        assert!(verdict.holds(), "at {level:?}: {verdict}");
    }
}
