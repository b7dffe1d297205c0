//! The pages of `schedules/`: SQL that sets up tables, schedules told as transcripts, and tables of
//! reads and writes from which schedules are made. `schedules/README.md` tells how they are
//! written.
use anyhow::{Context, Result, bail, ensure};
use txn_server_tests::{Block, blocks};

/// What a schedule has to come to, apart from what its transcript tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// No serial order: stock REPEATABLE READ lets it pass, stock SERIALIZABLE does not.
    Anomaly,
    /// No serial order: stock REPEATABLE READ lets it pass. Stock SERIALIZABLE is not asked.
    AnomalyBeyondSsi,
    /// No serial order: stock REPEATABLE READ lets it pass, and so does stock SERIALIZABLE.
    AnomalyThatSsiMisses,
    /// There is a serial order, and stock REPEATABLE READ finds it.
    Serial,
    /// Told of validated transactions only.
    Own,
}

pub struct Schedule {
    pub claim: Claim,
    /// As validated transactions, not as told: any of its statements has to be refused.
    pub anywhere: bool,
    /// What is in the database before it.
    pub setup: String,
    pub block: Block,
}

/// A line of a table: what is read, and writes that change or do not change what that finds.
pub struct Pair {
    pub line: usize,
    pub setup: String,
    pub read: String,
    pub changes: Option<String>,
    pub harmless: Option<String>,
    /// A piece of the plan that the read has to have.
    pub plan: Option<String>,
}

pub struct Page {
    pub settings: Vec<(String, String)>,
    pub schedules: Vec<Schedule>,
    pub pairs: Vec<Pair>,
}

impl Page {
    pub fn parse(text: &str) -> Result<Self> {
        let mut page = Page {
            settings: Vec::new(),
            schedules: Vec::new(),
            pairs: Vec::new(),
        };
        let mut setups = Vec::new();
        for block in blocks(text) {
            let (kind, anywhere) = match block.language.strip_suffix(", refused anywhere") {
                Some(kind) => (kind, true),
                None => (block.language.as_str(), false),
            };
            let claim = match kind {
                "settings" => {
                    page.settings = settings(&block)?;
                    continue;
                }
                "setup" => {
                    setups.push((block.line, block.text));
                    continue;
                }
                "anomaly" => Claim::Anomaly,
                "anomaly beyond ssi" => Claim::AnomalyBeyondSsi,
                "anomaly that ssi misses" => Claim::AnomalyThatSsiMisses,
                "serial" => Claim::Serial,
                "own" => Claim::Own,
                other => bail!("line {}: what is a block of \"{other}\"?", block.line),
            };
            let setup = setups.last().map(|(_, text)| text.clone());
            page.schedules.push(Schedule {
                claim,
                anywhere,
                setup: setup.unwrap_or_default(),
                block,
            });
        }
        for (number, line) in text.lines().enumerate() {
            let Some(line) = line.strip_prefix("| `") else {
                continue;
            };
            let [read, changes, harmless, plan] = cells(line)?;
            ensure!(
                changes.is_some() || harmless.is_some(),
                "line {}: nothing is written",
                number + 1
            );
            let before = setups.iter().rev().find(|(at, _)| *at <= number);
            page.pairs.push(Pair {
                line: number + 1,
                setup: before.map(|(_, text)| text.clone()).unwrap_or_default(),
                read: read.context("nothing is read")?,
                changes,
                harmless,
                plan,
            });
        }
        ensure!(
            !page.schedules.is_empty() || !page.pairs.is_empty(),
            "a page without schedules"
        );
        Ok(page)
    }
}

/// The cells of a line of a table behind its first backtick: what stands in backticks, and as many
/// columns further as there are bars in between.
fn cells(line: &str) -> Result<[Option<String>; 4]> {
    let mut cells = [const { None }; 4];
    let mut at = 0;
    for (n, piece) in line.split('`').enumerate() {
        match n % 2 {
            0 => *cells.get_mut(at).context("too many cells")? = Some(piece.to_owned()),
            _ => at += piece.matches('|').count(),
        }
    }
    Ok(cells)
}

/// Lines `name = value`.
fn settings(block: &Block) -> Result<Vec<(String, String)>> {
    let lines = block.text.lines();
    lines
        .map(|line| {
            let (name, value) = line
                .split_once(" = ")
                .with_context(|| format!("not a setting: {line}"))?;
            Ok((name.to_owned(), value.to_owned()))
        })
        .collect()
}

impl Pair {
    /// Its schedules. `flag` is what the reader writes and the others have read before.
    pub fn schedules(&self) -> Vec<Schedule> {
        let sides = [
            (&self.changes, Claim::Anomaly, "(refused)\n"),
            (&self.harmless, Claim::Serial, ""),
        ];
        let mut all = Vec::new();
        for (write, claim, end) in sides {
            let Some(write) = write else { continue };
            let read = told("A", &self.read);
            let write = told("B", write);
            let snapshot = "A> SELECT v FROM flag WHERE id = 2;\n 0\n";
            let missed = format!(
                "B> BEGIN;\nB> SELECT v FROM flag WHERE id = 1;\n 0\n{write}B> COMMIT;\n...\n"
            );
            let ending = format!("A> UPDATE flag SET v = 1 WHERE id = 1;\nA> COMMIT;\n{end}");
            let blind =
                format!("B> BEGIN ISOLATION LEVEL READ COMMITTED;\n{write}B> COMMIT;\n...\n");
            let seen = told("C", &self.read);
            let observed = format!(
                "{blind}C> BEGIN;\n{seen}C> SELECT v FROM flag WHERE id = 1;\n 0\nC> COMMIT;\n"
            );
            let mut add = |text: String, claim: Claim| {
                all.push(Schedule {
                    claim,
                    anywhere: false,
                    setup: self.setup.clone(),
                    block: Block {
                        language: String::new(),
                        line: self.line,
                        text: format!("A> BEGIN;\n{text}{ending}"),
                    },
                });
            };
            add(format!("{read}{missed}"), claim);
            // Of the same kind: what is true of the first in stock PostgreSQL need not be asked
            // again.
            add(format!("{snapshot}{missed}{read}"), Claim::Own);
            // The writer has read nothing; somebody else has seen its writes and not the reader's.
            add(format!("{read}{observed}"), Claim::Own);
        }
        all
    }
}

/// The statements of a cell.
pub fn statements(cell: &str) -> impl Iterator<Item = &str> {
    cell.split("; ").map(|sql| sql.trim_end_matches(';'))
}

/// Each of the statements of a cell as one of this session that ends well.
fn told(session: &str, cell: &str) -> String {
    statements(cell).fold(String::new(), |text, sql| {
        text + &format!("{session}> {sql};\n...\n")
    })
}
