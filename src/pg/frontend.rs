//! What the client will do next, as far as it has already told.

use super::{nesting, raw};
use pgrx::pg_sys;

/// Whether the statement is all of its transaction, so that it commits as soon as the statement has
/// run: a single statement of the simple protocol, or one that is executed alone and whose Sync
/// message has arrived with it. Not within another statement or a function; nor a portal that FETCH
/// runs, which can fail after it.
///
/// # Safety
/// `query` is the statement of the active portal.
pub unsafe fn commits_next(query: *const pg_sys::QueryDesc) -> bool {
    /// access/xact.h
    const XACT_FLAGS_PIPELINING: i32 = 1 << 3;
    // SAFETY: plain reads of backend state.
    unsafe {
        if !nesting::is_outermost()
            || nesting::is_fetching()
            || pg_sys::MyBackendType != pg_sys::BackendType::B_BACKEND
            || pg_sys::whereToSendOutput != pg_sys::CommandDest::DestRemote
            || pg_sys::MyXactFlags & XACT_FLAGS_PIPELINING != 0
            || raw::IsTransactionBlock()
        {
            return false;
        }
        match (*(*query).dest).mydest {
            pg_sys::CommandDest::DestRemote => true,
            pg_sys::CommandDest::DestNone => next_message() == Some(b'S'),
            // RETURNING: the portal sends the rows when it has them all.
            pg_sys::CommandDest::DestTuplestore => match protocol(pg_sys::ActivePortal) {
                Some(Protocol::Simple) => true,
                Some(Protocol::Extended) => next_message() == Some(b'S'),
                None => false,
            },
            _ => false,
        }
    }
}

enum Protocol {
    Simple,
    Extended,
}

/// The protocol by which a client has made the portal, if its messages alone have, and in a format
/// that its rows can be sent in: others (of EXECUTE, of a cursor of a function) have no formats.
unsafe fn protocol(portal: pg_sys::Portal) -> Option<Protocol> {
    // SAFETY: the active portal is valid, and has a name; there are as many formats as columns.
    unsafe {
        if portal.is_null() || (*portal).formats.is_null() || (*portal).tupDesc.is_null() {
            return None;
        }
        let columns = (*(*portal).tupDesc).natts as usize;
        let formats = std::slice::from_raw_parts((*portal).formats, columns);
        if !formats.iter().all(|format| [0, 1].contains(format)) {
            return None;
        }
        if (*portal).visible {
            // exec_bind_message
            Some(Protocol::Extended)
        } else {
            // exec_simple_query
            (*(*portal).name == 0).then_some(Protocol::Simple)
        }
    }
}

/// The type of the next message, if it has arrived.
fn next_message() -> Option<u8> {
    // SAFETY: the present message has been read to its end; peeking at a byte that is there does not block.
    unsafe {
        if !raw::pq_buffer_has_data() {
            return None;
        }
        raw::pq_startmsgread();
        let byte = raw::pq_peekbyte();
        raw::pq_endmsgread();
        u8::try_from(byte).ok()
    }
}
