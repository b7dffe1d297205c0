//! How the clients write their transactions.

use serde::Serialize;

/// How a client writes a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// One UPDATE of both rows.
    Statement,
    /// BEGIN, two UPDATEs and COMMIT, sent together.
    Message,
    /// BEGIN, two UPDATEs and COMMIT, each sent by itself.
    Messages,
}

impl Form {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Statement => "one statement",
            Self::Message => "a block, one message",
            Self::Messages => "a block, four messages",
        }
    }

    /// The messages of a transfer of 1 from one row to another, the lower row first.
    pub fn messages(self, from: i32, to: i32) -> Vec<String> {
        let (low, high) = (from.min(to), from.max(to));
        if self == Self::Statement {
            return vec![format!(
                "UPDATE account SET balance = balance + CASE id WHEN {from} THEN -1 ELSE 1 END \
                 WHERE id IN ({low}, {high})"
            )];
        }
        let update = |id: i32| {
            let sign = if id == from { '-' } else { '+' };
            format!("UPDATE account SET balance = balance {sign} 1 WHERE id = {id}")
        };
        let parts = [
            "BEGIN".to_owned(),
            update(low),
            update(high),
            "COMMIT".to_owned(),
        ];
        match self {
            Self::Message => vec![parts.join("; ")],
            _ => parts.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_locked_in_ascending_order() {
        let [statement] = &Form::Statement.messages(9, 4)[..] else {
            panic!("one message");
        };
        assert!(statement.ends_with("CASE id WHEN 9 THEN -1 ELSE 1 END WHERE id IN (4, 9)"));
        let block = Form::Messages.messages(9, 4);
        assert_eq!(
            block[1],
            "UPDATE account SET balance = balance + 1 WHERE id = 4"
        );
        assert_eq!(
            block[2],
            "UPDATE account SET balance = balance - 1 WHERE id = 9"
        );
        assert_eq!(Form::Message.messages(9, 4), [block.join("; ")]);
    }
}
