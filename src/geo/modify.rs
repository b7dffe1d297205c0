//! INSERT, UPDATE and DELETE row by row, and rows that are routed to a partition.

use super::defer;
use super::exchange::Rows;
use super::failure::{Failure, NOT_SUPPORTED, Outcome, raised};
use super::node::Use;
use super::nodes;
use super::planner;
use super::record;
use super::row::{Conversion, store};
use super::scan::{attributes, text};
use super::schedule::{self, Part};
use super::server::{self, Server, option_of, options};
use super::values::{Output, Plain};
use crate::pg::libpq::Answer;
use crate::pg::nodes::nth;
use crate::pg::slot::get;
use pgrx::pg_guard;
use pgrx::pg_sys::{self, CmdType, EState, List, ModifyTableState, ResultRelInfo, TupleTableSlot};
use std::cell::RefCell;
use std::ffi::{CString, c_int};
use std::rc::Rc;

/// Places in the private list (postgres_fdw.c: FdwModifyPrivateIndex).
const SQL: usize = 0;
const TARGETS: usize = 1;
const VALUES_END: usize = 2;
const HAS_RETURNING: usize = 3;
const RETRIEVED: usize = 4;

/// libpq's limit of parameters of a command.
const MOST_PARAMETERS: usize = 65535;

/// Rows that go to a foreign table one by one.
struct Modify {
    server: Rc<Server>,
    relation: pg_sys::Relation,
    sql: String,
    /// Where the values of an INSERT's first row end in its text.
    values_end: usize,
    /// The columns that are sent, with their output functions; generated ones have none.
    targets: Vec<(c_int, Option<Output>)>,
    /// Where the row's address is in the plan's rows; 0 for INSERT.
    address: pg_sys::AttrNumber,
    of_address: Output,
    /// What is computed for one row lives here; emptied after each.
    scratch: pg_sys::MemoryContext,
    returning: Option<Rc<Returned>>,
    batch: c_int,
    /// Its rows may be put off: nothing is asked of the node but to take them.
    may_defer: bool,
    /// For rows that an UPDATE moves here.
    routed: Option<Box<Modify>>,
}

/// The row that came back.
struct Returned {
    conversion: Conversion,
    answer: RefCell<Option<Answer>>,
}

impl Rows for Returned {
    fn take(&self, answer: Answer) {
        if answer.rows() > 0 {
            self.answer.borrow_mut().get_or_insert(answer);
        }
    }
}

unsafe fn modify_of<'a>(result: *mut ResultRelInfo) -> Option<&'a mut Modify> {
    // SAFETY: set by `begin` or `begin_insert`; the executor's calls do not overlap.
    unsafe { (*result).ri_FdwState.cast::<Modify>().as_mut() }
}

/// What is sent, and what comes back.
struct Shape {
    sql: String,
    values_end: usize,
    targets: *mut List,
    returns: bool,
    retrieved: *mut List,
}

/// # Safety
/// The private list of a ModifyTable's table.
unsafe fn shape(private: *mut List) -> Shape {
    // SAFETY: the caller's list is the one that the planner's callback has made, in this order.
    unsafe {
        let end = (*nth::<pg_sys::Integer>(private, VALUES_END)).ival;
        Shape {
            sql: text(private, SQL),
            values_end: usize::try_from(end).unwrap_or(0),
            targets: nth(private, TARGETS),
            returns: (*nth::<pg_sys::Boolean>(private, HAS_RETURNING)).boolval,
            retrieved: nth(private, RETRIEVED),
        }
    }
}

/// # Safety
/// An open foreign table that is changed by a running statement.
unsafe fn new(
    estate: *mut EState,
    result: *mut ResultRelInfo,
    shape: &Shape,
    operation: CmdType::Type,
    address: pg_sys::AttrNumber,
) -> Modify {
    // SAFETY: the caller's table is open, and its statement runs.
    unsafe {
        let relation = (*result).ri_RelationDesc;
        let descriptor = (*relation).rd_att;
        let column = |number: c_int| {
            let attribute = (*descriptor).attrs.as_mut_ptr().add(number as usize - 1);
            let is_sent = (*attribute).attgenerated == 0;
            (number, is_sent.then(|| Output::of((*attribute).atttypid)))
        };
        let targets = match operation {
            CmdType::CMD_DELETE => Vec::new(),
            _ => attributes(shape.targets).into_iter().map(column).collect(),
        };
        let returning = shape.returns.then(|| {
            let retrieved = attributes(shape.retrieved);
            Rc::new(Returned {
                conversion: Conversion::new(descriptor, retrieved, std::ptr::null_mut(), relation),
                answer: RefCell::default(),
            })
        });
        Modify {
            server: server::find(
                (*pg_sys::GetForeignTable((*relation).rd_id)).serverid,
                pg_sys::ExecGetResultRelCheckAsUser(result, estate),
            ),
            relation,
            sql: shape.sql.clone(),
            values_end: shape.values_end,
            targets,
            address,
            of_address: Output::of(pg_sys::TIDOID),
            scratch: pg_sys::AllocSetContextCreateInternal(
                pg_sys::CurrentMemoryContext,
                c"txn: a row for a node".as_ptr(),
                0,
                1024,
                8192,
            ),
            returning,
            batch: batch_size(relation),
            may_defer: false,
            routed: None,
        }
    }
}

