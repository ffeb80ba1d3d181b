//! `image`: the container image, written as an OCI layout without a builder or a registry.
//!
//! One static binary with the eBPF object inside and nothing else: no shell, no libc, no package to update.

use std::path::PathBuf;

use anyhow::Result;
use lab::oci::Image;

use crate::{build, cargo, run, workspace};

/// What `cargo xtask image` takes.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Full name and tag
    #[arg(long, default_value = NAME)]
    name: String,
    /// Where to write it [default: target/image/sluice.tar]
    #[arg(long)]
    to: Option<PathBuf>,
}

/// The image's name, as deploy/ asks for it.
pub(crate) const NAME: &str = concat!("localhost/sluice:", env!("CARGO_PKG_VERSION"));

/// Builds and writes it.
pub(crate) fn run(args: &Args) -> Result<()> {
    let to = args
        .to
        .clone()
        .unwrap_or_else(|| folder().join("sluice.tar"));
    let programs = programs(&["lb-userspace"])?;
    if let Some(parent) = to.parent() {
        std::fs::create_dir_all(parent)?;
    }
    sluice(&args.name, &programs).write(&to)?;
    let size = std::fs::metadata(&to)?.len() / 1024 / 1024;
    run::note(&format!("    {} ({}, {size} MiB)", to.display(), args.name));
    run::note(&format!(
        "    to a node: `ctr -n k8s.io images import {}`; or `docker load`, `skopeo copy oci-archive:...`",
        to.display()
    ));
    Ok(())
}

/// The product's image.
pub(crate) fn sluice(name: &str, programs: &Programs) -> Image {
    Image {
        name: name.to_owned(),
        files: vec![(programs.of("sluice"), "/sluice".to_owned())],
        entrypoint: vec!["/sluice".to_owned()],
        // Capabilities of a container come to root only: Kubernetes has no ambient ones.
        user: "0:0".to_owned(),
    }
}

/// Where images are written.
pub(crate) fn folder() -> PathBuf {
    workspace::target().join("image")
}

/// Programs that need nothing of the system they run on.
pub(crate) struct Programs(PathBuf);

impl Programs {
    /// Where one of them is.
    pub(crate) fn of(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// Builds these packages' programs statically.
pub(crate) fn programs(packages: &[&str]) -> Result<Programs> {
    build::ebpf()?;
    run::step("building static binaries (release)");
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let variable = format!(
        "CARGO_TARGET_{}_RUSTFLAGS",
        target.to_uppercase().replace('-', "_")
    );
    let mut command = cargo::host();
    command.args(["build", "--release", "--bins", "--target", &target]);
    for package in packages {
        command.args(["--package", package]);
    }
    command.env(variable, "-C target-feature=+crt-static");
    run::checked(&mut command)?;
    Ok(Programs(workspace::target().join(target).join("release")))
}
