//! A line to a server of ours, for any client of libpq.
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use postgres::{Client, Config};

use crate::proxy::Proxy;
use crate::server::Server;

/// A second socket of a server at the near end of a line, with all that a `Proxy` can do. Clients
/// reach it by `host=<host()> port=<port()>`. It outlives restarts of the server.
pub struct Line {
    proxy: Proxy,
    host: PathBuf,
    port: u16,
}

impl Line {
    /// A line to `server` without delay.
    pub fn to(server: &Server) -> Result<Self> {
        Self::with_delay(server, Duration::ZERO)
    }

    /// A line to `server` of which each way takes `delay`.
    pub fn with_delay(server: &Server, delay: Duration) -> Result<Self> {
        let host = server.host();
        let socket = |port: u16| host.join(format!(".s.PGSQL.{port}"));
        let free = (server.port() + 1..).find(|port| !socket(*port).exists());
        let port = free.context("there is no number left for a socket")?;
        let proxy = Proxy::start(&socket(port), &socket(server.port()), delay)?;
        server.user().own(&socket(port))?;
        Ok(Line {
            proxy,
            host: host.to_owned(),
            port,
        })
    }

    /// The folder of its socket, which is the server's.
    pub fn host(&self) -> &Path {
        &self.host
    }

    /// The number of its socket.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How to connect through it.
    pub fn config(&self, user: &str, database: &str) -> Config {
        let mut config = Client::configure();
        config.host_path(&self.host).port(self.port);
        config.user(user).dbname(database);
        config
    }
}

impl Deref for Line {
    type Target = Proxy;

    fn deref(&self) -> &Proxy {
        &self.proxy
    }
}
