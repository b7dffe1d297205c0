//! The key of a table, its primary key or replica identity, and what it says of the table's rows.

mod build;

pub(in crate::pg) use build::build;

use super::image::{Form, Image, Shape, identity_of_number};
use super::raw;
use super::tuple::attribute;
use hotrow::{Identity, KEY_COLUMNS, LABEL_BYTES};
use pgrx::pg_sys::{self, Datum, Oid};
use std::ffi::{CStr, c_int};

/// Key columns of an identity; a key with more is not followed.
const MAX_COLUMNS: usize = KEY_COLUMNS;
#[derive(Clone, Copy)]
struct Column {
    number: i16,
    shape: Shape,
    typ: Oid,
    collation: Oid,
}

/// The key of one table.
#[derive(Clone, Copy)]
pub struct Key {
    pub(super) relation: Oid,
    /// All indexes are checked at once, by equality: none is deferrable, none an exclusion
    /// constraint.
    simple_indexes: bool,
    /// See `has_plain_unique_indexes`.
    plain_unique: bool,
    /// See `has_row_triggers`.
    row_triggers: bool,
    /// See `has_before_statement_triggers`.
    before_statement_triggers: bool,
    /// See `has_deferrable_triggers`.
    deferrable_triggers: bool,
    /// See `is_plain`.
    plain: bool,
    /// See `can_combine`.
    combines: bool,
    has_generated: bool,
    /// See `is_bytewise`.
    bytewise: bool,
    /// The index of the key.
    index: Oid,
    /// Columns with a foreign key, by number; bit 0 stands for all beyond the 63rd.
    referencing: u64,
    pub(super) count: usize,
    columns: [Column; MAX_COLUMNS],
}

const NO_COLUMN: Column = Column {
    number: 0,
    shape: Shape::by_value(0),
    typ: Oid::INVALID,
    collation: Oid::INVALID,
};
pub(super) const NO_KEY: Key = Key {
    relation: Oid::INVALID,
    simple_indexes: false,
    plain_unique: false,
    row_triggers: false,
    before_statement_triggers: false,
    deferrable_triggers: false,
    plain: false,
    combines: false,
    has_generated: false,
    bytewise: false,
    index: Oid::INVALID,
    referencing: 0,
    count: 0,
    columns: [NO_COLUMN; MAX_COLUMNS],
};

impl Key {
    /// The highest column number of the key.
    fn last(&self) -> i16 {
        self.columns().iter().map(|c| c.number).max().unwrap_or(0)
    }

    fn columns(&self) -> &[Column] {
        &self.columns[..self.count]
    }

