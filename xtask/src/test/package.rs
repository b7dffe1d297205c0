//! What is given to others: the documents as a site; the library, which is built once; the Debian
//! package, which is installed into a root of its own, used and removed; the source archive, which
//! is unpacked and compiled.
use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail, ensure};
use pgserver::{PgInstall, Server, ServerOptions, StopMode};

use super::Context;
use super::tally::Tally;
use crate::docs;
use crate::package::{archive, deb, version};
use tooling::install::{self, Variant, build_library, new_folder};
use tooling::setup::{self, unzip};
use tooling::tools::{cargo, output, target};

type Test = fn(&Context) -> Result<()>;
const TESTS: [(&str, Test); 4] = [
    ("the_documents_make_a_site", site),
    ("a_library_that_is_there_is_not_built_again", again),
    ("the_debian_package_installs_works_and_goes", debian),
    ("the_source_archive_compiles", source),
];

pub fn run(context: &Context) -> Result<Tally> {
    let mut tally = Tally::default();
    for (name, test) in TESTS {
        if !context.wants(name) {
            continue;
        }
        let result = test(context);
        println!("{name}: {}", if result.is_ok() { "ok" } else { "FAILED" });
        tally.record(result.is_ok(), name);
        if let Err(error) = result {
            tally.explain(name, &format!("{error:#}"));
        }
    }
    Ok(tally)
}

fn site(_: &Context) -> Result<()> {
    let folder = tempfile::tempdir()?;
    docs::build(folder.path())?;
    let read = |page: &str| fs::read_to_string(folder.path().join(page)).context(page.to_owned());
    let index = read("index.html")?;
    ensure!(index.contains("limitations.html"), "no link to the limits");
    let results = read("results.html")?;
    ensure!(results.contains("<table>"), "no tables in the results");
    ensure!(
        !results.contains("href=\"../"),
        "a link leads out of the site"
    );
    Ok(())
}

fn again(context: &Context) -> Result<()> {
    build_library(Variant::Release, context.install)?;
    let again = install::build(Variant::Release, context.install)?;
    ensure!(again.was_there, "with nothing changed it is compiled again");
    Ok(())
}

fn source(context: &Context) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = archive::build(folder.path())?;
    unzip(&file, folder.path())?;
    let sources = folder.path().join(format!("txn-{}", version()?));
    for needed in ["META.json", "LICENSE", "README.md", "txn.control"] {
        ensure!(sources.join(needed).is_file(), "{needed} is not in it");
    }
    let mut check = cargo();
    check
        .args(["check", "--locked", "--package", "txn", "--lib"])
        // As clippy has checked what it depends on.
        .args(["--profile", "checked"])
        .current_dir(&sources)
        .env("CARGO_TARGET_DIR", target())
        .envs(setup::build_environment(context.install)?);
    output(&mut check, "cargo compiles")?;
    Ok(())
}

fn debian(context: &Context) -> Result<()> {
    if Command::new("dpkg").arg("--version").output().is_err() {
        println!("skipped: there is no dpkg on this machine");
        return Ok(());
    }
    let root = new_folder("root-")?;
    let root = Root::new(root.path())?;
    let packages = tempfile::tempdir()?;
    let library = build_library(Variant::Release, context.install)?;
    let package = deb::build(&library, packages.path())?;

    let refused = root.dpkg("--install", &package)?;
    ensure!(!refused.status.success(), "it installs without PostgreSQL");
    let why = String::from_utf8_lossy(&refused.stderr);
    ensure!(why.contains("depends on postgresql-16"), "{why}");
    root.done("--purge", deb::PACKAGE)?;

    for package in ["libc6", "libgcc-s1"] {
        let mut query = Command::new("dpkg-query");
        query.args(["--show", "--showformat", "${Version}", package]);
        let version = output(&mut query, "it knows Debian's packages")?;
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        root.stand_in(package, &version, |_| Ok(()))?;
    }
    let copy = |folder: &Path| copy_postgresql(context.install, folder);
    root.stand_in("postgresql-16", &context.install.version, copy)?;
    let before = root.files()?;

    root.done("--install", &package)?;
    let audit = root.dpkg("--audit", "")?;
    ensure!(audit.stdout.is_empty(), "dpkg finds it incomplete");
    use_it(&root.postgresql()?)?;

    root.done("--purge", deb::PACKAGE)?;
    let after = root.files()?;
    let left: Vec<_> = after.symmetric_difference(&before).collect();
    ensure!(left.is_empty(), "it leaves {left:?}");
    Ok(())
}

/// What a user does first.
fn use_it(install: &PgInstall) -> Result<()> {
    let mut server = Server::start(install, ServerOptions::default())?;
    let mut client = server.connect()?;
    client.batch_execute(
        "CREATE TABLE account (id integer PRIMARY KEY, balance integer);
         INSERT INTO account VALUES (1, 100);
         SET txn.group_lock = on;
         SET txn.hot_threshold = 0;
         UPDATE account SET balance = balance - 10 WHERE id = 1;",
    )?;
    let row = client.query_one(
        "SELECT balance, (SELECT count(*) FROM txn.hotspots), extversion
         FROM account, pg_extension WHERE extname = 'txn'",
        &[],
    )?;
    let seen: (i32, i64, String) = (row.get(0), row.get(1), row.get(2));
    ensure!(seen == (90, 1, version()?), "{seen:?}");
    client.batch_execute("DROP EXTENSION txn")?;
    drop(client);
    server.stop(StopMode::Fast)
}

