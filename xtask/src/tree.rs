//! Tests of the source tree: sizes, links, circles. The limits may only get stricter.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::tools::checkout;

const README_LINES: usize = 150;
const SOURCE_LINES: usize = 502;
const TEST_LINES: usize = 502;
/// Lines of the longest function.
const FUNCTION_LINES: usize = 89;
const COLUMNS: usize = 100;
/// Lines of Rust that are longer.
const LONG_LINES: usize = 145;
/// Doc comments that begin with "The same".
const THE_SAMES: usize = 59;
/// Folders of the extension, from the ground up.
const FLOORS: [&str; 8] = [
    "pg",
    "tam",
    "shared",
    "hotlock",
    "range_occ",
    "lane",
    "geo",
    "entry",
];

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
        let is_test = path.components().any(|part| {
            let part = part.as_os_str();
            part == "tests" || part == "pgrx-tests"
        });
        let most = if is_test { TEST_LINES } else { SOURCE_LINES };
        assert!(lines <= most, "{} has {lines} lines", path.display());
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

/// A module of a crate, by the parts of its path.
type Module = Vec<String>;

/// The folders that have the sources of a crate each.
fn crates() -> BTreeSet<PathBuf> {
    let of_crate = |path: PathBuf| {
        let parent = path.parent()?.to_owned();
        let is_root = path.ends_with("lib.rs") || path.ends_with("main.rs");
        (is_root || parent.ends_with("tests")).then_some(parent)
    };
    files(".rs").into_iter().filter_map(of_crate).collect()
}

/// The modules of the crate in that folder, with their texts.
fn modules(source: &Path) -> BTreeMap<Module, String> {
    let mut modules = BTreeMap::<Module, String>::new();
    for path in files(".rs") {
        if let Ok(within) = path.strip_prefix(source) {
            let within = within.with_extension("");
            let parts = within
                .iter()
                .map(|part| part.to_string_lossy().into_owned());
            let parts = parts.filter(|part| !["mod", "lib", "main"].contains(&part.as_str()));
            *modules.entry(parts.collect()).or_default() += &text(&path);
        }
    }
    modules
}

/// A text without comments, and without what only tests have.
fn code(text: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut code = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            let is_last = |later: &str| {
                indent(later) <= indent(line) && later.trim_end().ends_with([';', ',', '}'])
            };
            lines.find(|later| is_last(later));
        } else if !line.trim_start().starts_with("//") {
            code += line;
            code.push('\n');
        }
    }
    code
}

/// The paths in a text that begin with `crate`, `super`, `self` or one of its own modules, with
/// braces multiplied out.
fn paths(text: &str) -> Vec<Vec<String>> {
    let code = code(text);
    let modules: Vec<&str> = code
        .lines()
        .filter_map(|line| line.trim_end().strip_suffix(';')?.split_once("mod "))
        .map(|(_, name)| name)
        .collect();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("::") {
        let before = &code[..at];
        let word = before.rsplit(|c: char| !is_name(c)).next().unwrap_or("");
        if before[..before.len() - word.len()].ends_with("::") {
            continue;
        }
        let rest = &code[at + 2..];
        if ["crate", "super", "self"].contains(&word) {
            multiply(vec![word.to_owned()], rest, &mut found);
        } else if modules.contains(&word) {
            multiply(vec!["self".to_owned(), word.to_owned()], rest, &mut found);
        }
    }
    found
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Adds what `rest`, which follows on `path::`, makes of it. What comes after that.
fn multiply<'a>(path: Vec<String>, rest: &'a str, found: &mut Vec<Vec<String>>) -> &'a str {
    let Some(mut inside) = rest.strip_prefix('{') else {
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let longer = [path, vec![rest[..end].to_owned()]].concat();
        return match rest[end..].strip_prefix("::") {
            Some(more) => multiply(longer, more, found),
            None => {
                found.push(longer);
                &rest[end..]
            }
        };
    };
    loop {
        inside = inside.trim_start();
        if inside.is_empty() {
            return inside;
        }
        if let Some(after) = inside.strip_prefix('}') {
            return after;
        }
        inside = multiply(path.clone(), inside, found);
        inside = &inside[inside.find([',', '}']).unwrap_or(inside.len())..];
        inside = inside.strip_prefix(',').unwrap_or(inside);
    }
}

/// The module that a path of `from` leads to or into, none if that is `from` itself or one around
/// it.
fn resolve(from: &Module, path: &[String], modules: &BTreeMap<Module, String>) -> Option<Module> {
    let mut at = from.clone();
    let mut parts = path;
    while let Some((first, rest)) = parts.split_first() {
        match first.as_str() {
            "crate" => at.clear(),
            "super" => drop(at.pop()),
            "self" => {}
            _ => break,
        }
        parts = rest;
    }
    let mut longest = None;
    for part in parts {
        at.push(part.clone());
        if modules.contains_key(&at) {
            longest = Some(at.clone());
        }
    }
    longest.filter(|module| !from.starts_with(module))
}

