//! Where a coordinator runs.

use pgrx::pg_sys;
use std::os::unix::fs::MetadataExt;

/// What a copy does not share with its original.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    pub system: i64,
    pub timeline: i32,
    pub database: pg_sys::Oid,
    /// The inode of the data directory's `PG_VERSION`, which is never written anew.
    pub directory: i64,
}

impl Place {
    pub fn here() -> Place {
        // SAFETY: plain looks at shared memory and settings.
        unsafe {
            let folder = std::ffi::CStr::from_ptr(pg_sys::DataDir)
                .to_string_lossy()
                .into_owned();
            let file = std::fs::metadata(format!("{folder}/PG_VERSION"));
            Place {
                system: pg_sys::GetSystemIdentifier() as i64,
                timeline: pg_sys::GetWALInsertionTimeLine() as i32,
                database: pg_sys::MyDatabaseId,
                directory: file.map_or(0, |file| file.ino() as i64),
            }
        }
    }
}
