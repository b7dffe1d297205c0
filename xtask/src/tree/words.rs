//! Tests of the words: sentences that one reads once, and the terms of docs/glossary.md.

use std::path::Path;

use tooling::tools::checkout;

use super::{files, text};

/// Words of the longest sentence in comments and documents.
const SENTENCE_WORDS: usize = 25;
/// Columns of the longest line of a document, but for tables, links and code.
const DOCUMENT_COLUMNS: usize = 100;
/// Terms that others have replaced, in lower case.
const REPLACED: [&str; 10] = [
    "excerpt",
    "forerun",
    "go_deaf",
    "goes deaf",
    "handing_on",
    "hand_on",
    "parcel",
    "actorid",
    "trap 1",
    "trap 2",
];
/// What is made from results, or a record of its time.
const NOT_OURS: [&str; 3] = [
    "docs/results.md",
    "bench/results/",
    "xtask/src/tree/words.rs",
];

/// A paragraph: the number of its first line, and its text.
type Paragraph = (usize, String);

/// Puts lines together to paragraphs. Each line is its text, or None if it ends a paragraph.
fn paragraphs<'a>(lines: impl Iterator<Item = Option<&'a str>>) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = Vec::new();
    let mut goes_on = false;
    for (line, number) in lines.zip(1..) {
        let Some(line) = line.filter(|line| !line.is_empty()) else {
            goes_on = false;
            continue;
        };
        let item = line.trim_start_matches(|c: char| c.is_ascii_digit());
        let is_item = line.starts_with("- ")
            || line.starts_with("* ")
            || item.len() < line.len() && item.starts_with(". ");
        match found.last_mut() {
            Some((_, text)) if goes_on && !is_item => *text += &format!(" {line}"),
            _ => found.push((number, line.to_owned())),
        }
        goes_on = true;
    }
    found
}

/// Whether the line is a heading, a part of a table, or a quotation.
fn is_apart(line: &str) -> bool {
    line.starts_with(['#', '|', '>', '<'])
}

/// Takes code fences and what is between them out.
fn unfenced<'a>(
    lines: impl Iterator<Item = Option<&'a str>>,
) -> impl Iterator<Item = Option<&'a str>> {
    let mut fenced = false;
    lines.map(move |line| {
        let line = line?;
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        (!fenced && !is_fence).then_some(line)
    })
}

/// The paragraphs of a file's comments.
fn of_comments(source: &str) -> Vec<Paragraph> {
    let lines = source.lines().map(|line| {
        let comment = line.trim_start().strip_prefix("//")?;
        Some(comment.trim_start_matches(['/', '!']).trim())
    });
    paragraphs(unfenced(lines).map(|line| line.filter(|line| !is_apart(line))))
}

/// The lines of a document. None: code, fenced or indented.
fn prose<'a>(lines: impl Iterator<Item = &'a str>) -> impl Iterator<Item = Option<&'a str>> {
    unfenced(lines.map(Some)).scan(true, |begins, line| {
        let line = line.filter(|line| !(*begins && line.starts_with("    ")));
        *begins = line.is_none_or(|line| line.trim().is_empty());
        Some(line)
    })
}

/// The paragraphs of a document.
fn of_document(page: &str) -> Vec<Paragraph> {
    let lines = prose(page.lines());
    paragraphs(lines.map(|line| line.map(str::trim).filter(|line| !is_apart(line))))
}

/// The text without code, which counts as one word, and without where links lead.
fn plain(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let without_code: String = parts
        .map(|(n, part)| if n % 2 == 1 { "X" } else { part })
        .collect();
    let mut rest = without_code.as_str();
    let mut plain = String::new();
    while let Some((before, link)) = rest.split_once("](") {
        plain += before;
        rest = link.split_once(')').map_or("", |(_, after)| after);
    }
    plain + rest
}

/// The sentences of a paragraph that have more words than they may.
fn long_sentences(text: &str) -> Vec<String> {
    let plain = plain(text);
    let mut found = Vec::new();
    let mut words: Vec<&str> = Vec::new();
    for word in plain.split_whitespace().chain(["."]) {
        if word.contains(char::is_alphanumeric) {
            words.push(word);
        }
        let end = word.trim_end_matches(['"', ')', '*', '_']);
        if end.ends_with(['.', '!', '?', ':', ';']) {
            if words.len() > SENTENCE_WORDS {
                found.push(words.join(" "));
            }
            words.clear();
        }
    }
    found
}

/// The page without what a command has put between two comments of HTML.
fn without_generated(page: &str) -> impl Iterator<Item = &str> {
    let mut generated = false;
    page.lines().filter(move |line| {
        generated ^= line.starts_with("<!--");
        !generated
    })
}

fn is_ours(path: &Path) -> bool {
    let path = path.strip_prefix(checkout()).unwrap().to_string_lossy();
    !NOT_OURS.iter().any(|one| path.starts_with(one))
}

#[test]
fn sentences_are_found() {
    let long = "a ".repeat(SENTENCE_WORDS + 1);
    let source =
        format!("fn a() {{\n    // {long}\n    // b.\n\n    // c: {long}\n    // - {long}\n");
    let found = of_comments(&source);
    let numbers: Vec<usize> = found.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [2, 5, 6]);
    assert!(
        found
            .iter()
            .all(|(_, text)| long_sentences(text).len() == 1)
    );
    let page =
        format!("# {long}\n\n    {long}\n\n{long}\n```\n{long}\n```\n| {long} |\nb `{long}`.\n");
    let found = of_document(&page);
    let long: usize = found
        .iter()
        .map(|(_, text)| long_sentences(text).len())
        .sum();
    assert_eq!((found.len(), long), (2, 1), "{found:?}");
    assert_eq!(plain("a [b](c) `d e` f"), "a [b X f");
}

#[test]
fn sentences_are_short() {
    let mut long = Vec::new();
    let mut look = |path: &Path, found: Vec<Paragraph>| {
        for (number, text) in found {
            let sentences = long_sentences(&text).into_iter();
            long.extend(sentences.map(|one| format!("{}:{number}: {one}", path.display())));
        }
    };
    for path in files(".rs") {
        look(&path, of_comments(&text(&path)));
    }
    for path in files(".md").into_iter().filter(|path| is_ours(path)) {
        look(&path, of_document(&text(&path)));
    }
    let count = long.len();
    assert!(
        long.is_empty(),
        "{count} sentences have more than {SENTENCE_WORDS} words\n{}",
        long.join("\n")
    );
}

#[test]
fn documents_are_narrow() {
    let is_wide = |line: &&str| {
        let can_be_broken = !line.trim_start().starts_with(['|', '<']) && line.trim().contains(' ');
        can_be_broken && line.chars().count() > DOCUMENT_COLUMNS
    };
    for path in files(".md").into_iter().filter(|path| is_ours(path)) {
        let page = text(&path);
        let wide = prose(without_generated(&page)).flatten().find(is_wide);
        assert!(wide.is_none(), "{}: {}", path.display(), wide.unwrap());
    }
}

#[test]
fn replaced_terms_are_gone() {
    for ending in [".rs", ".md", ".sql", ".spec"] {
        for path in files(ending).into_iter().filter(|path| is_ours(path)) {
            let lower = text(&path).to_lowercase();
            let old = REPLACED.iter().find(|term| lower.contains(**term));
            assert!(old.is_none(), "{}: {}", path.display(), old.unwrap());
        }
    }
}
