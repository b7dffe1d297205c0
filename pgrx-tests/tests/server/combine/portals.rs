//! Portals that are not the client's own statement: their transaction goes on after the update.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use anyhow::{Result, ensure};
use pgserver::Server;
use txn_server_tests::{Background, grouped, int, pid, sqlstate};

use crate::stage::Stage;

use super::{BUMP, on_server};

const NEXT: &str = "UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING val";
const GROUPED: &str = "SET txn.group_lock = on; SET txn.hot_threshold = 0";

/// A connection that sends the protocol's messages one by one.
struct Connection(UnixStream);

impl Connection {
    fn new(server: &Server) -> Result<Self> {
        let socket = server.host().join(format!(".s.PGSQL.{}", server.port()));
        let mut connection = Connection(UnixStream::connect(socket)?);
        let mut hello = 196_608_i32.to_be_bytes().to_vec();
        hello.extend(b"user\0postgres\0database\0postgres\0\0");
        let mut start = (hello.len() as i32 + 4).to_be_bytes().to_vec();
        start.extend(hello);
        connection.0.write_all(&start)?;
        connection.answers()?;
        connection.send(&[(b'Q', format!("{GROUPED}\0").into())])?;
        connection.answers()?;
        Ok(connection)
    }

    fn send(&mut self, messages: &[(u8, Vec<u8>)]) -> Result<()> {
        let mut bytes = Vec::new();
        for (kind, body) in messages {
            bytes.push(*kind);
            bytes.extend((body.len() as i32 + 4).to_be_bytes());
            bytes.extend(body);
        }
        Ok(self.0.write_all(&bytes)?)
    }

    /// Parse, Bind with that format of the results, Execute.
    fn execute(sql: &str, portal: &str, format: i16) -> Vec<(u8, Vec<u8>)> {
        let mut bind = format!("{portal}\0\0").into_bytes();
        bind.extend([0, 0, 0, 0, 0, 1]);
        bind.extend(format.to_be_bytes());
        vec![
            (b'P', format!("\0{sql}\0\0\0").into()),
            (b'B', bind),
            (b'E', format!("{portal}\0\0\0\0\0").into()),
        ]
    }

