//! `ci`: everything that must hold before a change lands, the cheapest check first.
//!
//! It sets the machine up itself, so that a fresh clone on a new machine needs nothing else.

use std::time::Instant;

use anyhow::{Context, Result};

use crate::objects::OBJECTS;
use crate::toolchain::Toolchain;
use crate::{build, cargo, run, setup, test, tidy, verifier, workspace};

/// Runs all checks; the tests' closing line comes last.
pub(crate) fn run() -> Result<()> {
    timed("setup", setup::ensure)?;
    timed("formatting", || cargo(&["fmt", "--all", "--check"]))?;
    timed("rules", tidy::run)?;
    timed("lints", || {
        cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ])
    })?;
    timed("lints for BPF", bpf_lints)?;
    timed("eBPF objects", build::ebpf)?;
    let mut tally = test::Tally::default();
    timed("tests", || {
        tally = test::all(&test::Args::default())?;
        tally.verdict()
    })
    .inspect_err(|_| println!("\n{tally}"))?;
    if workspace::is_root() {
        timed("verifier", || verifier::run(&verifier::Args::built()))?;
    } else {
        println!("    not root: the verifier's budget is not checked");
    }
    println!("\n{tally}");
    Ok(())
}

fn bpf_lints() -> Result<()> {
    let toolchain = Toolchain::require()?;
    for object in OBJECTS {
        match toolchain.clippy(object) {
            Some(mut command) => run::checked(&mut command)?,
            None => println!("    this toolchain has no clippy: linted for the host only"),
        }
    }
    Ok(())
}

fn cargo(args: &[&str]) -> Result<()> {
    run::checked(cargo::host().args(args))
}

fn timed(name: &str, check: impl FnOnce() -> Result<()>) -> Result<()> {
    run::step(&format!("ci: {name}"));
    let started = Instant::now();
    check().with_context(|| format!("ci: {name}"))?;
    println!("    {name}: {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}
