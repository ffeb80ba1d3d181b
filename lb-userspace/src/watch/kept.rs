//! The last good text of every manifest, so that a file which is broken when an agent starts does
//! not take away what the agent before had read from it.
//!
//! Only a file that cannot be read well is ever looked up here: a good one is believed as it is.
//! Texts are kept whole and only when all of their objects could be read. Failing to keep one
//! is said once and harms nobody until the next start.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The folder of last good texts; named as the manifests are.
#[derive(Debug, Default)]
pub struct Kept {
    dir: Option<PathBuf>,
    /// To be written, or with `None` to be removed.
    due: BTreeMap<OsString, Option<Vec<u8>>>,
    said: bool,
}

impl Kept {
    /// Keeps nothing: for a dry run, which changes nothing.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Keeps texts in this folder, made when the first one is written.
    pub fn within(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: Some(dir.into()),
            ..Self::default()
        }
    }

    /// What this manifest said when it was last good.
    pub(super) fn load(&self, file: &Path) -> Option<Vec<u8>> {
        fs::read(self.dir.as_ref()?.join(file.file_name()?)).ok()
    }

    /// This manifest is good.
    pub(super) fn keep(&mut self, file: &Path, text: Vec<u8>) {
        self.note(file.file_name(), Some(text));
    }

    /// This manifest is gone.
    pub(super) fn forget(&mut self, file: &Path) {
        self.note(file.file_name(), None);
    }

    /// Forgets all manifests but these: the others went while nobody looked.
    pub(super) fn forget_others(&mut self, files: &BTreeSet<PathBuf>) {
        let Some(dir) = &self.dir else { return };
        let names: BTreeSet<_> = files.iter().filter_map(|file| file.file_name()).collect();
        let kept = fs::read_dir(dir).into_iter().flatten().flatten();
        let others: Vec<_> = kept
            .map(|entry| entry.file_name())
            .filter(|name| !names.contains(name.as_os_str()))
            .collect();
        for name in others {
            self.note(Some(&name), None);
        }
    }

    /// Brings the folder up to date. Apart from noting, because whoever waits for the manifests'
    /// news must not wait for this.
    pub(super) fn save(&mut self) {
        let Some(dir) = &self.dir else { return };
        for (name, text) in std::mem::take(&mut self.due) {
            let path = dir.join(&name);
            let saved = match text {
                Some(text) => write(dir, &path, &text),
                None => remove(&path),
            };
            if let Err(error) = saved
                && !self.said
            {
                self.said = true;
                tracing::warn!(path = %path.display(), %error,
                    "cannot keep a copy of a manifest: if it is broken when the agent starts again, its objects are lost");
            }
        }
    }

    fn note(&mut self, name: Option<&OsStr>, text: Option<Vec<u8>>) {
        if let Some(name) = name.filter(|_| self.dir.is_some()) {
            self.due.insert(name.to_owned(), text);
        }
    }
}

/// Replaces the text as a whole, and only when it differs.
fn write(dir: &Path, path: &Path, text: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    fs::create_dir_all(dir)?;
    let new = dir.join(".new");
    fs::write(&new, text)?;
    fs::rename(&new, path)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_kept_replaced_and_forgotten() {
        let dir = tempfile::tempdir().expect("folder");
        let at = dir.path().join("kept");
        let file = |name: &str| Path::new("/etc/manifests").join(name);
        let mut kept = Kept::within(&at);
        for (name, text) in [("a.yaml", "1"), ("b.yaml", "2"), ("a.yaml", "3")] {
            kept.keep(&file(name), text.into());
        }
        assert_eq!(kept.load(&file("a.yaml")), None, "not saved yet");
        kept.save();
        assert_eq!(kept.load(&file("a.yaml")), Some("3".into()));

        let mut next = Kept::within(&at);
        next.forget_others(&BTreeSet::from([file("b.yaml"), file("c.yaml")]));
        next.save();
        assert_eq!(next.load(&file("a.yaml")), None);
        assert_eq!(next.load(&file("b.yaml")), Some("2".into()));
        next.forget(&file("b.yaml"));
        next.save();
        assert_eq!(fs::read_dir(&at).expect("there").count(), 0);
    }

    #[test]
    fn a_dry_run_leaves_nothing() {
        let mut kept = Kept::nothing();
        kept.keep(Path::new("a.yaml"), "1".into());
        kept.save();
        assert_eq!(kept.load(Path::new("a.yaml")), None);
        assert!(!Path::new("a.yaml").exists());
    }
}
