//! The Debian package `postgresql-16-txn`, laid out like those of postgresql-common.
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::version;
use tooling::install::{library_name, scripts};
use tooling::tools::{checkout, output};

pub const PACKAGE: &str = "postgresql-16-txn";
/// Where Debian's PostgreSQL 16 looks for libraries and for extensions.
pub const LIBRARIES: &str = "usr/lib/postgresql/16/lib";
pub const EXTENSIONS: &str = "usr/share/postgresql/16/extension";

const DPKG: &str = "dpkg-deb writes the package (Debian: apt install dpkg)";
const BINUTILS: &str = "binutils show what the library needs (Debian: apt install binutils)";

/// Documents that are installed beside the copyright.
const DOCUMENTS: [&str; 10] = [
    "README.md",
    "CHANGELOG.md",
    "docs/guide.md",
    "docs/settings.md",
    "docs/limitations.md",
    "docs/group-locking.md",
    "docs/range-occ.md",
    "docs/lane.md",
    "docs/geo.md",
    "docs/glossary.md",
];

/// Writes the package of `library`, the release, with the scripts of the checkout into `out`.
/// Returns its path.
pub fn build(library: &Path, out: &Path) -> Result<PathBuf> {
    let root = tempfile::tempdir()?;
    let put = |from: &Path, folder: &str, name: &str| -> Result<PathBuf> {
        let folder = root.path().join(folder);
        fs::create_dir_all(&folder)?;
        let file = folder.join(name);
        fs::copy(from, &file).with_context(|| format!("could not copy {}", from.display()))?;
        fs::set_permissions(&file, Permissions::from_mode(0o644))?;
        Ok(file)
    };
    let stripped = put(library, LIBRARIES, &library_name())?;
    let mut strip = Command::new("strip");
    output(strip.arg("--strip-unneeded").arg(&stripped), BINUTILS)?;
    for file in scripts(checkout())?
        .iter()
        .chain([&checkout().join("txn.control")])
    {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        put(file, EXTENSIONS, &name)?;
    }
    let documents = format!("usr/share/doc/{PACKAGE}");
    put(&checkout().join("LICENSE"), &documents, "copyright")?;
    for name in DOCUMENTS {
        let file = checkout().join(name);
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        put(&file, &documents, &name)?;
    }

    let architecture = output(Command::new("dpkg").arg("--print-architecture"), DPKG)?;
    let architecture = String::from_utf8_lossy(&architecture.stdout);
    let architecture = architecture.trim();
    let version = format!("{}-1", version()?);
    let control = control(
        &version,
        architecture,
        kilobytes(root.path())?,
        &needs(&stripped)?,
    );
    fs::create_dir(root.path().join("DEBIAN"))?;
    fs::write(root.path().join("DEBIAN/control"), control)?;
    let package = out.join(format!("{PACKAGE}_{version}_{architecture}.deb"));
    pack(root.path(), &package, "xz")?;
    Ok(package)
}

/// Makes the package `file` of the folder `root`, which has a `DEBIAN/control`.
pub fn pack(root: &Path, file: &Path, compression: &str) -> Result<()> {
    make_folders_readable(root)?;
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.args(["--root-owner-group", "--build"])
        .arg(format!("-Z{compression}"))
        .args([root, file]);
    output(&mut dpkg, DPKG)?;
    Ok(())
}

/// Gives folders the mode that Debian wants, whatever the umask is.
fn make_folders_readable(folder: &Path) -> Result<()> {
    fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            make_folders_readable(&entry.path())?;
        }
    }
    Ok(())
}

fn control(version: &str, architecture: &str, kilobytes: u64, needs: &str) -> String {
    format!(
        "Package: {PACKAGE}\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: the txn contributors <maintainers@txn.invalid>\n\
         Installed-Size: {kilobytes}\n\
         Depends: postgresql-16, {needs}\n\
         Section: database\n\
         Priority: optional\n\
         Description: fast updates of hot rows, and serializable range scans\n \
         An extension for databases whose transactions fight over the same rows.\n \
         Group locking lets writers of a hot row follow each other without waiting\n \
         for each other's flush; range OCC validates scans of key ranges at commit.\n \
         .\n \
         The library must be in shared_preload_libraries. Take it out of there, and\n \
         drop the extension, before you remove this package.\n"
    )
}

fn kilobytes(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        sum += match entry.metadata()? {
            data if data.is_dir() => kilobytes(&entry.path())?,
            data => data.len().div_ceil(1024),
        };
    }
    Ok(sum)
}

/// The packages that have the libraries which `library` needs, in the words of `Depends`.
fn needs(library: &Path) -> Result<String> {
    let show = |option: &str| -> Result<String> {
        let output = output(Command::new("objdump").arg(option).arg(library), BINUTILS)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let mut packages = BTreeSet::new();
    for name in needed(&show("-p")?) {
        packages.insert(match name {
            name if name.starts_with("libgcc_s.") => "libgcc-s1".to_owned(),
            name if name.starts_with("libc.")
                || name.starts_with("libm.")
                || name.starts_with("ld-linux") =>
            {
                let (major, minor) = glibc(&show("-T")?).context("it needs no GLIBC version")?;
                format!("libc6 (>= {major}.{minor})")
            }
            name => bail!("the library needs {name}, of a package that is not known"),
        });
    }
    Ok(packages.into_iter().collect::<Vec<_>>().join(", "))
}

/// The libraries that `objdump -p` lists as needed.
fn needed(headers: &str) -> Vec<&str> {
    let names = headers.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("NEEDED")).then(|| words.next())?
    });
    names.collect()
}

/// The newest version of glibc among the symbols that `objdump -T` lists.
fn glibc(symbols: &str) -> Option<(u32, u32)> {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit());
        let mut numbers = rest[..end.unwrap_or(rest.len())].split('.');
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    });
    versions.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_library_needs_is_read_from_objdump() {
        let headers = "\nDynamic Section:\n  NEEDED               libgcc_s.so.1\n  \
                       NEEDED               libc.so.6\n  SONAME  x\n";
        assert_eq!(needed(headers), ["libgcc_s.so.1", "libc.so.6"]);
        let symbols = "0 DF *UND* 0 (GLIBC_2.2.5) memcpy\n0 DF *UND* 0 (GLIBC_2.34) a\n\
                       0 DF *UND* 0 (GLIBC_2.9) b\n0 D *UND* 0 (GLIBC_PRIVATE) c\n";
        assert_eq!(glibc(symbols), Some((2, 34)));
        assert_eq!(glibc("nothing"), None);
    }
}