    /// The SQLSTATE of what was sent before, to the next ReadyForQuery.
    fn answers(&mut self) -> Result<String> {
        let mut code = "00000".to_owned();
        loop {
            let mut head = [0; 5];
            self.0.read_exact(&mut head)?;
            let length = i32::from_be_bytes(head[1..].try_into()?) as usize - 4;
            let mut body = vec![0; length];
            self.0.read_exact(&mut body)?;
            match head[0] {
                b'Z' => return Ok(code),
                b'E' => {
                    for field in body.split(|&byte| byte == 0) {
                        if let Some(state) = field.strip_prefix(b"C") {
                            code = String::from_utf8_lossy(state).into_owned();
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

/// A loop over the rows of an UPDATE is a portal of the function's, and what calls the function may
/// fail.
#[test]
fn loops_and_cursors_of_functions() -> Result<()> {
    on_server(|server| {
        let body = format!("FOR r IN {NEXT} LOOP NULL; END LOOP; PERFORM 1 / 0;");
        server.connect()?.batch_execute(&format!(
            "CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS \
               $$ DECLARE r record; BEGIN {body} RETURN 1; END $$; \
             CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ DECLARE r record; BEGIN {body} END $$; \
             CREATE FUNCTION fetches(c refcursor) RETURNS int LANGUAGE plpgsql AS \
               $$ DECLARE n int; BEGIN FETCH c INTO n; RETURN n / 0; END $$",
        ))?;
        let do_it = format!("DO $$ DECLARE r record; BEGIN {body} END $$");
        let mut stage = Stage::new(server, NEXT)?;
        let mut failing = Vec::new();
        for sql in ["SELECT f()", "SELECT f()", "CALL p()", &do_it, "CALL p()"] {
            let mut client = grouped(server)?;
            let (pid, sql) = (pid(&mut client)?, sql.to_owned());
            let run = move |client: &mut postgres::Client| client.execute(sql.as_str(), &[]);
            failing.push(Background::call(client, pid, run));
            stage.wait_queued(failing.len() as i32)?;
        }
        let oid = int(&mut server.connect()?, "SELECT 'f'::regproc::oid::bigint")? as u32;
        let mut call = oid.to_be_bytes().to_vec();
        call.extend([0; 6]);
        let mut by_fast_path = Connection::new(server)?;
        by_fast_path.send(&[(b'F', call), (b'S', Vec::new())])?;
        stage.wait_queued(6)?;
        let mut by_function = Connection::new(server)?;
        let mut messages = Connection::execute(NEXT, "c", 0);
        messages.pop();
        messages.extend(Connection::execute("SELECT fetches('c')", "", 0));
        messages.push((b'S', Vec::new()));
        by_function.send(&messages)?;
        stage.wait_queued(7)?;
        stage.release()?;
        ensure!(stage.end()? == "00000");
        let mut told = vec![by_fast_path.answers()?, by_function.answers()?];
        for session in failing {
            told.push(sqlstate(&session.end()?.1));
        }
        let failed = |code: &String| ["22012", "40001"].contains(&code.as_str());
        ensure!(told.iter().all(failed), "{told:?}");
        ensure!(stage.val()? == 1, "the value is {}", stage.val()?);
        ensure!(stage.combined()? == 0, "{} combined", stage.combined()?);
        Ok(())
    })
}

/// A portal of a Bind message that FETCH runs: that may fail after the update.
#[test]
fn fetches_from_a_clients_portal() -> Result<()> {
    on_server(|server| {
        let mut expected = 0;
        for (fetch, format, code) in [
            ("FETCH BACKWARD 1 FROM c", 0, "55000"),
            ("FETCH 1 FROM c", 2, "22023"),
            ("FETCH 1 FROM c", 0, "00000"),
        ] {
            let mut stage = Stage::new(server, BUMP)?;
            let first = Background::run(grouped(server)?, NEXT)?;
            stage.wait_queued(1)?;
            let mut connection = Connection::new(server)?;
            let mut messages = Connection::execute(NEXT, "c", 0);
            messages.pop();
            messages.extend(Connection::execute(fetch, "", format));
            messages.push((b'S', Vec::new()));
            connection.send(&messages)?;
            stage.wait_queued(2)?;
            stage.release()?;
            ensure!(stage.end()? == "00000");
            let told = connection.answers()?;
            ensure!(told == code, "{fetch}: told {told}");
            let first = sqlstate(&first.end()?.1);
            // It may have followed the one that failed.
            ensure!(["00000", "40001"].contains(&first.as_str()), "told {first}");
            expected += 1 + i64::from(code == "00000") + i64::from(first == "00000");
            let val = stage.val()?;
            ensure!(val == expected, "{fetch}: {val} instead of {expected}");
        }
        Ok(())
    })
}

/// After an error in a procedure the next statement is the client's own again.
#[test]
fn after_a_failed_procedure() -> Result<()> {
    on_server(|server| {
        server.connect()?.batch_execute(
            "CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN COMMIT; PERFORM 1 / 0; END $$",
        )?;
        for failing in [
            "SELECT 1 / 0",
            "CALL p()",
            "DO $$ BEGIN PERFORM 1 / 0; END $$",
            "PREPARE fails AS SELECT 1 / (val - val) FROM hot; EXECUTE fails",
        ] {
            let mut stage = Stage::new(server, BUMP)?;
            let before = stage.combined()?;
            let mut client = grouped(server)?;
            let told = sqlstate(&client.batch_execute(failing));
            ensure!(told == "22012", "{failing} was told {told}");
            let waiting = Background::run(client, BUMP)?;
            stage.wait_queued(1)?;
            stage.release()?;
            ensure!(stage.end()? == "00000");
            ensure!(sqlstate(&waiting.end()?.1) == "00000");
            let combined = stage.combined()? - before;
            ensure!(combined == 1, "{combined} combined after {failing}");
        }
        Ok(())
    })
}

/// What PostgreSQL finds out when it sends the first row.
#[test]
fn rows_in_no_format() -> Result<()> {
    on_server(|server| {
        let mut stage = Stage::new(server, BUMP)?;
        let mut waiting = Vec::new();
        for format in [1, 2, 0, 2, 1] {
            let mut connection = Connection::new(server)?;
            let mut messages = Connection::execute(NEXT, "", format);
            messages.push((b'S', Vec::new()));
            connection.send(&messages)?;
            waiting.push((format, connection));
            stage.wait_queued(waiting.len() as i32)?;
        }
        stage.release()?;
        ensure!(stage.end()? == "00000");
        for (format, mut connection) in waiting {
            let told = connection.answers()?;
            // One that fails may be followed.
            let expected = if format == 2 { "22023" } else { "00000" };
            ensure!(told == expected, "format {format} was told {told}");
        }
        ensure!(stage.val()? == 4, "the value is {}", stage.val()?);
        Ok(())
    })
}
