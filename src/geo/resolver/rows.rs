//! What the resolver reads and writes in its own database.

use super::place::Place;
use crate::geo::decision;
use crate::geo::failure::raised;
use crate::geo::server::{Server, describe};
use geo::{Decision, Gid, Prepared};
use pgrx::prelude::*;
use std::rc::Rc;

/// The row of `txn.geo_coordinator`.
pub struct Coordinator {
    pub uuid: u128,
    pub incarnation: u64,
    pub place: Place,
}

/// A decision row.
#[derive(Clone, Debug)]
pub struct Decided {
    pub gid: Gid,
    pub server: pg_sys::Oid,
    pub system: String,
    pub transaction: u64,
    pub prepared: Prepared,
    pub is_lost: bool,
}

impl Decided {
    pub fn for_pass(&self, acknowledged: bool, confirmed: bool) -> Decision {
        Decision {
            gid: self.gid,
            acknowledged,
            confirmed,
            lost: self.is_lost,
        }
    }
}

/// Stops the worker: the database is not as the extension has made it.
fn must<T>(result: Result<T, spi::Error>) -> T {
    result.unwrap_or_else(|error| pgrx::error!("txn: {error}"))
}

/// Raises an ERROR if the tables are not as this library has them.
fn require_tables() {
    raised(decision::check_tables());
}

/// The row, if this database has been a coordinator.
pub fn coordinator() -> Option<Coordinator> {
    require_tables();
    Spi::connect(|client| {
        let sql = "SELECT uuid::text, incarnation, system_identifier, timeline, database, \
                   directory \
                   FROM txn.geo_coordinator";
        let table = must(client.select(sql, Some(1), &[]));
        let row = table.into_iter().next()?;
        let uuid: String = must(row.get(1))?;
        Some(Coordinator {
            uuid: u128::from_str_radix(&uuid.replace('-', ""), 16).ok()?,
            incarnation: must(row.get::<i64>(2))? as u64,
            place: Place {
                system: must(row.get(3))?,
                timeline: must(row.get(4))?,
                database: must(row.get(5))?,
                directory: must(row.get(6))?,
            },
        })
    })
}

/// Writes the row.
pub fn set_coordinator(uuid: u128, incarnation: u64, place: &Place) {
    let uuid = format!("{uuid:032x}");
    // A standby that takes over has to know the name: it is in no prepared transaction before.
    decision::be_durable();
    Spi::connect_mut(|client| {
        must(client.update("DELETE FROM txn.geo_coordinator", None, &[]));
        let sql = "INSERT INTO txn.geo_coordinator \
            (uuid, incarnation, system_identifier, timeline, database, directory) \
            VALUES ($1::uuid, $2, $3, $4, $5, $6)";
        let arguments = [
            uuid.into(),
            (incarnation as i64).into(),
            place.system.into(),
            place.timeline.into(),
            place.database.into(),
            place.directory.into(),
        ];
        must(client.update(sql, None, &arguments));
    });
}

/// All decision rows.
pub fn decided() -> Vec<Decided> {
    require_tables();
    Spi::connect(|client| {
        let sql = "SELECT gid, server, xid::text::bigint, timeline, lsn - '0/0', lost, system \
                   FROM txn.geo_decision";
        let table = must(client.select(sql, None, &[]));
        let read = |row: spi::SpiHeapTupleData| {
            let gid: String = must(row.get(1))?;
            let lsn: AnyNumeric = must(row.get(5))?;
            Some(Decided {
                gid: Gid::parse(&gid)?,
                server: must(row.get(2))?,
                transaction: must(row.get::<i64>(3))? as u64,
                prepared: Prepared {
                    timeline: must(row.get::<i32>(4))? as u32,
                    lsn: u64::try_from(lsn).ok()?,
                },
                is_lost: must(row.get(6))?,
                system: must(row.get(7))?,
            })
        };
        table.into_iter().filter_map(read).collect()
    })
}

/// What a query gives, whose columns are texts.
pub fn texts(sql: &str) -> Vec<Vec<Option<String>>> {
    Spi::connect(|client| {
        let table = must(client.select(sql, None, &[]));
        let read = |row: spi::SpiHeapTupleData| {
            let columns = 1..=row.columns();
            columns.map(|column| must(row.get(column))).collect()
        };
        table.into_iter().map(read).collect()
    })
}

