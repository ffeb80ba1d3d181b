//! The kernel's word that something in the directory has changed.

use std::path::Path;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

use super::{ManifestError, stamp};

/// Where the kernel's words go.
pub(super) type Seen = mpsc::UnboundedSender<notify::Result<notify::Event>>;

/// The inotify watch, renewed when the directory at the path is another one.
pub(super) struct Watch {
    watcher: RecommendedWatcher,
    inode: Option<u64>,
}

impl Watch {
    /// Watches the directory at this path.
    pub(super) fn start(path: &Path, seen: Seen) -> Result<Self, ManifestError> {
        let failed = |source| ManifestError::Watch {
            path: path.to_owned(),
            source,
        };
        let told = move |event| {
            // The receiver is gone only when nobody follows any more.
            let _closed = seen.send(event);
        };
        let mut watcher = notify::recommended_watcher(told).map_err(failed)?;
        watcher
            .watch(path, RecursiveMode::NonRecursive)
            .map_err(failed)?;
        Ok(Self {
            watcher,
            inode: inode(path),
        })
    }

    /// Watches what is at the path now.
    pub(super) fn renew(&mut self, path: &Path) {
        let now = inode(path);
        if now.is_none() || now == self.inode {
            return;
        }
        // Unwatching fails when the old directory is gone, which is why we are here.
        let _gone = self.watcher.unwatch(path);
        if self
            .watcher
            .watch(path, RecursiveMode::NonRecursive)
            .is_ok()
        {
            self.inode = now;
        }
    }
}

fn inode(path: &Path) -> Option<u64> {
    stamp(path).map(|s| s.0)
}
