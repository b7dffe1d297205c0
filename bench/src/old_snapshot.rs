//! A session that keeps an old snapshot open, as a forgotten report does: nothing that it could see
//! can be removed.

use anyhow::ensure;
use pgserver::Server;
use postgres::Client;

/// Idle in a REPEATABLE READ transaction.
pub struct OldSnapshot {
    client: Client,
    seen: i64,
}

impl OldSnapshot {
    /// Takes the snapshot.
    pub fn open(server: &Server) -> anyhow::Result<Self> {
        let mut client = server.connect()?;
        client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
        let seen = sum_of_hot(&mut client)?;
        Ok(Self { client, seen })
    }

    /// Lets go of it. Fails when it no longer shows what it has shown at first.
    pub fn close(mut self) -> anyhow::Result<()> {
        let seen = sum_of_hot(&mut self.client)?;
        ensure!(
            seen == self.seen,
            "WRONG DATA. A snapshot showed {} at first and {seen} in the end",
            self.seen
        );
        self.client.batch_execute("COMMIT")?;
        Ok(())
    }
}

fn sum_of_hot(client: &mut Client) -> anyhow::Result<i64> {
    Ok(client
        .query_one("SELECT sum(val)::bigint FROM hot", &[])?
        .get(0))
}
