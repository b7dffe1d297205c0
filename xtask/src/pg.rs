//! `cargo xtask pg`: a server to play with. It outlives the command; its data stay in the cache.
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use pgserver::{PgInstall, PostmasterFile, Server, ServerOptions, ServerUser, cache_dir};
use postgres::Config;

use tooling::{install, setup};

const DEFAULT_PORT: u16 = 5516;

#[derive(Subcommand)]
pub enum Command {
    /// Start it, with the extension loaded and created
    Start {
        #[command(flatten)]
        which: Which,
        /// A line of postgresql.conf; may be repeated
        #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
        settings: Vec<(String, String)>,
        /// Without the library, as PostgreSQL comes
        #[arg(long)]
        stock: bool,
    },
    /// Stop it; the data stay
    Stop {
        #[command(flatten)]
        which: Which,
        /// Delete its data too
        #[arg(long)]
        remove: bool,
    },
    /// Open psql on it; further arguments go to psql
    Psql {
        #[command(flatten)]
        which: Which,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// List the servers
    Status,
}

#[derive(clap::Args)]
pub struct Which {
    /// TCP port on localhost
    #[arg(long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Name of the data folder [default: the port]
    #[arg(long)]
    name: Option<String>,
}

impl Which {
    fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.port.to_string())
    }

    fn data_dir(&self) -> Result<PathBuf> {
        let name = self.name();
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            bail!("\"{name}\" cannot be the name of a data folder");
        }
        Ok(servers().join(name))
    }

    /// The running server of this name.
    fn running(&self) -> Result<PostmasterFile> {
        running(&self.data_dir()?).with_context(|| {
            format!(
                "the server \"{}\" is not running: `cargo xtask pg start`",
                self.name()
            )
        })
    }
}

pub fn run(command: Command, pg_config: Option<&Path>) -> Result<()> {
    match command {
        Command::Start {
            which,
            settings,
            stock,
        } => start(&which, settings, stock, pg_config),
        Command::Stop { which, remove } => stop(&which, remove, pg_config),
        Command::Psql { which, arguments } => psql(&which, &arguments, pg_config),
        Command::Status => status(),
    }
}

fn start(
    which: &Which,
    settings: Vec<(String, String)>,
    stock: bool,
    pg_config: Option<&Path>,
) -> Result<()> {
    let data_dir = which.data_dir()?;
    let install = setup::run(pg_config)?;
    if !stock && !is_installed(&install) {
        install::install_release(&install)?;
    }
    let kind = if stock {
        ServerOptions::stock()
    } else {
        ServerOptions::default()
    };
    let options = ServerOptions {
        settings,
        port: Some(which.port),
        data_dir: Some(data_dir),
        keep_running: true,
        ..kind
    };
    let server = Server::start(&install, options)?;
    println!(
        "PostgreSQL {} runs as user {} on localhost:{} (pid {})\ndata {}\nsocket {}\n\
         connect with: cargo xtask pg psql{}",
        install.version,
        server.user().name,
        server.port(),
        server.postmaster_pid()?,
        server.data_dir().display(),
        server.host().display(),
        which.arguments()
    );
    Ok(())
}

impl Which {
    /// How to name this server on the command line.
    fn arguments(&self) -> String {
        match (&self.name, self.port) {
            (Some(name), _) => format!(" --name {name}"),
            (None, DEFAULT_PORT) => String::new(),
            (None, port) => format!(" --port {port}"),
        }
    }
}

fn is_installed(install: &PgInstall) -> bool {
    let library = format!("txn{}", std::env::consts::DLL_SUFFIX);
    install.has_extension("txn") && install.pkglibdir.join(library).is_file()
}

fn stop(which: &Which, remove: bool, pg_config: Option<&Path>) -> Result<()> {
    let data_dir = which.data_dir()?;
    match which.running() {
        Ok(_) => stop_server(&data_dir, &setup::find(pg_config)?)?,
        Err(error) if !(remove && data_dir.exists()) => return Err(error),
        Err(_) => {}
    }
    if remove {
        fs::remove_dir_all(&data_dir)
            .with_context(|| format!("could not remove {}", data_dir.display()))?;
        let log = data_dir.with_extension("log");
        if log.exists() {
            fs::remove_file(&log).with_context(|| format!("could not remove {}", log.display()))?;
        }
    }
    println!(
        "the server \"{}\" is {}",
        which.name(),
        if remove { "gone" } else { "stopped" }
    );
    Ok(())
}

