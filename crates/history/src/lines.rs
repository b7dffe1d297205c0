//! Histories as JSON lines: the initial rows in the first line, then a transaction in each.
use std::io::{self, BufRead, Write};

use crate::model::{History, Row};

impl History {
    /// Writes the history to `out`; [`History::load`] reads it.
    pub fn save(&self, mut out: impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut out, &self.initial)?;
        for transaction in &self.transactions {
            out.write_all(b"\n")?;
            serde_json::to_writer(&mut out, transaction)?;
        }
        out.write_all(b"\n")?;
        out.flush()
    }

    /// Reads what [`History::save`] wrote. What is something else is an `InvalidData` error that
    /// tells the line.
    pub fn load(input: impl BufRead) -> io::Result<Self> {
        let mut history = History::default();
        for (number, line) in input.lines().enumerate() {
            let line = line?;
            let parsed = match number {
                0 => serde_json::from_str::<Vec<Row>>(&line).map(|rows| history.initial = rows),
                _ => serde_json::from_str(&line).map(|one| history.transactions.push(one)),
            };
            parsed.map_err(|error| {
                let text = format!("line {}: {error}", number + 1);
                io::Error::new(io::ErrorKind::InvalidData, text)
            })?;
        }
        Ok(history)
    }
}
