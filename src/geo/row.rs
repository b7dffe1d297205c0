//! A row of a node's answer becomes a tuple.

use crate::pg::libpq::Answer;
use crate::pg::local::Local;
use crate::pg::nodes::{length, nth};
use crate::pg::raw;
use pgrx::pg_sys::{self, Datum, Oid};
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

/// The attribute number of a tuple's address.
pub const CTID: i32 = pg_sys::SelfItemPointerAttributeNumber;

/// How the columns of an answer are made into those of a tuple.
pub struct Conversion {
    input: *mut pg_sys::AttInMetadata,
    /// For each column of the answer, the attribute it is of.
    attributes: Vec<i32>,
    /// For messages: the scan, or else the relation.
    scan: *mut pg_sys::ForeignScanState,
    relation: pg_sys::Relation,
    scratch: pg_sys::MemoryContext,
}

/// The values of a row.
pub struct Row {
    pub values: Vec<Datum>,
    pub nulls: Vec<bool>,
    pub address: Option<pg_sys::ItemPointerData>,
}

/// Where a conversion is, for its error's context.
#[derive(Clone, Copy)]
struct Place {
    conversion: *const Conversion,
    attribute: i32,
}

/// Our line of context, as long as a conversion runs.
struct Told(*mut pg_sys::ErrorContextCallback);

impl Drop for Told {
    fn drop(&mut self) {
        // SAFETY: what was there before, in a frame around this one; the place of this frame.
        unsafe {
            let (before, place) = ((*self.0).previous, *(*self.0).arg.cast::<Place>());
            pg_sys::error_context_stack = match std::thread::panicking() {
                true => leave(before, place),
                false => before,
            };
        }
    }
}

/// The line of a conversion whose ERROR unwinds.
struct Left {
    place: Place,
    callback: pg_sys::ErrorContextCallback,
}

static LEFT: Local<UnsafeCell<MaybeUninit<Left>>> =
    Local::new(UnsafeCell::new(MaybeUninit::uninit()));

/// An ERROR unwinds, and is raised anew at the end of our frames: it is told where it has come
/// from only then. Whoever catches it takes the line off, as all lines are.
fn leave(
    previous: *mut pg_sys::ErrorContextCallback,
    place: Place,
) -> *mut pg_sys::ErrorContextCallback {
    // SAFETY: one ERROR unwinds at a time, and this process has one thread. The conversion lives as
    // long as its statement, which has not ended yet.
    unsafe {
        let left = (*LEFT.get()).as_mut_ptr();
        left.write(Left {
            place,
            callback: pg_sys::ErrorContextCallback {
                previous,
                callback: Some(say),
                arg: (&raw mut (*left).place).cast(),
            },
        });
        &raw mut (*left).callback
    }
}

impl Conversion {
    /// # Safety
    /// A descriptor, and one of a scan's state or an open relation, which outlive this, as does the
    /// memory context that is current.
    pub unsafe fn new(
        descriptor: pg_sys::TupleDesc,
        attributes: Vec<i32>,
        scan: *mut pg_sys::ForeignScanState,
        relation: pg_sys::Relation,
    ) -> Conversion {
        // SAFETY: the caller's descriptor and memory context outlive this.
        unsafe {
            Conversion {
                input: pg_sys::TupleDescGetAttInMetadata(descriptor),
                attributes,
                scan,
                relation,
                scratch: pg_sys::AllocSetContextCreateInternal(
                    pg_sys::CurrentMemoryContext,
                    c"txn: a row of a node".as_ptr(),
                    0,
                    1024,
                    8192,
                ),
            }
        }
    }

    pub fn descriptor(&self) -> pg_sys::TupleDesc {
        // SAFETY: made by TupleDescGetAttInMetadata.
        unsafe { (*self.input).tupdesc }
    }

    /// The row's values, in a context that `done` empties. Raises what input functions raise.
    pub fn read(&self, answer: &Answer, row: i32) -> Row {
        // SAFETY: the context is ours; it is put back, or the ERROR's handler does that.
        unsafe {
            let before = pg_sys::CurrentMemoryContext;
            pg_sys::CurrentMemoryContext = self.scratch;
            let mut place = Place {
                conversion: self,
                attribute: 0,
            };
            let mut callback = pg_sys::ErrorContextCallback {
                previous: pg_sys::error_context_stack,
                callback: Some(say),
                arg: (&raw mut place).cast(),
            };
            pg_sys::error_context_stack = &raw mut callback;
            let told = Told(&raw mut callback);
            let read = self.read_in(answer, row, &mut place);
            drop(told);
            pg_sys::CurrentMemoryContext = before;
            read
        }
    }

