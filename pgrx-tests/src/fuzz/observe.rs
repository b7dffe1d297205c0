//! What statements tell of rows, as text: `a:1=5` is row 1 of table a with value 5. A mark before
//! it says how it was come by. `[...]` is what one snapshot shows, `*a` in there says that it is
//! all of table a.

/// How a row was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Read as a snapshot shows it.
    Read,
    /// `?`: read in a way that is no snapshot's: locked, or by a function that was called for a
    /// version.
    Loose,
    /// `+`: written by this statement, with its new value.
    Wrote,
    /// `^`: the same, before what follows in the same text.
    WroteBefore,
    /// `-`: removed by this statement, with its last value.
    Removed,
    /// `~`: read by a cursor or the like, with a snapshot from before the statement.
    Old,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub how: How,
    pub table: char,
    pub n: u32,
    pub value: i64,
    /// The bracket that it stands in; items outside of all brackets are in group 0.
    pub group: u32,
}

/// What a text says, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    pub items: Vec<Item>,
    /// Groups that have all rows of a table.
    pub whole: Vec<(u32, char)>,
    /// `!5`: the definitions that were used, by the steps that have made them.
    pub definitions: Vec<usize>,
}

/// Reads one text after the other; groups are counted through.
#[derive(Default)]
pub struct Reader {
    pub told: Told,
    groups: u32,
}

impl Reader {
    pub fn read(&mut self, text: &str) {
        let mut group = 0;
        for word in text.split_inclusive(['[', ']', ',']) {
            let (word, end) = match word.char_indices().last() {
                Some((at, end @ ('[' | ']' | ','))) => (&word[..at], Some(end)),
                _ => (word, None),
            };
            self.word(word, group);
            match end {
                Some('[') => {
                    self.groups += 1;
                    group = self.groups;
                }
                Some(']') => group = 0,
                _ => {}
            }
        }
    }

    fn word(&mut self, word: &str, group: u32) {
        if let Some(table) = word.strip_prefix('*') {
            self.told
                .whole
                .extend(table.chars().next().map(|table| (group, table)));
            return;
        }
        if let Some(step) = word.strip_prefix('!') {
            self.told.definitions.extend(step.parse::<usize>());
            return;
        }
        let (how, rest) = match word.chars().next() {
            Some('?') => (How::Loose, &word[1..]),
            Some('+') => (How::Wrote, &word[1..]),
            Some('^') => (How::WroteBefore, &word[1..]),
            Some('-') => (How::Removed, &word[1..]),
            Some('~') => (How::Old, &word[1..]),
            _ => (How::Read, word),
        };
        let item = || {
            let (table, row) = rest.split_once(':')?;
            let (n, value) = row.split_once('=')?;
            Some(Item {
                how,
                table: table.chars().next().filter(|_| table.len() == 1)?,
                n: n.parse().ok()?,
                value: value.parse().ok()?,
                group,
            })
        };
        self.told.items.extend(item());
    }
}

pub fn read<'a>(texts: impl IntoIterator<Item = &'a str>) -> Told {
    let mut reader = Reader::default();
    texts.into_iter().for_each(|text| reader.read(text));
    reader.told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_groups_and_marks_are_told_apart() {
        let told = read(["^a:1=5,[*a,a:1=5,a:2=0]", "?b:3=-1", "nonsense, a:x=1"]);
        let items: Vec<_> = told
            .items
            .iter()
            .map(|item| (item.how, item.table, item.n, item.value, item.group))
            .collect();
        assert_eq!(
            items,
            [
                (How::WroteBefore, 'a', 1, 5, 0),
                (How::Read, 'a', 1, 5, 1),
                (How::Read, 'a', 2, 0, 1),
                (How::Loose, 'b', 3, -1, 0),
            ]
        );
        assert_eq!(told.whole, [(1, 'a')]);
        assert_eq!(read(["+a:1=5,!7", "!x"]).definitions, [7]);
    }
}
