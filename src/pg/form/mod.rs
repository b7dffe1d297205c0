//! The form of an UPDATE: what it does to its row, as bytes that two sessions can compare, and the
//! arguments that make the difference between them.
//!
//! Only what cannot depend on the session has a form: columns of the row, constants, parameters,
//! PostgreSQL's own arithmetic, comparisons and casts of plain types, and the conditionals around
//! them (`expression.rs`). Such an expression computes the same in every session, fast, needs no
//! snapshot, reads no table, and an error in it leaves nothing behind. The time of the transaction
//! and of the statement are arguments, and a time zone that matters is part of the form.

mod expression;
pub mod lift;
mod values;

pub use expression::is_portable;

use super::column_triggers::program::{Op, Program};
use super::nodes::{length, nodes, nth, relation_of, tag};
use super::raw;
use hotrow::{ARGUMENT_BYTES, FORM_BYTES, RESULT_BYTES};
use pgrx::pg_sys::{self, NodeTag, Oid, TupleTableSlot};
use std::ffi::CStr;
use values::{Bytes, Reader};

/// Parameters that a statement may have, and columns that it may return.
const PARAMETERS: usize = 16;

/// The form of a statement.
#[derive(Clone, Copy)]
pub struct Form {
    bytes: Bytes<FORM_BYTES>,
    /// Ids of the parameters, in the order of the arguments.
    parameters: [(i32, Oid); PARAMETERS],
    parameter_count: usize,
    /// The only table, by its number in the range table.
    table: i32,
    /// The expression is a trigger's, of OLD and NEW.
    in_trigger: bool,
    /// An expression asks for the transaction's or the statement's time.
    reads_clock: bool,
    /// And that, or another value, depends on the time zone.
    reads_zone: bool,
    /// Types of what RETURNING returns.
    returned: [Oid; PARAMETERS],
    returned_count: usize,
    /// Columns that change, by number; bit 0 stands for all beyond the 63rd.
    pub changed: u64,
}

/// What one session tells another of its row, as bytes.
pub type Returned = Bytes<RESULT_BYTES>;

impl Form {
    fn empty(table: i32) -> Form {
        Form {
            bytes: Bytes::new(),
            parameters: [(0, Oid::INVALID); PARAMETERS],
            parameter_count: 0,
            table,
            in_trigger: false,
            reads_clock: false,
            reads_zone: false,
            returned: [Oid::INVALID; PARAMETERS],
            returned_count: 0,
            changed: 0,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        self.bytes.slice()
    }

    /// A digest for a first comparison.
    pub fn digest(&self) -> u64 {
        self.bytes()
            .chunks(8)
            .fold(0xcbf2_9ce4_8422_2325, |hash, chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                (hash ^ u64::from_le_bytes(word))
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    .rotate_left(23)
            })
    }

    /// The form of a plain `UPDATE ... WHERE key = value`, if it has one, together with what the
    /// table's triggers do. It finds its row by an index scan or a sequential scan.
    ///
    /// # Safety
    /// `plan` is a valid plan that comes to no other row of its table (`Target::is_only`).
    /// `triggers` is null or what its BEFORE triggers do (`Target::is_only_beside_triggers`).
    pub unsafe fn of_plan(
        plan: *const pg_sys::PlannedStmt,
        triggers: *const Program,
    ) -> Option<Form> {
        // SAFETY: plan trees are read as the executor reads them; every node is checked by its tag.
        unsafe {
            let top = (*plan).planTree;
            if tag(top) != NodeTag::T_ModifyTable
                || (*plan).hasModifyingCTE
                || (*plan).dependsOnRole
                || !(*plan).canSetTag
                || !(*plan).rowMarks.is_null()
            {
                return None;
            }
            let modify = top.cast::<pg_sys::ModifyTable>();
            let scan = (*top).lefttree;
            if (*modify).operation != pg_sys::CmdType::CMD_UPDATE
                || (*modify).rootRelation != 0
                || !(*modify).withCheckOptionLists.is_null()
                || length((*modify).returningLists) > 1
                || !(*modify).rowMarks.is_null()
                || length((*modify).updateColnosLists) != 1
                || !(*scan).initPlan.is_null()
                || !(*top).initPlan.is_null()
            {
                return None;
            }
            let index_quals = match tag(scan) {
                NodeTag::T_IndexScan => (*scan.cast::<pg_sys::IndexScan>()).indexqualorig,
                NodeTag::T_SeqScan => std::ptr::null_mut(),
                _ => return None,
            };
            let table = (*scan.cast::<pg_sys::Scan>()).scanrelid;
            let mut form = Form::empty(table as i32);
            let relation = relation_of(plan, table);
            form.bytes.put_number(u32::from(relation))?;
            // The holder of the ticket makes the commit record of those whose updates it does, and
            // they are visible with it.
            form.bytes.put_number(level_of_commit())?;
            let columns = nth::<pg_sys::List>((*modify).updateColnosLists, 0);
            form.bytes.put_number(length(columns) as u32)?;
            for n in 0..length(columns) {
                let number = (*(*columns).elements.add(n)).int_value as u32;
                form.changes(number);
                form.bytes.put_number(number)?;
            }
            for entry in nodes((*scan).targetlist) {
                let entry = entry.cast::<pg_sys::TargetEntry>();
                if (*entry).resjunk {
                    form.bytes.put_number(u32::MAX)?;
                } else {
                    form.expression((*entry).expr.cast())?;
                }
            }
            for list in [index_quals, (*scan).qual] {
                form.expressions(list)?;
            }
            form.returning(if (*plan).hasReturning {
                nth((*modify).returningLists, 0)
            } else {
                std::ptr::null()
            })?;
            form.triggers(triggers.as_ref())?;
            form.zone()?;
            Some(form)
        }
    }

