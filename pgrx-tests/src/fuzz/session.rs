//! The sessions: each has a thread of its own, which sends one statement at a time and tells what
//! came of it.
use std::collections::HashMap;
use std::io::Read;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, spawn};

use anyhow::Result;
use pgserver::Server;
use postgres::types::ToSql;
use postgres::{Client, Error, SimpleQueryMessage, Statement};

use super::schedule::Protocol;

/// What came of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The first column of its rows, and its count of rows.
    Done { rows: Vec<String>, count: u64 },
    /// SQLSTATE, message, DETAIL.
    Failed {
        code: String,
        message: String,
        detail: String,
    },
    /// The connection broke.
    Lost(String),
}

impl Answer {
    pub fn is_done(&self) -> bool {
        matches!(self, Answer::Done { .. })
    }
}

struct Order {
    sql: String,
    protocol: Protocol,
    parameter: Option<i64>,
}

/// A session of the fuzzer. Dropping it ends it.
pub struct Session {
    pub pid: i32,
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Session {
    pub fn start(server: &Server, number: usize, answers: Sender<(usize, Answer)>) -> Result<Self> {
        let mut client = server.connect()?;
        let pid = crate::pid(&mut client)?;
        let (orders, received) = channel();
        let thread = spawn(move || work(client, number, &received, &answers));
        Ok(Session {
            pid,
            orders: Some(orders),
            thread: Some(thread),
        })
    }

    pub fn send(&self, sql: &str, protocol: Protocol, parameter: Option<i64>) {
        let order = Order {
            sql: sql.to_owned(),
            protocol,
            parameter,
        };
        if let Some(orders) = &self.orders {
            // The thread ends only after its channel.
            let _ = orders.send(order);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(
    mut client: Client,
    number: usize,
    orders: &Receiver<Order>,
    answers: &Sender<(usize, Answer)>,
) {
    let mut statements = HashMap::new();
    for order in orders {
        let answer = match execute(&mut client, &mut statements, &order) {
            Ok((rows, count)) => Answer::Done { rows, count },
            Err(error) => failure(&error),
        };
        if answers.send((number, answer)).is_err() {
            return;
        }
    }
}

pub fn failure(error: &Error) -> Answer {
    match error.as_db_error() {
        Some(told) if !error.is_closed() => Answer::Failed {
            code: told.code().code().to_owned(),
            message: told.message().to_owned(),
            detail: told.detail().unwrap_or_default().to_owned(),
        },
        _ => Answer::Lost(error.to_string()),
    }
}

type Rows = (Vec<String>, u64);

fn execute(
    client: &mut Client,
    statements: &mut HashMap<String, Statement>,
    order: &Order,
) -> Result<Rows, Error> {
    match order.protocol {
        Protocol::Simple => {
            if order.sql.starts_with("DISCARD") {
                statements.clear();
            }
            simple(client, &order.sql)
        }
        Protocol::Block => {
            let told = simple(client, &format!("BEGIN; {}; COMMIT", order.sql));
            if told.is_err() {
                // The error may have come in the block or at its end.
                client.batch_execute("ROLLBACK")?;
            }
            told
        }
        Protocol::Extended => {
            let statement = client.prepare(&order.sql)?;
            extended(client, &statement, order.parameter)
        }
        Protocol::Prepared => {
            let statement = match statements.get(&order.sql) {
                Some(statement) => statement.clone(),
                None => client.prepare(&order.sql)?,
            };
            statements.insert(order.sql.clone(), statement.clone());
            extended(client, &statement, order.parameter)
        }
        Protocol::CopyOut => {
            let mut text = String::new();
            // What is read are lines of ASCII.
            let _ = client.copy_out(&order.sql)?.read_to_string(&mut text);
            let rows: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
            let count = rows.len() as u64;
            Ok((rows, count))
        }
    }
}

fn simple(client: &mut Client, sql: &str) -> Result<Rows, Error> {
    let (mut rows, mut count) = (Vec::new(), 0);
    for message in client.simple_query(sql)? {
        match message {
            SimpleQueryMessage::Row(row) if !row.is_empty() => {
                rows.push(row.get(0).unwrap_or_default().to_owned());
            }
            // That of the statement, not of what surrounds it.
            SimpleQueryMessage::CommandComplete(rows) => count = count.max(rows),
            _ => {}
        }
    }
    Ok((rows, count))
}

fn extended(
    client: &mut Client,
    statement: &Statement,
    parameter: Option<i64>,
) -> Result<Rows, Error> {
    let parameters: Vec<&(dyn ToSql + Sync)> = parameter.iter().map(|value| value as _).collect();
    if statement.columns().is_empty() {
        return Ok((Vec::new(), client.execute(statement, &parameters)?));
    }
    let rows = client.query(statement, &parameters)?;
    let texts: Vec<String> = rows
        .iter()
        .map(|row| {
            row.try_get::<_, Option<String>>(0)
                .ok()
                .flatten()
                .unwrap_or_default()
        })
        .collect();
    let count = texts.len() as u64;
    Ok((texts, count))
}
