//! UPDATE and DELETE that a node does by itself.

use super::commit;
use super::defer;
use super::exchange::Rows;
use super::failure::{Outcome, raised};
use super::fetched::Fetched;
use super::key;
use super::last;
use super::node::Use;
use super::nodes;
use super::record;
use super::row::{CTID, Conversion, descriptor_of, store};
use super::scan::{attributes, server_and_user, text};
use super::schedule::Sent;
use super::statement;
use super::values::{Parameters, repeats};
use crate::pg::nodes::{nodes as elements, nth};
use crate::pg::slot::{clear, get_all};
use pgrx::pg_guard;
use pgrx::pg_sys::{self, ForeignScanState, Oid, TupleTableSlot};
use std::rc::Rc;

/// Places in the plan's private list (postgres_fdw.c: FdwDirectModifyPrivateIndex).
const SQL: usize = 0;
const HAS_RETURNING: usize = 1;
const RETRIEVED: usize = 2;
const COUNTS: usize = 3;

/// A direct modification.
struct Direct {
    server: Oid,
    user: Oid,
    sql: String,
    parameters: Parameters,
    /// Whether it counts as rows that the command has processed.
    counts: bool,
    returning: Option<Returning>,
    /// It changes one row, by its full key. Only looked at with `txn.geo_defer`.
    names_one_row: bool,
    /// It was put off.
    is_deferred: bool,
    sent: Option<Sent>,
    /// Rows that have been given.
    given: u64,
    is_told: bool,
}

impl Drop for Direct {
    fn drop(&mut self) {
        // The rows' memory goes: those that still come are for nobody.
        if let Some((_, exchange)) = self.sent.take() {
            exchange.discard();
        }
    }
}

/// What RETURNING gives.
struct Returning {
    rows: Rc<Fetched>,
    /// Of a join: which column of the scan is which of the changed table.
    filter: Option<Filter>,
}

/// The changed table's row within a row of a join (postgres_fdw.c: init_returning_filter).
struct Filter {
    relation: pg_sys::Relation,
    /// For each column of the table the scan's, counted from 1; 0: it is NULL.
    columns: Vec<usize>,
    address: usize,
}

unsafe fn direct_of<'a>(node: *mut ForeignScanState) -> Option<&'a mut Direct> {
    // SAFETY: set by `begin`; the executor's calls do not overlap.
    unsafe { (*node).fdw_state.cast::<Direct>().as_mut() }
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
        let private = (*plan).fdw_private;
        statement::note(node, (server, user), repeats(plan), start);
        let range = (*(*node).resultRelInfo).ri_RangeTableIndex;
        let relation = if (*plan).scan.scanrelid == 0 {
            pg_sys::ExecOpenScanRelation(estate, range, flags)
        } else {
            (*node).ss.ss_currentRelation
        };
        let has_returning = (*nth::<pg_sys::Boolean>(private, HAS_RETURNING)).boolval;
        let direct = Direct {
            server,
            user,
            sql: text(private, SQL),
            parameters: Parameters::new((*plan).fdw_exprs, node.cast()),
            counts: (*nth::<pg_sys::Boolean>(private, COUNTS)).boolval,
            returning: has_returning.then(|| returning(node, relation, range)),
            names_one_row: defer::is_wanted() && key::names_one_row(plan, relation),
            is_deferred: false,
            sent: None,
            given: 0,
            is_told: false,
        };
        (*node).fdw_state = pgrx::PgMemoryContexts::For((*estate).es_query_cxt)
            .leak_and_drop_on_delete(direct)
            .cast();
    }
}

unsafe fn returning(
    node: *mut ForeignScanState,
    relation: pg_sys::Relation,
    range: pg_sys::Index,
) -> Returning {
    // SAFETY: as in `begin`.
    unsafe {
        let plan = (*node).ss.ps.plan.cast::<pg_sys::ForeignScan>();
        let attributes = attributes(nth((*plan).fdw_private, RETRIEVED));
        let is_join = (*plan).scan.scanrelid == 0;
        let filter = is_join.then(|| filter((*plan).fdw_scan_tlist, &attributes, relation, range));
        let descriptor = if is_join {
            descriptor_of(node)
        } else {
            (*relation).rd_att
        };
        let conversion = Conversion::new(descriptor, attributes, node, relation);
        Returning {
            rows: Rc::new(Fetched::new(conversion)),
            filter,
        }
    }
}

