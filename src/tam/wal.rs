//! WAL of a group update: an ordinary `XLOG_HEAP_HOT_UPDATE` (access/heapam_xlog.h), written as
//! `log_heap_update` writes it, so that recovery, standbys and logical decoding need not know of
//! us.

use crate::pg::raw;
use crate::pg::tuple;
use pgrx::pg_sys;
use std::ffi::c_char;
use std::mem::{offset_of, size_of};
use std::ptr;

/// heapam_xlog.h
const XLOG_HEAP_HOT_UPDATE: u8 = 0x40;
const XLOG_HEAP_LOCK: u8 = 0x60;
const XLH_UPDATE_CONTAINS_NEW_TUPLE: u8 = 1 << 4;
const XLH_UPDATE_PREFIX_FROM_OLD: u8 = 1 << 5;
const XLH_UPDATE_SUFFIX_FROM_OLD: u8 = 1 << 6;
pub const XLHL_XMAX_LOCK_ONLY: u8 = 0x02;
pub const XLHL_XMAX_EXCL_LOCK: u8 = 0x04;
pub const XLHL_KEYS_UPDATED: u8 = 0x10;
const RM_HEAP_ID: u8 = 10;
const REGBUF_STANDARD: u8 = 0x08;
const REGBUF_KEEP_DATA: u8 = 0x10;
const XLOG_INCLUDE_ORIGIN: u8 = 0x01;

/// heapam_xlog.h: xl_heap_update
#[repr(C)]
struct HeapUpdate {
    old_xmax: u32,
    old_offnum: u16,
    old_infobits_set: u8,
    flags: u8,
    new_xmax: u32,
    new_offnum: u16,
}
const SIZE_OF_HEAP_UPDATE: usize = offset_of!(HeapUpdate, new_offnum) + size_of::<u16>();
const _: () = assert!(SIZE_OF_HEAP_UPDATE == 14);

/// heapam_xlog.h: xl_heap_header
#[repr(C)]
struct HeapHeader {
    t_infomask2: u16,
    t_infomask: u16,
    t_hoff: u8,
}
const SIZE_OF_HEAP_HEADER: usize = offset_of!(HeapHeader, t_hoff) + size_of::<u8>();
const _: () = assert!(SIZE_OF_HEAP_HEADER == 5);

/// heapam_xlog.h: xl_heap_lock
#[repr(C)]
struct HeapLock {
    xmax: u32,
    offnum: u16,
    infobits_set: u8,
    flags: u8,
}
const SIZE_OF_HEAP_LOCK: usize = offset_of!(HeapLock, flags) + size_of::<u8>();
const _: () = assert!(SIZE_OF_HEAP_LOCK == 8);

/// htup_details.h: the fixed part of a tuple header.
const SIZE_OF_TUPLE_HEADER: usize = 23;

/// wal_level >= logical and the table can be decoded (RelationIsLogicallyLogged, for an ordinary
/// user table).
///
/// # Safety
/// `rel` is open.
pub unsafe fn is_logically_logged(rel: pg_sys::Relation) -> bool {
    // SAFETY: the caller's relation is open, so its pg_class row is in the relcache entry.
    unsafe {
        pg_sys::wal_level >= pg_sys::WalLevel::WAL_LEVEL_LOGICAL as i32
            && (*(*rel).rd_rel).relpersistence as u8 == pg_sys::RELPERSISTENCE_PERMANENT
    }
}

/// Equal bytes at the beginning and at the end of two tuples' data, each 0 if too few to be worth
/// their length word.
fn common(old: &[u8], new: &[u8]) -> (u16, u16) {
    let prefix = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let prefix = if prefix < 3 { 0 } else { prefix };
    let rest = old.len().min(new.len()) - prefix;
    let suffix = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take(rest)
        .take_while(|(a, b)| a == b)
        .count();
    (prefix as u16, if suffix < 3 { 0 } else { suffix as u16 })
}

/// The bytes of a tuple from `from` on.
///
/// # Safety
/// `tuple` is valid for the life of the result.
unsafe fn bytes<'a>(tuple: &pg_sys::HeapTupleData, from: usize) -> &'a [u8] {
    // SAFETY: the caller's tuple has `t_len` bytes, and is valid for the life of the result.
    unsafe {
        std::slice::from_raw_parts(
            tuple.t_data.cast::<u8>().add(from),
            tuple.t_len as usize - from,
        )
    }
}

/// What of the new tuple is that of the old one, as the record says it.
struct Parts {
    flags: u8,
    lengths: [u16; 2],
    count: usize,
}