    fn read_in(&self, answer: &Answer, row: i32, place: &mut Place) -> Row {
        // SAFETY: as in `descriptor`.
        let count = unsafe { (*self.descriptor()).natts } as usize;
        let mut read = Row {
            values: vec![Datum::from(0); count],
            nulls: vec![true; count],
            address: None,
        };
        // An answer without columns that are wanted has one, which is NULL.
        if !self.attributes.is_empty() && self.attributes.len() != answer.columns() as usize {
            pgrx::error!("remote query result does not match the foreign table");
        }
        for (column, &attribute) in self.attributes.iter().enumerate() {
            place.attribute = attribute;
            let text = answer.value(row, column as i32);
            let pointer = text.map_or(null(), CStr::as_ptr).cast_mut();
            if attribute > 0 {
                let at = attribute as usize - 1;
                read.nulls[at] = text.is_none();
                // SAFETY: within the descriptor; the type's input function. It is called for NULL
                // too, for domains.
                read.values[at] = unsafe {
                    pg_sys::InputFunctionCall(
                        (*self.input).attinfuncs.add(at),
                        pointer,
                        *(*self.input).attioparams.add(at),
                        *(*self.input).atttypmods.add(at),
                    )
                };
            } else if attribute == CTID && text.is_some() {
                read.address = Some(address(pointer));
            }
        }
        read
    }

    /// The row has been made into what is wanted: forgets its values.
    pub fn done(&self) {
        // SAFETY: the context is ours, and nothing in it is used any more.
        unsafe { pg_sys::MemoryContextReset(self.scratch) };
    }
}

fn address(text: *mut std::ffi::c_char) -> pg_sys::ItemPointerData {
    // SAFETY: tidin of a C string gives an ItemPointer.
    unsafe {
        let value = pg_sys::OidInputFunctionCall(pg_sys::F_TIDIN.into(), text, Oid::INVALID, -1);
        *value.cast_mut_ptr::<pg_sys::ItemPointerData>()
    }
}

/// Puts a row into a slot as a heap tuple, with its address where PostgreSQL looks for it
/// (postgres_fdw.c: make_tuple_from_result_row). The tuple lives as long as the slot has it: the
/// executor's current memory context may be emptied before.
///
/// # Safety
/// Values for that descriptor, and a slot for such rows.
pub unsafe fn store(
    slot: *mut pg_sys::TupleTableSlot,
    descriptor: pg_sys::TupleDesc,
    values: *mut Datum,
    nulls: *mut bool,
    address: Option<pg_sys::ItemPointerData>,
) {
    // SAFETY: by the contract; a new tuple of ours.
    unsafe {
        let before = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = (*slot).tts_mcxt;
        let tuple = pg_sys::heap_form_tuple(descriptor, values, nulls);
        let header = (*tuple).t_data;
        if let Some(address) = address {
            (*tuple).t_self = address;
            (*header).t_ctid = address;
        }
        // It was made as a datum is; the executor looks for transactions in the same place.
        (*header).t_choice.t_heap.t_xmin = pg_sys::InvalidTransactionId;
        (*header).t_choice.t_heap.t_xmax = pg_sys::InvalidTransactionId;
        (*header).t_choice.t_heap.t_field3.t_cid = 0;
        pg_sys::ExecForceStoreHeapTuple(tuple, slot, true);
        pg_sys::CurrentMemoryContext = before;
    }
}

