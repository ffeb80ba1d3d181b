//! Names that say who owns a namespace: `slab-<pid>-<start>-<n>-<role>`.
//!
//! Process ids are given out again, so the owner's start time is part of the name: leftovers of a dead owner are
//! told apart from a living lab, and two labs never collide. Pins and temporary files are named alike. Interfaces need
//! no such care, they live inside.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

use crate::ns::RUN_DIR;

const PREFIX: &str = "slab";

/// A fresh lab id of this process, such as `slab-4d2-1c8f-0`.
pub(crate) fn fresh_id() -> Result<String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    let start = start_time(pid).context("this process is not in /proc")?;
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    Ok(format!("{PREFIX}-{pid:x}-{start:x}-{n:x}"))
}

/// Where this process may put something that is not to outlive it.
pub(crate) fn temporary(role: &str) -> Result<PathBuf> {
    let pid = std::process::id();
    let start = start_time(pid).context("this process is not in /proc")?;
    Ok(std::env::temp_dir().join(format!("{PREFIX}-{pid:x}-{start:x}-tmp-{role}")))
}

/// Everything in this folder whose owner is gone.
pub(crate) fn stale_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let name = entry.file_name();
            owner(&name.to_string_lossy()).is_some_and(|owner| owner.is_gone())
        })
        .map(|entry| entry.path())
        .collect()
}

/// The namespace names that exist and belong to this lab.
pub(crate) fn namespaces_of(id: &str) -> Vec<String> {
    let prefix = format!("{id}-");
    list()
        .into_iter()
        .filter(|name| name.starts_with(&prefix))
        .collect()
}

/// The ids of labs whose owner is gone.
pub(crate) fn stale_ids() -> Vec<String> {
    let mut ids: Vec<String> = list()
        .iter()
        .filter_map(|name| owner(name))
        .filter(Owner::is_gone)
        .map(|o| o.id)
        .collect();
    ids.sort();
    ids.dedup();
    ids
}

struct Owner {
    id: String,
    pid: u32,
    start: u64,
}

impl Owner {
    fn is_gone(&self) -> bool {
        start_time(self.pid) != Some(self.start)
    }
}

fn owner(name: &str) -> Option<Owner> {
    let mut parts = name.splitn(5, '-');
    let (prefix, pid, start, n, _role) = (
        parts.next()?,
        parts.next()?,
        parts.next()?,
        parts.next()?,
        parts.next()?,
    );
    (prefix == PREFIX).then_some(())?;
    Some(Owner {
        id: format!("{prefix}-{pid}-{start}-{n}"),
        pid: u32::from_str_radix(pid, 16).ok()?,
        start: u64::from_str_radix(start, 16).ok()?,
    })
}

fn list() -> Vec<String> {
    let Ok(entries) = fs::read_dir(RUN_DIR) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// Field 22 of `/proc/PID/stat`, counted after the command name (which may hold spaces and brackets).
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = after_name.split_ascii_whitespace();
    // A zombie's namespaces are leftovers as well: nobody is there to remove them.
    (fields.next()? != "Z").then_some(())?;
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_owner_is_not_stale_and_a_reused_pid_is() {
        let id = fresh_id().expect("own id");
        let mut own = owner(&format!("{id}-n0-p1")).expect("parsed");
        assert_eq!(own.id, id);
        assert!(!own.is_gone());
        own.start += 1;
        assert!(own.is_gone(), "same pid, another start time");
    }

    #[test]
    fn temporary_things_have_an_owner() {
        let path = temporary("a-b").expect("own");
        let name = path.file_name().and_then(|name| name.to_str());
        let own = owner(name.expect("a name")).expect("parsed");
        assert_eq!(own.pid, std::process::id());
        assert!(!own.is_gone());
    }

    #[test]
    fn foreign_names_have_no_owner() {
        for name in [
            "cni-1234",
            "slab",
            "slab-1-2",
            "slab-x-1-0-lan",
            "other-1-1-0-lan",
        ] {
            assert!(owner(name).is_none(), "{name}");
        }
    }
}
