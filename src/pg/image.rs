//! The bytes of a row's key, by which two sessions compare rows.

use super::raw;
use hotrow::{Identity, KEY_COLUMNS};
use pgrx::pg_sys::{self, Datum, Oid};
use std::ffi::CStr;

/// A longer value is represented by its beginning and a digest.
const VALUE_BYTES: usize = 40;

/// How a key column's value becomes bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    ByValue,
    Fixed,
    Varlena,
    CString,
}

/// That, and the length of a value by value or of fixed length.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub form: Form,
    pub length: i16,
}

impl Shape {
    pub const fn by_value(length: i16) -> Self {
        Shape {
            form: Form::ByValue,
            length,
        }
    }
}

/// The bytes of a key, column by column.
pub struct Image {
    bytes: [u8; KEY_COLUMNS * (VALUE_BYTES + 2)],
    length: usize,
}

impl Image {
    pub fn new() -> Self {
        Image {
            bytes: [0; KEY_COLUMNS * (VALUE_BYTES + 2)],
            length: 0,
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.length..self.length + bytes.len()) {
            place.copy_from_slice(bytes);
            self.length += bytes.len();
        }
    }

    fn put_value(&mut self, bytes: &[u8]) {
        if bytes.len() <= VALUE_BYTES {
            self.put(&(bytes.len() as u16).to_le_bytes());
            self.put(bytes);
        } else {
            self.put(&u16::MAX.to_le_bytes());
            self.put(&bytes[..VALUE_BYTES - 24]);
            self.put(&Identity::digest(bytes));
        }
    }

    /// Adds the value of a column.
    ///
    /// # Safety
    /// `value` is a non-null value of the column's type.
    pub unsafe fn put_datum(&mut self, shape: Shape, value: Datum) {
        // SAFETY: by the contract the datum has the shape's representation.
        unsafe {
            let length = shape.length;
            match shape.form {
                Form::ByValue => self.put(&number(length, value).to_le_bytes()),
                Form::Fixed => {
                    let start = value.cast_mut_ptr::<u8>();
                    self.put_value(std::slice::from_raw_parts(start, length.max(0) as usize));
                }
                Form::CString => self.put_value(CStr::from_ptr(value.cast_mut_ptr()).to_bytes()),
                Form::Varlena => {
                    let given = value.cast_mut_ptr::<pg_sys::varlena>();
                    let plain = raw::pg_detoast_datum_packed(given);
                    let start = pgrx::varlena::vardata_any(plain).cast::<u8>();
                    self.put_value(std::slice::from_raw_parts(
                        start,
                        pgrx::varlena::varsize_any_exhdr(plain),
                    ));
                    if plain != given {
                        raw::pfree(plain.cast());
                    }
                }
            }
        }
    }

    /// What identifies the row in the whole server.
    pub fn identity(&self, relation: Oid) -> Identity {
        Identity::new(database(), u32::from(relation), &self.bytes[..self.length])
    }
}

/// What identifies the row whose key is one column, with a value by value of that length.
#[inline]
pub fn identity_of_number(relation: Oid, length: i16, value: Datum) -> Identity {
    Identity::of_number(database(), u32::from(relation), number(length, value))
}

fn database() -> u32 {
    // SAFETY: a plain read of this process's database.
    u32::from(unsafe { pg_sys::MyDatabaseId })
}

/// A value by value of that length, as the image has it.
fn number(length: i16, value: Datum) -> i64 {
    let value = value.value() as u64;
    match length {
        1 => i64::from(value as i8),
        2 => i64::from(value as i16),
        4 => i64::from(value as i32),
        _ => value as i64,
    }
}
