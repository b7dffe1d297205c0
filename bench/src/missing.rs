//! `--missing`: what the installed library has not been measured by yet, so that a long list of
//! benchmarks can be gone through in several sittings.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;
use pgserver::{PgInstall, Server, ServerOptions};
use serde_json::Value;

use super::archive;
use super::plan::Planned;

/// Those of `plans` of which the folder lacks a record by the library that is installed. Several
/// that are reported together stay together.
pub fn of(
    plans: Vec<Box<dyn Planned>>,
    install: &PgInstall,
    folder: &Path,
) -> anyhow::Result<Vec<Box<dyn Planned>>> {
    let server = Server::start(install, ServerOptions::default())?;
    let build = server.connect()?.query_one("SHOW txn.build_id", &[])?;
    let build: String = build.get(0);
    let sources = sources(&build).with_context(|| format!("what is the build \"{build}\" of?"))?;
    let files = archive::in_folder(folder)?;
    let records = files
        .into_iter()
        .flat_map(|(_, content)| content.into_records());
    let recorded = recorded(records, sources);
    Ok(plans
        .into_iter()
        .filter(|plan| {
            let names = plan.extent().names;
            !names.iter().all(|name| recorded.contains(*name))
        })
        .collect())
}

/// What the sources hash to. The rest of a build's name says which commit they were found at.
fn sources(build: &str) -> Option<&str> {
    build
        .split(' ')
        .find(|part| part.len() == 16 && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The benchmarks with a record by a library of these sources.
fn recorded(records: impl Iterator<Item = Value>, sources: &str) -> BTreeSet<String> {
    records
        .filter(|record| has(record, sources))
        .filter_map(|record| record["benchmark"].as_str().map(str::to_owned))
        .collect()
}

/// Whether a build of these sources is named anywhere in the record: each kind of benchmark has its
/// own place for its servers.
fn has(record: &Value, wanted: &str) -> bool {
    match record {
        Value::Object(fields) => fields.iter().any(|(name, value)| match value {
            Value::String(build) => name == "build" && sources(build) == Some(wanted),
            other => has(other, wanted),
        }),
        Value::Array(items) => items.iter().any(|item| has(item, wanted)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SOURCES: &str = "0123456789abcdef";

    #[test]
    fn a_record_counts_if_one_of_its_servers_had_a_library_of_these_sources() {
        let build = |commit: &str, sources: &str| format!("0.5.0 {commit} {sources}");
        let records = [
            json!({"benchmark": "plain", "systems": [
                {"build": null}, {"build": build("a84ee208a4ad", SOURCES)}]}),
            json!({"benchmark": "range", "servers": [
                {"description": {"build": build("b89266eee332+changes", SOURCES)}}]}),
            json!({"benchmark": "older", "systems": [
                {"build": build("a84ee208a4ad", "fedcba9876543210")}]}),
            json!({"benchmark": "stock", "systems": [{"build": null}]}),
            json!({"about": SOURCES, "systems": [{"build": build("a84ee208a4ad", SOURCES)}]}),
        ];
        let found = recorded(records.into_iter(), SOURCES);
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(found, ["plain", "range"]);
    }

    #[test]
    fn the_hash_of_the_sources_is_found_with_and_without_a_commit() {
        assert_eq!(sources(&format!("0.5.0 {SOURCES}")), Some(SOURCES));
        let other = format!("0.5.0 a84ee208a4ad {SOURCES} stop_events");
        assert_eq!(sources(&other), Some(SOURCES));
        assert_eq!(sources("0.5.0 a84ee208a4ad"), None);
    }
}
