//! Rows of a node that wait to be asked for. They are in a tuplestore, which goes to disk beyond
//! `work_mem`.

use super::exchange::Rows;
use super::row::{Conversion, store};
use crate::pg::libpq::Answer;
use crate::pg::slot::{clear, get_all};
use pgrx::pg_sys::{self, Datum, TupleTableSlot};

pub struct Fetched {
    conversion: Conversion,
    /// With the address as one more column.
    descriptor: pg_sys::TupleDesc,
    store: *mut pg_sys::Tuplestorestate,
    /// The row that has been read from the store, as a minimal tuple with its address.
    slot: *mut TupleTableSlot,
}

impl Rows for Fetched {
    fn take(&self, answer: Answer) {
        for n in 0..answer.rows() {
            let mut row = self.conversion.read(&answer, n);
            row.nulls.push(row.address.is_none());
            let address = row.address.as_mut();
            row.values
                .push(address.map_or(Datum::from(0), |at| Datum::from(&raw mut *at)));
            // SAFETY: values for the store's descriptor; it copies them.
            unsafe {
                pg_sys::tuplestore_putvalues(
                    self.store,
                    self.descriptor,
                    row.values.as_mut_ptr(),
                    row.nulls.as_mut_ptr(),
                );
            }
            self.conversion.done();
        }
    }
}

impl Fetched {
    /// # Safety
    /// The memory context and the resource owner that are current outlive this, as do those things
    /// that the conversion needs.
    pub unsafe fn new(conversion: Conversion) -> Fetched {
        // SAFETY: the caller's memory context and resource owner outlive the slot and the store.
        unsafe {
            let descriptor = with_address(conversion.descriptor());
            Fetched {
                conversion,
                descriptor,
                store: pg_sys::tuplestore_begin_heap(false, false, pg_sys::work_mem),
                slot: pg_sys::MakeSingleTupleTableSlot(
                    descriptor,
                    &raw const pg_sys::TTSOpsMinimalTuple,
                ),
            }
        }
    }

    /// Puts the next row into the slot. False: there is none.
    ///
    /// # Safety
    /// `slot` is a slot for rows of the scan.
    pub unsafe fn next(&self, slot: *mut TupleTableSlot) -> bool {
        // SAFETY: our store and slot; by the contract.
        unsafe {
            // A row from the file is the slot's to free: it must not lie in the caller's context,
            // which may be emptied before.
            let before = pg_sys::CurrentMemoryContext;
            pg_sys::CurrentMemoryContext = (*self.slot).tts_mcxt;
            let is_there = pg_sys::tuplestore_gettupleslot(self.store, true, false, self.slot);
            pg_sys::CurrentMemoryContext = before;
            if !is_there {
                return false;
            }
            get_all(self.slot);
            let (values, nulls) = ((*self.slot).tts_values, (*self.slot).tts_isnull);
            let last = (*self.descriptor).natts as usize - 1;
            let address = (!*nulls.add(last))
                .then(|| *(*values.add(last)).cast_mut_ptr::<pg_sys::ItemPointerData>());
            store(slot, self.conversion.descriptor(), values, nulls, address);
            true
        }
    }

    /// The first row comes next.
    pub fn rewind(&self) {
        // SAFETY: our store.
        unsafe { pg_sys::tuplestore_rescan(self.store) };
    }

    /// Forgets all rows.
    pub fn clear(&self) {
        // SAFETY: our store, and the slot, which may point into it.
        unsafe {
            clear(self.slot);
            pg_sys::tuplestore_clear(self.store);
        }
    }

    /// Frees the rows and their file. Nothing else may be asked for any more.
    pub fn end(&self) {
        // SAFETY: our store, which nobody uses any more, and the slot, which may point into it.
        unsafe {
            clear(self.slot);
            pg_sys::tuplestore_end(self.store);
        }
    }
}

/// The descriptor with a column for the address.
unsafe fn with_address(of: pg_sys::TupleDesc) -> pg_sys::TupleDesc {
    // SAFETY: a valid descriptor; the new one has room for one column more.
    unsafe {
        let count = (*of).natts;
        let new = pg_sys::CreateTemplateTupleDesc(count + 1);
        for n in 1..=count {
            pg_sys::TupleDescCopyEntry(new, n as i16, of, n as i16);
        }
        pg_sys::TupleDescInitEntry(
            new,
            (count + 1) as i16,
            c"ctid".as_ptr(),
            pg_sys::TIDOID,
            -1,
            0,
        );
        new
    }
}
