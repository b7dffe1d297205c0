//! What the pages with transcripts show is what happens.
use std::fs;

use anyhow::{Context, Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{Block, Transcript, Watchdog, blocks, start, wait_until};

const GROUP_LOCKING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/group-locking.md");
const LANE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/lane.md");

/// With `deadlock_timeout` so short the lock manager soon knows who waits for whom.
const SETTINGS: [(&str, &str); 2] = [("deadlock_timeout", "10ms"), ("autovacuum", "off")];

#[test]
fn group_locking_is_as_its_page_tells() -> Result<()> {
    let check = |server: &Server, dog: &Watchdog| {
        let (counts, statements) = check(GROUP_LOCKING, true, server, dog)?;
        ensure!(
            counts[0] - statements >= 20 && statements >= 20 && counts[1] >= 2 && counts[2] == 1,
            "transcripts, statements or log of the page are not found: {counts:?}"
        );
        Ok(())
    };
    watched(check)
}

#[test]
fn the_lane_is_as_its_page_tells() -> Result<()> {
    watched(|server, dog| {
        let (counts, _) = check(LANE, false, server, dog)?;
        ensure!(
            counts == [2, 5, 0],
            "blocks of the page are not found: {counts:?}"
        );
        Ok(())
    })
}

fn watched(check: impl FnOnce(&Server, &Watchdog) -> Result<()>) -> Result<()> {
    let server = start(&SETTINGS)?;
    let dog = Watchdog::new(&server);
    dog.progress();
    let result = check(&server, &dog);
    dog.finish(result)
}

/// Plays a page: how many transcripts, statements and log lines it has, and how many of the
/// transcripts come from its table of statements.
fn check(
    path: &str,
    has_tables: bool,
    server: &Server,
    dog: &Watchdog,
) -> Result<([usize; 3], usize)> {
    let page = fs::read_to_string(path).with_context(|| path.to_owned())?;
    let blocks = blocks(&page);
    let all = |language: &str| -> String {
        let of_it = blocks.iter().filter(|block| block.language == language);
        of_it.map(|block| block.text.as_str()).collect()
    };
    let (setup, session) = (&all("sql setup"), &all("sql session"));
    let mut control = server.connect()?;
    anew(&mut control, setup)?;
    let mut statements = Vec::new();
    let mut failures: Vec<String> = Vec::new();
    if has_tables {
        statements = table_of_statements(&page, &mut control)?;
        failures.extend(check_errors(&page).err().map(|e| format!("{e:#}")));
    }
    let mut counts = [0; 3];
    for block in blocks.iter().chain(&statements) {
        anew(&mut control, setup)?;
        let result = match block.language.as_str() {
            "sessions" => {
                counts[0] += 1;
                Transcript::parse(block).and_then(|it| it.play(server, session, dog))
            }
            "sql" => {
                counts[1] += 1;
                run(server, session, block)
            }
            "log" => {
                counts[2] += 1;
                find_in_log(server, block)
            }
            _ => continue,
        };
        dog.progress();
        if let Err(error) = result {
            failures.push(format!("{error:#}"));
        }
    }
    ensure!(
        failures.is_empty(),
        "{path} is not what happens:\n\n{}\n",
        failures.join("\n\n")
    );
    Ok((counts, statements.len()))
}

/// Fresh tables, and no session from before.
fn anew(control: &mut Client, setup: &str) -> Result<()> {
    control.batch_execute(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity \
         WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
    )?;
    wait_until(control, "SELECT count(*) = 0 FROM txn.waits")?;
    control.batch_execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")?;
    control.batch_execute(setup).context("the page's set-up")?;
    Ok(())
}

/// Statements that are shown without what comes of them have to work.
fn run(server: &Server, session: &str, block: &Block) -> Result<()> {
    let mut client = server.connect()?;
    client.batch_execute(session)?;
    client
        .batch_execute(&block.text)
        .with_context(|| format!("the statements of line {}", block.line))
}

/// The rows of the page's table of statements as transcripts: what a second session's statement
/// does while the first one has updated all rows of all tables.
fn table_of_statements(page: &str, control: &mut Client) -> Result<Vec<Block>> {
    let tables = "SELECT 'A> UPDATE ' || relname || ' SET balance = balance - 10;' FROM pg_class \
                  WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') \
                  AND NOT relispartition AND EXISTS (SELECT FROM pg_attribute \
                  WHERE attrelid = pg_class.oid AND attname = 'balance') ORDER BY relname";
    let mut first = String::from("A> BEGIN;\n");
    for row in control.query(tables, &[])? {
        first += &format!("{}\n", row.get::<_, &str>(0));
    }
    let mut found = Vec::new();
    for (number, line) in page.lines().enumerate() {
        let Some(cells) = line.strip_prefix("| `") else {
            continue;
        };
        let Some((sql, cells)) = cells.split_once("` | ") else {
            continue;
        };
        let (end, later) = match cells.split_once(" |") {
            Some(("goes on", _)) => ("...", ""),
            Some(("waits", _)) => ("(waits)", "B: ..."),
            Some(("fails", why)) => (why.split('`').nth(1).unwrap_or_default(), ""),
            _ => continue,
        };
        found.push(Block {
            language: "sessions".to_owned(),
            line: number + 1,
            text: format!("{first}B> BEGIN;\nB> {sql};\n{end}\nA> COMMIT;\n{later}\n"),
        });
    }
    Ok(found)
}

/// The page has every error that hotlock raises, word by word.
fn check_errors(page: &str) -> Result<()> {
    const ERRORS: &str = include_str!("../../../src/hotlock/errors.rs");
    let texts = ERRORS.split("c\"").skip(1);
    let texts: Vec<&str> = texts.filter_map(|text| text.split('"').next()).collect();
    ensure!(texts.len() > 12, "no errors in errors.rs: {texts:?}");
    for text in texts {
        ensure!(page.contains(text), "the page does not have: {text}");
    }
    Ok(())
}

fn find_in_log(server: &Server, block: &Block) -> Result<()> {
    let log = server.log()?;
    for (number, line) in block.text.lines().enumerate() {
        ensure!(
            log.contains(line.trim()),
            "line {}: not in the server's log: {line}",
            block.line + number
        );
    }
    Ok(())
}
