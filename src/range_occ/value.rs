//! PostgreSQL's values as `keyrange` has them.

use crate::pg::local::Local;
use crate::pg::raw;
use keyrange::{Kind, Numeric, Value};
use pgrx::pg_sys::{self, Datum, Oid};
use std::slice;

/// Memory for what values are taken apart into, emptied after each use.
static SCRATCH: Local<std::cell::Cell<pg_sys::MemoryContext>> =
    Local::new(std::cell::Cell::new(std::ptr::null_mut()));

/// Runs `body` with a memory context that is emptied afterwards; after an ERROR, before the next
/// use. `body` does not come here again.
pub fn with_scratch<R>(body: impl FnOnce() -> R) -> R {
    // SAFETY: a context of our own below TopMemoryContext; the current one is set again, here or by
    // the handler of an ERROR.
    unsafe {
        if SCRATCH.get().is_null() {
            SCRATCH.set(raw::AllocSetContextCreateInternal(
                pg_sys::TopMemoryContext,
                c"txn range keys".as_ptr(),
                0,
                1024,
                8 * 1024 * 1024,
            ));
        }
        let own = SCRATCH.get();
        let current = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = own;
        let result = body();
        pg_sys::CurrentMemoryContext = current;
        raw::MemoryContextReset(own);
        result
    }
}

/// `count` values in the current memory context, all `filler`.
pub fn allocate<T: Copy>(count: usize, filler: T) -> &'static mut [T] {
    // SAFETY: a new chunk with room for them, aligned as palloc's chunks are (8), filled before it
    // is a slice. The caller does not keep it beyond its context's life.
    unsafe {
        const { assert!(align_of::<T>() <= 16) };
        let room = raw::palloc(size_of::<T>() * count + align_of::<T>()).cast::<u8>();
        let start = room.add(room.align_offset(align_of::<T>())).cast::<T>();
        for n in 0..count {
            start.add(n).write(filler);
        }
        slice::from_raw_parts_mut(start, count)
    }
}

/// The kind of a column of that (base) type, `None` for types without images.
pub fn kind_of(typ: Oid) -> Option<Kind> {
    Some(match typ {
        pg_sys::BOOLOID => Kind::Bool,
        pg_sys::INT2OID => Kind::Int2,
        pg_sys::INT4OID | pg_sys::DATEOID => Kind::Int4,
        pg_sys::INT8OID | pg_sys::TIMESTAMPOID | pg_sys::TIMESTAMPTZOID | pg_sys::TIMEOID => {
            Kind::Int8
        }
        pg_sys::OIDOID => Kind::Oid,
        pg_sys::FLOAT4OID | pg_sys::FLOAT8OID => Kind::Float8,
        pg_sys::UUIDOID => Kind::Uuid,
        pg_sys::NUMERICOID => Kind::Numeric,
        pg_sys::TEXTOID | pg_sys::VARCHAROID | pg_sys::BPCHAROID => Kind::Text,
        pg_sys::BYTEAOID => Kind::Bytes,
        _ => return None,
    })
}

fn is_integer(typ: Oid) -> bool {
    matches!(typ, pg_sys::INT2OID | pg_sys::INT4OID | pg_sys::INT8OID)
}

fn is_float(typ: Oid) -> bool {
    matches!(typ, pg_sys::FLOAT4OID | pg_sys::FLOAT8OID)
}

/// Whether values of the type `given` compare with a column of the type `own` as the column's own
/// values do.
pub fn is_alike(own: Oid, given: Oid) -> bool {
    own == given
        || is_integer(own) && is_integer(given)
        || is_float(own) && is_float(given)
        || own == pg_sys::VARCHAROID && given == pg_sys::TEXTOID
}

