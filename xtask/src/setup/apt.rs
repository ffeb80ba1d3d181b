//! Packages of Debian and Ubuntu.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::{change, need_root};
use crate::run;

/// Asked by every package's scripts before a service is started.
const POLICY: &str = "/usr/sbin/policy-rc.d";
/// The policy's answer "forbidden by policy": the tests need nginx the program, not the service.
const FORBID: &str = "#!/bin/sh\nexit 101\n";

/// Waits for another apt to finish, and prints a log instead of a moving bar.
const OPTIONS: [&str; 5] = [
    "--quiet",
    "--option",
    "DPkg::Lock::Timeout=300",
    "--option",
    "Dpkg::Use-Pty=0",
];

/// Whether this machine has apt.
pub(super) fn exists() -> bool {
    ["/usr/bin/apt-get", "/usr/bin/dpkg-query"]
        .iter()
        .all(|path| Path::new(path).exists())
}

/// The packages that are not installed; asks the local database only.
pub(super) fn missing(names: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    names.filter(|name| !installed(name)).collect()
}

/// Whether the package lists know a package; with no lists yet, they are fetched first.
pub(super) fn offers(name: &str) -> bool {
    if candidate(name) {
        return true;
    }
    need_root("fetching package lists").is_ok() && update().is_ok() && candidate(name)
}

/// Installs packages without their services being started.
pub(super) fn install(names: &[&str]) -> Result<()> {
    need_root(&format!("installing {}", names.join(" ")))?;
    if !names.iter().all(|name| candidate(name)) {
        update()?;
    }
    let guard = Guard::new()?;
    let done = apt_get(
        &[&["install", "--yes", "--no-install-recommends"], names].concat(),
        &format!("installing {}", names.join(" ")),
    );
    drop(guard);
    done?;
    if names.contains(&"nginx-light") && Path::new("/run/systemd/system").exists() {
        change(
            Command::new("systemctl").args(["disable", "--quiet", "nginx.service"]),
            "keeping the nginx service off: only its program is used",
        )?;
    }
    Ok(())
}

fn installed(name: &str) -> bool {
    run::quiet(Command::new("dpkg-query").args([
        "--show",
        "--showformat",
        "${db:Status-Status}",
        name,
    ]))
    .is_some_and(|status| status.lines().any(|line| line == "installed"))
}

fn candidate(name: &str) -> bool {
    run::quiet(Command::new("apt-cache").args(["show", "--no-all-versions", name]))
        .is_some_and(|text| !text.trim().is_empty())
}

fn update() -> Result<()> {
    apt_get(&["update"], "fetching the package lists")
}

fn apt_get(args: &[&str], what: &str) -> Result<()> {
    change(
        Command::new("apt-get")
            .args(OPTIONS)
            .args(args)
            .env("DEBIAN_FRONTEND", "noninteractive"),
        what,
    )
}

/// Keeps packages from starting services while it lives; leaves a policy that was there alone.
struct Guard {
    ours: bool,
}

impl Guard {
    fn new() -> Result<Self> {
        let ours = !Path::new(POLICY).exists();
        if ours {
            fs::write(POLICY, FORBID).context(POLICY)?;
            fs::set_permissions(POLICY, fs::Permissions::from_mode(0o755)).context(POLICY)?;
        }
        Ok(Self { ours })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.ours
            && let Err(error) = fs::remove_file(POLICY)
        {
            eprintln!("setup: {POLICY} could not be removed: {error}");
        }
    }
}
