//! When the parts of a round leave for their nodes.

use super::coordinator;
use super::exchange::Exchange;
use super::failure::Outcome;
use super::nodes::{self, NodeId};
use crate::pg::process;
use crate::shared::guc::{self, GeoSchedule};
use pgrx::pg_sys::Oid;
use std::rc::Rc;

/// What was sent, and where.
pub type Sent = (NodeId, Rc<Exchange>);

/// Sends parts, each of which goes to that server: at once or, if they are scheduled, so that all
/// are done at about one time. A part that fails keeps the later ones from being sent. Raises on a
/// cancel.
pub fn send_each<T>(
    parts: Vec<(Oid, T)>,
    is_scheduled: bool,
    mut send: impl FnMut(T) -> Outcome<Option<Sent>>,
) -> Outcome<()> {
    let mut delays = vec![0; parts.len()];
    if is_scheduled && parts.len() > 1 && guc::GEO_SCHEDULE.get() == GeoSchedule::Latency {
        let trips: Vec<_> = parts
            .iter()
            .map(|(server, _)| coordinator::round_trip(*server))
            .collect();
        delays = geo::delays(&trips, guc::GEO_MAX_DELAY.get().max(0) as u64 * 1000);
    }
    let began = process::now();
    let mut order: Vec<_> = delays.into_iter().zip(parts).collect();
    order.sort_by_key(|(delay, _)| *delay);
    let mut sent = Vec::new();
    for (delay, (_, part)) in order {
        if delay > 0 {
            nodes::pause(began + delay, &sent)?;
        }
        sent.extend(send(part)?);
    }
    Ok(())
}
