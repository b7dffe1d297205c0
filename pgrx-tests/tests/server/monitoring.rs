//! What docs/monitoring asks of a server is there.
use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use txn_server_tests::{grouped, start_hot};
use yaml_rust2::{Yaml, YamlLoader};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/monitoring");

/// The metrics of a query, with how each is used.
fn metrics(query: &Yaml) -> Result<Vec<(String, String)>> {
    let metrics = query["metrics"].as_vec().context("no metrics")?;
    let pairs = metrics.iter().map(|metric| {
        let (name, of_it) = metric.as_hash().and_then(|one| one.front())?;
        text_of(&of_it["description"])?;
        Some((text_of(name)?, text_of(&of_it["usage"])?))
    });
    pairs
        .collect::<Option<_>>()
        .context("a metric lacks something")
}

fn text_of(value: &Yaml) -> Option<String> {
    value.as_str().map(str::to_owned)
}

#[test]
fn the_queries_run_and_the_dashboard_knows_their_metrics() -> Result<()> {
    let server = start_hot(1, &[])?;
    let (mut leader, mut control) = (grouped(&server)?, server.connect()?);
    control.batch_execute("CREATE ROLE exporter LOGIN")?;
    leader.batch_execute("BEGIN; UPDATE hot SET val = val + 1 WHERE id = 1")?;
    control.batch_execute("SET ROLE exporter")?;
    let text = fs::read_to_string(format!("{FOLDER}/queries.yaml"))?;
    let queries = YamlLoader::load_from_str(&text)?;
    let queries = queries
        .first()
        .and_then(Yaml::as_hash)
        .context("no queries")?;
    let mut known = BTreeSet::new();
    for (name, query) in queries {
        let name = name.as_str().context("no name")?;
        let metrics = metrics(query).with_context(|| name.to_owned())?;
        let sql = query["query"].as_str().context("no query")?;
        let columns = control.prepare(sql).with_context(|| name.to_owned())?;
        let columns: Vec<&str> = columns.columns().iter().map(|one| one.name()).collect();
        let described: Vec<&str> = metrics.iter().map(|(metric, _)| metric.as_str()).collect();
        ensure!(columns == described, "{name}: {columns:?}, {described:?}");
        let rows = control.query(sql, &[])?;
        ensure!(rows.is_empty() == (name == "txn_waits"), "{name}");
        let values = metrics.iter().filter(|(_, usage)| usage != "LABEL");
        known.extend(values.map(|(metric, _)| format!("{name}_{metric}")));
    }
    let text = fs::read_to_string(format!("{FOLDER}/grafana.json"))?;
    let dashboard: Value = serde_json::from_str(&text)?;
    let panels = dashboard["panels"].as_array().context("no panels")?;
    let mut asked = BTreeSet::new();
    for target in panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten()
    {
        let expression = target["expr"].as_str().context("no expression")?;
        let words = expression.split(|c: char| !c.is_alphanumeric() && c != '_');
        asked.extend(
            words
                .filter(|word| word.starts_with("txn_"))
                .map(str::to_owned),
        );
    }
    ensure!(asked.len() > 15, "{asked:?}");
    let unknown: Vec<&String> = asked.difference(&known).collect();
    ensure!(unknown.is_empty(), "unknown metrics: {unknown:?}");
    Ok(())
}