unsafe fn filter(
    columns: *mut pg_sys::List,
    retrieved: &[i32],
    relation: pg_sys::Relation,
    range: pg_sys::Index,
) -> Filter {
    // SAFETY: entries of a scan's target list, which are Vars.
    unsafe {
        let count = (*(*relation).rd_att).natts as usize;
        let mut filter = Filter {
            relation,
            columns: vec![0; count],
            address: 0,
        };
        for (n, entry) in elements(columns).enumerate() {
            let variable = (*entry.cast::<pg_sys::TargetEntry>())
                .expr
                .cast::<pg_sys::Var>();
            let place = n + 1;
            let is_var = (*variable).xpr.type_ == pg_sys::NodeTag::T_Var;
            if !is_var || (*variable).varno as u32 != range || !retrieved.contains(&(place as i32))
            {
                continue;
            }
            match i32::from((*variable).varattno) {
                CTID => filter.address = place,
                column if column > 0 => filter.columns[column as usize - 1] = place,
                _ => {}
            }
        }
        filter
    }
}

/// Sends the command, unless that has been done.
unsafe fn start(node: *mut ForeignScanState) -> Outcome<Option<Sent>> {
    // SAFETY: called for a node that was noted.
    unsafe {
        let Some(direct) = direct_of(node) else {
            return Ok(None);
        };
        if direct.sent.is_none() {
            let parameters = direct.parameters.evaluate((*node).ss.ps.ps_ExprContext);
            let id = nodes::find(direct.server, direct.user, Use::Work)?;
            let rows = direct
                .returning
                .as_ref()
                .map(|one| one.rows.clone() as Rc<dyn Rows>);
            let sent = match commit::is_early((*node).ss.ps.state) {
                true => commit::send_last(id, &direct.sql, parameters, rows)?,
                false => nodes::send(id, &direct.sql, parameters, rows),
            };
            direct.sent = Some((id, sent));
        }
        Ok(direct.sent.clone())
    }
}

#[pg_guard]
pub unsafe extern "C-unwind" fn iterate(node: *mut ForeignScanState) -> *mut TupleTableSlot {
    // SAFETY: the executor's state, which `begin` has seen.
    unsafe {
        let slot = (*node).ss.ss_ScanTupleSlot;
        let Some(direct) = direct_of(node) else {
            return clear(slot);
        };
        if direct.sent.is_none() && !direct.is_deferred {
            let state = (*node).ss.ps.state;
            let last = last::is_last(state).then(|| statement::writes_alone(state));
            let last = last.flatten();
            // The last statement of all need not wait: it is sent now, and prepares.
            let is_all = last.is_some() && !defer::is_begun();
            direct.is_deferred = !is_all && raised(put_off(node, direct));
            if !direct.is_deferred {
                if let Some(servers) = last {
                    raised(commit::begin_early(state, &servers));
                }
                raised(statement::start_together(node));
            }
        }
        let affected = match &direct.sent {
            Some((id, exchange)) => {
                raised(nodes::finish(*id, exchange));
                exchange.affected()
            }
            None => u64::from(direct.is_deferred),
        };
        if (*(*node).resultRelInfo).ri_projectReturning.is_null() {
            tell(node, direct, affected);
            return clear(slot);
        }
        next(node, direct, affected, slot)
    }
}

/// Puts the command off, if it may be: the client is told that it has changed its row.
unsafe fn put_off(node: *mut ForeignScanState, direct: &Direct) -> Outcome<bool> {
    // SAFETY: the executor's state.
    unsafe {
        let result = (*node).resultRelInfo;
        let may = direct.names_one_row
            && direct.returning.is_none()
            && (*result).ri_projectReturning.is_null()
            && statement::is_alone(node);
        if !may {
            return Ok(false);
        }
        let parameters = direct.parameters.evaluate((*node).ss.ps.ps_ExprContext);
        let id = nodes::find(direct.server, direct.user, Use::Work)?;
        Ok(defer::put(
            id,
            &direct.sql,
            &parameters,
            1,
            &record::of(node),
        ))
    }
}

