//! One server: start, use, stop, crash, start again.

mod clients;
#[cfg(test)]
mod tests;

use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cache::make_readable_dir;
use crate::guard::Guard;
use crate::install::PgInstall;
use crate::options::{EXTENSION, ServerOptions};
use crate::postmaster::PostmasterFile;
use crate::process::{Process, children, signal};
use crate::template::{self, SETTINGS_FILE};
use crate::user::ServerUser;

/// How long a start with recovery or a stop may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often we look in the meantime.
const TICK: Duration = Duration::from_millis(5);
/// A socket's path has to fit 107 characters, among them `/.s.PGSQL.65535.lock`.
const LONGEST_SOCKET_DIR: usize = 80;

/// PostgreSQL's three ways to shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// Waits for the sessions to end.
    Smart,
    /// Rolls back the sessions' transactions.
    Fast,
    /// No checkpoint: the next start recovers from WAL.
    Immediate,
}

impl StopMode {
    fn signal(self) -> i32 {
        match self {
            StopMode::Smart => libc::SIGTERM,
            StopMode::Fast => libc::SIGINT,
            StopMode::Immediate => libc::SIGQUIT,
        }
    }
}

/// A PostgreSQL server of our own. Dropping it stops it and removes its temporary folder, and so
/// does the end of this process in any way (see `guard`).
pub struct Server {
    install: PgInstall,
    options: ServerOptions,
    user: ServerUser,
    data_dir: PathBuf,
    socket_dir: PathBuf,
    log_file: PathBuf,
    port: u16,
    postmaster: Option<Child>,
    /// The last postmaster has ended by itself, which it does after all its processes only.
    ended: bool,
    /// The data folder is for the next server.
    recycled: bool,
    /// Absent when the server is to outlive us.
    guard: Option<Guard>,
}

/// Where the files of a server are.
struct Places {
    data_dir: PathBuf,
    socket_dir: PathBuf,
    log_file: PathBuf,
    /// The folder around them that goes with the server, if its data are not to stay.
    temporary: Option<PathBuf>,
}

impl Places {
    /// The places that the options name, or new ones. Fails if a server runs on the data already.
    fn choose(options: &ServerOptions, user: &ServerUser) -> Result<Places> {
        let Some(dir) = &options.data_dir else {
            let home = user.private_folder(LONGEST_SOCKET_DIR)?;
            return Ok(Places {
                data_dir: home.join("data"),
                socket_dir: home.clone(),
                log_file: home.join("log"),
                temporary: Some(home),
            });
        };
        let data_dir = std::path::absolute(dir)?;
        let parent = data_dir
            .parent()
            .context("the root folder cannot hold a server")?;
        make_readable_dir(parent)?;
        user.check_reach(parent)?;
        check_is_stopped(&data_dir)?;
        let socket_dir = match data_dir.as_os_str().len() <= LONGEST_SOCKET_DIR {
            true => data_dir.clone(),
            false => user.private_folder(LONGEST_SOCKET_DIR)?,
        };
        Ok(Places {
            log_file: data_dir.with_extension("log"),
            data_dir,
            socket_dir,
            temporary: None,
        })
    }
}

fn check_is_stopped(data_dir: &Path) -> Result<()> {
    if let Some(running) = PostmasterFile::read(data_dir)
        && running.is_alive()
    {
        bail!(
            "a server already runs in {} (pid {})",
            data_dir.display(),
            running.pid
        );
    }
    Ok(())
}

impl Server {
    /// Makes the data folder unless it is there, starts the server and waits until it takes
    /// connections. The error of a failed start carries the end of the log.
    pub fn start(install: &PgInstall, options: ServerOptions) -> Result<Server> {
        let mut server = Self::start_on(install, options, template::fill)?;
        server.recycled = server.options.data_dir.is_none();
        Ok(server)
    }

