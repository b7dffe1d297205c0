//! Installs the hooks by which PostgreSQL calls us. (One more is in `pg/release.rs`.)

use super::previous::{self, Previous, previous};
use super::{executor, utility};
use crate::pg::error::guarded;
use crate::pg::raw;
use crate::range_occ;
use crate::shared::memory;
use pgrx::pg_sys::*;
use std::ffi::c_int;

unsafe extern "C-unwind" fn shmem_request() {
    // SAFETY: the next hook in the chain.
    unsafe {
        if let Some(next) = previous().shmem_request {
            next();
        }
    }
    guarded(memory::request);
}

unsafe extern "C-unwind" fn shmem_startup() {
    // SAFETY: the next hook in the chain.
    unsafe {
        if let Some(next) = previous().shmem_startup {
            next();
        }
    }
    guarded(memory::startup);
}

/// The first thing that every session does.
unsafe extern "C-unwind" fn client_authentication(port: *mut Port, status: c_int) {
    // SAFETY: the next hook in the chain.
    unsafe {
        if let Some(next) = previous().client_authentication {
            next(port, status);
        }
    }
    guarded(range_occ::session::start_clock);
}

/// Installs everything. Once, from `_PG_init`.
pub fn init() {
    // SAFETY: in the postmaster, single-threaded; the chains are extended as every extension does.
    unsafe {
        previous::note(Previous {
            shmem_request: shmem_request_hook,
            shmem_startup: shmem_startup_hook,
            executor_start: ExecutorStart_hook,
            executor_run: ExecutorRun_hook,
            executor_finish: ExecutorFinish_hook,
            executor_end: ExecutorEnd_hook,
            process_utility: ProcessUtility_hook,
            planner: planner_hook,
            client_authentication: raw::ClientAuthentication_hook,
        });
        shmem_request_hook = Some(shmem_request);
        shmem_startup_hook = Some(shmem_startup);
        ExecutorStart_hook = Some(executor::executor_start);
        ExecutorRun_hook = Some(executor::executor_run);
        ExecutorFinish_hook = Some(executor::executor_finish);
        ExecutorEnd_hook = Some(executor::executor_end);
        ProcessUtility_hook = Some(utility::process_utility);
        planner_hook = Some(executor::planner);
        raw::ClientAuthentication_hook = Some(client_authentication);
    }
}
