//! The directory source: manifests on a disk, followed with inotify.
//!
//! Writers differ: an editor renames, a shell truncates and writes, a ConfigMap swaps a
//! symlink under all files at once. A file is read when its writer has closed it, a missing
//! file only counts when it has stayed away, and a directory that cannot be read changes
//! nothing. A slow full look catches what no event told (a remount, another host's write).

mod inotify;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::stamp::{Stamp, stamp};
use crate::desired::Ignored;
use crate::watch::event::WatchEvent;
use crate::watch::files::Files;
use crate::watch::kept::Kept;
use inotify::Watch;

/// A file that was closed or renamed into place is complete: wait only for its companions.
const SETTLE: Duration = Duration::from_millis(2);
/// A file that is being written, or gone, may be whole again in a moment.
const PATIENCE: Duration = Duration::from_millis(100);
/// Full look at the directory without any event.
const SWEEP: Duration = Duration::from_secs(5);

/// Why a directory cannot serve as a source.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// Not there, or no rights.
    #[error("cannot read the manifest directory {path}: {source}")]
    Read {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No inotify instance or watch could be had.
    #[error("cannot watch the manifest directory {path}: {source}")]
    Watch {
        /// The directory.
        path: PathBuf,
        /// What inotify said.
        source: notify::Error,
    },
}

/// Manifests of one directory. Reading is blocking and quick; `follow` is for the agent.
#[derive(Debug)]
pub struct ManifestDir {
    path: PathBuf,
    files: Files,
    kept: Kept,
    stamps: BTreeMap<PathBuf, Stamp>,
    trouble: Option<Ignored>,
    problems: Vec<Ignored>,
    told: Vec<Ignored>,
}

impl ManifestDir {
    /// Reads the whole directory once; `events` then lists it. A file that is broken already says
    /// what was kept of it.
    pub fn open(path: &Path, kept: Kept) -> Result<Self, ManifestError> {
        let mut dir = Self {
            path: path.to_owned(),
            files: Files::default(),
            kept,
            stamps: BTreeMap::new(),
            trouble: None,
            problems: Vec::new(),
            told: Vec::new(),
        };
        let read = dir.listing();
        let found = read.map_err(|source| ManifestError::Read {
            path: path.to_owned(),
            source,
        })?;
        for file in &found {
            dir.read(file);
            // At once, or all texts would be in memory together.
            dir.save();
        }
        dir.kept.forget_others(&found);
        Ok(dir)
    }

    /// What changed since the last call.
    pub fn events(&mut self) -> Vec<WatchEvent> {
        let mut events = self.files.events();
        let news = events
            .iter()
            .position(|e| matches!(e, WatchEvent::Problems(_)));
        if let Some(WatchEvent::Problems(problems)) = news.map(|at| events.remove(at)) {
            self.problems = problems;
        }
        // The trouble with the directory itself is said together with that of its files.
        let all: Vec<_> = self.trouble.iter().chain(&self.problems).cloned().collect();
        if all != self.told {
            self.told.clone_from(&all);
            events.push(WatchEvent::Problems(all));
        }
        events
    }

    /// Reads one file again, or drops it when it is gone.
    pub fn read(&mut self, file: &Path) {
        let name = file.to_string_lossy().into_owned();
        let content = content(file);
        if let Err(e) = &content
            && e.kind() == io::ErrorKind::NotFound
        {
            self.stamps.remove(file);
            self.files.remove(&name);
            self.kept.forget(file);
            return;
        }
        self.stamps
            .insert(file.to_owned(), stamp(file).unwrap_or_default());
        match content {
            Ok(bytes) => {
                let known = self.files.knows(&name);
                let mut good = self.files.put(&name, &bytes);
                if !good
                    && !known
                    && let Some(text) = self.kept.load(file)
                {
                    good = self.files.put_after(&name, &text, &bytes);
                }
                if good {
                    self.kept.keep(file, bytes);
                }
            }
            Err(e) => {
                if !self.files.knows(&name)
                    && let Some(text) = self.kept.load(file)
                {
                    self.files.put(&name, &text);
                }
                self.files.unreadable(&name, &e.to_string());
            }
        }
    }

    /// Keeps what is good for the next start.
    pub fn save(&mut self) {
        self.kept.save();
    }

    /// Files that look different from when they were read, are new or are gone. A directory
    /// that cannot be listed is trouble, not an empty directory.
    pub fn changed(&mut self) -> BTreeSet<PathBuf> {
        let found = match self.listing() {
            Ok(found) => found,
            Err(e) => {
                let reason = format!("cannot be read: {e}; the last good objects stay");
                self.trouble = Some(Ignored {
                    object: self.path.display().to_string(),
                    reason,
                });
                return BTreeSet::new();
            }
        };
        self.trouble = None;
        let known = |file: &PathBuf| self.stamps.get(file).copied() == stamp(file);
        let mut changed: BTreeSet<_> = found.iter().filter(|f| !known(f)).cloned().collect();
        changed.extend(self.stamps.keys().filter(|f| !found.contains(*f)).cloned());
        changed
    }

