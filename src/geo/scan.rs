//! Scans: of a foreign table, or of what a node computes from several.
//!
//! A scan's rows are all fetched with its first: one round trip, no cursor at the node.

use super::exchange::Rows;
use super::failure::{Outcome, raised};
use super::fetched::Fetched;
use super::nodes;
use super::row::{Conversion, descriptor_of};
use super::schedule::Sent;
use super::statement;
use super::values::{Parameters, repeats};
use crate::pg::nodes::{nth, numbers};
use crate::pg::slot::clear;
use pgrx::pg_guard;
use pgrx::pg_sys::{self, ForeignScanState, Oid, TupleTableSlot};
use std::ffi::CStr;
use std::rc::Rc;

/// Places in the plan's private list (postgres_fdw.c: FdwScanPrivateIndex).
const SQL: usize = 0;
const RETRIEVED: usize = 1;

/// A scan of a node.
struct Scan {
    server: Oid,
    user: Oid,
    sql: String,
    parameters: Parameters,
    rows: Rc<Fetched>,
    sent: Option<Sent>,
}

/// Sends the scan's statement, unless that has been done.
unsafe fn start(node: *mut ForeignScanState) -> Outcome<Option<Sent>> {
    // SAFETY: called by `statement` for a scan that was noted.
    unsafe {
        let Some(scan) = scan_of(node) else {
            return Ok(None);
        };
        scan.start(node)?;
        Ok(scan.sent.clone())
    }
}

/// The columns of the answer: attribute numbers.
pub unsafe fn attributes(list: *const pg_sys::List) -> Vec<i32> {
    // SAFETY: a list of integers.
    unsafe { numbers(list).map(|n| n as i32).collect() }
}

/// The text of a place in a private list.
pub unsafe fn text(list: *const pg_sys::List, place: usize) -> String {
    // SAFETY: a String node is there.
    unsafe {
        let text = (*nth::<pg_sys::String>(list, place)).sval;
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

/// The scanned table's server, and as whom it is reached (ExecCheckPermissions' rule).
///
/// # Safety
/// `scan` is the state of a foreign scan.
pub unsafe fn server_and_user(scan: *const ForeignScanState) -> (Oid, Oid) {
    // SAFETY: the caller's state is that of a foreign scan, whose plan is a `ForeignScan`.
    unsafe {
        let plan = (*scan).ss.ps.plan.cast::<pg_sys::ForeignScan>();
        let user = match (*plan).checkAsUser {
            Oid::INVALID => pg_sys::GetUserId(),
            user => user,
        };
        ((*plan).fs_server, user)
    }
}

/// The scan behind a node's state; None in an EXPLAIN.
unsafe fn scan_of<'a>(node: *mut ForeignScanState) -> Option<&'a mut Scan> {
    // SAFETY: set by `begin`; the executor's calls do not overlap.
    unsafe { (*node).fdw_state.cast::<Scan>().as_mut() }
}

#[pg_guard]
pub unsafe extern "C-unwind" fn begin(node: *mut ForeignScanState, flags: i32) {
    if flags & pg_sys::EXEC_FLAG_EXPLAIN_ONLY as i32 != 0 {
        return;
    }
    // SAFETY: the executor's state and plan. What is made here lives as long as the statement.
    unsafe {
        let plan = (*node).ss.ps.plan.cast::<pg_sys::ForeignScan>();
        let estate = (*node).ss.ps.state;
        let (server, user) = server_and_user(node);
        let repeats = repeats(plan);
        statement::note(node, (server, user), repeats, start);
        let attributes = attributes(nth((*plan).fdw_private, RETRIEVED));
        let descriptor = descriptor_of(node);
        let conversion = Conversion::new(descriptor, attributes, node, std::ptr::null_mut());
        let scan = Scan {
            server,
            user,
            sql: text((*plan).fdw_private, SQL),
            parameters: Parameters::new((*plan).fdw_exprs, node.cast()),
            rows: Rc::new(Fetched::new(conversion)),
            sent: None,
        };
        (*node).fdw_state = pgrx::PgMemoryContexts::For((*estate).es_query_cxt)
            .leak_and_drop_on_delete(scan)
            .cast();
    }
}

impl Scan {
    /// Sends the statement if that has not been done since the last rescan.
    unsafe fn start(&mut self, node: *mut ForeignScanState) -> Outcome<()> {
        if self.sent.is_some() {
            return Ok(());
        }
        // SAFETY: the executor's state.
        unsafe {
            let parameters = self.parameters.evaluate((*node).ss.ps.ps_ExprContext);
            let id = statement::connection((*node).ss.ps.state, self.server, self.user)?;
            let rows: Rc<dyn Rows> = self.rows.clone();
            self.sent = Some((id, nodes::send(id, &self.sql, parameters, Some(rows))));
        }
        Ok(())
    }

    /// Sends the statement if need be, and waits for all of its rows.
    unsafe fn fetch(&mut self, node: *mut ForeignScanState) -> Outcome<()> {
        // SAFETY: the executor's state.
        unsafe { self.start(node)? };
        match &self.sent {
            Some((id, exchange)) => nodes::finish(*id, exchange),
            None => Ok(()),
        }
    }

    /// Forgets what was sent.
    fn reset(&mut self) {
        if let Some((_, exchange)) = self.sent.take() {
            exchange.discard();
        }
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        // The rows' memory goes: those that still come are for nobody.
        self.reset();
    }
}

#[pg_guard]
pub unsafe extern "C-unwind" fn iterate(node: *mut ForeignScanState) -> *mut TupleTableSlot {
    // SAFETY: the executor's state, which `begin` has seen.
    unsafe {
        let slot = (*node).ss.ss_ScanTupleSlot;
        let Some(scan) = scan_of(node) else {
            return clear(slot);
        };
        if scan.sent.is_none() {
            raised(statement::start_together(node));
        }
        raised(scan.fetch(node));
        match scan.rows.next(slot) {
            true => slot,
            false => clear(slot),
        }
    }
}

#[pg_guard]
pub unsafe extern "C-unwind" fn rescan(node: *mut ForeignScanState) {
    // SAFETY: the executor's state, which `begin` has seen.
    unsafe {
        let Some(scan) = scan_of(node) else { return };
        if scan.sent.is_none() {
            return;
        }
        if (*node).ss.ps.chgParam.is_null() {
            raised(scan.fetch(node));
            scan.rows.rewind();
        } else {
            // What is under way goes to the store that is emptied: let it come first.
            raised(scan.fetch(node));
            scan.reset();
            scan.rows.clear();
        }
    }
}

#[pg_guard]
pub unsafe extern "C-unwind" fn end(node: *mut ForeignScanState) {
    // SAFETY: the executor's state; the memory goes with the statement's.
    unsafe {
        if let Some(scan) = scan_of(node) {
            scan.reset();
            scan.rows.end();
            (*node).fdw_state = std::ptr::null_mut();
        }
    }
}
