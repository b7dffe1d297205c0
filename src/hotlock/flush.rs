//! Making WAL durable together with others.

use super::session::memory;
use crate::pg::{process, raw};
use crate::shared::wait;
use hotrow::Duty;
use pgrx::pg_sys;

/// How long a flush waits for those behind, in microseconds: in this time many of them commit. They
/// need the row and the processors, not the flush.
const GATHER_US: std::ffi::c_long = 500;

/// Makes WAL durable up to `end`, together with others that want the same. If many `come`, it waits
/// for them a moment. Interrupts are held.
pub fn flush(end: u64, come: bool) {
    let memory = memory();
    let me = process::me();
    // SAFETY: reads a shared position.
    let flushed = || unsafe { raw::GetFlushRecPtr(std::ptr::null_mut()) };
    if flushed() >= end {
        return;
    }
    let mut duty = memory.flush.join(memory.backends, me, end);
    while duty == Duty::Wait {
        wait::doze(1000, pg_sys::WaitEventIO::WAIT_EVENT_WAL_SYNC);
        duty = memory.flush.duty(memory.backends, me);
    }
    if duty == Duty::Flush {
        // SAFETY: reads settings, which say whether XLogFlush waits by itself, or has nothing to
        // wait for; sleeps.
        unsafe {
            if come && raw::CommitDelay == 0 && pg_sys::enableFsync {
                raw::pg_usleep(GATHER_US);
            }
        }
        // SAFETY: the end of a record of ours; a failure in it is a PANIC, so the duty is always
        // handed over.
        unsafe { raw::XLogFlush(end) };
        memory
            .flush
            .hand_over(memory.backends, me, flushed(), wait::wake);
    }
}
