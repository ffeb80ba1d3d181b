//! Control groups that a lab's containers leave behind: empty folders, in each hierarchy of the machine.

use std::path::{Path, PathBuf};

use crate::names;

const ROOT: &str = "/sys/fs/cgroup";

/// Removes the group of this name, and all below it, from every hierarchy. One that has processes stays.
pub(crate) fn remove(name: &str) {
    for hierarchy in hierarchies() {
        remove_all(&hierarchy.join(name));
    }
}

/// The same for those whose owner is gone.
pub(crate) fn remove_stale() {
    for hierarchy in hierarchies() {
        for path in names::stale_in(&hierarchy) {
            remove_all(&path);
        }
    }
}

/// The unified hierarchy, or the controllers' of version 1.
fn hierarchies() -> Vec<PathBuf> {
    let root = PathBuf::from(ROOT);
    folders(&root).chain([root.clone()]).collect()
}

/// Files in there are the kernel's, and go with their folder.
fn remove_all(group: &Path) {
    for below in folders(group) {
        remove_all(&below);
    }
    // Gone already, or not empty: then somebody still uses it.
    let _ = std::fs::remove_dir(group);
}

fn folders(path: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
}
