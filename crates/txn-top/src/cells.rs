//! A frame as tables: what is in each cell, and which columns fit how wide a place.

use unicode_width::UnicodeWidthStr;

use super::rates::{Frame, Rated};
use super::sample::Wait;
use super::text::{UNKNOWN, age, cut, harmless, microseconds, rate};

pub struct Column {
    pub title: &'static str,
    pub kind: Kind,
    /// When there is no room, the column with the highest goes first; one with 0 stays.
    expendable: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// On the right.
    Number,
    Word,
    /// May be cut.
    Name,
}

/// What a name is not cut below.
const SHORTEST_NAME: usize = 8;

const fn column(title: &'static str, kind: Kind, expendable: u8) -> Column {
    Column {
        title,
        kind,
        expendable,
    }
}

const ROW_COLUMNS: &[Column] = &[
    column("relation", Kind::Name, 0),
    column("key", Kind::Name, 0),
    column("mode", Kind::Word, 3),
    column("age", Kind::Number, 8),
    column("wait", Kind::Number, 1),
    column("run", Kind::Number, 7),
    column("updates/s", Kind::Number, 0),
    column("followed/s", Kind::Number, 2),
    column("combined/s", Kind::Number, 4),
    column("cascades/s", Kind::Number, 5),
    column("handover", Kind::Number, 6),
    column("in the way", Kind::Word, 9),
];

const WAIT_COLUMNS: &[Column] = &[
    column("pid", Kind::Number, 0),
    column("blocked by", Kind::Number, 1),
    column("relation", Kind::Name, 3),
    column("key", Kind::Name, 2),
    column("reason", Kind::Word, 1),
    column("for", Kind::Number, 0),
];

pub struct Cells {
    pub columns: &'static [Column],
    pub lines: Vec<Vec<String>>,
}

/// The hot rows.
pub fn rows(frame: &Frame) -> Cells {
    let line = |rated: &Rated| {
        let row = &rated.row;
        let mut line = vec![
            harmless(Some(&row.relation)),
            harmless(row.key.as_deref()),
            row.mode.clone(),
            age(frame.sample.now - row.since),
            row.waiting.to_string(),
            row.running.to_string(),
        ];
        line.extend((0..row.counts.values.len()).map(|count| rate(rated.rate(count))));
        line.push(row.handover_us.map_or(UNKNOWN.to_owned(), microseconds));
        line.push(in_the_way(row.obstacles.as_deref()));
        line
    };
    Cells {
        columns: ROW_COLUMNS,
        lines: frame.rows.iter().map(line).collect(),
    }
}

/// The obstacle that is met most often, without its count.
fn in_the_way(obstacles: Option<&str>) -> String {
    let first = obstacles.and_then(|all| all.split(',').next());
    let name = first.map(|first| first.trim_end_matches(|c: char| c.is_ascii_digit() || c == ' '));
    name.unwrap_or(UNKNOWN).to_owned()
}

pub fn waits(frame: &Frame) -> Cells {
    let line = |wait: &Wait| {
        let blocker = wait.blocked_by.map(|pid| pid.to_string());
        vec![
            wait.pid.to_string(),
            blocker.unwrap_or(UNKNOWN.to_owned()),
            harmless(Some(&wait.relation)),
            harmless(wait.key.as_deref()),
            wait.reason.clone(),
            age(wait.age),
        ]
    };
    Cells {
        columns: WAIT_COLUMNS,
        lines: frame.sample.waits.iter().map(line).collect(),
    }
}

impl Cells {
    /// The columns that fit `width` with a space between, and their widths.
    pub fn fit(&self, width: usize) -> Vec<(usize, usize)> {
        let natural: Vec<usize> = (0..self.columns.len()).map(|at| self.natural(at)).collect();
        let least = |at: usize| match self.columns[at].kind {
            Kind::Name => natural[at].min(SHORTEST_NAME),
            Kind::Number | Kind::Word => natural[at],
        };
        let mut fitting: Vec<(usize, usize)> =
            (0..self.columns.len()).map(|at| (at, least(at))).collect();
        let taken =
            |fitting: &[(usize, usize)]| fitting.iter().map(|(_, width)| width + 1).sum::<usize>();
        while taken(&fitting) > width + 1 {
            let expendable = |place: &usize| self.columns[fitting[*place].0].expendable;
            let place = (0..fitting.len()).max_by_key(expendable);
            match place.filter(|place| expendable(place) > 0) {
                Some(place) => fitting.remove(place),
                None => break,
            };
        }
        let mut left = (width + 1).saturating_sub(taken(&fitting));
        while let Some((_, width)) = fitting
            .iter_mut()
            .filter(|(at, width)| *width < natural[*at])
            .min_by_key(|(_, width)| *width)
            .filter(|_| left > 0)
        {
            *width += 1;
            left -= 1;
        }
        fitting
    }

    /// The columns `fitting` of a line, cut to their widths.
    pub fn cut(&self, line: usize, fitting: &[(usize, usize)]) -> Vec<String> {
        let cells = fitting.iter();
        cells
            .map(|(at, width)| cut(&self.lines[line][*at], *width))
            .collect()
    }

    fn natural(&self, at: usize) -> usize {
        let cells = self.lines.iter().map(|line| line[at].width());
        cells.max().unwrap_or(0).max(self.columns[at].title.width())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(key: &str) -> Cells {
        let mut line = vec!["1".to_owned(); ROW_COLUMNS.len()];
        line[1] = key.to_owned();
        Cells {
            columns: ROW_COLUMNS,
            lines: vec![line],
        }
    }

    fn titles(width: usize) -> Vec<&'static str> {
        let fitting = cells("1").fit(width);
        fitting
            .iter()
            .map(|(at, _)| ROW_COLUMNS[*at].title)
            .collect()
    }

    #[test]
    fn what_matters_least_goes_first() {
        assert_eq!(titles(200).len(), ROW_COLUMNS.len());
        let narrow = titles(80);
        assert!(!narrow.contains(&"age") && narrow.contains(&"handover"));
        assert_eq!(titles(20), ["relation", "key", "updates/s"]);
        assert_eq!(titles(0), ["relation", "key", "updates/s"]);
    }

    #[test]
    fn names_take_what_is_left_and_are_cut() {
        let key = "k".repeat(64);
        for width in [60, 80, 120, 300] {
            let cells = cells(&key);
            let fitting = cells.fit(width);
            let taken: usize = fitting.iter().map(|(_, width)| width + 1).sum();
            assert!(taken <= width + 1, "{taken} of {width}");
            let shown = &cells.cut(0, &fitting)[1];
            assert_eq!(shown.ends_with('…'), width < 300, "{width}: {shown}");
            assert!(shown.width() >= SHORTEST_NAME);
        }
    }
}