    /// As `start`, with data with which `fill` fills the new and empty folder.
    pub fn start_on(
        install: &PgInstall,
        options: ServerOptions,
        fill: impl FnOnce(&PgInstall, &ServerUser, &Path) -> Result<()>,
    ) -> Result<Server> {
        options.check(install)?;
        let user = ServerUser::choose()?;
        user.check_reach(&install.required("postgres")?)?;
        if let Some(dir) = options.library_dir() {
            user.check_reach(&dir)?;
        }

        let places = Places::choose(&options, &user)?;
        let guard = match options.keep_running {
            true => None,
            false => Some(Guard::new(
                install,
                &user,
                &places.data_dir,
                places.temporary.as_deref(),
            )?),
        };
        let mut server = Server {
            install: install.clone(),
            user,
            port: options.port.unwrap_or(5432),
            data_dir: places.data_dir,
            socket_dir: places.socket_dir,
            log_file: places.log_file,
            postmaster: None,
            ended: false,
            recycled: false,
            guard,
            options,
        };
        server.prepare(fill)?;
        server.start_again()?;
        if server.options.wants_extension()
            && let Err(error) = server.create_extension()
        {
            server.stop(StopMode::Fast)?;
            return Err(error);
        }
        Ok(server)
    }

    /// The data folder and the settings of this start.
    fn prepare(
        &self,
        fill: impl FnOnce(&PgInstall, &ServerUser, &Path) -> Result<()>,
    ) -> Result<()> {
        if !self.data_dir.join("PG_VERSION").exists() {
            make_readable_dir(&self.data_dir)?;
            self.user.own(&self.data_dir)?;
            fill(&self.install, &self.user, &self.data_dir)
                .with_context(|| format!("could not fill {}", self.data_dir.display()))?;
        }
        let path = self.data_dir.join(SETTINGS_FILE);
        fs::write(
            &path,
            self.options
                .configuration(&self.socket_dir.to_string_lossy()),
        )
        .with_context(|| format!("could not write {}", path.display()))?;
        self.user.own(&path)
    }

    fn create_extension(&self) -> Result<()> {
        self.connect()?
            .batch_execute(&format!("CREATE EXTENSION IF NOT EXISTS {EXTENSION}"))
            .with_context(|| format!("could not create the extension {EXTENSION}"))
    }

