//! The hooks of others, which ours call.

use pgrx::pg_sys::*;
use std::ffi::c_int;
use std::sync::OnceLock;

/// The hooks that were there before us.
pub struct Previous {
    pub shmem_request: shmem_request_hook_type,
    pub shmem_startup: shmem_startup_hook_type,
    pub executor_start: ExecutorStart_hook_type,
    pub executor_run: ExecutorRun_hook_type,
    pub executor_finish: ExecutorFinish_hook_type,
    pub executor_end: ExecutorEnd_hook_type,
    pub process_utility: ProcessUtility_hook_type,
    pub planner: planner_hook_type,
    pub client_authentication: Option<unsafe extern "C-unwind" fn(*mut Port, c_int)>,
}

static PREVIOUS: OnceLock<Previous> = OnceLock::new();

/// They are known once `_PG_init` is over.
#[inline]
pub fn previous() -> &'static Previous {
    match PREVIOUS.get() {
        Some(previous) => previous,
        None => std::process::abort(),
    }
}

/// Takes note of them, before ours take their place. Once, from `_PG_init`.
pub fn note(hooks: Previous) {
    let _ = PREVIOUS.set(hooks);
}
