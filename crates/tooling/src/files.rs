//! Files that commands write: records and reports.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

/// Writes all of `record` as JSON, making the folder when it is not there.
pub fn write_json(record: &impl Serialize, path: &Path) -> anyhow::Result<()> {
    write(path, &(serde_json::to_string_pretty(record)? + "\n"))
}

/// Writes a file, making the folder when it is not there.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    path.parent().map_or(Ok(()), make_folder)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Makes a folder, and those around it, when it is not there.
pub fn make_folder(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))
}