    /// Place of a table column in the key.
    pub fn position(&self, attribute: i16) -> Option<usize> {
        self.columns().iter().position(|c| c.number == attribute)
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether that is its own index, a btree, which leads to no other row.
    pub fn is_of(&self, index: Oid) -> bool {
        self.index == index
    }

    /// Its index.
    pub fn index(&self) -> Oid {
        self.index
    }

    /// The numbers of its columns.
    pub fn numbers(&self) -> impl Iterator<Item = i16> {
        self.columns().iter().map(|column| column.number)
    }

    /// The numbers of its columns, in an array; 0 stands for none.
    pub fn columns_of_label(&self) -> [i16; KEY_COLUMNS] {
        self.columns.map(|column| column.number)
    }

    /// Whether an update of these columns (numbers offset by FirstLowInvalidHeapAttributeNumber)
    /// may change the key.
    pub fn touched_by(&self, updated: *const pg_sys::Bitmapset) -> bool {
        let offset = -pg_sys::FirstLowInvalidHeapAttributeNumber;
        // SAFETY: a bitmapset of the range table, or null.
        self.columns()
            .iter()
            .any(|c| unsafe { raw::bms_is_member(c_int::from(c.number) + offset, updated) })
    }

    /// Whether UPDATE fires row triggers of users.
    pub fn has_row_triggers(&self) -> bool {
        self.row_triggers
    }

    /// Whether UPDATE fires triggers before it comes to the first row.
    pub fn has_before_statement_triggers(&self) -> bool {
        self.before_statement_triggers
    }

    /// Whether triggers may look at an updated row as late as at the commit. By then the version
    /// that it was built on may be gone, because its writer has rolled back.
    pub fn has_deferrable_triggers(&self) -> bool {
        self.deferrable_triggers
    }

    /// Whether the executor does nothing for an updated row but check its constraints and make its
    /// index entries.
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// Whether an update that changes these columns does nothing but that and what BEFORE triggers
    /// do, so that another transaction can do it. Each column has a bit; bit 0 stands for those
    /// beyond the 63rd.
    pub fn can_combine(&self, changed: u64) -> bool {
        self.combines && self.referencing & changed == 0
    }

    /// Whether index checks look at nothing but equal keys, and at once.
    pub fn has_simple_indexes(&self) -> bool {
        self.simple_indexes
    }

    /// Whether no unique index has an expression or a predicate, and all are checked at once: an
    /// update that does not set HEAP_KEYS_UPDATED leaves the keys of all of them alone
    /// (RelationGetIndexAttrBitmap).
    pub fn has_plain_unique_indexes(&self) -> bool {
        self.plain_unique && self.simple_indexes
    }

    /// Whether two keys are equal only if their bytes are.
    pub fn is_bytewise(&self) -> bool {
        self.bytewise
    }

    /// Whether a value of that type has the bytes that the column's own type has.
    pub fn takes(&self, position: usize, typ: Oid) -> bool {
        let integer = |t: Oid| matches!(t, pg_sys::INT2OID | pg_sys::INT4OID | pg_sys::INT8OID);
        let text = |t: Oid| matches!(t, pg_sys::TEXTOID | pg_sys::VARCHAROID);
        let own = self.columns[position].typ;
        typ == own || (integer(typ) && integer(own)) || (text(typ) && text(own))
    }

    /// The identity of the row in a slot.
    ///
    /// # Safety
    /// `slot` holds a row of this table.
    pub unsafe fn of_slot(&self, slot: *mut pg_sys::TupleTableSlot) -> Option<Identity> {
        // SAFETY: the columns up to `last` are deformed before they are read.
        unsafe {
            if let [column] = self.columns()
                && column.shape.form == Form::ByValue
            {
                deform(slot, column.number);
                let at = column.number as usize - 1;
                let value = *(*slot).tts_values.add(at);
                let is_null = *(*slot).tts_isnull.add(at);
                let length = column.shape.length;
                return (!is_null).then(|| identity_of_number(self.relation, length, value));
            }
            deform(slot, self.last());
            let mut image = Image::new();
            for column in self.columns() {
                let at = column.number as usize - 1;
                if *(*slot).tts_isnull.add(at) {
                    return None;
                }
                image.put_datum(column.shape, *(*slot).tts_values.add(at));
            }
            Some(image.identity(self.relation))
        }
    }

    /// The identity of a heap tuple.
    ///
    /// # Safety
    /// `tuple` is a row of this table with descriptor `desc`, pinned or local.
    pub unsafe fn of_tuple(
        &self,
        tuple: pg_sys::HeapTuple,
        desc: pg_sys::TupleDesc,
    ) -> Option<Identity> {
        // SAFETY: the caller's row is pinned or local, and `desc` is its descriptor.
        unsafe {
            let value_of = |column: &Column| attribute(tuple, c_int::from(column.number), desc);
            if let [column] = self.columns()
                && column.shape.form == Form::ByValue
            {
                let length = column.shape.length;
                return Some(identity_of_number(self.relation, length, value_of(column)?));
            }
            let mut image = Image::new();
            for column in self.columns() {
                image.put_datum(column.shape, value_of(column)?);
            }
            Some(image.identity(self.relation))
        }
    }

    /// The identity of the row whose key columns have these values, in the key's order, with the
    /// types they have.
    ///
    /// # Safety
    /// Each value is of the type given, which `takes` accepted.
    pub unsafe fn of_values(&self, values: &[(Datum, Oid)]) -> Identity {
        if let ([column], &[(value, typ)]) = (self.columns(), values) {
            let shape = column.shape_of(typ);
            if shape.form == Form::ByValue {
                return identity_of_number(self.relation, shape.length, value);
            }
        }
        let mut image = Image::new();
        for (column, &(value, typ)) in self.columns().iter().zip(values) {
            let shape = column.shape_of(typ);
            // SAFETY: the caller's value has a type that `takes` accepted, so it has this shape.
            unsafe { image.put_datum(shape, value) };
        }
        image.identity(self.relation)
    }

    /// The key's text for the views, cut to `LABEL_BYTES`. Returns its length.
    ///
    /// # Safety
    /// `tuple` is a row of this table with descriptor `desc`, pinned or local.
    pub unsafe fn label(
        &self,
        tuple: pg_sys::HeapTuple,
        desc: pg_sys::TupleDesc,
        text: &mut [u8; LABEL_BYTES],
    ) -> usize {
        let mut at = 0;
        for (n, column) in self.columns().iter().enumerate() {
            // SAFETY: by the contract; output functions want a value of their type.
            unsafe {
                let Some(value) = attribute(tuple, c_int::from(column.number), desc) else {
                    continue;
                };
                let (mut output, mut is_varlena) = (Oid::INVALID, false);
                raw::getTypeOutputInfo(column.typ, &mut output, &mut is_varlena);
                let printed = raw::OidOutputFunctionCall(output, value);
                let separator: &[u8] = if n > 0 { b", " } else { b"" };
                let room = text.len() - at;
                if separator.len() < room {
                    text[at..at + separator.len()].copy_from_slice(separator);
                    at += separator.len();
                    let whole = CStr::from_ptr(printed).to_bytes();
                    let room = (text.len() - at) as c_int;
                    let fits =
                        raw::pg_mbcliplen(printed, whole.len() as c_int, room).max(0) as usize;
                    text[at..at + fits].copy_from_slice(&whole[..fits]);
                    at += fits;
                }
                raw::pfree(printed.cast());
            }
        }
        at
    }
}

impl Column {
    /// How a value of that type is stored, which stands for one of the column's own type.
    fn shape_of(&self, typ: Oid) -> Shape {
        match typ {
            pg_sys::INT2OID => Shape::by_value(2),
            pg_sys::INT4OID => Shape::by_value(4),
            pg_sys::INT8OID => Shape::by_value(8),
            _ => self.shape,
        }
    }

