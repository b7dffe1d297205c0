//! The settings of the servers that schedules run on, and what there has to be.
use anyhow::Result;
use pgserver::{Server, ServerOptions};

use super::draw::Abilities;

pub fn settings(options: ServerOptions) -> ServerOptions {
    options
        .set("max_connections", 60)
        .set("max_prepared_transactions", 10)
        .set("deadlock_timeout", "10ms")
        .set("fsync", "off")
        .set("shared_buffers", "32MB")
        .set("checkpoint_timeout", "30min")
        .set("max_wal_size", "2GB")
        .set("autovacuum_naptime", "5s")
}

/// Roles, and a way from the server to itself.
pub fn prepare(server: &Server) -> Result<Abilities> {
    let mut client = server.connect()?;
    client.batch_execute(&format!(
        "CREATE EXTENSION amcheck; CREATE EXTENSION postgres_fdw;
         ALTER DATABASE postgres SET search_path = fz, public;
         CREATE ROLE fz_app; CREATE ROLE fz_other;
         CREATE SERVER fz_loop FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{}', port '{}', dbname 'postgres');
         CREATE USER MAPPING FOR PUBLIC SERVER fz_loop OPTIONS (user 'postgres', password_required 'false')",
        server.host().display(),
        server.port()
    ))?;
    if server.options().preload {
        client.batch_execute("GRANT USAGE ON SCHEMA txn TO fz_app, fz_other")?;
    }
    let xml = client.simple_query("SELECT xmlcomment('x')").is_ok();
    Ok(Abilities { xml })
}