/// Deletes rows.
pub fn erase(gids: &[Gid]) {
    change("DELETE FROM txn.geo_decision WHERE gid = ANY ($1)", gids);
}

/// Notes that the nodes have lost what they had prepared.
pub fn note_lost(gids: &[Gid]) {
    change(
        "UPDATE txn.geo_decision SET lost = true WHERE gid = ANY ($1)",
        gids,
    );
}

fn change(sql: &str, gids: &[Gid]) {
    if gids.is_empty() {
        return;
    }
    let names: Vec<String> = gids.iter().map(Gid::to_string).collect();
    Spi::connect_mut(|client| {
        must(client.update(sql, None, &[names.into()]));
    });
}

/// Servers of wrappers that have our handler.
const NODES: &str = "pg_catalog.pg_foreign_server s \
    JOIN pg_catalog.pg_foreign_data_wrapper w ON w.oid = s.srvfdw \
    JOIN pg_catalog.pg_proc p ON p.oid = w.fdwhandler \
    JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace";

const OURS: &str = "p.proname = 'fdw_handler' AND n.nspname = 'txn'";

/// Whether there is a node, or a decision is left.
pub fn has_nodes() -> bool {
    require_tables();
    let sql = format!(
        "SELECT EXISTS (SELECT FROM {NODES} WHERE {OURS}) OR EXISTS (SELECT FROM txn.geo_decision)"
    );
    must(Spi::get_one::<bool>(&sql)).unwrap_or(false)
}

/// The nodes, once for each user mapping.
pub fn nodes() -> Vec<Rc<Server>> {
    mappings("true", 0)
}

/// The nodes that the present user can reach.
pub fn own_nodes() -> Vec<Rc<Server>> {
    let own = "m.umuser = pg_catalog.to_regrole(pg_catalog.quote_ident(current_user)) \
        OR m.umuser = 0 AND NOT EXISTS (SELECT FROM pg_catalog.pg_user_mapping o \
        WHERE o.umserver = s.oid \
        AND o.umuser = pg_catalog.to_regrole(pg_catalog.quote_ident(current_user)))";
    mappings(own, 0)
}

/// The node of a user mapping.
pub fn of_mapping(mapping: u32) -> Option<Rc<Server>> {
    mappings("m.oid::bigint = $1", mapping).into_iter().next()
}

fn mappings(condition: &str, mapping: u32) -> Vec<Rc<Server>> {
    let sql = format!(
        "SELECT s.oid, m.umuser::bigint FROM {NODES} \
         JOIN pg_catalog.pg_user_mapping m ON m.umserver = s.oid \
         WHERE {OURS} AND ({condition}) AND $1 IS NOT NULL ORDER BY s.oid, m.oid"
    );
    let found: Vec<_> = Spi::connect(|client| {
        let table = must(client.select(&sql, None, &[i64::from(mapping).into()]));
        let read = |row: spi::SpiHeapTupleData| {
            let user: i64 = must(row.get(2))?;
            Some((must(row.get(1))?, pg_sys::Oid::from(user as u32)))
        };
        table.into_iter().filter_map(read).collect()
    });
    found
        .into_iter()
        .map(|(server, user)| of_catalog(server, user))
        .collect()
}

/// The server with exactly that mapping: 0 is that of PUBLIC. Only if both the owner of the server
/// and the user of the mapping are superusers may it be reached without a password: others must not
/// have us use what the operating system's user may.
fn of_catalog(server: pg_sys::Oid, user: pg_sys::Oid) -> Rc<Server> {
    // SAFETY: catalog look-ups; GetUserMapping of no role finds PUBLIC's.
    unsafe {
        let mapping = pg_sys::GetUserMapping(user, server);
        let server = &*pg_sys::GetForeignServer(server);
        let is_trusted = user == pg_sys::Oid::INVALID || pg_sys::superuser_arg(user);
        let user = if is_trusted { server.owner } else { user };
        describe(server, &*mapping, user)
    }
}
