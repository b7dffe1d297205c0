//! Items as text: `account(1)`, `"Order"(3,*)`; in the declaration of a procedure also arguments:
//! `district($1,$2)`, `stock($1,$4[*])`.
//!
//! A table's name, then the values of its range key's columns as a record literal has them
//! (rowtypes.c: record_in), but for two things: `$n` without quotes stands for an argument, `$n[*]`
//! for each element of one; a `*` without quotes in the last place for any values.

use std::iter::Peekable;
use std::str::CharIndices;

/// A value in an item.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    Text(String),
    /// The argument with that number, from 1 on.
    Argument(u16),
    /// Each element of the argument with that number.
    Each(u16),
}

/// An item as it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Form {
    /// The table's name, as written.
    pub table: String,
    pub values: Vec<Value>,
    /// A `*` stands in place of further values.
    pub is_open: bool,
}

/// What a procedure declares.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Declaration {
    pub writes: Vec<Form>,
    pub reads: Vec<Form>,
}

/// What is wrong with a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    NoTable,
    NoParenthesis,
    NoEnd,
    NullValue,
    WrongArgument,
    StarNotLast,
    TwoArrays,
    TextBehind,
    NoSection,
}

impl Malformed {
    /// For a DETAIL.
    pub fn text(self) -> &'static str {
        match self {
            Malformed::NoTable => "The name of a table is missing.",
            Malformed::NoParenthesis => "Left parenthesis expected after the table's name.",
            Malformed::NoEnd => "Unexpected end of input.",
            Malformed::NullValue => "A value is missing; NULL is no key.",
            Malformed::WrongArgument => "An argument is written $1, or $1[*] for each element.",
            Malformed::StarNotLast => "An asterisk is allowed in the last place only.",
            Malformed::TwoArrays => "An item may name one array of keys.",
            Malformed::TextBehind => "Junk after right parenthesis.",
            Malformed::NoSection => {
                "A declaration has the form \"writes: item, ...; reads: item, ...\"."
            }
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    rest: Peekable<CharIndices<'a>>,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        let rest = text.char_indices().peekable();
        Reader { text, rest }
    }

    fn skip_space(&mut self) {
        while self
            .rest
            .next_if(|(_, c)| c.is_ascii_whitespace())
            .is_some()
        {}
    }

    fn next_is(&mut self, wanted: char) -> bool {
        self.rest.next_if(|&(_, c)| c == wanted).is_some()
    }

    fn position(&mut self) -> usize {
        self.rest.peek().map_or(self.text.len(), |&(at, _)| at)
    }

    /// The table's name, up to the parenthesis.
    fn table(&mut self) -> Result<String, Malformed> {
        self.skip_space();
        let start = self.position();
        let mut is_quoted = false;
        loop {
            let end = self.position();
            match self.rest.next() {
                None => return Err(Malformed::NoParenthesis),
                Some((_, '"')) => is_quoted = !is_quoted,
                Some((_, '(')) if !is_quoted => {
                    let name = self.text[start..end].trim();
                    let is_there = !name.is_empty();
                    return is_there.then(|| name.to_owned()).ok_or(Malformed::NoTable);
                }
                Some((_, ',' | ';' | ')')) if !is_quoted => return Err(Malformed::NoParenthesis),
                Some(_) => {}
            }
        }
    }

    /// A value as record_in reads it, and whether any of it was quoted. The `,` or `)` behind it is
    /// left.
    fn raw_value(&mut self) -> Result<(String, bool), Malformed> {
        let (mut value, mut was_quoted, mut in_quotes) = (String::new(), false, false);
        loop {
            let &(_, c) = self.rest.peek().ok_or(Malformed::NoEnd)?;
            if !in_quotes && matches!(c, ',' | ')') {
                return Ok((value, was_quoted));
            }
            self.rest.next();
            match c {
                '\\' => {
                    was_quoted = true;
                    value.push(self.rest.next().ok_or(Malformed::NoEnd)?.1);
                }
                '"' if !in_quotes => {
                    in_quotes = true;
                    was_quoted = true;
                }
                '"' if self.next_is('"') => value.push('"'),
                '"' => in_quotes = false,
                c => value.push(c),
            }
        }
    }

    fn item(&mut self) -> Result<Form, Malformed> {
        let mut form = Form {
            table: self.table()?,
            values: Vec::new(),
            is_open: false,
        };
        loop {
            let (value, was_quoted) = self.raw_value()?;
            if form.is_open {
                return Err(Malformed::StarNotLast);
            }
            if was_quoted {
                form.values.push(Value::Text(value));
            } else {
                match value.trim() {
                    "" => return Err(Malformed::NullValue),
                    "*" => form.is_open = true,
                    argument if argument.starts_with('$') => {
                        form.values.push(parse_argument(argument)?);
                    }
                    _ => form.values.push(Value::Text(value)),
                }
            }
            if !self.next_is(',') {
                self.rest.next();
                break;
            }
        }
        let arrays = form.values.iter().filter(|v| matches!(v, Value::Each(_)));
        if arrays.count() > 1 {
            return Err(Malformed::TwoArrays);
        }
        Ok(form)
    }
}

