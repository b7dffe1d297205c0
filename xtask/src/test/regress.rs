//! pg_regress for `sql/`, pg_isolation_regress for `specs/`, both compared with `expected/`.
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use pgserver::{Server, ServerOptions};

use super::Context;
use super::tally::Tally;
use super::tap;
use tooling::install::{Variant, build_library, publish};
use tooling::tools::checkout;

/// SQL files of this prefix run on a server that does not preload the library.
const WITHOUT_PRELOAD: &str = "nopreload_";
/// Isolation specs have this prefix, so that their outputs can share `expected/` with the SQL's.
const SPEC: &str = "iso_";

/// SQL files of this prefix, and all isolation specs, run a second time with tables of the access
/// method `txn_heap`: there everything has to be as on heap.
const ON_BOTH: &str = "shapes_";
const HEAP: &str = "heap";
const TXN_HEAP: &str = "txn_heap";

/// One driver and its inputs.
struct Suite {
    driver: &'static str,
    folder: &'static str,
    extension: &'static str,
    arguments: &'static [&'static str],
    /// Each of its tests has updates that follow others, or says why not.
    follows: bool,
}

const SQL: Suite = Suite {
    driver: "pg_regress",
    folder: "sql",
    extension: "sql",
    arguments: &[],
    follows: false,
};

/// The SQL files of `ON_BOTH`, which need the extension before their first table.
const SHAPES: Suite = Suite {
    arguments: &["--load-extension=txn"],
    ..SQL
};

const ISOLATION: Suite = Suite {
    driver: "pg_isolation_regress",
    folder: "specs",
    extension: "spec",
    arguments: &["--load-extension=txn"],
    follows: true,
};

/// The SQL files, on the installed release.
pub fn sql(context: &Context) -> Result<Tally> {
    let (names, mut tally) = inventory(&SQL, context, |output| !output.starts_with(SPEC))?;
    let (without, with): (Vec<String>, Vec<String>) = names
        .into_iter()
        .partition(|name| name.starts_with(WITHOUT_PRELOAD));
    let bare = ServerOptions {
        create_extension: false,
        ..ServerOptions::default()
    };
    let on_both = with.iter().filter(|name| name.starts_with(ON_BOTH));
    let on_both: Vec<String> = on_both.cloned().collect();
    for (suite, names, options, tables) in [
        (SQL, with, bare.clone(), HEAP),
        (SHAPES, on_both, bare, TXN_HEAP),
        (SQL, without, ServerOptions::stock(), HEAP),
    ] {
        // What users run, whatever TXN_LIBRARY_DIR says.
        let options = ServerOptions {
            library_dir: Some(context.install.pkglibdir.clone()),
            ..options
        };
        tally += drive(&suite, &names, options, tables, context)?;
    }
    Ok(tally)
}

/// The isolation specs, on the checked library with its stop events.
pub fn isolation(context: &Context) -> Result<Tally> {
    let (names, mut tally) = inventory(&ISOLATION, context, |output| output.starts_with(SPEC))?;
    if let Some(name) = names.iter().find(|name| !name.starts_with(SPEC)) {
        bail!("specs/{name}.spec has to be called {SPEC}{name}.spec");
    }
    if names.is_empty() {
        return Ok(tally);
    }
    let library = publish(&build_library(Variant::Checked, context.install)?)?;
    let options = ServerOptions {
        create_extension: false,
        library_dir: Some(library.path().to_owned()),
        ..ServerOptions::default()
    };
    let options = options
        .set("deadlock_timeout", "10ms")
        .set("max_prepared_transactions", 20);
    for tables in [HEAP, TXN_HEAP] {
        tally += drive(&ISOLATION, &names, options.clone(), tables, context)?;
    }
    Ok(tally)
}

/// The names of the suite's tests that are asked for, and the failures that show without running:
/// an expected output whose test is gone would never be noticed otherwise.
fn inventory(
    suite: &Suite,
    context: &Context,
    is_ours: impl Fn(&str) -> bool,
) -> Result<(Vec<String>, Tally)> {
    let tests = stems(&checkout().join(suite.folder), suite.extension)?;
    let mut tally = Tally::default();
    for output in stems(&checkout().join("expected"), "out")? {
        if is_ours(&output) && context.wants(&output) && !tests.contains(test_of(&output, &tests)) {
            tally.fail(&format!("expected/{output}.out belongs to no test"));
        }
    }
    Ok((
        tests
            .into_iter()
            .filter(|name| context.wants(name))
            .collect(),
        tally,
    ))
}

/// The test of an expected output; `name_1.out` is another right answer of `name`.
fn test_of<'a>(output: &'a String, tests: &'a [String]) -> &'a String {
    let variant = |test: &&String| {
        output
            .strip_prefix(test.as_str())
            .and_then(|rest| rest.strip_prefix('_'))
            .is_some_and(|rest| rest.len() == 1 && rest.chars().all(|c| c.is_ascii_digit()))
    };
    tests.iter().find(variant).unwrap_or(output)
}