/// The option `batch_size` of the table, or else of its server.
unsafe fn batch_size(relation: pg_sys::Relation) -> c_int {
    // SAFETY: an open foreign table.
    unsafe {
        let table = pg_sys::GetForeignTable((*relation).rd_id);
        let server = pg_sys::GetForeignServer((*table).serverid);
        let of = |list| option_of(&options(list), "batch_size").and_then(|size| size.parse().ok());
        of((*table).options)
            .or_else(|| of((*server).options))
            .unwrap_or(1)
    }
}

unsafe fn keep(estate: *mut EState, modify: Modify) -> *mut std::ffi::c_void {
    // SAFETY: the statement's memory context; the value is dropped at its end.
    unsafe {
        pgrx::PgMemoryContexts::For((*estate).es_query_cxt)
            .leak_and_drop_on_delete(modify)
            .cast()
    }
}

#[pg_guard]
pub unsafe extern "C-unwind" fn begin(
    state: *mut ModifyTableState,
    result: *mut ResultRelInfo,
    private: *mut List,
    _place: c_int,
    flags: c_int,
) {
    if flags & pg_sys::EXEC_FLAG_EXPLAIN_ONLY as c_int != 0 {
        return;
    }
    // SAFETY: the executor's state and plan.
    unsafe {
        let estate = (*state).ps.state;
        let operation = (*state).operation;
        let mut address = 0;
        if matches!(operation, CmdType::CMD_UPDATE | CmdType::CMD_DELETE) {
            let plan = (*(*state).ps.lefttree).plan;
            let name = c"ctid".as_ptr();
            address = pg_sys::ExecFindJunkAttributeInTlist((*plan).targetlist, name);
            if address == 0 {
                pgrx::error!("could not find junk ctid column");
            }
        }
        let mut modify = new(estate, result, &shape(private), operation, address);
        modify.may_defer = may_defer(state, &modify);
        (*result).ri_FdwState = keep(estate, modify);
    }
}

/// A row is going to be routed to this table, by INSERT, COPY, or an UPDATE that moves it
/// (postgres_fdw.c: postgresBeginForeignInsert).
#[pg_guard]
pub unsafe extern "C-unwind" fn begin_insert(
    state: *mut ModifyTableState,
    result: *mut ResultRelInfo,
) {
    // SAFETY: the executor's state.
    unsafe {
        let plan = (*state).ps.plan.cast::<pg_sys::ModifyTable>();
        let updates = !plan.is_null() && (*plan).operation == CmdType::CMD_UPDATE;
        if updates && ((*result).ri_usesFdwDirectModify || !(*result).ri_FdwState.is_null()) {
            raised(Err(cannot_route(result)))
        }
        let estate = (*state).ps.state;
        let shape = shape(planner::plan_insert(state, result));
        let mut modify = new(estate, result, &shape, CmdType::CMD_INSERT, 0);
        modify.may_defer = may_defer(state, &modify);
        match modify_of(result) {
            Some(own) => own.routed = Some(Box::new(modify)),
            None => (*result).ri_FdwState = keep(estate, modify),
        }
    }
}

/// Whether rows may be put off: of an INSERT that gives nothing back and meets no conflict.
unsafe fn may_defer(state: *mut ModifyTableState, modify: &Modify) -> bool {
    // SAFETY: the executor's state. COPY has no plan.
    unsafe {
        let plan = (*state).ps.plan.cast::<pg_sys::ModifyTable>();
        !plan.is_null()
            && (*plan).operation == CmdType::CMD_INSERT
            && (*plan).onConflictAction == pg_sys::OnConflictAction::ONCONFLICT_NONE
            && modify.returning.is_none()
            && defer::is_wanted()
    }
}