    fn listing(&self) -> io::Result<BTreeSet<PathBuf>> {
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(&self.path)? {
            found.insert(entry?.path());
        }
        found.retain(|path| is_manifest(path));
        Ok(found)
    }
}

/// A manifest's bytes. Whatever is no file is not opened: a pipe would be waited for.
fn content(file: &Path) -> io::Result<Vec<u8>> {
    let kind = fs::metadata(file)?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err(io::Error::other("it is no regular file"));
    }
    fs::read(file)
}

/// Manifests by their name; hidden files are an editor's or a ConfigMap's own.
fn is_manifest(path: &Path) -> bool {
    let hidden = path
        .file_name()
        .is_none_or(|n| n.to_string_lossy().starts_with('.'));
    let extension = path.extension().and_then(|e| e.to_str());
    !hidden && matches!(extension, Some("yaml" | "yml" | "json"))
}

/// A file that no manifest is read from: an editor's, or one that is about to be renamed. Names
/// that begin with two dots are a ConfigMap's, and all its files hang on them.
fn is_passing(name: &OsStr) -> bool {
    !is_manifest(Path::new(name)) && !name.as_encoded_bytes().starts_with(b"..")
}

/// Follows a directory until `events` is closed. The first events list every kind.
pub async fn follow(
    path: &Path,
    kept: Kept,
    events: mpsc::Sender<Vec<WatchEvent>>,
) -> Result<(), ManifestError> {
    let (seen, mut news) = mpsc::unbounded_channel();
    let mut watcher = Watch::start(path, seen)?;
    let mut dir = ManifestDir::open(path, kept)?;
    let mut due = Due::default();
    let mut sweep = tokio::time::interval(SWEEP);
    loop {
        let batch = dir.events();
        if !batch.is_empty() && events.send(batch).await.is_err() {
            return Ok(());
        }
        dir.save();
        tokio::select! {
            event = news.recv() => match event {
                Some(Ok(event)) => due.note(path, &event),
                // An overflow or a failed read: look at everything.
                Some(Err(_)) | None => due.everything(SETTLE),
            },
            () = tokio::time::sleep_until(due.next()) => {
                for file in due.take(&mut dir) {
                    dir.read(&file);
                }
            },
            _ = sweep.tick() => {
                watcher.renew(path);
                for file in dir.changed() {
                    due.file_unless_due(file);
                }
            },
            () = events.closed() => return Ok(()),
        }
    }
}

/// Files to be read, and when.
#[derive(Debug, Default)]
struct Due {
    files: BTreeMap<PathBuf, Instant>,
    all: Option<Instant>,
}

impl Due {
    fn note(&mut self, dir: &Path, event: &notify::Event) {
        let wait = match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write))
            | EventKind::Modify(ModifyKind::Name(_)) => SETTLE,
            EventKind::Access(_) => return,
            EventKind::Any
            | EventKind::Other
            | EventKind::Create(_)
            | EventKind::Remove(_)
            | EventKind::Modify(_) => PATIENCE,
        };
        if event.need_rescan() {
            self.everything(SETTLE);
        }
        let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        for path in &event.paths {
            let file = path
                .file_name()
                .filter(|_| path.parent() == Some(&absolute));
            if file.is_some_and(is_passing) {
                continue;
            }
            match file
                .map(|name| dir.join(name))
                .filter(|file| is_manifest(file))
            {
                // Renamed away: it may be about to be replaced.
                Some(file) if !file.exists() => self.file(file, PATIENCE),
                Some(file) if is_metadata(event.kind) => self.file_unless_due(file),
                Some(file) => self.file(file, wait),
                // `..data` of a ConfigMap: all links point elsewhere now.
                None => self.everything(wait),
            }
        }
    }

    fn file(&mut self, file: PathBuf, wait: Duration) {
        self.files.insert(file, Instant::now() + wait);
    }

    fn file_unless_due(&mut self, file: PathBuf) {
        self.files
            .entry(file)
            .or_insert_with(|| Instant::now() + PATIENCE);
    }

    fn everything(&mut self, wait: Duration) {
        self.all = Some(Instant::now() + wait);
    }

    fn next(&self) -> Instant {
        let far = Instant::now() + SWEEP;
        self.files
            .values()
            .copied()
            .chain(self.all)
            .min()
            .unwrap_or(far)
    }

    fn take(&mut self, dir: &mut ManifestDir) -> BTreeSet<PathBuf> {
        let now = Instant::now();
        let mut ready: BTreeSet<PathBuf> = BTreeSet::new();
        self.files.retain(|file, at| {
            let later = *at > now;
            if !later {
                ready.insert(file.clone());
            }
            later
        });
        if self.all.is_some_and(|at| at <= now) {
            self.all = None;
            // A file still being written is left to its own time.
            ready.extend(
                dir.changed()
                    .into_iter()
                    .filter(|f| !self.files.contains_key(f)),
            );
        }
        ready
    }
}

fn is_metadata(kind: EventKind) -> bool {
    matches!(kind, EventKind::Modify(ModifyKind::Metadata(_)))
}

#[cfg(test)]
mod tests;