/// The names without extension of the files in `folder`, sorted.
fn stems(folder: &Path, extension: &str) -> Result<Vec<String>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("could not read {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension)
            && let Some(name) = path.file_stem().and_then(|name| name.to_str())
        {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Runs the tests `names` on a server of their own, where tables are of the access method `tables`
/// unless they say otherwise.
fn drive(
    suite: &Suite,
    names: &[String],
    options: ServerOptions,
    tables: &str,
    context: &Context,
) -> Result<Tally> {
    if names.is_empty() {
        return Ok(Tally::default());
    }
    let Some(driver) = context.install.pgxs_test(suite.driver) else {
        bail!(
            "this PostgreSQL brings no {}: install its development package (Debian: \
             postgresql-server-dev-16), or test with the cached one (without --pg-config)",
            suite.driver
        );
    };
    let options = options.set("default_table_access_method", tables);
    let server = Server::start(context.install, options)?;
    let work = workplace(suite, names, &server)?;
    let mut tally = Tally::default();
    // One after the other where it matters who has done what.
    let at_once = if suite.follows { 1 } else { names.len() };
    let mut followed = 0;
    for (n, names) in names.chunks(at_once).enumerate() {
        let mut arguments = suite.arguments.to_vec();
        if n > 0 {
            arguments.push("--use-existing");
        }
        tally += run_driver(&driver, &arguments, names, &server, &work, context)?;
        if suite.follows {
            let before = followed;
            followed = total_followed(&server)?;
            for name in names {
                if followed == before && !says_that_nobody_follows(suite, name)? {
                    tally.fail(&format!("{name} (nobody has followed)"));
                }
            }
        }
    }
    tally.prefix(tables);
    Ok(tally)
}

/// How many updates have followed others since the server's start.
fn total_followed(server: &Server) -> Result<i64> {
    let mut client = server.connect_as("postgres", "regression")?;
    let row = client.query_one("SELECT followed::bigint FROM txn.stats", &[])?;
    Ok(row.get(0))
}

/// Whether the test gives the reason why it is none of followers.
fn says_that_nobody_follows(suite: &Suite, name: &str) -> Result<bool> {
    let path = Path::new(suite.folder).join(format!("{name}.{}", suite.extension));
    let text = fs::read_to_string(checkout().join(&path))
        .with_context(|| format!("could not read {}", path.display()))?;
    Ok(text.contains("# Nobody follows"))
}

/// Runs these tests, and shows what the driver prints.
fn run_driver(
    driver: &Path,
    arguments: &[&str],
    names: &[String],
    server: &Server,
    work: &Path,
    context: &Context,
) -> Result<Tally> {
    let mut command = Command::new(driver);
    command
        .arg(format!("--inputdir={}", work.display()))
        .arg(format!("--outputdir={}", work.display()))
        .arg(format!("--bindir={}", context.install.bindir.display()))
        .arg(format!("--host={}", server.host().display()))
        .arg(format!("--port={}", server.port()))
        .arg("--user=postgres")
        .arg("--dbname=regression")
        .args(arguments)
        .args(names);
    let mut command = server.prepare_command(command);
    // isolationtester cancels a step after twice this many seconds; the default is 180.
    command
        .env("PG_TEST_TIMEOUT_DEFAULT", "30")
        .current_dir(work);
    let mut running = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("could not run {}", driver.display()))?;
    let stdout = running.stdout.take().context("the driver has no output")?;
    let mut told = String::new();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        println!("{line}");
        told.push_str(&line);
        told.push('\n');
    }
    let status = running.wait()?;
    let mut tally = tap::read(&told, names);
    if !tally.failures.is_empty() {
        if context.accept {
            accept(work, names)?;
        }
        if let Ok(differences) = fs::read(work.join("regression.diffs")) {
            println!("{}", String::from_utf8_lossy(&differences));
        }
    } else if !status.success() {
        tally.fail(&format!("{} failed ({status})", driver.display()));
    }
    Ok(tally)
}

/// A folder with copies of the inputs: the server's user may not be able to read ours. It is in
/// the server's temporary folder and goes with it. A test without an expected output gets an
/// empty one, so that its whole output shows.
fn workplace(suite: &Suite, names: &[String], server: &Server) -> Result<PathBuf> {
    let user = server.user();
    let work = server.host().join("regress");
    fs::create_dir(&work)?;
    for folder in [suite.folder, "expected", "results"] {
        let target = work.join(folder);
        fs::create_dir(&target)?;
        fs::set_permissions(&target, Permissions::from_mode(0o755))?;
        user.own(&target)?;
    }
    for name in names {
        copy(
            &Path::new(suite.folder).join(format!("{name}.{}", suite.extension)),
            &work,
        )?;
        let expected = format!("expected/{name}.out");
        if checkout().join(&expected).is_file() {
            copy(Path::new(&expected), &work)?;
        } else {
            readable(&work.join(expected), b"")?;
        }
        for variant in 0..10 {
            let other = format!("expected/{name}_{variant}.out");
            if checkout().join(&other).is_file() {
                copy(Path::new(&other), &work)?;
            }
        }
    }
    user.own(&work)?;
    Ok(work)
}

fn copy(file: &Path, to: &Path) -> Result<()> {
    let from = checkout().join(file);
    let text = fs::read(&from).with_context(|| format!("could not read {}", from.display()))?;
    readable(&to.join(file), &text)
}

fn readable(path: &Path, text: &[u8]) -> Result<()> {
    fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o644)))
        .with_context(|| format!("could not write {}", path.display()))
}

/// Copies what came out to `expected/` of the checkout.
fn accept(work: &Path, names: &[String]) -> Result<()> {
    for name in names {
        let result = work.join(format!("results/{name}.out"));
        if let Ok(text) = fs::read(&result) {
            fs::write(checkout().join(format!("expected/{name}.out")), text)?;
            println!("accepted: expected/{name}.out");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_outputs_belong_to_their_test() {
        let tests = ["surface".to_owned(), "level_2".to_owned()];
        for (output, test) in [
            ("surface_1", "surface"),
            ("level_2", "level_2"),
            ("surface_10", "surface_10"),
        ] {
            assert_eq!(test_of(&output.to_owned(), &tests), test);
        }
    }
}