    /// The time zone, where it matters.
    fn zone(&mut self) -> Option<()> {
        if !self.reads_zone {
            return Some(());
        }
        // SAFETY: the session's time zone has a name, which ends with a zero.
        unsafe {
            let zone = raw::pg_get_timezone_name(pg_sys::session_timezone);
            self.bytes.put(CStr::from_ptr(zone).to_bytes())
        }
    }

    unsafe fn returning(&mut self, list: *const pg_sys::List) -> Option<()> {
        // SAFETY: as in `of_plan`.
        unsafe {
            self.bytes.put_number(length(list) as u32)?;
            for entry in nodes(list) {
                let value = (*entry.cast::<pg_sys::TargetEntry>()).expr.cast();
                let typ = raw::exprType(value);
                if !values::can_be_sent(typ) {
                    return None;
                }
                *self.returned.get_mut(self.returned_count)? = typ;
                self.returned_count += 1;
                self.expression(value)?;
            }
            Some(())
        }
    }

    /// What the triggers do after the statement has set its columns.
    unsafe fn triggers(&mut self, program: Option<&Program>) -> Option<()> {
        let ops = program.map_or(&[][..], Program::ops);
        self.bytes.put_number(ops.len() as u32)?;
        self.in_trigger = true;
        for op in ops {
            let (what, expression) = match *op {
                Op::Set { column, value } => {
                    self.changes(u32::from(column.unsigned_abs()));
                    ([1, u32::from(column.unsigned_abs())], value)
                }
                Op::Unless { condition, to } => ([2, to as u32], condition),
                Op::Go { to } => ([3, to as u32], std::ptr::null_mut()),
            };
            what.into_iter()
                .try_for_each(|n| self.bytes.put_number(n))?;
            if !expression.is_null() {
                // SAFETY: as in `of_plan`.
                unsafe { self.expression(expression.cast())? };
            }
        }
        self.in_trigger = false;
        Some(())
    }

    fn changes(&mut self, column: u32) {
        self.changed |= 1u64 << if column < 64 { column } else { 0 };
    }

    /// Whether the statement has a RETURNING list.
    pub fn returns(&self) -> bool {
        self.returned_count > 0
    }

    fn returned(&self) -> &[Oid] {
        &self.returned[..self.returned_count]
    }

    /// What RETURNING has computed into that slot, as bytes. None if it is too long.
    ///
    /// # Safety
    /// The slot holds a row of the statement's RETURNING list.
    pub unsafe fn pack_returned(&self, row: *const TupleTableSlot) -> Option<Returned> {
        let mut bytes = Bytes::new();
        for (n, &typ) in self.returned().iter().enumerate() {
            // SAFETY: by the contract the slot has as many values, of these types.
            unsafe {
                let (value, is_null) = ((*row).tts_values.add(n), (*row).tts_isnull.add(n));
                bytes.put_value(typ, *value, *is_null)?;
            }
        }
        Some(bytes)
    }

    /// Puts a row that another session has packed into the empty slot. False if it is none of this
    /// form.
    ///
    /// # Safety
    /// The slot is that of the statement's RETURNING list.
    pub unsafe fn unpack_returned(&self, bytes: &[u8], row: *mut TupleTableSlot) -> bool {
        let mut reader = Reader::new(bytes);
        for (n, &typ) in self.returned().iter().enumerate() {
            let Some((value, is_null)) = reader.value(typ) else {
                return false;
            };
            // SAFETY: by the contract the slot has room for as many values.
            unsafe {
                *(*row).tts_values.add(n) = value;
                *(*row).tts_isnull.add(n) = is_null;
            }
        }
        true
    }

    fn parameter(&mut self, id: i32, typ: Oid) -> Option<()> {
        let known = &self.parameters[..self.parameter_count];
        if !known.contains(&(id, typ)) {
            *self.parameters.get_mut(self.parameter_count)? = (id, typ);
            self.parameter_count += 1;
        }
        Some(())
    }