/// A value of the type `given`, in comparison with a column of the type `own`. Bytes may stand in
/// the current memory context.
///
/// # Safety
/// `datum` is a value of that type, not NULL, and outlives the result.
pub unsafe fn of_datum<'a>(own: Oid, given: Oid, datum: Datum) -> Value<'a> {
    if !is_alike(own, given) {
        return Value::Unknown;
    }
    let word = datum.value();
    // SAFETY: by the contract the datum is what its type says.
    unsafe {
        match given {
            pg_sys::BOOLOID => Value::Bool(word & 1 != 0),
            pg_sys::INT2OID => Value::Int(i64::from(word as i16)),
            pg_sys::INT4OID | pg_sys::DATEOID => Value::Int(i64::from(word as i32)),
            pg_sys::INT8OID | pg_sys::TIMESTAMPOID | pg_sys::TIMESTAMPTZOID | pg_sys::TIMEOID => {
                Value::Int(word as i64)
            }
            pg_sys::OIDOID => Value::Oid(word as u32),
            pg_sys::FLOAT4OID => Value::Float(f64::from(f32::from_bits(word as u32))),
            pg_sys::FLOAT8OID => Value::Float(f64::from_bits(word as u64)),
            pg_sys::UUIDOID => Value::Uuid(*datum.cast_mut_ptr::<[u8; 16]>()),
            pg_sys::NUMERICOID => Value::Numeric(numeric(datum)),
            pg_sys::TEXTOID | pg_sys::VARCHAROID => Value::Text(bytes(datum)),
            pg_sys::BPCHAROID => {
                let padded = bytes(datum);
                let blanks = padded.iter().rev().take_while(|&&byte| byte == b' ');
                Value::Text(&padded[..padded.len() - blanks.count()])
            }
            pg_sys::BYTEAOID => Value::Bytes(bytes(datum)),
            _ => Value::Unknown,
        }
    }
}

/// The content of a varlena.
unsafe fn bytes<'a>(datum: Datum) -> &'a [u8] {
    // SAFETY: by `of_datum`'s contract; a detoasted copy stands in the current memory context.
    unsafe {
        let plain = raw::pg_detoast_datum_packed(datum.cast_mut_ptr());
        slice::from_raw_parts(
            pgrx::varlena::vardata_any(plain).cast(),
            pgrx::varlena::varsize_any_exhdr(plain),
        )
    }
}

/// The parts of a numeric (utils/adt/numeric.c: NumericChoice): a word with sign, scale and, in the
/// short form, weight; in the long form a word for the weight; then the digits.
unsafe fn numeric<'a>(datum: Datum) -> Numeric<'a> {
    const SPECIAL: u16 = 0xc000;
    const SHORT: u16 = 0x8000;
    const NEGATIVE: u16 = 0x4000;
    const SHORT_NEGATIVE: u16 = 0x2000;
    const SHORT_WEIGHT_SIGN: u16 = 0x40;
    const SHORT_WEIGHT: u16 = 0x3f;
    // SAFETY: by `of_datum`'s contract; with its full header the content is aligned to words.
    let words = unsafe {
        let plain = raw::pg_detoast_datum(datum.cast_mut_ptr());
        slice::from_raw_parts(
            pgrx::varlena::vardata_any(plain).cast::<u16>(),
            pgrx::varlena::varsize_any_exhdr(plain) / 2,
        )
    };
    let head = words[0];
    match head & SPECIAL {
        SPECIAL => match head & 0xf000 {
            0xd000 => Numeric::Infinity,
            0xf000 => Numeric::NegativeInfinity,
            _ => Numeric::NaN,
        },
        SHORT => Numeric::Finite {
            negative: head & SHORT_NEGATIVE != 0,
            weight: if head & SHORT_WEIGHT_SIGN != 0 {
                i32::from((head & SHORT_WEIGHT) as i16 | !(SHORT_WEIGHT as i16))
            } else {
                i32::from(head & SHORT_WEIGHT)
            },
            digits: &words[1..],
        },
        sign => Numeric::Finite {
            negative: sign == NEGATIVE,
            weight: i32::from(words[1] as i16),
            digits: &words[2..],
        },
    }
}