fn parse_argument(text: &str) -> Result<Value, Malformed> {
    let (number, is_each) = match text.strip_suffix("[*]") {
        Some(number) => (number, true),
        None => (text, false),
    };
    let digits = &number[1..];
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match digits.parse() {
        Ok(n) if is_number && n > 0 && is_each => Ok(Value::Each(n)),
        Ok(n) if is_number && n > 0 => Ok(Value::Argument(n)),
        _ => Err(Malformed::WrongArgument),
    }
}

/// Reads one item.
pub fn parse_item(text: &str) -> Result<Form, Malformed> {
    let mut reader = Reader::new(text);
    let form = reader.item()?;
    reader.skip_space();
    match reader.rest.peek() {
        None => Ok(form),
        Some(_) => Err(Malformed::TextBehind),
    }
}

/// Reads the declaration of a procedure: `writes: account($1), account($2); reads: branch($3)`.
pub fn parse_declaration(text: &str) -> Result<Declaration, Malformed> {
    let mut declaration = Declaration::default();
    let mut reader = Reader::new(text);
    loop {
        reader.skip_space();
        let start = reader.position();
        while reader
            .rest
            .next_if(|(_, c)| c.is_ascii_lowercase())
            .is_some()
        {}
        let end = reader.position();
        let items = match &reader.text[start..end] {
            "writes" if declaration.writes.is_empty() => &mut declaration.writes,
            "reads" if declaration.reads.is_empty() => &mut declaration.reads,
            _ => return Err(Malformed::NoSection),
        };
        if !reader.next_is(':') {
            return Err(Malformed::NoSection);
        }
        loop {
            items.push(reader.item()?);
            reader.skip_space();
            if !reader.next_is(',') {
                break;
            }
        }
        if !reader.next_is(';') {
            break;
        }
    }
    reader.skip_space();
    match reader.rest.peek() {
        None => Ok(declaration),
        Some(_) => Err(Malformed::TextBehind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(table: &str, values: &[Value], is_open: bool) -> Form {
        Form {
            table: table.to_owned(),
            values: values.to_vec(),
            is_open,
        }
    }

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    #[test]
    fn values_are_those_of_a_record_literal() {
        let cases = [
            ("account(1)", form("account", &[text("1")], false)),
            (
                " public.\"odd (name\" (a b,\"c,\"\"d\",\\$1)",
                form(
                    "public.\"odd (name\"",
                    &[text("a b"), text("c,\"d"), text("$1")],
                    false,
                ),
            ),
            ("orders(3,*)", form("orders", &[text("3")], true)),
            ("orders(*)", form("orders", &[], true)),
            ("t(\"*\")", form("t", &[text("*")], false)),
            ("t(\"\")", form("t", &[text("")], false)),
            (
                "stock($1, $4[*])",
                form("stock", &[Value::Argument(1), Value::Each(4)], false),
            ),
        ];
        for (written, expected) in cases {
            assert_eq!(parse_item(written), Ok(expected), "{written}");
        }
    }

    #[test]
    fn what_is_no_item_is_refused() {
        let cases = [
            ("", Malformed::NoParenthesis),
            ("account", Malformed::NoParenthesis),
            ("(1)", Malformed::NoTable),
            ("account(1", Malformed::NoEnd),
            ("account(\"1)", Malformed::NoEnd),
            ("account(1\\", Malformed::NoEnd),
            ("account()", Malformed::NullValue),
            ("account(1,)", Malformed::NullValue),
            ("account(1) x", Malformed::TextBehind),
            ("account(*,1)", Malformed::StarNotLast),
            ("account($)", Malformed::WrongArgument),
            ("account($0)", Malformed::WrongArgument),
            ("account($+1)", Malformed::WrongArgument),
            ("account($1[1])", Malformed::WrongArgument),
            ("account($70000)", Malformed::WrongArgument),
            ("account($1[*],$2[*])", Malformed::TwoArrays),
        ];
        for (written, expected) in cases {
            assert_eq!(parse_item(written), Err(expected), "{written}");
        }
    }

    #[test]
    fn a_declaration_has_sections() {
        let account = |n| form("account", &[Value::Argument(n)], false);
        let branch = form("branch", &[text("7")], false);
        let written = "reads: branch(7) ; writes:account($1), account($2)";
        let expected = Declaration {
            writes: vec![account(1), account(2)],
            reads: vec![branch],
        };
        assert_eq!(parse_declaration(written), Ok(expected));
        for (written, expected) in [
            ("", Malformed::NoSection),
            ("account(1)", Malformed::NoSection),
            ("writes account(1)", Malformed::NoSection),
            (
                "writes: account(1); writes: account(2)",
                Malformed::NoSection,
            ),
            ("writes: account(1),", Malformed::NoParenthesis),
            ("writes: account(1) account(2)", Malformed::TextBehind),
            ("mode=group", Malformed::NoSection),
        ] {
            assert_eq!(parse_declaration(written), Err(expected), "{written}");
        }
    }
}
