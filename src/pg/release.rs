//! What a session does after its commits have released their locks.

use super::error::infallible;
use super::raw;
use pgrx::pg_sys::ResourceReleasePhase;
use std::cell::Cell;
use std::ffi::c_void;

struct Done(Cell<Option<fn()>>);
// SAFETY: a backend has one thread.
unsafe impl Sync for Done {}
static DONE: Done = Done(Cell::new(None));

/// Calls `done`, which raises nothing, after the locks of each commit to come (resowner.c: ResourceOwnerRelease). Only sessions that need it ask for it: every
/// release of a resource owner, of which a statement has several, calls all callbacks three times.
pub fn after_locks(done: fn()) {
    if DONE.0.get().is_none() {
        // SAFETY: it is allocated for the life of the process; nothing here has a destructor.
        unsafe { raw::RegisterResourceReleaseCallback(Some(at_release), std::ptr::null_mut()) };
        DONE.0.set(Some(done));
    }
}

unsafe extern "C-unwind" fn at_release(
    phase: ResourceReleasePhase::Type,
    is_commit: bool,
    is_top_level: bool,
    _arg: *mut c_void,
) {
    if phase == ResourceReleasePhase::RESOURCE_RELEASE_AFTER_LOCKS
        && is_commit
        && is_top_level
        && let Some(done) = DONE.0.get()
    {
        infallible(done);
    }
}
