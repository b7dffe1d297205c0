//! The table of an item, and the images of its keys.

use super::admit;
use super::partition::{self, Place};
use crate::pg::local::Local;
use crate::pg::{error, raw, rights};
use crate::range_occ::key::{self, Table};
use crate::range_occ::uses::{self, Use};
use crate::range_occ::value;
use ::lane::{Form, Item, Mode};
use keyrange::{COLUMNS, Interval, Relation, Value};
use pgrx::pg_sys::{self, Oid};
use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::rc::Rc;

/// Counts what may have led a name to another table.
static CHANGES: Local<Cell<u64>> = Local::new(Cell::new(0));

/// A definition of a table or of a schema has changed.
pub fn note_change() {
    CHANGES.set(CHANGES.get() + 1);
}

/// The table that an item names.
pub struct Target {
    name: String,
    /// `CHANGES` when the name has last led to the table.
    named_at: Cell<u64>,
    pub oid: Oid,
    /// Under which its keys are queued, and what is known of the key (`partition.rs`).
    pub relation: Relation,
    pub table: Rc<Table>,
}

/// Why an item cannot be declared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    NoTable,
    OtherMethod,
    NoKey,
    TooFewValues,
    TooManyValues,
}

/// Which names of tables are good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Names {
    /// One without a schema is looked for in the search path.
    Any,
    /// Only those with a schema: whoever uses them may have another search path.
    InFull,
}

/// The table of that name, as users write it. Whether somebody may use its schema is not asked.
///
/// # Safety
/// A C string with the syntax of a name of a table; nothing with a destructor is alive in the
/// callers.
pub unsafe fn find(name: *const c_char, good: Names) -> Result<Target, Unfit> {
    const SHARED: pg_sys::LOCKMODE = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
    // SAFETY: by the contract; the table is locked while it is looked at.
    unsafe {
        let parts = parts_of(name);
        let is_good = good == Names::Any || !parts.schemaname.is_null();
        let mut oid = if is_good { named(parts) } else { Oid::INVALID };
        let found = loop {
            if oid == Oid::INVALID {
                return Err(Unfit::NoTable);
            }
            raw::LockRelationOid(oid, SHARED);
            // Another session may have dropped the table before it gave the lock back, or have given
            // the name to another table (namespace.c: RangeVarGetRelidExtended).
            let now = named(parts);
            if now == oid {
                break look_at(oid);
            }
            raw::UnlockRelationOid(oid, SHARED);
            oid = now;
        };
        raw::UnlockRelationOid(oid, SHARED);
        let Place { relation, table } = found?;
        Ok(Target {
            name: CStr::from_ptr(name).to_string_lossy().into_owned(),
            named_at: Cell::new(CHANGES.get()),
            oid,
            relation,
            table,
        })
    }
}

/// A name's parts, in the current memory context.
///
/// # Safety
/// A C string with the syntax of a name of a table.
unsafe fn parts_of<'a>(name: *const c_char) -> &'a pg_sys::RangeVar {
    // SAFETY: by the contract; the parser's own functions.
    unsafe {
        let names = raw::stringToQualifiedNameList(name, std::ptr::null_mut());
        &*raw::makeRangeVarFromNameList(names)
    }
}

/// The relation of that name, invalid if there is none.
///
/// # Safety
/// `name` has the parts of a name.
unsafe fn named(name: &pg_sys::RangeVar) -> Oid {
    // SAFETY: by the contract; catalog look-ups that raise nothing for what is not there.
    unsafe {
        if !name.catalogname.is_null() {
            let database = raw::get_database_oid(name.catalogname, true);
            if database != pg_sys::MyDatabaseId {
                return Oid::INVALID;
            }
        }
        if name.schemaname.is_null() {
            return raw::RelnameGetRelid(name.relname);
        }
        let schema = raw::get_namespace_oid(name.schemaname, true);
        if schema == Oid::INVALID {
            return Oid::INVALID;
        }
        raw::get_relname_relid(name.relname, schema)
    }
}

/// What is known of the table, if its keys can be declared. It need not be in the cache of tables:
/// somebody may have changed a definition meanwhile.
///
/// # Safety
/// It is locked, if it is there; nothing with a destructor is alive in the callers.
unsafe fn look_at(oid: Oid) -> Result<Place, Unfit> {
    // SAFETY: the caller has locked the table if it is there, so it can be opened.
    unsafe {
        if !matches!(uses::known_use(oid), Use::Ours | Use::Partitioned) {
            return Err(Unfit::OtherMethod);
        }
        let rel = raw::RelationIdGetRelation(oid);
        if rel.is_null() {
            return Err(Unfit::NoTable);
        }
        let place = partition::place_of(rel);
        raw::RelationClose(rel);
        match place.table.layout {
            Some(_) => Ok(place),
            None => Err(Unfit::NoKey),
        }
    }
}

/// Rights of which one is needed to declare keys for writing.
const WRITES: u32 = pg_sys::ACL_INSERT | pg_sys::ACL_UPDATE | pg_sys::ACL_DELETE;

fn may_declare(table: Oid, role: Oid, mode: Mode) -> bool {
    let modes = match mode {
        Mode::Read => pg_sys::ACL_SELECT,
        Mode::Write => WRITES,
    };
    rights::may_use(table, role, modes) && !rights::hides_rows(table, role)
}