    /// Starts the stopped or killed server on the same data and waits for its recovery; the
    /// error after 120 s or a failure carries the end of the log.
    pub fn start_again(&mut self) -> Result<()> {
        if self.postmaster.is_some() {
            bail!(
                "the server of {} is still running: stop it first",
                self.data_dir.display()
            );
        }
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log_file)
            .with_context(|| format!("could not open {}", self.log_file.display()))?;
        let postgres = self.install.bin("postgres");
        let mut command = match self.options.under.as_slice() {
            [] => Command::new(postgres),
            [program, arguments @ ..] => {
                let mut command = Command::new(program);
                command.args(arguments).arg(postgres);
                command
            }
        };
        command
            .arg("-D")
            .arg(&self.data_dir)
            .current_dir("/")
            .env_remove("PGDATA")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C is for us, not for the server.
            .process_group(0);
        let child = self
            .user
            .apply(&mut command)
            .spawn()
            .context("could not run postgres")?;
        let pid = child.id() as i32;
        let child = self.postmaster.insert(child);
        self.ended = false;
        let began = Instant::now();
        loop {
            let file = PostmasterFile::read(&self.data_dir);
            if file.is_some_and(|file| file.pid == pid && file.ready) {
                return Ok(());
            }
            if let Some(status) = child.try_wait()? {
                self.postmaster = None;
                bail!(
                    "the server did not start ({status}); the end of its log:\n{}",
                    self.tail()
                );
            }
            if began.elapsed() > PATIENCE {
                bail!(
                    "the server takes no connections after {} s; the end of its log:\n{}",
                    PATIENCE.as_secs(),
                    self.tail()
                );
            }
            sleep(TICK);
        }
    }

    /// Stops the server and starts it again under that program; under none if it is empty.
    pub fn start_again_under(&mut self, under: Vec<String>) -> Result<()> {
        self.stop(StopMode::Fast)?;
        self.options.under = under;
        self.start_again()
    }

    pub fn install(&self) -> &PgInstall {
        &self.install
    }

    /// What it was started with.
    pub fn options(&self) -> &ServerOptions {
        &self.options
    }

    /// The user that runs the server.
    pub fn user(&self) -> &ServerUser {
        &self.user
    }

    /// The folder of the unix socket.
    pub fn host(&self) -> &Path {
        &self.socket_dir
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Everything the server has logged.
    pub fn log(&self) -> Result<String> {
        let bytes = fs::read(&self.log_file)
            .with_context(|| format!("could not read {}", self.log_file.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Process id of the running server.
    pub fn postmaster_pid(&self) -> Result<i32> {
        let child = self.postmaster.as_ref();
        Ok(child
            .with_context(|| format!("{} is not running", self.describe()))?
            .id() as i32)
    }

    /// Reads the configuration files anew.
    pub fn reload(&self) -> Result<()> {
        signal(self.postmaster_pid()?, libc::SIGHUP)
    }

    /// Shuts the server down and waits until it is gone. The data stay.
    pub fn stop(&mut self, mode: StopMode) -> Result<()> {
        signal(self.postmaster_pid()?, mode.signal())?;
        self.wait_for_exit()
    }

    /// Kills the server with SIGKILL and waits until its backends have noticed and are gone. One
    /// that is not after 120 s is killed too, and an error.
    pub fn kill9(&mut self) -> Result<()> {
        self.kill(|_| Ok(()))
    }

    /// Kills all processes of the server at once, as when its machine fails, and waits until they
    /// are gone.
    pub fn kill9_all(&mut self) -> Result<()> {
        self.kill(|process| signal(process.pid, libc::SIGKILL))
    }

    /// Kills the server, after `first` has been done to each of its children.
    fn kill(&mut self, first: impl FnMut(&Process) -> Result<()>) -> Result<()> {
        let pid = self.postmaster_pid()?;
        // Stopped, it forks no more: the list of its children is complete.
        signal(pid, libc::SIGSTOP)?;
        let backends = children(pid);
        let first = backends.iter().flatten().try_for_each(first);
        signal(pid, libc::SIGKILL)?;
        self.wait_for_exit()?;
        let backends = backends?;
        first?;
        let began = Instant::now();
        loop {
            let left: Vec<&Process> = backends.iter().filter(|backend| backend.runs()).collect();
            if left.is_empty() {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                for backend in &left {
                    signal(backend.pid, libc::SIGKILL)?;
                }
                bail!(
                    "{} s after the server was killed, processes still ran that had not noticed: {:?}",
                    PATIENCE.as_secs(),
                    left.iter().map(|backend| backend.pid).collect::<Vec<_>>()
                );
            }
            sleep(TICK);
        }
    }

    fn wait_for_exit(&mut self) -> Result<()> {
        let began = Instant::now();
        while let Some(child) = &mut self.postmaster {
            if let Some(status) = child.try_wait()? {
                self.ended = status.code().is_some();
                self.postmaster = None;
            } else if began.elapsed() > PATIENCE {
                bail!(
                    "the server has not stopped after {} s; the end of its log:\n{}",
                    PATIENCE.as_secs(),
                    self.tail()
                );
            } else {
                sleep(TICK);
            }
        }
        Ok(())
    }

    /// Stops the server and leaves its data folder to the next one, unless processes may be left
    /// that write there.
    fn recycle(&mut self) -> Result<()> {
        if self.postmaster.is_some() {
            self.stop(StopMode::Immediate)?;
        }
        match self.ended {
            true => template::recycle(&self.install, &self.user, &self.data_dir),
            false => Ok(()),
        }
    }

    /// The last lines of the log.
    fn tail(&self) -> String {
        let log = self.log().unwrap_or_else(|error| format!("{error:#}"));
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    fn describe(&self) -> String {
        format!(
            "the server in {} (port {})",
            self.data_dir.display(),
            self.port
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "the end of the log of {}:\n{}",
                self.describe(),
                self.tail()
            );
        }
        if let Some(guard) = self.guard.take() {
            if self.recycled
                && let Err(error) = self.recycle()
            {
                eprintln!("the data of {} go: {error:#}", self.describe());
            }
            guard.finish();
            // The guard has stopped it; this takes its exit status off the kernel.
            if let Some(mut child) = self.postmaster.take() {
                let _ = child.wait();
            }
        }
    }
}