    fn parameters(&self) -> &[(i32, Oid)] {
        &self.parameters[..self.parameter_count]
    }

    /// The statement's arguments as bytes, if they fit and come as plain values.
    ///
    /// # Safety
    /// `query` is a query of this form.
    pub unsafe fn arguments(
        &self,
        query: *const pg_sys::QueryDesc,
    ) -> Option<Bytes<ARGUMENT_BYTES>> {
        let mut bytes = Bytes::new();
        // SAFETY: the list has `numParams` parameters, and no hook makes others of them.
        unsafe {
            if self.reads_clock {
                let clock = Clock::present();
                bytes.put_long(clock.transaction as u64)?;
                bytes.put_long(clock.statement as u64)?;
            }
            let list = (*query).params;
            for &(id, typ) in self.parameters() {
                if list.is_null()
                    || (*list).paramFetch.is_some()
                    || (*list).paramCompile.is_some()
                    || id <= 0
                    || id > (*list).numParams
                {
                    return None;
                }
                let value = (*list).params.as_ptr().add(id as usize - 1);
                if (*value).ptype != typ {
                    return None;
                }
                bytes.put_value(typ, (*value).value, (*value).isnull)?;
            }
        }
        Some(bytes)
    }
}

/// How durable a commit is before it is visible.
fn level_of_commit() -> u32 {
    // SAFETY: a plain read of a setting.
    unsafe { pg_sys::synchronous_commit as u32 }
}

/// When a transaction and its statement began.
#[derive(Clone, Copy)]
struct Clock {
    transaction: pg_sys::TimestampTz,
    statement: pg_sys::TimestampTz,
}

impl Clock {
    fn present() -> Clock {
        // SAFETY: both read backend state.
        unsafe {
            Clock {
                transaction: raw::GetCurrentTransactionStartTimestamp(),
                statement: raw::GetCurrentStatementStartTimestamp(),
            }
        }
    }

    /// What now() and the like tell from here on, as in a parallel worker.
    fn set(self) {
        // SAFETY: sets backend state. The function asserts that it runs in a parallel worker.
        unsafe {
            let own = pg_sys::ParallelWorkerNumber;
            pg_sys::ParallelWorkerNumber = 0;
            raw::SetParallelStartTimestamps(self.transaction, self.statement);
            pg_sys::ParallelWorkerNumber = own;
        }
    }
}

/// A query's own arguments, while it has those of another session.
pub struct Arguments {
    own: [pg_sys::ParamExternData; PARAMETERS],
    clock: Clock,
}

impl Arguments {
    /// Keeps the query's own arguments.
    ///
    /// # Safety
    /// `query` has the form, and its `arguments` are some.
    pub unsafe fn save(form: &Form, query: *const pg_sys::QueryDesc) -> Self {
        let mut own = [pg_sys::ParamExternData::default(); PARAMETERS];
        for (place, &(id, _)) in own.iter_mut().zip(form.parameters()) {
            // SAFETY: the caller's query has the form, so it has arguments of these numbers.
            *place = unsafe { *(*(*query).params).params.as_ptr().add(id as usize - 1) };
        }
        Arguments {
            own,
            clock: Clock::present(),
        }
    }

    /// Puts the query's own arguments back.
    ///
    /// # Safety
    /// As for `save`, with the same query.
    pub unsafe fn restore(&self, form: &Form, query: *const pg_sys::QueryDesc) {
        if form.reads_clock {
            self.clock.set();
        }
        for (own, &(id, _)) in self.own.iter().zip(form.parameters()) {
            // SAFETY: the caller's query is that of `save`, so it has arguments of these numbers.
            unsafe { *(*(*query).params).params.as_mut_ptr().add(id as usize - 1) = *own };
        }
    }

    /// Gives the query these arguments, which another session has made by `Form::arguments` with
    /// the same form. They are valid until the next ones.
    ///
    /// # Safety
    /// As for `save`, with the same query.
    pub unsafe fn replace(
        &self,
        form: &Form,
        query: *const pg_sys::QueryDesc,
        bytes: &[u8],
    ) -> Option<()> {
        let mut reader = Reader::new(bytes);
        if form.reads_clock {
            let (transaction, statement) = (reader.long()? as i64, reader.long()? as i64);
            Clock {
                transaction,
                statement,
            }
            .set();
        }
        for &(id, typ) in form.parameters() {
            let (value, is_null) = reader.value(typ)?;
            // SAFETY: by the contract the parameter is there, with this type.
            unsafe {
                let param = (*(*query).params).params.as_mut_ptr().add(id as usize - 1);
                (*param).value = value;
                (*param).isnull = is_null;
            }
        }
        Some(())
    }
}
