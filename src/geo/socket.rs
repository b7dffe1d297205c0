//! The sockets of connections: their descriptors, and waiting for them.

use super::failure::{Failure, Outcome, check_for_interrupts};
use pgrx::pg_sys;

/// For what a socket is waited.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum For {
    Reading,
    Writing,
    Either,
}

/// Waits until the socket is ready, which it tells, or something else happens, or the time in
/// milliseconds is over; None: no limit. Raises on a cancel.
pub fn wait_for_socket(socket: i32, what: For, timeout_ms: Option<u64>) -> bool {
    let sockets = match what {
        For::Reading => pg_sys::WL_SOCKET_READABLE,
        For::Writing => pg_sys::WL_SOCKET_WRITEABLE,
        For::Either => pg_sys::WL_SOCKET_READABLE | pg_sys::WL_SOCKET_WRITEABLE,
    };
    let mut events = pg_sys::WL_LATCH_SET | pg_sys::WL_EXIT_ON_PM_DEATH | sockets;
    if timeout_ms.is_some() {
        events |= pg_sys::WL_TIMEOUT;
    }
    // SAFETY: the standard latch wait, with a socket that is open.
    let happened = unsafe {
        let happened = pg_sys::WaitLatchOrSocket(
            pg_sys::MyLatch,
            events as i32,
            socket,
            timeout_ms.unwrap_or(0) as std::ffi::c_long,
            pg_sys::PG_WAIT_EXTENSION,
        );
        if happened as u32 & pg_sys::WL_LATCH_SET != 0 {
            pg_sys::ResetLatch(pg_sys::MyLatch);
        }
        happened as u32
    };
    check_for_interrupts();
    happened & sockets != 0
}

/// Waits until one of the sockets is ready, the latch is set, or the time in milliseconds is over.
/// Each socket comes with whether it is to be written, too. Returns whether the latch was set.
/// Raises on a cancel.
pub fn wait_for_any(sockets: &[(i32, bool)], timeout_ms: u64) -> bool {
    let latch = pg_sys::WL_LATCH_SET;
    // SAFETY: latch.h: a set that lives for this wait, of sockets that are open. PostgreSQL raises
    // only before it has the set, or when the kernel refuses a socket that is open.
    let is_woken = unsafe {
        let room = sockets.len() as i32 + 2;
        let set = pg_sys::CreateWaitEventSet(pg_sys::CurrentMemoryContext, room);
        let add = |events: u32, socket: i32, latch: *mut pg_sys::Latch| {
            pg_sys::AddWaitEventToSet(set, events, socket, latch, std::ptr::null_mut());
        };
        add(latch, pg_sys::PGINVALID_SOCKET, pg_sys::MyLatch);
        let nobody = std::ptr::null_mut();
        add(
            pg_sys::WL_EXIT_ON_PM_DEATH,
            pg_sys::PGINVALID_SOCKET,
            nobody,
        );
        for &(socket, writes) in sockets {
            let writes = if writes {
                pg_sys::WL_SOCKET_WRITEABLE
            } else {
                0
            };
            add(pg_sys::WL_SOCKET_READABLE | writes, socket, nobody);
        }
        let mut happened = pg_sys::WaitEvent::default();
        let timeout = timeout_ms as std::ffi::c_long;
        let wait = pg_sys::PG_WAIT_EXTENSION;
        pg_sys::WaitEventSetWait(set, timeout, &raw mut happened, 1, wait);
        pg_sys::FreeWaitEventSet(set);
        let is_woken = (*pg_sys::MyLatch).is_set != 0;
        if is_woken {
            pg_sys::ResetLatch(pg_sys::MyLatch);
        }
        is_woken
    };
    check_for_interrupts();
    is_woken
}

/// A descriptor for libpq's socket, counted by fd.c; given back when dropped.
pub struct Descriptor(());

impl Descriptor {
    pub fn acquire() -> Outcome<Descriptor> {
        // SAFETY: fd.c; raises nothing.
        if unsafe { pg_sys::AcquireExternalFD() } {
            return Ok(Descriptor(()));
        }
        Err(Failure::new(
            *b"53000",
            "could not connect to a node: too many open files",
        ))
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: it was acquired.
        unsafe { pg_sys::ReleaseExternalFD() };
    }
}
