//! A primary with synchronous standbys at the other end of a slow line: what survives the loss of
//! the primary, what happens while the line is cut, and what the standby itself shows.

mod feedback;
mod line;
mod loss;
mod replica;
mod struck;
mod told;

use std::time::Duration;

use anyhow::{Result, ensure};
use pgserver::{Server, Standby};
use postgres::Client;
use txn_server_tests::{Background, Load, Running, grouped, int, read, start, until};

use told::{READERS, Told, marks};

const CLIENTS: usize = READERS + 32;

/// A single-statement transaction: many of them share a version and a commit.
const AUTO: &str = "UPDATE account SET balance = balance + 1, autos = autos + 1 WHERE id = 1";
/// The update of the row that is updated while no standby can be reached.
const MARK: &str = "UPDATE account SET balance = balance + 1, autos = autos + 1 WHERE id = 2";

const SCHEMA: &str = "
    CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL, autos bigint NOT NULL);
    CREATE TABLE ledger (id bigint PRIMARY KEY, seq bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
                         amount bigint NOT NULL);
    INSERT INTO account VALUES (1, 0, 0), (2, 0, 0)";

/// A primary whose commits wait for its standbys, with a hot row and a ledger.
struct Cluster {
    standbys: Vec<Standby>,
    primary: Server,
}

impl Cluster {
    /// The standbys are called a, b, ... and are so many milliseconds away; `names` says which of
    /// them a commit waits for.
    fn start(away: &[u64], names: &str, settings: &[(&str, &str)]) -> Result<Self> {
        let primary = start(settings)?;
        primary.connect()?.batch_execute(SCHEMA)?;
        let standbys = ('a'..)
            .zip(away)
            .map(|(name, ms)| {
                Standby::attach(&primary, &name.to_string(), Duration::from_millis(*ms))
            })
            .collect::<Result<_>>()?;
        primary.set_synchronous_standbys(names)?;
        Ok(Cluster { standbys, primary })
    }

    /// Clients that update the hot row and write the ledger, and readers of both.
    fn load(&self) -> Load {
        Load::endless(&self.primary, CLIENTS).session(|number| match number < READERS {
            true => String::new(),
            false => "SET txn.group_lock = on; SET txn.hot_threshold = 1".to_owned(),
        })
    }

    /// Cuts the lines to all standbys, and returns when every client of the load waits for them. By
    /// then the update that is returned is visible to sessions that do not ask for durability. It
    /// is an error if a client gets an answer meanwhile.
    fn cut(&self, told: &Told, control: &mut Client) -> Result<Background> {
        for standby in &self.standbys {
            standby.line()?.cut();
        }
        told.away();
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        let before = marks(control)?;
        let mark = Background::run(grouped(&self.primary)?, MARK)?;
        until(control, "all clients wait for the standbys", |control| {
            told.check()?;
            ensure!(!mark.is_finished(), "an update did not wait for a standby");
            let marked = marks(control)? > before;
            Ok(marked && int(control, waiting)? == CLIENTS as i64 + 1)
        })?;
        Ok(mark)
    }
}

/// Waits until the load has made use of all that lets others go on before the standbys have
/// answered; an error if it does not come to that.
fn wait_until_early(running: &Running, control: &mut Client) -> Result<()> {
    const MANY: usize = 100_000;
    let early = "SELECT followed > 0 AND combined > 0 AND early_commits > 0 FROM txn.stats";
    until(control, early, |control| {
        ensure!(running.done() < MANY, "nobody goes on before the standby");
        read(control, early)
    })
}
