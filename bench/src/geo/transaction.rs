//! A transaction as a client sends it, whatever the client.

use std::fmt::Write;

/// A value of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    Number(i64),
    /// The first column of the first row that the step of that number has returned.
    From(usize),
}

/// What a statement must have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It returns so many rows.
    Reads(usize),
    /// It writes so many rows.
    Writes(usize),
    /// It writes a row, and returns it.
    Returns,
}

/// A statement; its parameters are `$1` and up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub sql: String,
    pub values: Vec<Value>,
    pub kind: Kind,
}

impl Step {
    pub fn new(kind: Kind, sql: impl Into<String>, values: &[i64]) -> Self {
        Self {
            sql: sql.into(),
            values: values.iter().copied().map(Value::Number).collect(),
            kind,
        }
    }
}

/// What is committed as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Sent one after the other; a single one without BEGIN and COMMIT.
    pub steps: Vec<Step>,
    /// What it adds to a node's books: node, column, amount.
    pub effects: Vec<(usize, usize, i64)>,
}

impl Transaction {
    /// Adds its effects to the books of all nodes, which have so many columns.
    pub fn apply(&self, books: &mut Vec<i64>, columns: usize) {
        for &(node, column, amount) in &self.effects {
            let at = node * columns + column;
            if books.len() <= at {
                books.resize(at + 1, 0);
            }
            books[at] += amount;
        }
    }

    /// For clients in other languages: the number of steps; then of each step its kind, how many
    /// rows, the number of its parameters, the parameters (`=3`: what step 3 has returned), and the
    /// statement with `?` for each of them. Tabs between, and a line each.
    pub fn write(&self, out: &mut String) {
        // Writing into a string does not fail.
        let _ = writeln!(out, "{}", self.steps.len());
        for step in &self.steps {
            let (kind, rows) = match step.kind {
                Kind::Reads(rows) => ('r', rows),
                Kind::Writes(rows) => ('w', rows),
                Kind::Returns => ('o', 1),
            };
            let (sql, order) = with_question_marks(&step.sql);
            let _ = write!(out, "{kind}\t{rows}\t{}", order.len());
            for place in order {
                let _ = match step.values[place - 1] {
                    Value::Number(number) => write!(out, "\t{number}"),
                    Value::From(step) => write!(out, "\t={step}"),
                };
            }
            let _ = writeln!(out, "\t{sql}");
        }
    }
}

/// Parameters from `$first` on, with commas between.
pub fn parameters(first: usize, count: usize) -> String {
    let all: Vec<String> = (first..first + count).map(|n| format!("${n}")).collect();
    all.join(", ")
}

/// A statement with `?` in place of `$n`, and these numbers in their order.
fn with_question_marks(sql: &str) -> (String, Vec<usize>) {
    let mut parts = sql.split('$');
    let mut text = parts.next().unwrap_or_default().to_owned();
    let mut order = Vec::new();
    for part in parts {
        let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        // A number follows on every dollar of our statements.
        order.extend(part[..digits].parse::<usize>());
        text.push('?');
        text += &part[digits..];
    }
    (text, order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_become_question_marks_in_their_order() {
        let (sql, order) = with_question_marks("SET a = $2 + $1, b = $2 WHERE id IN ($10, $3)");
        assert_eq!(sql, "SET a = ? + ?, b = ? WHERE id IN (?, ?)");
        assert_eq!(order, [2, 1, 2, 10, 3]);
        assert_eq!(parameters(3, 2), "$3, $4");
    }

    #[test]
    fn a_transaction_is_written_with_its_results() {
        let mut second = Step::new(Kind::Writes(2), "INSERT $2, $1", &[7, 8]);
        second.values[1] = Value::From(0);
        let transaction = Transaction {
            steps: vec![Step::new(Kind::Returns, "UPDATE $1", &[5]), second],
            effects: vec![(1, 0, 4), (0, 1, 2), (1, 0, 1)],
        };
        let mut text = String::new();
        transaction.write(&mut text);
        assert_eq!(
            text,
            "2\no\t1\t1\t5\tUPDATE ?\nw\t2\t2\t=0\t7\tINSERT ?, ?\n"
        );
        let mut books = Vec::new();
        transaction.apply(&mut books, 2);
        assert_eq!(books, [0, 2, 5]);
    }
}
