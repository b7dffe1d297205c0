//! Tests of the source tree: sizes, links, imports, words. The limits may only get stricter.

mod imports;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

use tooling::tools::checkout;

const README_LINES: usize = 150;
const SOURCE_LINES: usize = 500;
/// Lines of the longest function.
const FUNCTION_LINES: usize = 69;
const COLUMNS: usize = 100;
/// Lines of Rust that are longer.
const LONG_LINES: usize = 131;
/// Doc comments that begin with "The same": none but the text for which the test looks.
const THE_SAMES: usize = 1;

/// All files with that ending but for what is built.
fn files(ending: &str) -> Vec<PathBuf> {
    fn visit(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    visit(&path, ending, found);
                }
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    visit(checkout(), ending, &mut found);
    found.sort();
    assert!(found.len() > 10, "{ending}");
    found
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn the_readme_is_short() {
    let lines = text(&checkout().join("README.md")).lines().count();
    assert!(lines <= README_LINES, "README.md has {lines} lines");
}

#[test]
fn files_are_short() {
    for path in files(".rs") {
        let lines = text(&path).lines().count();
        assert!(
            lines <= SOURCE_LINES,
            "{} has {lines} lines",
            path.display()
        );
    }
}

/// The functions of a text as `cargo fmt` leaves it, each with the number of its lines: from its
/// `fn` to the brace below it.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let name = |line: &str| {
        let (before, after) = line.split_once("fn ")?;
        let words = ["pub", "const", "unsafe", "async", "extern"];
        let is_head =
            |word: &str| word.starts_with('"') || words.iter().any(|w| word.starts_with(w));
        let ends = |c: char| c == '(' || c == '<';
        let is_one = after.contains(ends) && before.split_whitespace().all(is_head);
        is_one.then(|| after.split(ends).next().unwrap_or_default().to_owned())
    };
    let of = |(at, line): (usize, &&str)| {
        let name = name(line).filter(|_| !line.ends_with(';'))?;
        let is_over = |later: &&str| indent(later) == indent(line) && !later.trim().is_empty();
        let rest = &lines[at + 1..];
        let last = rest
            .iter()
            .position(|later| is_over(later) && later.trim_start() == "}")?;
        Some((name, last + 2))
    };
    lines.iter().enumerate().filter_map(of).collect()
}

#[test]
fn functions_are_found() {
    let text = "impl A {\n    pub unsafe fn one(\n        a: u8,\n    ) {\n        b\n    }\n}\n\
                /// fn no()\nfn two<T>() {\n}\n";
    let found = functions(text);
    assert_eq!(found, [("one".to_owned(), 5), ("two".to_owned(), 2)]);
}

#[test]
fn functions_are_short() {
    for path in files(".rs") {
        for (name, lines) in functions(&text(&path)) {
            assert!(
                lines <= FUNCTION_LINES,
                "{name} in {} has {lines} lines",
                path.display()
            );
        }
    }
}

#[test]
fn lines_are_short() {
    let texts = files(".rs").into_iter().map(|path| text(&path));
    let long: usize = texts
        .map(|text| {
            let lines = text.lines();
            lines.filter(|line| line.chars().count() > COLUMNS).count()
        })
        .sum();
    assert!(
        long <= LONG_LINES,
        "{long} lines have more than {COLUMNS} columns"
    );
}

#[test]
fn doc_comments_say_what_the_caller_gets() {
    let texts = files(".rs").into_iter().map(|path| text(&path));
    let vague: usize = texts.map(|text| text.matches("/// The same").count()).sum();
    assert!(vague <= THE_SAMES, "{vague} begin with \"The same\"");
}

/// Packages whose README has a table of all files and folders of their sources.
const TABLES_OF_FILES: [(&str, &str); 20] = [
    ("bench/src/README.md", "bench/src"),
    ("crates/geo/README.md", "crates/geo/src"),
    ("crates/history/README.md", "crates/history/src"),
    ("crates/hotrow/README.md", "crates/hotrow/src"),
    ("crates/keyrange/README.md", "crates/keyrange/src"),
    ("crates/lane/README.md", "crates/lane/src"),
    ("crates/lookahead/README.md", "crates/lookahead/src"),
    ("crates/pgserver/README.md", "crates/pgserver/src"),
    ("crates/tooling/README.md", "crates/tooling/src"),
    ("crates/txn-top/README.md", "crates/txn-top/src"),
    ("pgrx-tests/README.md", "pgrx-tests/src"),
    ("src/entry/README.md", "src/entry"),
    ("src/geo/README.md", "src/geo"),
    ("src/hotlock/README.md", "src/hotlock"),
    ("src/lane/README.md", "src/lane"),
    ("src/pg/README.md", "src/pg"),
    ("src/range_occ/README.md", "src/range_occ"),
    ("src/shared/README.md", "src/shared"),
    ("src/tam/README.md", "src/tam"),
    ("xtask/README.md", "xtask/src"),
];

#[test]
fn readmes_name_all_files() {
    for (readme, folder) in TABLES_OF_FILES {
        let named = text(&checkout().join(readme));
        for entry in fs::read_dir(checkout().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let end = if path.is_dir() { '/' } else { '`' };
            let is_named = |before| named.contains(&format!("{before}{name}{end}"));
            let needs_none =
                name == "lib.rs" || name == "mod.rs" || !path.is_dir() && !name.ends_with(".rs");
            assert!(
                needs_none || is_named('`') || is_named('/'),
                "{readme} does not name {name}"
            );
        }
    }
}

/// What has no `unsafe`, and so needs no Miri (docs/decisions/miri.md).
const PURE_CRATES: [&str; 6] = ["geo", "history", "hotrow", "keyrange", "lane", "lookahead"];

#[test]
fn pure_crates_forbid_unsafe_code() {
    for name in PURE_CRATES {
        let manifest = text(&checkout().join("crates").join(name).join("Cargo.toml"));
        let forbids = manifest.contains("\nunsafe_code = \"forbid\"\n");
        assert!(forbids, "{name}");
    }
}

/// Where Markdown's links lead, without what is not in the tree.
fn links(page: &str) -> Vec<&str> {
    let mut fenced = false;
    let lines = page.lines().filter(|line| {
        fenced ^= line.trim_start().starts_with("```");
        !fenced
    });
    lines
        .flat_map(|line| line.split("](").skip(1))
        .filter_map(|rest| rest.split_once(')'))
        .map(|(link, _)| link)
        .filter(|link| !link.contains("://"))
        .collect()
}

/// The anchor that a heading has on a page.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        })
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let mut dead = Vec::new();
    for path in files(".md") {
        let page = text(&path);
        for link in links(&page) {
            let (file, wanted) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            let has_anchor = || {
                let target = text(&target);
                let mut headings = target.lines().filter(|line| line.starts_with('#'));
                headings.any(|heading| anchor(heading) == wanted)
            };
            if !target.exists() || !wanted.is_empty() && !has_anchor() {
                dead.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}