    /// Whether two values are equal only if their bytes are.
    fn is_bytewise(&self) -> bool {
        match self.typ {
            pg_sys::BOOLOID
            | pg_sys::INT2OID
            | pg_sys::INT4OID
            | pg_sys::INT8OID
            | pg_sys::OIDOID
            | pg_sys::UUIDOID
            | pg_sys::BYTEAOID
            | pg_sys::DATEOID
            | pg_sys::TIMESTAMPOID
            | pg_sys::TIMESTAMPTZOID => true,
            // SAFETY: a catalog look-up.
            pg_sys::TEXTOID | pg_sys::VARCHAROID => unsafe {
                raw::get_collation_isdeterministic(self.collation)
            },
            _ => false,
        }
    }
}

/// Makes the first columns of a slot's row ready to be read.
///
/// # Safety
/// `slot` holds a row that has so many columns.
#[inline]
unsafe fn deform(slot: *mut pg_sys::TupleTableSlot, columns: i16) {
    // SAFETY: by the contract.
    unsafe {
        if (*slot).tts_nvalid < columns {
            raw::slot_getsomeattrs_int(slot, c_int::from(columns));
        }
    }
}

/// Whether output plugins of logical decoding read the table as they read catalogs (option
/// `user_catalog_table`): by cmin and cmax of
/// each version in WAL (heapam.c: log_heap_new_cid). A followed version has no cmax of its own
/// (`tam/group.rs`).
///
/// # Safety
/// `rel` is an open table.
pub unsafe fn is_used_as_catalog(rel: pg_sys::Relation) -> bool {
    // SAFETY: utils/rel.h: RelationIsUsedAsCatalogTable; the options of a table are StdRdOptions.
    unsafe {
        let options = (*rel).rd_options.cast::<pg_sys::StdRdOptions>();
        !options.is_null() && (*options).user_catalog_table
    }
}
