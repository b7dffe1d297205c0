//! What a block of schedules leans to. The grammar stays whole: a theme makes some of it likelier,
//! so that what takes several things at once comes up within minutes.
use super::draw::Theme;
use super::grammar;

const ANY: Theme = Theme {
    weight: 9,
    mixes: grammar::MIXES,
    leaning: 0.4,
    follows: 0.0,
    by_index: 0.0,
    first: 0.5,
    alone: 0.2,
    rollbacks: 22,
    gate: 1,
    range: 0.15,
    hottest: (0.75, 0.7),
    generic: 0.2,
    sessions: &[2, 2, 3, 3, 4],
    crowded: false,
    apart: false,
    warm: false,
};

const THEMES: [Theme; 8] = [
    ANY,
    // A leader reads other rows of the page on which its followers are.
    Theme {
        weight: 3,
        mixes: grammar::CROWD,
        leaning: 0.8,
        follows: 0.8,
        by_index: 0.8,
        first: 0.8,
        range: 0.0,
        crowded: true,
        ..ANY
    },
    // What followers note of rows whose writers roll back.
    Theme {
        weight: 4,
        mixes: grammar::NOTES,
        leaning: 0.8,
        follows: 0.9,
        first: 0.4,
        alone: 0.4,
        rollbacks: 55,
        gate: 3,
        range: 0.0,
        ..ANY
    },
    // Several sessions run one statement, and wait for one row.
    Theme {
        weight: 2,
        mixes: grammar::SAME,
        leaning: 0.9,
        by_index: 0.8,
        first: 0.9,
        alone: 0.6,
        range: 0.0,
        hottest: (0.95, 0.95),
        apart: true,
        generic: 0.9,
        sessions: &[4],
        ..ANY
    },
    // Rows that a follower finds, or not, by what its predecessor has changed.
    Theme {
        weight: 3,
        mixes: grammar::CHANGED,
        leaning: 0.9,
        follows: 0.9,
        by_index: 0.9,
        first: 0.9,
        alone: 0.1,
        rollbacks: 10,
        range: 0.0,
        hottest: (0.6, 0.6),
        ..ANY
    },
    // A row is checked, updated, and removed.
    Theme {
        weight: 3,
        mixes: grammar::REFERENCES,
        leaning: 0.9,
        follows: 0.7,
        first: 0.2,
        range: 0.0,
        hottest: (0.95, 0.95),
        warm: true,
        sessions: &[2, 3, 3],
        ..ANY
    },
    // What followers run whose predecessors change definitions.
    Theme {
        weight: 3,
        mixes: grammar::DEFINITIONS,
        leaning: 0.9,
        follows: 0.8,
        by_index: 0.6,
        first: 0.5,
        range: 0.1,
        hottest: (0.9, 0.8),
        sessions: &[2, 3, 3],
        ..ANY
    },
    // Validated transactions beside many short ones, and beside writers that idle.
    Theme {
        weight: 5,
        mixes: grammar::HISTORY,
        leaning: 0.8,
        alone: 0.45,
        first: 0.1,
        range: 1.0,
        sessions: &[2, 2, 3],
        ..ANY
    },
];

/// The theme of a block, by a number that is drawn for it.
pub fn theme(drawn: u32) -> &'static Theme {
    let mut left = drawn % THEMES.iter().map(|theme| theme.weight).sum::<u32>();
    let chosen = THEMES.iter().find(|theme| match left < theme.weight {
        true => true,
        false => {
            left -= theme.weight;
            false
        }
    });
    chosen.unwrap_or(&THEMES[0])
}