impl Parts {
    fn of(prefix: u16, suffix: u16) -> Parts {
        let mut parts = Parts {
            flags: 0,
            lengths: [0; 2],
            count: 0,
        };
        for (length, flag) in [
            (prefix, XLH_UPDATE_PREFIX_FROM_OLD),
            (suffix, XLH_UPDATE_SUFFIX_FROM_OLD),
        ] {
            if length > 0 {
                parts.flags |= flag;
                parts.lengths[parts.count] = length;
                parts.count += 1;
            }
        }
        parts
    }
}

/// Logs the update of `old` to `new` on the same page. Inside a critical section.
///
/// # Safety
/// The buffer is locked exclusively and dirty; both tuples lie on it, complete.
pub unsafe fn log_hot_update(
    rel: pg_sys::Relation,
    buffer: pg_sys::Buffer,
    old: &pg_sys::HeapTupleData,
    new: &pg_sys::HeapTupleData,
    old_infobits: u8,
) -> pg_sys::XLogRecPtr {
    // SAFETY: the protocol of xloginsert.c; registered data lives until XLogInsert returns.
    unsafe {
        let whole = is_logically_logged(rel);
        let hoff = (*new.t_data).t_hoff as usize;
        let (prefix, suffix) = if whole || raw::XLogCheckBufferNeedsBackup(buffer) {
            (0, 0)
        } else {
            common(bytes(old, (*old.t_data).t_hoff as usize), bytes(new, hoff))
        };
        let mut parts = Parts::of(prefix, suffix);
        if whole {
            parts.flags |= XLH_UPDATE_CONTAINS_NEW_TUPLE;
        }
        let mut update = HeapUpdate {
            old_xmax: u32::from(tuple::raw_xmax(old.t_data)),
            old_offnum: old.t_self.ip_posid,
            old_infobits_set: old_infobits,
            flags: parts.flags,
            new_xmax: u32::from(tuple::raw_xmax(new.t_data)),
            new_offnum: new.t_self.ip_posid,
        };
        let mut header = HeapHeader {
            t_infomask2: (*new.t_data).t_infomask2,
            t_infomask: (*new.t_data).t_infomask,
            t_hoff: (*new.t_data).t_hoff,
        };
        let keeps = if whole { REGBUF_KEEP_DATA } else { 0 };
        raw::XLogBeginInsert();
        raw::XLogRegisterBuffer(0, buffer, REGBUF_STANDARD | keeps);
        let update = ptr::from_mut(&mut update).cast();
        raw::XLogRegisterData(update, SIZE_OF_HEAP_UPDATE as u32);
        let register = |data: *mut c_char, length: usize| {
            if length > 0 {
                raw::XLogRegisterBufData(0, data, length as u32);
            }
        };
        register(
            parts.lengths.as_mut_ptr().cast(),
            parts.count * size_of::<u16>(),
        );
        register(ptr::from_mut(&mut header).cast(), SIZE_OF_HEAP_HEADER);
        let start = new.t_data.cast::<c_char>();
        register(start.add(SIZE_OF_TUPLE_HEADER), hoff - SIZE_OF_TUPLE_HEADER);
        let data = hoff + prefix as usize;
        register(start.add(data), new.t_len as usize - data - suffix as usize);
        raw::XLogSetRecordFlags(XLOG_INCLUDE_ORIGIN);
        raw::XLogInsert(RM_HEAP_ID, XLOG_HEAP_HOT_UPDATE)
    }
}

/// Logs a change of a tuple's xmax alone, as a row lock is logged. Inside a critical section.
///
/// # Safety
/// The buffer is locked exclusively and dirty.
pub unsafe fn log_xmax(
    buffer: pg_sys::Buffer,
    offset: pg_sys::OffsetNumber,
    xmax: u32,
    infobits: u8,
) -> pg_sys::XLogRecPtr {
    let mut lock = HeapLock {
        xmax,
        offnum: offset,
        infobits_set: infobits,
        flags: 0,
    };
    // SAFETY: the protocol of xloginsert.c.
    unsafe {
        raw::XLogBeginInsert();
        raw::XLogRegisterBuffer(0, buffer, REGBUF_STANDARD);
        raw::XLogRegisterData(ptr::from_mut(&mut lock).cast(), SIZE_OF_HEAP_LOCK as u32);
        raw::XLogInsert(RM_HEAP_ID, XLOG_HEAP_LOCK)
    }
}