fn stop_server(data_dir: &Path, install: &PgInstall) -> Result<()> {
    let mut command = process::Command::new(install.bin("pg_ctl"));
    command
        .args(["stop", "--silent", "--mode=fast", "-D"])
        .arg(data_dir)
        .current_dir("/");
    let output = ServerUser::choose()?
        .apply(&mut command)
        .output()
        .with_context(|| format!("could not run {}", install.bin("pg_ctl").display()))?;
    if !output.status.success() {
        bail!(
            "pg_ctl could not stop it: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

/// Becomes psql: as ourselves, so that it can read the user's files.
fn psql(which: &Which, arguments: &[OsString], pg_config: Option<&Path>) -> Result<()> {
    let running = which.running()?;
    let install = setup::find(pg_config)?;
    let error = process::Command::new(install.bin("psql"))
        .env("PGHOST", &running.socket_dir)
        .env("PGPORT", running.port.to_string())
        .env("PGUSER", "postgres")
        .env("PGDATABASE", "postgres")
        .args(arguments)
        .exec();
    Err(error).with_context(|| format!("could not run {}", install.bin("psql").display()))
}

/// The server of this cache that runs; of several, the one on the default port.
fn the_running_one() -> Result<PostmasterFile> {
    let mut running: Vec<_> = data_dirs()?.iter().filter_map(|dir| running(dir)).collect();
    let default = running
        .iter()
        .position(|server| server.port == DEFAULT_PORT);
    match (default, running.len()) {
        (Some(at), _) => Ok(running.remove(at)),
        (None, 1) => Ok(running.remove(0)),
        (None, 0) => bail!(
            "no throwaway server runs: name a connection, such as \
             postgresql://user@host:5432/database, or start one by `cargo xtask pg start`"
        ),
        (None, _) => bail!(
            "several throwaway servers run (`cargo xtask pg status`): name one, such as \
             postgresql://postgres@localhost:{}/postgres",
            running[0].port
        ),
    }
}

/// The servers' data folders.
fn data_dirs() -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    if let Ok(entries) = fs::read_dir(servers()) {
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                paths.push(path);
            }
        }
    }
    paths.sort();
    Ok(paths)
}

fn status() -> Result<()> {
    let paths = data_dirs()?;
    if paths.is_empty() {
        println!("no servers yet: `cargo xtask pg start`");
        return Ok(());
    }
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_header(["name", "state", "port", "pid", "data"]);
    for path in paths {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let data = path.display().to_string();
        let row = match running(&path) {
            Some(file) => [
                name,
                "running".into(),
                file.port.to_string(),
                file.pid.to_string(),
                data,
            ],
            None => [name, "stopped".into(), String::new(), String::new(), data],
        };
        table.add_row(row);
    }
    println!("{table}");
    Ok(())
}

/// Where the servers' data are.
fn servers() -> PathBuf {
    cache_dir().join("servers")
}

fn running(data_dir: &Path) -> Option<PostmasterFile> {
    PostmasterFile::read(data_dir).filter(PostmasterFile::is_alive)
}

/// Parses `NAME=VALUE`.
fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

/// How to connect to the server of `pg start`.
pub fn throwaway() -> Result<Config> {
    let server = the_running_one()?;
    let mut config = Config::new();
    config
        .host_path(server.socket_dir)
        .port(server.port)
        .user("postgres")
        .dbname("postgres");
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_may_contain_equal_signs() {
        assert_eq!(setting("a = b=c"), Ok(("a".into(), "b=c".into())));
        assert!(setting("a").is_err() && setting("=a").is_err());
    }

    #[test]
    fn data_folders_stay_inside_the_cache() {
        let which = |name: &str| Which {
            port: 5516,
            name: Some(name.into()),
        };
        assert!(which("../x").data_dir().is_err() && which("").data_dir().is_err());
        assert!(which("..").data_dir().is_err());
        assert_eq!(which("mine").data_dir().unwrap(), servers().join("mine"));
        assert_eq!(
            Which {
                port: 7000,
                name: None
            }
            .name(),
            "7000"
        );
    }
}
