//! What a session does after its transactions have released their locks.

use super::error::infallible;
use super::local::Local;
use super::raw;
use pgrx::pg_sys::ResourceReleasePhase;
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::OnceLock;

/// What is called then: it raises nothing.
pub struct Done {
    pub committed: fn(),
    pub rolled_back: fn(),
}
static DONE: OnceLock<Done> = OnceLock::new();

static ASKED: Local<Cell<bool>> = Local::new(Cell::new(false));

/// Once, from `_PG_init`.
pub fn init(done: Done) {
    let _ = DONE.set(done);
}

/// From now on they are called in this session, after the locks of each transaction (resowner.c:
/// ResourceOwnerRelease). Only sessions that need it ask for it: every release of a resource owner,
/// of which a statement has several, calls all callbacks three times.
pub fn ask() {
    if !ASKED.replace(true) {
        // SAFETY: it is allocated for the life of the process; nothing here has a destructor.
        unsafe { raw::RegisterResourceReleaseCallback(Some(at_release), std::ptr::null_mut()) };
    }
}

/// Whether they are.
pub fn is_asked() -> bool {
    ASKED.get()
}

unsafe extern "C-unwind" fn at_release(
    phase: ResourceReleasePhase::Type,
    is_commit: bool,
    is_top_level: bool,
    _arg: *mut c_void,
) {
    if phase == ResourceReleasePhase::RESOURCE_RELEASE_AFTER_LOCKS
        && is_top_level
        && let Some(done) = DONE.get()
    {
        infallible(if is_commit {
            done.committed
        } else {
            done.rolled_back
        });
    }
}