unsafe fn cannot_route(result: *mut ResultRelInfo) -> Failure {
    // SAFETY: an open table.
    let name = unsafe {
        let name = (*(*(*result).ri_RelationDesc).rd_rel).relname.data.as_ptr();
        std::ffi::CStr::from_ptr(name)
            .to_string_lossy()
            .into_owned()
    };
    Failure::new(
        NOT_SUPPORTED,
        format!("cannot route tuples into foreign table to be updated \"{name}\""),
    )
}

impl Modify {
    /// The values of rows, in the order of the parameters.
    unsafe fn values(&self, slots: &[*mut TupleTableSlot]) -> Vec<Option<CString>> {
        let mut values = Vec::new();
        if self.targets.is_empty() {
            return values;
        }
        let _plain = Plain::begin();
        for &slot in slots {
            for (number, output) in &self.targets {
                let Some(output) = output else { continue };
                // SAFETY: a row for the table.
                let value = unsafe { get(slot, *number) };
                values.push(value.map(|value| output.text(value)));
            }
        }
        values
    }

    /// An INSERT of so many rows (deparse.c: rebuildInsertSql).
    fn insert_of(&self, rows: usize) -> String {
        let (first, rest) = self.sql.split_at(self.values_end.min(self.sql.len()));
        let mut sql = first.to_owned();
        let mut parameter = self.columns().count();
        for _ in 1..rows {
            let values: Vec<String> = self
                .targets
                .iter()
                .map(|target| match &target.1 {
                    None => "DEFAULT".to_owned(),
                    Some(_) => {
                        parameter += 1;
                        format!("${parameter}")
                    }
                })
                .collect();
            sql.push_str(&format!(", ({})", values.join(", ")));
        }
        sql.push_str(rest);
        sql
    }

    /// Sends a command that is for so many rows, and waits for its answer, unless it is put off.
    /// How many rows it has changed.
    fn run(&self, sql: &str, values: Vec<Option<CString>>, rows: usize) -> Outcome<u64> {
        let id = nodes::reach(&self.server, Use::Work)?;
        let server = self.server.server;
        let mut records = Vec::new();
        if self.address == 0 {
            let columns: Vec<c_int> = self.columns().collect();
            // SAFETY: the table is open while it is changed.
            records = unsafe { record::of_rows(self.relation, &columns, &values) };
        }
        if self.may_defer && defer::put(id, sql, &values, rows as u64, &records) {
            return Ok(rows as u64);
        }
        records.extend(nodes::deferred_records(server));
        let rows = self.returning.clone().map(|rows| rows as Rc<dyn Rows>);
        let mut exchange = None;
        schedule::send_each(vec![Part::new(server, records, values)], true, |values| {
            let sent = nodes::send(id, sql, values, rows.clone());
            exchange = Some(Rc::clone(&sent));
            Ok(Some((id, sent)))
        })?
        .finish()?;
        Ok(exchange.map_or(0, |exchange| exchange.affected()))
    }

    /// The columns that are sent.
    fn columns(&self) -> impl Iterator<Item = c_int> {
        let sent = self.targets.iter().filter(|target| target.1.is_some());
        sent.map(|target| target.0)
    }

    /// Puts the row that has come back into the slot.
    unsafe fn store(&self, slot: *mut TupleTableSlot) {
        let Some(returning) = &self.returning else {
            return;
        };
        let Some(answer) = returning.answer.borrow_mut().take() else {
            return;
        };
        let mut row = returning.conversion.read(&answer, 0);
        // SAFETY: values for the table, and a slot of its rows.
        unsafe {
            let (values, nulls) = (row.values.as_mut_ptr(), row.nulls.as_mut_ptr());
            store(slot, (*self.relation).rd_att, values, nulls, row.address);
        }
        returning.conversion.done();
    }

    /// Runs `body` with a memory context that is emptied afterwards.
    fn in_scratch<R>(&self, body: impl FnOnce() -> R) -> R {
        // SAFETY: a context of ours; an ERROR's handler sets the present one by itself.
        unsafe {
            let before = pg_sys::CurrentMemoryContext;
            pg_sys::CurrentMemoryContext = self.scratch;
            let result = body();
            pg_sys::CurrentMemoryContext = before;
            pg_sys::MemoryContextReset(self.scratch);
            result
        }
    }

