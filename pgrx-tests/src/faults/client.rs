//! The load: clients that keep account of what they are told, and may break off at any moment.
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::Rng;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::error::Severity;
use tokio_postgres::{Client, Config, Error, NoTls, Statement};

use super::book::{Entry, Fate};
use super::kind::Kind;
use super::plan::{Aim, POINTS, Plan, rng};
use super::transaction::{self, AUTO, READ, Step, Transaction};

/// How often somebody who waits for the server looks again.
const TICK: Duration = Duration::from_millis(20);

/// `application_name` of the load.
pub const LOAD: &str = "load";

/// Which random numbers are for the transactions of the first client; those for its settings are at
/// 0.
const WORK: u64 = 1 << 32;

/// What every account begins with.
pub const INITIAL: i64 = 1_000_000;

/// What the clients and the disturber have in common.
pub struct Load {
    plan: Plan,
    config: Config,
    /// The clients end after their present transaction.
    pub stop: AtomicBool,
    /// There will be no server any more.
    pub give_up: AtomicBool,
    /// Transactions that have ended in any way.
    pub done: AtomicUsize,
    /// What transactions failed with: SQLSTATE, `lost` or `cut`; how often, and the first message.
    pub errors: Mutex<BTreeMap<String, (u64, String)>>,
    /// Readers' findings.
    pub wrong: Mutex<Vec<String>>,
    /// The most that a completed reader has seen: nobody may see less later, nor may a crash leave
    /// less.
    pub seen_updates: AtomicI64,
    pub seen_rows: AtomicI64,
    /// Completed readers.
    pub reads: AtomicUsize,
    /// The longest transaction.
    pub longest_ms: AtomicU64,
}

struct Session {
    client: Client,
    connection: JoinHandle<()>,
    auto: Statement,
}

impl Drop for Session {
    /// Closes the socket, without a word to the server.
    fn drop(&mut self) {
        self.connection.abort();
    }
}

enum Trouble {
    Cut,
    Error(Error),
}