/// Counts the rows, once.
unsafe fn tell(node: *mut ForeignScanState, direct: &mut Direct, affected: u64) {
    if std::mem::replace(&mut direct.is_told, true) {
        return;
    }
    // SAFETY: the executor's state.
    unsafe {
        if direct.counts {
            (*(*node).ss.ps.state).es_processed += affected;
        }
        if let Some(instrument) = (*node).ss.ps.instrument.as_mut() {
            instrument.tuplecount += affected as f64;
        }
    }
}

/// The next row of RETURNING.
unsafe fn next(
    node: *mut ForeignScanState,
    direct: &mut Direct,
    affected: u64,
    slot: *mut TupleTableSlot,
) -> *mut TupleTableSlot {
    // SAFETY: the executor's state.
    unsafe {
        if direct.given >= affected {
            return clear(slot);
        }
        direct.given += 1;
        let estate = (*node).ss.ps.state;
        if direct.counts {
            (*estate).es_processed += 1;
        }
        let result = (*node).resultRelInfo;
        let changed = match &direct.returning {
            None => pg_sys::ExecStoreAllNullTuple(slot),
            Some(returning) => {
                if !returning.rows.next(slot) {
                    pgrx::error!("a node has returned fewer rows than it has changed");
                }
                match &returning.filter {
                    Some(filter) => filter.apply(estate, result, slot),
                    None => slot,
                }
            }
        };
        let context = (*(*result).ri_projectReturning).pi_exprContext;
        (*context).ecxt_scantuple = changed;
        slot
    }
}

impl Filter {
    /// The changed table's row, in its own slot (postgres_fdw.c: apply_returning_filter).
    unsafe fn apply(
        &self,
        estate: *mut pg_sys::EState,
        result: *mut pg_sys::ResultRelInfo,
        slot: *mut TupleTableSlot,
    ) -> *mut TupleTableSlot {
        // SAFETY: the executor's state; the scan's slot has a row, and the table's is for its
        // columns.
        unsafe {
            let own = pg_sys::ExecGetReturningSlot(estate, result);
            get_all(slot);
            clear(own);
            for (n, &place) in self.columns.iter().enumerate() {
                let (value, is_null) = match place {
                    0 => (pg_sys::Datum::from(0), true),
                    place => (
                        *(*slot).tts_values.add(place - 1),
                        *(*slot).tts_isnull.add(place - 1),
                    ),
                };
                *(*own).tts_values.add(n) = value;
                *(*own).tts_isnull.add(n) = is_null;
            }
            if self.address == 0 {
                return pg_sys::ExecStoreVirtualTuple(own);
            }
            let address = (!*(*slot).tts_isnull.add(self.address - 1))
                .then(|| *(*(*slot).tts_values.add(self.address - 1)).cast_mut_ptr());
            let descriptor = (*self.relation).rd_att;
            let mut values = row_of((*own).tts_values, &self.columns);
            let mut nulls = row_of((*own).tts_isnull, &self.columns);
            store(
                own,
                descriptor,
                values.as_mut_ptr(),
                nulls.as_mut_ptr(),
                address,
            );
            own
        }
    }
}

/// As many values as there are columns, out of a slot that is going to be filled with them.
unsafe fn row_of<T: Copy>(values: *const T, columns: &[usize]) -> Vec<T> {
    // SAFETY: a slot's array for these columns.
    unsafe { std::slice::from_raw_parts(values, columns.len()).to_vec() }
}

#[pg_guard]
pub unsafe extern "C-unwind" fn end(node: *mut ForeignScanState) {
    // SAFETY: the executor's state; the memory goes with the statement's.
    unsafe {
        if let Some(direct) = direct_of(node) {
            if let Some((_, exchange)) = direct.sent.take() {
                exchange.discard();
            }
            if let Some(returning) = &direct.returning {
                returning.rows.end();
            }
        }
        (*node).fdw_state = std::ptr::null_mut();
    }
}
