//! `load`: the programs on an interface, for a developer's look.
//!
//! The agent does it, with a pin folder of its own, so that it never meets one that is in service.
//! When it ends, by Ctrl-C or by itself, everything is detached again.

use std::process::Command;

use anyhow::{Result, bail};

use crate::{build, run, workspace};

/// Away from the agent's default, which may be in use on this machine.
const PINS: &str = "/sys/fs/bpf/sluice-look";
const HTTP: &str = "127.0.0.1:9096";

/// What `cargo xtask load` takes.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The interface to attach to
    #[arg(long)]
    interface: String,
    /// auto, native or generic
    #[arg(long, default_value = "auto")]
    mode: String,
    /// Folder of manifests to serve
    #[arg(long, default_value = "examples")]
    manifests: String,
    /// Name of this node in them
    #[arg(long, default_value = "n1")]
    node_name: String,
    /// Use what is built instead of building it first
    #[arg(long)]
    no_build: bool,
}

/// Builds, attaches, waits, detaches.
pub(crate) fn run(args: &Args) -> Result<()> {
    if !workspace::is_root() {
        bail!("attaching programs takes root");
    }
    if !args.no_build {
        build::debug()?;
    }
    let binary = workspace::target().join("debug/sluice");
    let name = binary.display();
    run::note(&format!(
        "
    In another shell, as root:
        {name} status --pin-dir {PINS} --agent {HTTP}
        bpftool net show dev {}
        bpftool map dump pinned {PINS}/v1/maps/frontends
        bpftool prog dump xlated name sluice_xdp
    Ctrl-C detaches.
",
        args.interface
    ));
    let mut agent = Command::new(&binary);
    agent.args(["agent", "--pin-dir", PINS, "--metrics-address", HTTP]);
    agent.args(["--interface", &args.interface, "--xdp-mode", &args.mode]);
    agent.args([
        "--manifests",
        &args.manifests,
        "--node-name",
        &args.node_name,
    ]);
    agent.args(["--state-file", "/run/sluice-look.json"]);
    let ended = run::checked(&mut agent);
    // Not by way of `run`: it starts nothing once the user has interrupted.
    let detached = Command::new(&binary)
        .args(["detach", "--pin-dir", PINS])
        .status();
    let _ = std::fs::remove_file("/run/sluice-look.json");
    match detached {
        Ok(status) if status.success() => ended,
        Ok(status) => bail!("`sluice detach --pin-dir {PINS}` ended with {status}"),
        Err(error) => bail!("`sluice detach --pin-dir {PINS}`: {error}"),
    }
}
