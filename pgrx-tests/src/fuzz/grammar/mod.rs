//! The statements: each production draws one, or a few that belong together.
mod code;
mod definition;
mod read;
mod write;

pub use definition::FROM_EPOCH;

use super::draw::{Draw, Mix, Production};

/// All kinds with their weights.
pub const PRODUCTIONS: &[(u32, Production)] = &[
    (14, write::plain),
    (8, write::returning),
    (6, write::parameter),
    (3, write::condition),
    (4, write::changed),
    (3, write::join),
    (2, write::view),
    (4, write::every_row),
    (3, write::with),
    (4, write::upsert),
    (3, write::merge),
    (2, write::by_tid),
    (2, write::insert),
    (2, write::delete),
    (1, write::other_key),
    (4, write::ledger),
    (2, write::copy_in),
    (3, write::default),
    (4, write::churned),
    (4, code::bump),
    (5, code::pay),
    (3, code::attempt),
    (2, code::cursor_loop),
    (2, code::lock_and_bump),
    (4, code::take),
    (2, code::taking),
    (2, code::twice),
    (3, code::block),
    (8, code::noted),
    (3, code::stable),
    (5, code::complain),
    (5, code::natural),
    (3, code::block_reads),
    (8, code::noise),
    (3, code::burst),
    (2, code::idle),
    (2, code::settings),
    (2, definition::redefine),
    (2, definition::defined),
    (2, definition::alter),
    (6, read::point),
    (6, read::whole),
    (4, read::two_tables),
    (6, read::function),
    (5, read::lock),
    (4, read::built_in),
    (4, read::noted),
    (2, read::copy_out),
    (3, read::cursor),
    (3, read::current_of),
    (6, read::latest_tid),
    (2, read::views_of_ours),
];

/// Few kinds that have much to do with each other.
pub const MIXES: &[Mix] = &[
    &[(6, code::noted), (2, write::plain), (1, read::point)],
    &[
        (6, write::churned),
        (4, write::plain),
        (2, write::returning),
    ],
    &[(5, write::ledger), (3, write::plain), (2, read::point)],
    &[(5, read::built_in), (3, write::plain), (3, read::function)],
    &[
        (6, read::latest_tid),
        (4, write::plain),
        (2, write::returning),
    ],
    &[(4, code::natural), (4, code::complain), (3, write::plain)],
    &[(4, code::noise), (4, read::whole), (3, write::plain)],
    &[(4, code::take), (2, code::taking), (3, write::plain)],
    &[
        (3, write::default),
        (3, code::block_reads),
        (3, write::plain),
    ],
];

/// Rows that share a page, with writes by the key.
pub const CROWD: &[Mix] = &[
    &[
        (6, write::churned),
        (4, write::plain),
        (2, write::returning),
    ],
    &[
        (6, write::churned),
        (3, write::plain),
        (3, code::bump),
        (2, read::point),
        (2, read::lock),
    ],
];

/// Functions that write down what they were called for.
pub const NOTES: &[Mix] = &[
    &[(6, code::noted), (2, write::plain), (1, read::point)],
    &[
        (5, code::noted),
        (2, write::plain),
        (2, write::default),
        (2, code::block_reads),
        (2, read::noted),
    ],
];

/// Statements that differ in a parameter only.
pub const SAME: &[Mix] = &[
    &[(1, write::parameter)],
    &[(8, write::parameter), (2, write::plain), (1, read::point)],
];

/// Conditions that hold once another statement has committed.
pub const CHANGED: &[Mix] = &[
    &[(4, write::changed), (6, write::plain)],
    &[
        (4, write::changed),
        (4, write::plain),
        (1, write::returning),
        (1, code::bump),
    ],
];

/// Checks of a foreign key, and what becomes of the rows to which it refers.
pub const REFERENCES: &[Mix] = &[
    &[
        (6, write::ledger),
        (4, write::plain),
        (3, write::delete),
        (1, write::other_key),
    ],
    &[
        (6, write::ledger),
        (4, write::plain),
        (1, write::delete),
        (1, write::insert),
        (1, read::lock),
        (1, code::attempt),
    ],
];

/// Definitions that change, and statements that use them.
pub const DEFINITIONS: &[Mix] = &[
    &[
        (4, definition::redefine),
        (6, definition::defined),
        (4, write::plain),
        (1, write::returning),
    ],
    &[
        (3, definition::redefine),
        (5, definition::defined),
        (4, definition::alter),
        (4, write::plain),
        (2, code::bump),
        (1, read::point),
    ],
];

/// Reads of whole tables and by keys, and what fills the rings.
pub const HISTORY: &[Mix] = &[
    &[(6, code::noise), (4, read::whole), (2, write::plain)],
    &[
        (5, code::noise),
        (5, code::burst),
        (4, code::idle),
        (5, read::whole),
        (2, read::point),
        (2, write::returning),
    ],
];

/// What a transaction on the hottest row begins with.
pub const FIRST: [Production; 5] = [
    write::plain,
    write::returning,
    write::parameter,
    code::bump,
    code::pay,
];

/// A look at what the extension shows, for roles that must not see keys.
pub fn views(draw: &mut Draw) -> String {
    let views = [
        "SELECT v::text AS o FROM txn.hotspots v",
        "SELECT v::text AS o FROM txn.waits v",
        "SELECT v::text AS o FROM txn.ranges v",
        "SELECT v::text AS o FROM txn.hotspots v UNION ALL SELECT v::text FROM txn.waits v",
    ];
    (*draw.one(&views)).to_owned()
}
