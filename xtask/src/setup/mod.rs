//! `setup`: brings a machine to where everything builds and every test runs.
//!
//! It looks first and installs only what is missing, so that a complete machine needs no
//! network. It never mounts, starts or configures anything: that is the agent's and the lab's work.

mod apt;
mod linker;
mod nightly;

use std::process::Command;

use anyhow::{Result, bail};

use crate::toolchain::{self, Toolchain};
use crate::{run, workspace};

/// What `cargo xtask setup` takes.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Only report what is missing (the exit code says whether something is)
    #[arg(long)]
    check: bool,
}

/// Debian's way to compile for BPF.
const COMPILER: &[&str] = &[
    "bpftool",
    "cargo-web",
    "libpolly-22-dev",
    "libstd-rust-web-dev-bpf",
    "libzstd-dev",
    "llvm-22-dev",
    "rust-web-clippy",
    "rust-web-llvm",
    "rust-web-src",
    "rustc-web",
    "zlib1g-dev",
];

/// What the demo, the lab tests and the benches run.
const TOOLS: &[&str] = &[
    "conntrack",
    "curl",
    "ethtool",
    "iperf3",
    "iproute2",
    "nftables",
    "nginx-light",
    "tcpdump",
];

/// What a Kubernetes cluster is made of, besides what is built from source.
const CLUSTER: &[&str] = &[
    "busybox-static",
    "containerd",
    "containernetworking-plugins",
    "etcd-server",
    "openssl",
    "runc",
];

/// The same tools where there is no apt, by the names of their programs.
const PROGRAMS: &[&str] = &[
    "bpftool",
    "conntrack",
    "curl",
    "ethtool",
    "iperf3",
    "ip",
    "nft",
    "nginx",
    "setpriv",
    "tc",
    "tcpdump",
    "unshare",
];

/// One thing that is missing, and how to get it.
#[derive(Debug)]
enum Missing {
    /// Packages of Debian or Ubuntu; installing them takes root.
    Packages(Vec<&'static str>),
    /// Programs on a machine without apt: named, not installed.
    Programs(Vec<&'static str>),
    /// A rustup nightly with the sources of `core`.
    Nightly,
    /// The linker of BPF objects, built against the toolchain's LLVM.
    Linker,
}

/// Installs what is missing, or with `--check` says what it would install.
pub(crate) fn run(args: &Args) -> Result<()> {
    let missing = missing();
    if missing.is_empty() {
        println!("setup: complete ({} toolchain)", way().name());
        return Ok(());
    }
    for item in &missing {
        println!("setup: missing: {}", item.describe());
    }
    if args.check {
        bail!("this machine lacks something: run `cargo xtask setup`");
    }
    install(&missing)
}

/// Sets the machine up unless it is complete; for the commands that need it.
pub(crate) fn ensure() -> Result<()> {
    run(&Args { check: false })
}

/// What clusters need besides: only the commands that bring one up ask for it.
pub(crate) fn cluster() -> Result<()> {
    if apt::exists() {
        let names = apt::missing(CLUSTER.iter().copied());
        if !names.is_empty() {
            apt::install(&names)?;
        }
    }
    if !found("go") {
        bail!("a cluster takes Kubernetes' own programs, and building them Go 1.26 or later");
    }
    Ok(())
}

fn install(missing: &[Missing]) -> Result<()> {
    for item in missing {
        match item {
            Missing::Packages(names) => apt::install(names)?,
            Missing::Programs(names) => bail!(
                "install these with your system's package manager: {}",
                names.join(" ")
            ),
            Missing::Nightly => nightly::install()?,
            Missing::Linker => linker::install(way())?,
        }
    }
    Ok(())
}

fn missing() -> Vec<Missing> {
    let way = way();
    let mut missing = Vec::new();
    if apt::exists() {
        let compiler = match way {
            Toolchain::Debian => COMPILER,
            Toolchain::Rustup => &[],
        };
        let names = apt::missing(compiler.iter().chain(TOOLS).copied());
        if !names.is_empty() {
            missing.push(Missing::Packages(names));
        }
    } else {
        let names: Vec<_> = PROGRAMS
            .iter()
            .copied()
            .filter(|name| !found(name))
            .collect();
        if !names.is_empty() {
            missing.push(Missing::Programs(names));
        }
    }
    if way == Toolchain::Rustup && !way.is_ready() {
        missing.push(Missing::Nightly);
    }
    if toolchain::linker().is_none() {
        missing.push(Missing::Linker);
    }
    missing
}

/// The way that is ready here, else Debian's where its packages are to be had, else rustup's.
fn way() -> Toolchain {
    Toolchain::installed().unwrap_or_else(|| match std::env::var(toolchain::CHOICE).as_deref() {
        Ok("rustup") => Toolchain::Rustup,
        _ if apt::exists() && apt::offers("libstd-rust-web-dev-bpf") => Toolchain::Debian,
        _ => Toolchain::Rustup,
    })
}

fn found(program: &str) -> bool {
    // Administration programs live where the PATH of an ordinary user does not look.
    std::env::split_paths(&toolchain::search_path())
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|dir| dir.join(program).is_file())
}

impl Missing {
    fn describe(&self) -> String {
        match self {
            Self::Packages(names) => format!("packages {}", names.join(" ")),
            Self::Programs(names) => format!("programs {}", names.join(" ")),
            Self::Nightly => "a rustup nightly toolchain with rust-src".to_owned(),
            Self::Linker => format!("bpf-linker {}", linker::VERSION),
        }
    }
}

/// Runs a command that changes the machine, saying so.
fn change(command: &mut Command, what: &str) -> Result<()> {
    run::step(what);
    run::checked(command)
}

/// Fails with the exact command to type when only root could go on.
fn need_root(what: &str) -> Result<()> {
    if workspace::is_root() {
        return Ok(());
    }
    bail!(
        "{what} takes root: run `sudo --preserve-env=PATH,HOME cargo xtask setup`, or install it yourself"
    )
}
