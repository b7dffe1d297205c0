//! Values as bytes, as one session passes them to another.

use crate::pg::local::Local;
use crate::pg::raw;
use hotrow::{ARGUMENT_BYTES, RESULT_BYTES};
use pgrx::pg_sys::{self, Datum, Oid};
use std::cell::Cell;

/// How a value of one of the types that may occur becomes bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    ByValue,
    Fixed(usize),
    Varlena,
}

fn shape(typ: Oid) -> Option<Shape> {
    Some(match typ {
        pg_sys::BOOLOID
        | pg_sys::INT2OID
        | pg_sys::INT4OID
        | pg_sys::INT8OID
        | pg_sys::FLOAT4OID
        | pg_sys::FLOAT8OID
        | pg_sys::OIDOID
        | pg_sys::DATEOID
        | pg_sys::TIMESTAMPOID
        | pg_sys::TIMESTAMPTZOID => Shape::ByValue,
        pg_sys::UUIDOID => Shape::Fixed(16),
        pg_sys::NUMERICOID
        | pg_sys::TEXTOID
        | pg_sys::VARCHAROID
        | pg_sys::BPCHAROID
        | pg_sys::JSONBOID
        | pg_sys::INT4ARRAYOID
        | pg_sys::INT8ARRAYOID
        | pg_sys::TEXTARRAYOID => Shape::Varlena,
        _ => return None,
    })
}

/// Whether values of that type can be passed on. None is there for `?`.
pub fn may_pass(typ: Oid) -> Option<()> {
    shape(typ).map(|_| ())
}

/// Whether a client of this session can be sent a value of that type without fail: text may have
/// characters that the client's encoding has not, and so may the abbreviation of a time zone.
pub fn can_be_sent(typ: Oid) -> bool {
    match typ {
        pg_sys::TIMESTAMPTZOID if has_iso_dates() => true,
        pg_sys::TEXTOID
        | pg_sys::VARCHAROID
        | pg_sys::BPCHAROID
        | pg_sys::JSONBOID
        | pg_sys::TEXTARRAYOID
        | pg_sys::TIMESTAMPTZOID => {
            // SAFETY: both read backend state.
            unsafe { raw::pg_get_client_encoding() == raw::GetDatabaseEncoding() }
        }
        _ => shape(typ).is_some(),
    }
}

/// How many bytes a value, not null, takes among the arguments. None for an array, which is rather
/// part of the statement.
///
/// # Safety
/// `value` is a value of that type.
pub unsafe fn room(typ: Oid, value: Datum) -> Option<usize> {
    let length = match shape(typ)? {
        Shape::ByValue => 8,
        Shape::Fixed(length) => length,
        // SAFETY: the caller's value has that type, so it points to a varlena.
        Shape::Varlena if !is_array(typ) => unsafe {
            let value = value.cast_mut_ptr::<pg_sys::varlena>();
            if pgrx::varlena::varatt_is_1b_e(value) {
                return None;
            }
            pgrx::varlena::varsize_any(value)
        },
        Shape::Varlena => return None,
    };
    Some(size_of::<u32>() + length)
}

fn is_array(typ: Oid) -> bool {
    matches!(
        typ,
        pg_sys::INT4ARRAYOID | pg_sys::INT8ARRAYOID | pg_sys::TEXTARRAYOID
    )
}

fn has_iso_dates() -> bool {
    // SAFETY: a plain read of a setting.
    unsafe { pg_sys::DateStyle == pg_sys::USE_ISO_DATES as i32 }
}

#[derive(Clone, Copy)]
pub struct Bytes<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Bytes<N> {
    pub const fn new() -> Self {
        Bytes {
            bytes: [0; N],
            length: 0,
        }
    }

    pub fn put(&mut self, bytes: &[u8]) -> Option<()> {
        self.bytes
            .get_mut(self.length..self.length + bytes.len())?
            .copy_from_slice(bytes);
        self.length += bytes.len();
        Some(())
    }

    /// A number in as few bytes as it needs, the last of them less than 128 (LEB128).
    pub fn put_number(&mut self, mut number: u32) -> Option<()> {
        while number >= 128 {
            self.put(&[number as u8 | 128])?;
            number >>= 7;
        }
        self.put(&[number as u8])
    }

    fn put_word(&mut self, word: u32) -> Option<()> {
        self.put(&word.to_le_bytes())
    }

    pub fn put_long(&mut self, word: u64) -> Option<()> {
        self.put(&word.to_le_bytes())
    }

    /// # Safety
    /// `value` is a value of that type.
    pub unsafe fn put_value(&mut self, typ: Oid, value: Datum, is_null: bool) -> Option<()> {
        let shape = shape(typ)?;
        if is_null {
            return self.put_word(u32::MAX);
        }
        // SAFETY: by the contract the datum has the type's representation.
        unsafe {
            match shape {
                Shape::ByValue => {
                    self.put_word(8)?;
                    self.put_long(value.value() as u64)
                }
                Shape::Fixed(length) => {
                    self.put_word(length as u32)?;
                    self.put(std::slice::from_raw_parts(value.cast_mut_ptr(), length))
                }
                Shape::Varlena => {
                    let given = value.cast_mut_ptr::<pg_sys::varlena>();
                    let plain = raw::pg_detoast_datum_packed(given);
                    let length = pgrx::varlena::varsize_any(plain);
                    let bytes = std::slice::from_raw_parts(plain.cast::<u8>(), length);
                    let done = self.put_word(length as u32).and_then(|()| self.put(bytes));
                    if plain != given {
                        raw::pfree(plain.cast());
                    }
                    done
                }
            }
        }
    }

    pub fn slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Room for the values that are read, each at a multiple of 8.
struct Room([Cell<u64>; ROOM]);
/// A value takes up to seven bytes more than it has, in place of its length's four.
const ROOM: usize = 2 * if ARGUMENT_BYTES > RESULT_BYTES {
    ARGUMENT_BYTES
} else {
    RESULT_BYTES
} / 8;
static PLACE: Local<Room> = Local::new(Room([const { Cell::new(0) }; ROOM]));

/// Reads what `Bytes` holds. Values by reference are valid until the next reader begins.
pub struct Reader<'a> {
    bytes: &'a [u8],
    used: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, used: 0 }
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(taken)
    }

    pub fn long(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.take(8)?.first_chunk()?))
    }

    /// A value of that type, and whether it is null.
    pub fn value(&mut self, typ: Oid) -> Option<(Datum, bool)> {
        let length = u32::from_le_bytes(*self.take(4)?.first_chunk()?);
        if length == u32::MAX {
            return Some((Datum::from(0), true));
        }
        if shape(typ)? == Shape::ByValue {
            return Some((Datum::from(self.long()?), false));
        }
        let value = self.take(length as usize)?;
        let words = value.len().div_ceil(8);
        let place = PLACE.0.get(self.used..self.used + words)?;
        for (word, chunk) in place.iter().zip(value.chunks(8)) {
            let mut whole = [0; 8];
            whole[..chunk.len()].copy_from_slice(chunk);
            word.set(u64::from_ne_bytes(whole));
        }
        self.used += words;
        Some((Datum::from(place.as_ptr().cast_mut()), false))
    }
}