impl Load {
    pub fn new(plan: &Plan, socket_dir: &Path, port: u16) -> Self {
        let mut config = Config::new();
        config
            .host_path(socket_dir)
            .port(port)
            .user("postgres")
            .dbname("postgres")
            .application_name(LOAD);
        Load {
            plan: plan.clone(),
            config,
            stop: AtomicBool::new(false),
            give_up: AtomicBool::new(false),
            done: AtomicUsize::new(0),
            errors: Mutex::default(),
            wrong: Mutex::default(),
            seen_updates: AtomicI64::new(0),
            seen_rows: AtomicI64::new(0),
            reads: AtomicUsize::new(0),
            longest_ms: AtomicU64::new(0),
        }
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What client `number` sends at the start of each session.
    fn settings(&self, number: usize) -> String {
        let rng = &mut rng(self.plan.seed, self.plan.cycle, number as u64);
        let mut sql: Vec<String> = self
            .plan
            .session
            .iter()
            .map(|(name, value)| format!("SET {name} = '{value}'"))
            .collect();
        let share = rng.random_range(0..100);
        if share < self.plan.group_share {
            sql.push("SET txn.group_lock = on".to_owned());
        } else if share < self.plan.group_share + self.plan.queue_share {
            sql.push("SET txn.queue_lock = on".to_owned());
        }
        let aims = self.plan.strikes.iter().map(|strike| strike.aim);
        if aims
            .into_iter()
            .any(|aim| matches!(aim, Aim::Point(_) | Aim::Behind(_)))
        {
            sql.push(format!("SET txn.stop_at = '{}'", POINTS.join(",")));
        }
        sql.join("; ")
    }

    async fn connect(&self, settings: &str) -> Result<Session, Error> {
        let (client, connection) = self.config.connect(NoTls).await?;
        let connection = tokio::spawn(async move {
            // An error of the connection is told to whoever waits for an answer.
            let _ = connection.await;
        });
        client.batch_execute(settings).await?;
        let auto = client.prepare(AUTO).await?;
        Ok(Session {
            client,
            connection,
            auto,
        })
    }

    /// Client `number`, until it is to stop; its account.
    pub async fn client(self: Arc<Self>, number: usize) -> Vec<Entry> {
        let settings = self.settings(number);
        let mut rng = rng(self.plan.seed, self.plan.cycle, WORK + number as u64);
        let mut entries = Vec::new();
        let mut session = None;
        let mut id = number as i64 * 1_000_000;
        while !self.stop.load(Ordering::Relaxed) && !self.give_up.load(Ordering::Relaxed) {
            let Some(open) = session.take() else {
                session = self.connect(&settings).await.ok();
                if session.is_none() {
                    sleep(TICK).await;
                }
                continue;
            };
            id += 1;
            let transaction = transaction::draw(&mut rng, &self.plan, number, id);
            if let Some((setting, ms)) = transaction.timeout
                && let Err(_lost) = open
                    .client
                    .batch_execute(&format!("SET {setting} = {ms}"))
                    .await
            {
                continue;
            }
            let began = Instant::now();
            let (fate, trouble) = self.perform(&open, &transaction).await;
            let took = began.elapsed().as_millis() as u64;
            self.longest_ms.fetch_max(took, Ordering::Relaxed);
            if !transaction.kind.is_reader() {
                entries.push(Entry {
                    id,
                    leaves: transaction.leaves,
                    mark: transaction.mark,
                    has_seat: transaction.kind == Kind::Seat,
                    fate,
                });
            }
            session = self.clean_up(open, trouble, transaction.timeout).await;
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        entries
    }

    /// Notes what went wrong, and keeps the session if it can be used again.
    async fn clean_up(
        &self,
        session: Session,
        trouble: Option<Trouble>,
        timeout: Option<(&'static str, u64)>,
    ) -> Option<Session> {
        let mut sql = Vec::new();
        match trouble {
            None => {}
            Some(Trouble::Cut) => {
                self.note("cut", "");
                return None;
            }
            Some(Trouble::Error(error)) => {
                match error.as_db_error() {
                    Some(error) => self.note(error.code().code(), error.message()),
                    None => self.note("lost", &error.to_string()),
                }
                if broken(&error) {
                    return None;
                }
                sql.push("ROLLBACK".to_owned());
            }
        }
        if let Some((setting, _)) = timeout {
            sql.push(format!("RESET {setting}"));
        }
        for sql in sql {
            session.client.batch_execute(&sql).await.ok()?;
        }
        Some(session)
    }

    fn note(&self, code: &str, message: &str) {
        let mut errors = self.errors.lock().expect("nobody panics with it");
        errors
            .entry(code.to_owned())
            .or_insert_with(|| (0, message.to_owned()))
            .0 += 1;
    }

    async fn perform(
        &self,
        session: &Session,
        transaction: &Transaction,
    ) -> (Fate, Option<Trouble>) {
        let last = transaction.steps.len() - 1;
        for (n, step) in transaction.steps.iter().enumerate() {
            if let Some((_, nap)) = transaction.nap.filter(|(at, _)| *at == n) {
                sleep(nap).await;
            }
            let at_stake = transaction.commits && n == last;
            let unknown = if at_stake {
                Fate::InDoubt
            } else {
                Fate::Failed
            };
            let cut = transaction.cut.filter(|(at, _)| *at == n);
            let run = self.step(session, step);
            let result = match cut {
                None => run.await,
                Some((_, after)) => match timeout(after, run).await {
                    Ok(result) => result,
                    Err(_elapsed) => return (unknown, Some(Trouble::Cut)),
                },
            };
            match result {
                Err(error) if broken(&error) => return (unknown, Some(Trouble::Error(error))),
                Err(error) => return (Fate::Failed, Some(Trouble::Error(error))),
                Ok(()) if cut.is_some() => {
                    let known = if at_stake {
                        Fate::Acknowledged
                    } else {
                        Fate::Failed
                    };
                    return (known, Some(Trouble::Cut));
                }
                Ok(()) => {}
            }
        }
        match transaction.commits {
            true => (Fate::Acknowledged, None),
            false => (Fate::Failed, None),
        }
    }

    async fn step(&self, session: &Session, step: &Step) -> Result<(), Error> {
        match step {
            Step::Sql(sql) => session.client.batch_execute(sql).await,
            Step::Auto(account, mark) => {
                let params: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [account, mark];
                let rows = session.client.execute(&session.auto, &params).await?;
                if rows != 1 {
                    self.complain(format!("a single update has changed {rows} rows"));
                }
                Ok(())
            }
            Step::Read => self.read(session, true).await,
            Step::Audit => self.read(session, false).await,
        }
    }

    /// A reader: the sum is right at every instant, no seat was taken twice, and nothing that a
    /// reader was told that has `ended` is gone again.
    async fn read(&self, session: &Session, ended: bool) -> Result<(), Error> {
        let floors = [&self.seen_updates, &self.seen_rows];
        let before = floors.map(|floor| floor.load(Ordering::SeqCst));
        let row = session.client.query_one(READ, &[]).await?;
        let [balance, updates, rows, amount, halls] = [0, 1, 2, 3, 4].map(|n| row.get::<_, i64>(n));
        if halls > 0 {
            self.complain(format!(
                "a reader saw {halls} halls with a seat taken twice"
            ));
        }
        let expected = i64::from(self.plan.accounts) * INITIAL + updates + amount;
        if balance != expected {
            self.complain(format!("a reader saw {balance} and a ledger of {expected}"));
        }
        for ((floor, before), now) in floors.iter().zip(before).zip([updates, rows]) {
            if now < before {
                self.complain(format!("a reader saw {now} after another saw {before}"));
            }
            if ended {
                floor.fetch_max(now, Ordering::SeqCst);
            }
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn complain(&self, what: String) {
        let mut wrong = self.wrong.lock().expect("nobody panics with it");
        wrong.push(what);
    }
}

/// The session has ended, or is about to.
fn broken(error: &Error) -> bool {
    error.as_db_error().is_none_or(|error| {
        matches!(
            error.parsed_severity(),
            Some(Severity::Fatal | Severity::Panic)
        )
    })
}
