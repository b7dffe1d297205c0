//! Which files import which: none in a cycle, none of a higher floor.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{files, text};
use tooling::tools::checkout;

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

/// The modules that a text has within it.
fn inner(code: &str) -> Vec<&str> {
    let declared = code.lines().filter_map(|line| {
        let (_, name) = line.trim_end().strip_suffix(';')?.split_once("mod ")?;
        Some(name)
    });
    declared.collect()
}

/// The paths in a text that begin with `crate`, `super`, `self` or one of its own modules, with
/// braces multiplied out: all, or those that it exports.
fn paths(text: &str, only_exports: bool) -> Vec<Vec<String>> {
    let code = code(text);
    let inner = inner(&code);
    let mut found = Vec::new();
    for (at, _) in code.match_indices("::") {
        let before = &code[..at];
        let word = before.rsplit(|c: char| !is_name(c)).next().unwrap_or("");
        let before = &before[..before.len() - word.len()];
        let statement = before.rsplit('\n').next().unwrap_or("").trim_start();
        let is_export = statement.starts_with("pub") && statement.ends_with(" use ");
        if before.ends_with("::") || only_exports && !is_export {
            continue;
        }
        let rest = &code[at + 2..];
        if ["crate", "super", "self"].contains(&word) {
            multiply(vec![word.to_owned()], rest, &mut found);
        } else if inner.contains(&word) {
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

/// What modules export of others, by module and name.
type Exports = BTreeMap<(Module, String), Vec<String>>;

fn exports(modules: &BTreeMap<Module, String>) -> Exports {
    let exports = modules.iter().flat_map(|(from, text)| {
        let named = |path: Vec<String>| Some(((from.clone(), path.last()?.clone()), path));
        paths(text, true).into_iter().filter_map(named)
    });
    exports.collect()
}

/// The modules that a path of `from` leads to or into: one, and those from which that one exports
/// what is named.
fn resolve(
    from: &Module,
    path: &[String],
    modules: &BTreeMap<Module, String>,
    exports: &Exports,
) -> Vec<Module> {
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
    let mut found = at.clone();
    let mut rest = parts;
    for (n, part) in parts.iter().enumerate() {
        at.push(part.clone());
        if modules.contains_key(&at) {
            found.clone_from(&at);
            rest = &parts[n + 1..];
        }
    }
    let name = rest.first().cloned().unwrap_or_default();
    let export = exports.get(&(found.clone(), name));
    let behind = export.map(|path| resolve(&found, path, modules, exports));
    [vec![found], behind.unwrap_or_default()].concat()
}

type Imports = BTreeMap<Module, BTreeSet<Module>>;

/// Which other modules each one needs, but for those around it.
fn imports(modules: &BTreeMap<Module, String>) -> Imports {
    let exports = exports(modules);
    let imports = modules.iter().map(|(from, text)| {
        let paths = paths(text, false).into_iter();
        let to = paths.flat_map(|path| resolve(from, &path, modules, &exports));
        let is_other = |to: &Module| modules.contains_key(to) && !from.starts_with(to);
        (from.clone(), to.filter(is_other).collect())
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
    let found: Vec<String> = paths(text, false)
        .iter()
        .map(|path| path.join("::"))
        .collect();
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
    let module = |name: &str| -> Module {
        let parts = name.split("::").filter(|part| !part.is_empty());
        parts.map(str::to_owned).collect()
    };
    let modules: BTreeMap<Module, String> = [
        ("top", "use crate::top::left;"),
        ("top::left", "use super::right::R; use super::low;"),
        ("top::right", "fn f() { crate::top::left::l() }"),
        ("top::low", "use super::T;"),
        (
            "",
            "mod one;\nmod two;\npub use one::One;\npub use two::{Two, Three};",
        ),
        ("one", "use crate::Three;"),
        ("two", "use crate::one::X;"),
    ]
    .map(|(name, text)| (module(name), text.to_owned()))
    .into();
    let circular = in_circles(&imports(&modules));
    assert_eq!(
        Vec::from_iter(circular),
        ["one", "top::left", "top::right", "two"]
    );
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