/// The descriptor of a scan's rows. One of a join may say RECORD where a table's row is meant
/// (postgres_fdw.c: get_tupdesc_for_join_scan_tuples).
///
/// # Safety
/// `scan` is the state of a foreign scan that has been initialised.
pub unsafe fn descriptor_of(scan: *mut pg_sys::ForeignScanState) -> pg_sys::TupleDesc {
    // SAFETY: the caller's scan is initialised, so it has a plan, and a relation or a slot.
    unsafe {
        let plan = (*scan).ss.ps.plan.cast::<pg_sys::ForeignScan>();
        if (*plan).scan.scanrelid > 0 {
            return (*(*scan).ss.ss_currentRelation).rd_att;
        }
        let slot = (*scan).ss.ss_ScanTupleSlot;
        let descriptor = pg_sys::CreateTupleDescCopy((*slot).tts_tupleDescriptor);
        let count = (*descriptor).natts as usize;
        for n in 0..count.min(length((*plan).fdw_scan_tlist)) {
            let attribute = (*descriptor).attrs.as_mut_ptr().add(n);
            if (*attribute).atttypid != pg_sys::RECORDOID || (*attribute).atttypmod >= 0 {
                continue;
            }
            let entry: *mut pg_sys::TargetEntry = nth((*plan).fdw_scan_tlist, n);
            let variable = (*entry).expr.cast::<pg_sys::Var>();
            if (*variable).xpr.type_ != pg_sys::NodeTag::T_Var || (*variable).varattno != 0 {
                continue;
            }
            let range = (*(*scan).ss.ps.state).es_range_table;
            let entry: *mut pg_sys::RangeTblEntry = nth(range, (*variable).varno as usize - 1);
            if (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION {
                let of_row = pg_sys::get_rel_type_id((*entry).relid);
                if of_row != Oid::INVALID {
                    (*attribute).atttypid = of_row;
                }
            }
        }
        descriptor
    }
}

/// Says which column could not be converted. It looks at no catalog: the transaction has failed.
unsafe extern "C-unwind" fn say(place: *mut c_void) {
    // SAFETY: called by elog.c with the place of `read`.
    unsafe {
        let place = *place.cast::<Place>();
        let (table, column) = names(&place).unwrap_or((null_mut(), null_mut()));
        raw::set_errcontext_domain(c"postgres".as_ptr());
        if table.is_null() {
            let format = c"processing expression at position %d in select list".as_ptr();
            raw::errcontext_msg(format, place.attribute);
        } else if column.is_null() {
            let format = c"whole-row reference to foreign table \"%s\"".as_ptr();
            raw::errcontext_msg(format, table);
        } else {
            let format = c"column \"%s\" of foreign table \"%s\"".as_ptr();
            raw::errcontext_msg(format, column, table);
        }
    }
}

type Text = *mut std::ffi::c_char;

/// Table and column; the latter is null for a whole row.
unsafe fn names(place: &Place) -> Option<(Text, Text)> {
    // SAFETY: the scan's plan and range table, or the open relation.
    unsafe {
        let conversion = &*place.conversion;
        let mut number = place.attribute;
        if conversion.scan.is_null() {
            let table = (*(*conversion.relation).rd_rel).relname.data.as_mut_ptr();
            let column = match number {
                CTID => c"ctid".as_ptr().cast_mut(),
                n => {
                    let descriptor = (*conversion.relation).rd_att;
                    (*(*descriptor).attrs.as_mut_ptr().add(n as usize - 1))
                        .attname
                        .data
                        .as_mut_ptr()
                }
            };
            return Some((table, column));
        }
        let plan = (*conversion.scan).ss.ps.plan.cast::<pg_sys::ForeignScan>();
        let mut range = (*plan).scan.scanrelid as usize;
        if range == 0 {
            let list = (*plan).fdw_scan_tlist;
            if number < 1 || number as usize > length(list) {
                return None;
            }
            let entry: *mut pg_sys::TargetEntry = nth(list, number as usize - 1);
            let variable = (*entry).expr.cast::<pg_sys::Var>();
            if (*variable).xpr.type_ != pg_sys::NodeTag::T_Var {
                return None;
            }
            range = (*variable).varno as usize;
            number = i32::from((*variable).varattno);
        }
        let table = (*(*conversion.scan).ss.ps.state).es_range_table;
        let names = (*nth::<pg_sys::RangeTblEntry>(table, range - 1)).eref;
        let column = match number {
            0 => null_mut(),
            CTID => c"ctid".as_ptr().cast_mut(),
            n if n > 0 && n as usize <= length((*names).colnames) => {
                (*nth::<pg_sys::String>((*names).colnames, n as usize - 1)).sval
            }
            _ => return None,
        };
        Some(((*names).aliasname, column))
    }
}
