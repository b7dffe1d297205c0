//! What the client will do next, as far as it has already told.

use super::nodes::{length, nth, tag};
use super::{nesting, raw, xact};
use pgrx::pg_sys;
use std::ffi::CStr;

/// Whether the statement is all of its transaction, which commits as soon as the statement has run.
/// In the simple protocol that is a single statement, alone or in a block. In the extended protocol
/// the statement is executed alone, and its Sync message has arrived with it. Not within another
/// statement or a function; nor in a portal that FETCH runs, as FETCH can fail after it.
///
/// # Safety
/// `query` is the statement of the active portal, and in a transaction block only if
/// `is_alone_in_block` says so.
pub unsafe fn commits_next(query: *const pg_sys::QueryDesc) -> bool {
    // SAFETY: plain reads of backend state.
    unsafe {
        if !nesting::is_outermost() || nesting::is_fetching() || !is_clients_first() {
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

/// Whether a client is served, and has not had another statement of the pipeline before.
fn is_clients_first() -> bool {
    /// access/xact.h
    const XACT_FLAGS_PIPELINING: i32 = 1 << 3;
    // SAFETY: plain reads of backend state.
    unsafe {
        pg_sys::MyBackendType == pg_sys::BackendType::B_BACKEND
            && pg_sys::whereToSendOutput == pg_sys::CommandDest::DestRemote
            && pg_sys::MyXactFlags & XACT_FLAGS_PIPELINING == 0
    }
}

/// By which protocol the client has sent the statement or command that is about to start, if it is
/// in no transaction block. It is the outermost one.
pub fn sent_alone() -> Option<Protocol> {
    // SAFETY: the active portal is that of the client's statement, and has a name.
    unsafe {
        if raw::IsTransactionBlock() || !is_clients_first() {
            return None;
        }
        let portal = &*pg_sys::ActivePortal;
        match portal.visible {
            true => Some(Protocol::Extended),
            false => (*portal.name == 0).then_some(Protocol::Simple),
        }
    }
}

/// Whether a statement that was sent alone, and now runs, is followed by the end of its
/// transaction: the client has no say in when that comes.
pub fn ends_by_itself(sent: Protocol) -> bool {
    match sent {
        Protocol::Simple => true,
        Protocol::Extended => next_message() == Some(b'S'),
    }
}

/// Bytes before and after a statement, in its message, that are looked at.
const MOST_BESIDE: usize = 128;

/// Whether the statement is the only one of a transaction block that its message holds as a whole:
/// `BEGIN; statement; COMMIT`. PostgreSQL's parser says what stands before and after it.
///
/// # Safety
/// `query` is the statement of the active portal, in a transaction block.
pub unsafe fn is_alone_in_block(query: *const pg_sys::QueryDesc) -> bool {
    use pg_sys::TransactionStmtKind::{TRANS_STMT_BEGIN, TRANS_STMT_COMMIT, TRANS_STMT_START};
    // SAFETY: plain reads of backend state; the parser has told where in the text the statement is.
    unsafe {
        let (text, own) = (pg_sys::debug_query_string, &*(*query).plannedstmt);
        if text.is_null()
            || (*query).sourceText != text
            || own.stmt_location <= 0
            || own.stmt_len <= 0
            || own.stmt_location as usize > MOST_BESIDE
            || xact::own_xid() != 0
            || raw::GetCurrentTransactionStartTimestamp()
                != raw::GetCurrentStatementStartTimestamp()
        {
            return false;
        }
        let text = CStr::from_ptr(text).to_bytes();
        let (start, length) = (own.stmt_location as usize, own.stmt_len as usize);
        let (Some(before), Some(after)) = (text.get(..start), text.get(start + length..)) else {
            return false;
        };
        transaction_command(before)
            .is_some_and(|begin| [TRANS_STMT_BEGIN, TRANS_STMT_START].contains(&begin.kind))
            && transaction_command(after)
                .is_some_and(|end| end.kind == TRANS_STMT_COMMIT && !end.chain)
    }
}

/// Whether the statement's message goes on with COMMIT, and nothing else.
///
/// # Safety
/// `query` is the statement of the active portal, in a transaction block.
pub unsafe fn is_before_commit(query: *const pg_sys::QueryDesc) -> bool {
    // SAFETY: plain reads of backend state; the parser has told where in the text the statement is.
    unsafe {
        let (text, own) = (pg_sys::debug_query_string, &*(*query).plannedstmt);
        if text.is_null() || (*query).sourceText != text || own.stmt_len <= 0 {
            return false;
        }
        let end = own.stmt_location.max(0) as usize + own.stmt_len as usize;
        let after = CStr::from_ptr(text).to_bytes().get(end..);
        after.and_then(transaction_command).is_some_and(|command| {
            command.kind == pg_sys::TransactionStmtKind::TRANS_STMT_COMMIT && !command.chain
        })
    }
}

/// The transaction command that the text consists of, in the current memory context. Texts with
/// what the scanner reads by settings (quotes, backslashes) are none: the settings may have changed
/// since the text was parsed. Nor are those with names that it would shorten, with a NOTICE.
fn transaction_command(text: &[u8]) -> Option<&'static pg_sys::TransactionStmt> {
    let mut copy = [0; MOST_BESIDE + 1];
    let is_plain = |byte: &u8| byte.is_ascii() && !b"'\"$\\".contains(byte);
    let is_short = |name: &[u8]| name.len() < pg_sys::NAMEDATALEN as usize;
    if text.len() > MOST_BESIDE
        || !text.iter().all(is_plain)
        || !text
            .split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')
            .all(is_short)
    {
        return None;
    }
    copy[..text.len()].copy_from_slice(text);
    // SAFETY: a part of a text that has been parsed, between statements; the copy ends with a zero.
    // Parse trees are read as what their tags say, and live in the current memory context.
    unsafe {
        let mode = pg_sys::RawParseMode::RAW_PARSE_DEFAULT;
        let parsed = raw::raw_parser(copy.as_ptr().cast(), mode);
        if length(parsed) != 1 {
            return None;
        }
        let node = (*nth::<pg_sys::RawStmt>(parsed, 0)).stmt;
        (tag(node) == pg_sys::NodeTag::T_TransactionStmt)
            .then(|| &*node.cast::<pg_sys::TransactionStmt>())
    }
}

/// How a client sends statements.
#[derive(Clone, Copy)]
pub enum Protocol {
    Simple,
    Extended,
}

/// The protocol by which a client has made the portal. None if other than the client's messages
/// have made it: such portals (of EXECUTE, of a cursor of a function) have no formats. None also
/// for a format in which its rows cannot be sent.
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
    // SAFETY: the present message has been read to its end; peeking at a byte that is there does
    // not block.
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
