//! What a file looks like from outside: enough to tell that it has changed, without reading it.

use std::fs;
use std::path::Path;

/// Tells a changed file from an unchanged one without reading it.
pub(super) type Stamp = (u64, i64, i64, i64, i64, u64);

/// The file's, links followed; none when it cannot be looked at.
pub(super) fn stamp(path: &Path) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt;
    // Follows symlinks: a ConfigMap's files are links that never change themselves.
    let meta = fs::metadata(path).ok()?;
    Some((
        meta.ino(),
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec(),
        meta.len(),
    ))
}