type Imports = BTreeMap<Module, BTreeSet<Module>>;

fn imports(modules: &BTreeMap<Module, String>) -> Imports {
    let imports = modules.iter().map(|(from, text)| {
        let paths = paths(text);
        let to = paths.iter().filter_map(|path| resolve(from, path, modules));
        (from.clone(), to.collect())
    });
    imports.collect()
}

/// Modules that lead back to themselves.
fn in_circles(imports: &Imports) -> BTreeSet<String> {
    let leads_back = |start: &Module| {
        let mut seen: BTreeSet<&Module> = BTreeSet::new();
        let mut open = Vec::from_iter(&imports[start]);
        while let Some(next) = open.pop() {
            if next == start {
                return true;
            }
            if seen.insert(next) {
                open.extend(&imports[next]);
            }
        }
        false
    };
    let circular = imports.keys().filter(|module| leads_back(module));
    circular.map(|module| module.join("::")).collect()
}

#[test]
fn paths_are_found_with_their_braces() {
    let text = "use super::{a, b::{self, C}};\n// crate::no\nlet x = crate::d::E::f(self::g::h);\n\
                #[cfg(test)]\nmod tests {\n    use super::no;\n}\nmod i;\nuse i::J;";
    let found: Vec<String> = paths(text).iter().map(|path| path.join("::")).collect();
    assert_eq!(
        found,
        [
            "super::a",
            "super::b::self",
            "super::b::C",
            "crate::d::E::f",
            "self::g::h",
            "self::i::J"
        ]
    );
}

#[test]
fn circles_are_found() {
    let module = |name: &str| -> Module { name.split("::").map(str::to_owned).collect() };
    let modules: BTreeMap<Module, String> = [
        ("top", "use crate::top::left;"),
        ("top::left", "use super::right::R; use super::low;"),
        ("top::right", "fn f() { crate::top::left::l() }"),
        ("top::low", "use super::T;"),
    ]
    .map(|(name, text)| (module(name), text.to_owned()))
    .into();
    let circular = in_circles(&imports(&modules));
    assert_eq!(Vec::from_iter(circular), ["top::left", "top::right"]);
}

#[test]
fn no_files_import_each_other_in_circles() {
    for source in crates() {
        let circular = in_circles(&imports(&modules(&source)));
        assert!(circular.is_empty(), "{}: {circular:?}", source.display());
    }
}

/// Imports of a module of a higher floor, as `ranks` tells floors.
fn upward(imports: &Imports, rank: impl Fn(&Module) -> Option<usize>) -> Vec<String> {
    let mut found = Vec::new();
    for (from, to) in imports {
        for to in to {
            if let (Some(low), Some(high)) = (rank(from), rank(to))
                && low < high
            {
                found.push(format!("{} -> {}", from.join("::"), to.join("::")));
            }
        }
    }
    found
}

#[test]
fn no_folder_imports_from_above() {
    let rank = |module: &Module| {
        let folder = module.first()?;
        FLOORS.iter().position(|floor| folder == floor)
    };
    let upward = upward(&imports(&modules(&checkout().join("src"))), rank);
    assert!(upward.is_empty(), "{}", upward.join("\n"));
}

/// The files of a folder's README, by floor: a table whose first column names each floor once. A
/// folder within it counts as one file, whose name is the folder's.
fn floors_of(readme: &str) -> BTreeMap<String, usize> {
    let mut floors = BTreeMap::new();
    let mut floor = 0;
    let rows = readme
        .lines()
        .skip_while(|line| !line.starts_with("| floor |"));
    for row in rows.skip(2).take_while(|line| line.starts_with('|')) {
        let mut cells = row.split('|').skip(1);
        floor += usize::from(!cells.next().unwrap_or("").trim().is_empty());
        let files = cells.next().unwrap_or("").split('`');
        for file in files.filter_map(|file| file.strip_suffix(".rs")) {
            let name = file.split('/').next().unwrap_or(file);
            floors.entry(name.to_owned()).or_insert(floor);
        }
    }
    floors
}

#[test]
fn files_import_as_their_readmes_say() {
    let modules = modules(&checkout().join("src"));
    for folder in ["hotlock", "range_occ", "geo"] {
        let floors = floors_of(&text(&checkout().join(format!("src/{folder}/README.md"))));
        for module in modules.keys().filter(|module| module.len() == 2) {
            let is_ours = module[0] == folder;
            assert!(!is_ours || floors.contains_key(&module[1]), "{module:?}");
        }
        let rank = |module: &Module| {
            let is_ours = module.first().is_some_and(|first| first == folder);
            floors.get(module.get(1).filter(|_| is_ours)?).copied()
        };
        let upward = upward(&imports(&modules), rank);
        assert!(upward.is_empty(), "{}", upward.join("\n"));
    }
}
