//! The bpf filesystem, which a fresh machine or container need not have mounted.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::run;

/// Where everybody expects it.
pub(crate) const BPFFS: &str = "/sys/fs/bpf";

/// Mounts it where it is missing, and says so.
pub(crate) fn mount() -> Result<()> {
    let mounted = fs::read_to_string("/proc/mounts").context("/proc/mounts")?;
    if mounted
        .lines()
        .any(|line| line.split(' ').nth(1) == Some(BPFFS))
    {
        return Ok(());
    }
    println!("    {BPFFS} is not mounted: mounting it");
    run::checked(Command::new("mount").args(["-t", "bpf", "bpf", BPFFS]))
}