/// A folder with a package database of its own.
struct Root<'a>(&'a Path);

impl<'a> Root<'a> {
    fn new(folder: &'a Path) -> Result<Self> {
        let database = folder.join("var/lib/dpkg");
        for name in ["info", "updates", "triggers"] {
            fs::create_dir_all(database.join(name))?;
        }
        for name in ["status", "available"] {
            fs::write(database.join(name), "")?;
        }
        Ok(Root(folder))
    }

    /// Runs dpkg on the root, as whoever we are.
    fn dpkg(&self, action: &str, what: impl AsRef<Path>) -> Result<Output> {
        let mut path = env::var_os("PATH").unwrap_or_default();
        path.push(":/usr/sbin:/sbin");
        let what = what.as_ref().as_os_str();
        let mut command = Command::new("dpkg");
        command
            .args(["--force-not-root", "--log=/dev/null", action])
            .arg(option("--root=", self.0))
            .args((!what.is_empty()).then_some(what))
            .env("PATH", path)
            .env("LC_ALL", "C");
        command.output().context("could not run dpkg")
    }

    fn done(&self, action: &str, what: impl AsRef<Path>) -> Result<()> {
        let output = self.dpkg(action, what)?;
        if !output.status.success() {
            bail!("{action}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    /// Installs a package of that name in which `fill` puts what it has of the real one.
    fn stand_in(
        &self,
        package: &str,
        version: &str,
        fill: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let content = folder.path().join("content");
        fs::create_dir_all(content.join("DEBIAN"))?;
        fs::write(
            content.join("DEBIAN/control"),
            format!(
                "Package: {package}\nVersion: {version}\nArchitecture: all\n\
                 Maintainer: nobody <nobody@txn.invalid>\nDescription: a stand-in\n"
            ),
        )?;
        fill(&content)?;
        let file = folder.path().join("stand-in.deb");
        deb::pack(&content, &file, "none")?;
        self.done("--install", &file)
    }

    fn postgresql(&self) -> Result<PgInstall> {
        let bin = self.0.join("usr/lib/postgresql/16/bin/pg_config");
        let install = PgInstall::from_pg_config(&bin)?;
        for folder in [&install.pkglibdir, &install.extension_dir()] {
            let real = folder.canonicalize()?;
            let root = self.0.canonicalize()?;
            ensure!(real.starts_with(root), "{} is outside", real.display());
        }
        Ok(install)
    }

    /// All files and folders but for the package database.
    fn files(&self) -> Result<BTreeSet<PathBuf>> {
        let mut found = BTreeSet::new();
        let mut folders = vec![self.0.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder)? {
                let entry = entry?;
                if entry.path() == self.0.join("var") {
                    continue;
                }
                if entry.file_type()?.is_dir() {
                    folders.push(entry.path());
                }
                found.insert(entry.path());
            }
        }
        Ok(found)
    }
}

fn option(name: &str, value: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(value);
    option
}

/// Puts PostgreSQL, without our files, where Debian has it, and links from where it looks.
fn copy_postgresql(install: &PgInstall, root: &Path) -> Result<()> {
    let home = root.join("usr/lib/postgresql/16");
    copy(&install.bindir, &home.join("bin"))?;
    copy(&install.pkglibdir, &home.join("lib"))?;
    copy(&install.sharedir, &root.join("usr/share/postgresql/16"))?;
    let prefix = install.bindir.parent().context("bin has no parent")?;
    // Programs of a wheel find their libraries by $ORIGIN/../../../NAME.libs.
    for entry in fs::read_dir(prefix.join("../.."))? {
        let entry = entry?;
        let is_ours = entry.file_name().to_string_lossy().ends_with(".libs");
        if is_ours && entry.file_type()?.is_dir() {
            copy(&entry.path(), &root.join("usr/lib").join(entry.file_name()))?;
        }
    }
    let places = [
        (&install.pkglibdir, "lib"),
        (&install.sharedir, "../../../share/postgresql/16"),
    ];
    for (folder, place) in places {
        let Ok(within) = folder.strip_prefix(prefix) else {
            continue;
        };
        let link = home.join(within);
        if link.exists() {
            continue;
        }
        let parent = within.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(home.join(parent))?;
        let up: PathBuf = parent.iter().map(|_| "..").collect();
        symlink(up.join(place), link)?;
    }
    Ok(())
}

/// Copies a folder of an installation. Everybody may read the copy, and run its programs.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let (from, to) = (entry.path(), to.join(&name));
        if name.to_string_lossy().starts_with("txn") {
            continue;
        }
        if from.is_dir() {
            copy(&from, &to)?;
        } else if from.is_file() {
            fs::copy(&from, &to)?;
            let mode = fs::metadata(&from)?.permissions().mode() | 0o444;
            fs::set_permissions(&to, Permissions::from_mode(mode))?;
        }
    }
    Ok(())
}