/// The first table of the items in which the role must not keep writers from so many rows: for more
/// than one key it must be able to write to the table, or to the partitioned table.
pub fn first_too_wide(role: Oid) -> Option<Oid> {
    let mut n = 0;
    while let Some(item) = admit::item(n) {
        let table = key::oid_of(item.relation);
        if item.is_wide() && !may_declare(table, role, Mode::Write) {
            return Some(table);
        }
        n += 1;
    }
    None
}

/// Whether the role may declare such keys.
pub fn may_declare_item(role: Oid, item: &Item) -> bool {
    let mode = if item.is_wide() {
        Mode::Write
    } else {
        item.mode
    };
    may_declare(key::oid_of(item.relation), role, mode)
}

fn lock_mode(mode: Mode) -> pg_sys::LOCKMODE {
    let mode = match mode {
        Mode::Read => pg_sys::AccessShareLock,
        Mode::Write => pg_sys::RowExclusiveLock,
    };
    mode as pg_sys::LOCKMODE
}

impl Target {
    /// Locks the table as those do who read or write it.
    pub fn lock(&self, mode: Mode) {
        // SAFETY: in a transaction, which gives the lock back should an ERROR come.
        unsafe { raw::LockRelationOid(self.oid, lock_mode(mode)) };
    }

    /// Takes that back.
    pub fn unlock(&self, mode: Mode) {
        // SAFETY: `lock` has been called in the same command.
        unsafe { raw::UnlockRelationOid(self.oid, lock_mode(mode)) };
    }

    /// Whether it is that table, or its keys are those of that table.
    pub fn is_of(&self, oid: Oid) -> bool {
        self.oid == oid || key::oid_of(self.relation) == oid
    }

    /// Whether the name still leads to the table, and its keys have the images and the queue that
    /// they had when it was found. It is locked.
    pub fn is_as_found(&self) -> bool {
        let changes = CHANGES.get();
        if self.named_at.get() != changes {
            // SAFETY: `find` has read the name.
            let oid = unsafe { named(parts_of(error::in_c(&self.name))) };
            if oid != self.oid {
                return false;
            }
            self.named_at.set(changes);
        }
        // SAFETY: the caller has locked the table.
        let found = unsafe { look_at(self.oid) };
        found.is_ok_and(|now| now.relation == self.relation && now.table.has_same_key(&self.table))
    }

    /// Whether the item has as many values as the table's key has columns.
    pub fn check(&self, form: &Form) -> Result<(), Unfit> {
        let (given, columns) = (form.values.len(), self.table.columns.len());
        if given > COLUMNS || given > columns && self.table.is_whole_key {
            Err(Unfit::TooManyValues)
        } else if given < columns && !form.is_open {
            Err(Unfit::TooFewValues)
        } else {
            Ok(())
        }
    }

    /// Whether that role may declare keys of the table: it may read it, or write to it, and no row
    /// is hidden from it. Keys of a partition may be those of other partitions, so the partitioned
    /// table is asked.
    pub fn may_be_declared(&self, role: Oid, mode: Mode) -> bool {
        may_declare(key::oid_of(self.relation), role, mode)
    }

    /// A value of one of its columns as text. None if it is none.
    ///
    /// # Safety
    /// Nothing with a destructor is alive in the callers.
    pub unsafe fn read(&self, column: usize, text: &str) -> Option<pg_sys::Datum> {
        // SAFETY: a built-in type's input function, which tells of bad input without an error.
        unsafe {
            let text = error::in_c(text);
            let typ = self.table.columns.get(column)?.typ;
            let (mut function, mut parameter) = (Oid::INVALID, Oid::INVALID);
            raw::getTypeInputInfo(typ, &mut function, &mut parameter);
            let mut call = pg_sys::FmgrInfo::default();
            raw::fmgr_info(function, &mut call);
            let mut quiet = pg_sys::ErrorSaveContext {
                type_: pg_sys::NodeTag::T_ErrorSaveContext,
                ..Default::default()
            };
            let mut value = pg_sys::Datum::from(0);
            let is_one = raw::InputFunctionCallSafe(
                &mut call,
                text.cast_mut(),
                parameter,
                -1,
                (&raw mut quiet).cast(),
                &mut value,
            );
            is_one.then_some(value)
        }
    }

    /// A value of one of its columns as text.
    ///
    /// # Errors
    /// 22P02 and the like if it is none.
    ///
    /// # Safety
    /// Nothing with a destructor is alive in the callers.
    pub unsafe fn convert(&self, column: usize, text: &str) -> pg_sys::Datum {
        // SAFETY: a built-in type's input function.
        unsafe {
            let text = error::in_c(text);
            let (mut function, mut parameter) = (Oid::INVALID, Oid::INVALID);
            let typ = self.table.columns[column].typ;
            raw::getTypeInputInfo(typ, &mut function, &mut parameter);
            raw::OidInputFunctionCall(function, text.cast_mut(), parameter, -1)
        }
    }

    /// The images of the keys with these values, which are of these types, in their first columns.
    ///
    /// # Safety
    /// Values of their types; within `value::with_scratch`.
    pub unsafe fn image(&self, values: &[(pg_sys::Datum, Oid)]) -> Interval {
        let Some(layout) = &self.table.layout else {
            return Interval::ALL;
        };
        let mut known = [Value::Unknown; COLUMNS];
        for ((place, column), &(datum, typ)) in
            known.iter_mut().zip(&self.table.columns).zip(values)
        {
            // SAFETY: the caller's value is of its type, and this runs within
            // `value::with_scratch`.
            *place = unsafe { value::of_datum(column.typ, typ, datum) };
        }
        layout.image(&known[..values.len().min(self.table.columns.len())])
    }
}
