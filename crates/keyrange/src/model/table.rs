//! The table that all transactions read and write.

use super::history::Key;
use crate::{Grid, Interval, Kind, Layout, Pieces, RangeMap, Relation, Value};

pub const TABLE: Relation = 7;
pub const KEYS: Key = 6;
const KEYS_IN_RANGE: u128 = 2;

pub fn layout() -> Layout {
    Layout::fit(&[Kind::Int4])
}

/// The image of a key.
pub fn image(key: Key) -> Interval {
    layout().image(&[Value::Int(key)])
}

fn grid() -> Grid {
    Grid::new(KEYS_IN_RANGE * layout().unit())
}

pub fn ranges<'a>(_: Relation) -> RangeMap<'a> {
    RangeMap::Grid(grid())
}

pub fn ranges_in_pieces<'a>(_: Relation) -> RangeMap<'a> {
    RangeMap::Grid(grid().with_pieces(Pieces::new(2, layout().unused())))
}
