//! What a server is started with.
use std::env;
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::install::PgInstall;

/// The name of the extension and of its library.
pub(crate) const EXTENSION: &str = "txn";

/// How to start a server. `Default` is a temporary one with the extension, reachable through a
/// unix socket in a private folder only.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Put the library into `shared_preload_libraries`, before what `settings` ask for there.
    pub preload: bool,
    /// Create the extension in the database `postgres`. Without `preload` it is not created.
    pub create_extension: bool,
    /// Lines of postgresql.conf; the last of a name wins.
    pub settings: Vec<(String, String)>,
    /// A folder with another build of the library (`txn.so`); `TXN_LIBRARY_DIR` when unset.
    pub library_dir: Option<PathBuf>,
    /// Listen with TCP on localhost too.
    pub port: Option<u16>,
    /// Where the data live and stay; unset: a temporary folder, removed on drop.
    pub data_dir: Option<PathBuf>,
    /// Run the server under this program, with these arguments (valgrind).
    pub under: Vec<String>,
    /// Leave the server running when this process ends. Needs `data_dir`.
    pub keep_running: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            preload: true,
            create_extension: true,
            settings: Vec::new(),
            library_dir: None,
            port: None,
            data_dir: None,
            under: Vec::new(),
            keep_running: false,
        }
    }
}

impl ServerOptions {
    /// PostgreSQL as it is, without the library.
    pub fn stock() -> Self {
        ServerOptions {
            preload: false,
            create_extension: false,
            ..Self::default()
        }
    }

    /// Adds a setting.
    pub fn set(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.settings.push((name.into(), value.to_string()));
        self
    }

    /// Whether the extension is to be created after the start.
    pub(crate) fn wants_extension(&self) -> bool {
        self.preload && self.create_extension
    }

    /// Errors that are better told before the server fails with them.
    pub(crate) fn check(&self, install: &PgInstall) -> Result<()> {
        if self.keep_running && self.data_dir.is_none() {
            bail!("a server that keeps running needs a data folder that stays (data_dir)");
        }
        let library = format!("{EXTENSION}{}", env::consts::DLL_SUFFIX);
        if let Some(dir) = self.library_dir() {
            if !dir.join(&library).is_file() {
                bail!(
                    "there is no {library} in {}, the library folder",
                    dir.display()
                );
            }
        } else if self.preload && !install.pkglibdir.join(&library).is_file() {
            bail!(
                "{library} is not in {}: run `cargo xtask install` for this PostgreSQL",
                install.pkglibdir.display()
            );
        }
        if self.wants_extension() && !install.has_extension(EXTENSION) {
            bail!(
                "the extension {EXTENSION} is not in {}: run `cargo xtask install` for this \
                 PostgreSQL",
                install.extension_dir().display()
            );
        }
        Ok(())
    }

    /// The folder of the other build, from here or from the environment.
    pub(crate) fn library_dir(&self) -> Option<PathBuf> {
        self.library_dir.clone().or_else(|| {
            env::var_os("TXN_LIBRARY_DIR")
                .filter(|dir| !dir.is_empty())
                .map(PathBuf::from)
        })
    }

    /// The text of the server's configuration file.
    pub(crate) fn configuration(&self, socket_dir: &str) -> String {
        let mut lines = vec![
            (
                "listen_addresses",
                if self.port.is_some() { "localhost" } else { "" }.to_owned(),
            ),
            ("port", self.port.unwrap_or(5432).to_string()),
            ("unix_socket_directories", socket_dir.to_owned()),
            ("max_connections", "1200".to_owned()),
            ("log_line_prefix", "%m [%p] ".to_owned()),
        ];
        if let Some(dir) = self.library_dir() {
            lines.push(("dynamic_library_path", format!("{}:$libdir", dir.display())));
        }
        lines.extend(
            self.settings
                .iter()
                .map(|(name, value)| (name.as_str(), value.clone())),
        );
        if self.preload {
            let asked = self.settings.iter().rev().find(|(name, _)| name == PRELOAD);
            let asked = asked.map_or("", |(_, value)| value.as_str());
            lines.push((PRELOAD, with_extension(asked)));
        }
        lines
            .iter()
            .map(|(name, value)| format!("{name} = {}\n", quoted(value)))
            .collect()
    }
}

const PRELOAD: &str = "shared_preload_libraries";

/// The list `libraries` with the extension in front, unless it is in there.
fn with_extension(libraries: &str) -> String {
    let others = libraries
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    if others.clone().any(|name| name == EXTENSION) {
        return libraries.to_owned();
    }
    std::iter::once(EXTENSION)
        .chain(others)
        .collect::<Vec<_>>()
        .join(",")
}

/// A string of postgresql.conf, which knows both doubled quotes and backslashes.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_survive_the_configuration_file() {
        assert_eq!(quoted(r"it's C:\x"), r"'it''s C:\\x'");
    }

    #[test]
    fn the_extension_is_preloaded_once_beside_others() {
        assert_eq!(with_extension(""), "txn");
        assert_eq!(with_extension("auto_explain, pg_stat_statements"), {
            "txn,auto_explain,pg_stat_statements"
        });
        assert_eq!(
            with_extension("pg_stat_statements,txn"),
            "pg_stat_statements,txn"
        );
    }

    #[test]
    fn no_tcp_unless_a_port_is_asked_for() {
        let private = ServerOptions::stock().configuration("/tmp/s");
        assert!(private.contains("listen_addresses = ''\n"), "{private}");
        assert!(!private.contains(PRELOAD), "{private}");
        let open = ServerOptions {
            port: Some(5516),
            ..ServerOptions::default()
        };
        let open = open.set("work_mem", "8MB").configuration("/tmp/s");
        assert!(
            open.contains("listen_addresses = 'localhost'\nport = '5516'\n"),
            "{open}"
        );
        assert!(
            open.contains("work_mem = '8MB'\nshared_preload_libraries = 'txn'\n"),
            "{open}"
        );
    }
}
