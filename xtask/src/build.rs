//! `build`: the eBPF objects, then `sluice` with the object inside.

use std::time::Instant;
use std::{fs, io};

use anyhow::{Context, Result};

use crate::objects::{OBJECTS, Object};
use crate::toolchain::Toolchain;
use crate::{cargo, run, workspace};

/// What `cargo xtask build` takes.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Optimise the `sluice` binary too (the eBPF object always is)
    #[arg(long)]
    release: bool,
    /// Only the eBPF objects
    #[arg(long, conflicts_with = "release")]
    ebpf_only: bool,
}

/// Builds the objects and the binary that carries the product's.
pub(crate) fn run(args: &Args) -> Result<()> {
    ebpf()?;
    if args.ebpf_only {
        return Ok(());
    }
    let profile = if args.release { "release" } else { "debug" };
    run::step(&format!("building sluice ({profile})"));
    let mut command = cargo::host();
    command.args(["build", "--package", "lb-userspace", "--bin", "sluice"]);
    if args.release {
        command.arg("--release");
    }
    run::checked(&mut command)?;
    let binary = workspace::target().join(profile).join("sluice");
    run::note(&format!("    {}", binary.display()));
    Ok(())
}

/// Builds the objects and the unoptimised binary.
pub(crate) fn debug() -> Result<()> {
    run(&Args {
        release: false,
        ebpf_only: false,
    })
}

/// Builds every eBPF object and leaves each at its stable path.
pub(crate) fn ebpf() -> Result<()> {
    let toolchain = Toolchain::require()?;
    for object in OBJECTS {
        run::step(&format!(
            "building the eBPF object {} ({} toolchain)",
            object.bin,
            toolchain.name()
        ));
        let started = Instant::now();
        run::checked(&mut toolchain.build(object))?;
        let size = publish(object)?;
        run::note(&format!(
            "    {} ({} KiB, {:.1} s)",
            object.path().display(),
            size / 1024,
            started.elapsed().as_secs_f64()
        ));
    }
    Ok(())
}

/// Copies a built object to its stable path, only if it differs: the file's time decides
/// whether the host binary is linked again.
fn publish(object: &Object) -> Result<usize> {
    let from = Toolchain::output(object);
    let to = object.path();
    let built = fs::read(&from).with_context(|| from.display().to_string())?;
    let present = match fs::read(&to) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error).with_context(|| to.display().to_string()),
    };
    if present != built {
        fs::write(&to, &built).with_context(|| to.display().to_string())?;
    }
    Ok(built.len())
}
