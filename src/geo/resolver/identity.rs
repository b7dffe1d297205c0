//! The identity of this coordinator: a UUID, which is in the names of its transactions at the
//! nodes, and how it knows that it is not a copy.

use super::launcher;
use super::place::Place;
use super::{in_transaction, rows};
use crate::geo::coordinator::{Identity, memory};
use crate::geo::decision;
use crate::geo::failure::{Failure, NOT_IN_STATE, raised};
use geo::Phase;
use pgrx::pg_sys;

/// What the resolver finds out about itself.
pub enum Found {
    Us(Identity),
    /// The row was written elsewhere: by a server that may still run.
    Perhaps,
    /// The database uses no nodes any more.
    Nobody,
}

fn new_uuid() -> u128 {
    let mut bytes = [0_u8; 16];
    // SAFETY: fills so many bytes.
    if !unsafe { pg_sys::pg_strong_random(bytes.as_mut_ptr().cast(), bytes.len()) } {
        pgrx::error!("could not generate random values");
    }
    // RFC 4122: version 4.
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    u128::from_be_bytes(bytes)
}

/// Finds out, and gives this incarnation its number if it has none.
pub fn identify(database: u32) -> Found {
    let known = memory().with_geo(|board| board.known(database));
    in_transaction(|| {
        if decision::table(c"geo_coordinator").is_err() || !rows::has_nodes() {
            launcher::mark(false);
            return Found::Nobody;
        }
        launcher::mark(true);
        let here = Place::here();
        let row = rows::coordinator();
        let is_ours = row.as_ref().is_none_or(|row| row.place == here);
        if !is_ours {
            return Found::Perhaps;
        }
        // A coordinator that has got a number in this start of the server keeps it.
        if let Some(known) = known
            && let Some(row) = &row
            && known.incarnation == row.incarnation
            && known.coordinator == row.uuid
        {
            return Found::Us(Identity {
                coordinator: known.coordinator,
                incarnation: known.incarnation,
            });
        }
        let uuid = row.as_ref().map_or_else(new_uuid, |row| row.uuid);
        let last = row.as_ref().map_or(0, |row| row.incarnation);
        let incarnation = last + 1;
        rows::set_coordinator(uuid, incarnation, &here);
        memory().with_geo(|board| board.named(database, uuid, incarnation));
        Found::Us(Identity {
            coordinator: uuid,
            incarnation,
        })
    })
}

/// By how much the number of incarnations goes up when a copy takes over: above all that the
/// original may have used since.
const TAKEN_OVER: u64 = 1 << 20;

/// This server is the coordinator from now on. In a transaction; raises if the database has not
/// been one.
pub fn take_over() {
    let Some(row) = rows::coordinator() else {
        pgrx::error!("this database has not been a coordinator");
    };
    let here = Place::here();
    let known = memory().with_geo(|board| board.known(here.database.into()));
    if row.place == here && known.is_none_or(|known| known.phase != Phase::Paused) {
        raised::<()>(Err(Failure::new(
            NOT_IN_STATE,
            "this server is the coordinator already",
        )));
    }
    rows::set_coordinator(row.uuid, row.incarnation + TAKEN_OVER, &here);
}