    /// Inserts rows. How many there are now that were not before.
    unsafe fn insert(&self, slots: &[*mut TupleTableSlot]) -> Outcome<u64> {
        // SAFETY: rows for the table.
        unsafe {
            let affected = self.in_scratch(|| {
                let values = self.values(slots);
                match slots.len() {
                    1 => self.run(&self.sql, values, 1),
                    rows => self.run(&self.insert_of(rows), values, rows),
                }
            })?;
            if affected > 0 {
                self.store(slots[0]);
            }
            Ok(affected)
        }
    }

    /// Changes or deletes the row at the address in the plan's row.
    unsafe fn change(
        &self,
        slot: *mut TupleTableSlot,
        planned: *mut TupleTableSlot,
    ) -> Outcome<u64> {
        // SAFETY: the executor's rows.
        unsafe {
            let Some(address) = get(planned, i32::from(self.address)) else {
                pgrx::error!("ctid is NULL");
            };
            let affected = self.in_scratch(|| {
                let mut values = vec![Some(self.of_address.text(address))];
                values.extend(self.values(&[slot]));
                self.run(&self.sql, values, 1)
            })?;
            if affected > 0 {
                self.store(slot);
            }
            Ok(affected)
        }
    }
}

/// What rows are inserted with.
unsafe fn inserter<'a>(result: *mut ResultRelInfo) -> &'a Modify {
    // SAFETY: begun before a row is inserted.
    unsafe {
        let modify = modify_of(result).expect("a foreign table's INSERT has begun");
        modify.routed.as_deref().unwrap_or(modify)
    }
}

#[pg_guard]
pub unsafe extern "C-unwind" fn insert(
    _estate: *mut EState,
    result: *mut ResultRelInfo,
    slot: *mut TupleTableSlot,
    _planned: *mut TupleTableSlot,
) -> *mut TupleTableSlot {
    // SAFETY: the executor's state.
    let affected = unsafe { raised(inserter(result).insert(&[slot])) };
    if affected > 0 {
        slot
    } else {
        std::ptr::null_mut()
    }
}

#[pg_guard]
pub unsafe extern "C-unwind" fn insert_batch(
    _estate: *mut EState,
    result: *mut ResultRelInfo,
    slots: *mut *mut TupleTableSlot,
    _planned: *mut *mut TupleTableSlot,
    count: *mut c_int,
) -> *mut *mut TupleTableSlot {
    // SAFETY: the executor's state; an array of that length.
    unsafe {
        let rows = std::slice::from_raw_parts(slots, *count as usize);
        let affected = raised(inserter(result).insert(rows));
        *count = affected as c_int;
        if affected > 0 {
            slots
        } else {
            std::ptr::null_mut()
        }
    }
}

/// How many rows go together (postgres_fdw.c: postgresGetForeignModifyBatchSize).
#[pg_guard]
pub unsafe extern "C-unwind" fn batch(result: *mut ResultRelInfo) -> c_int {
    // SAFETY: the executor's state.
    unsafe {
        let triggers = (*result).ri_TrigDesc;
        let is_watched = !triggers.is_null()
            && ((*triggers).trig_insert_before_row || (*triggers).trig_insert_after_row);
        let needs_each = !(*result).ri_projectReturning.is_null()
            || !(*result).ri_WithCheckOptions.is_null()
            || is_watched;
        if needs_each {
            return 1;
        }
        match modify_of(result) {
            None => batch_size((*result).ri_RelationDesc),
            Some(modify) if modify.targets.is_empty() => 1,
            Some(modify) => {
                let each = modify.columns().count();
                modify.batch.min((MOST_PARAMETERS / each.max(1)) as c_int)
            }
        }
    }
}

/// UPDATE and DELETE of one row.
#[pg_guard]
pub unsafe extern "C-unwind" fn change(
    _estate: *mut EState,
    result: *mut ResultRelInfo,
    slot: *mut TupleTableSlot,
    planned: *mut TupleTableSlot,
) -> *mut TupleTableSlot {
    // SAFETY: the executor's state.
    let affected = unsafe {
        let modify = modify_of(result).expect("a foreign table's UPDATE or DELETE has begun");
        raised(modify.change(slot, planned))
    };
    if affected > 0 {
        slot
    } else {
        std::ptr::null_mut()
    }
}

#[pg_guard]
pub unsafe extern "C-unwind" fn end(_estate: *mut EState, _result: *mut ResultRelInfo) {
    // The memory goes with the statement's.
}
