//! `verifier`: what the kernel's verifier makes of each program, against a baseline.
//!
//! Complexity creeps in unseen until a kernel refuses the program. So every program is loaded
//! here by the same library as in the agent, and the instructions that the verifier had to walk
//! are compared with those of the last accepted state.

mod baseline;
mod load;
mod stack;

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::objects::OBJECTS;
use crate::{build, run, workspace};
use baseline::Baseline;

/// What `cargo xtask verifier` takes.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Accept the present numbers as the new baseline
    #[arg(long)]
    update: bool,
    /// Use the objects as they are instead of building them first
    #[arg(long)]
    no_build: bool,
}

impl Args {
    /// Compare the objects as they have just been built.
    pub(crate) const fn built() -> Self {
        Self {
            update: false,
            no_build: true,
        }
    }
}

/// What the kernel says of one loaded program.
#[derive(Clone, Debug)]
struct Program {
    name: String,
    kind: String,
    /// Instructions the verifier walked, over all paths.
    verified: u32,
    /// Bytes after the verifier's rewriting.
    translated: u32,
    /// Bytes of machine code; 0 where the JIT is off.
    jited: u32,
    load: std::time::Duration,
}

/// Loads, prints, compares; with `--update` rewrites the baseline.
pub(crate) fn run(args: &Args) -> Result<()> {
    if !workspace::is_root() {
        bail!("loading programs takes root");
    }
    if !args.no_build {
        build::ebpf()?;
    }
    let mut baseline = Baseline::read()?;
    let mut complaints = Vec::new();
    for object in OBJECTS.iter().filter(|object| object.budgeted) {
        run::step(&format!("loading every program of {}", object.bin));
        let programs = load::programs(object)?;
        let stack = stack::depths(object, &logs())?;
        println!(
            "    {:<20} {:<12} {:>10} {:>10} {:>10} {:>10} {:>12} {:>9}",
            "program", "type", "verified", "baseline", "xlated B", "jited B", "stack B", "load ms"
        );
        for program in &programs {
            let before = baseline.verified(object.bin, &program.name);
            println!(
                "    {:<20} {:<12} {:>10} {:>10} {:>10} {:>10} {:>12} {:>9.1}",
                program.name,
                program.kind,
                program.verified,
                before.map_or_else(|| "-".to_owned(), |count| count.to_string()),
                program.translated,
                program.jited,
                stack.get(&program.name).map_or("-", String::as_str),
                program.load.as_secs_f64() * 1e3,
            );
            complaints.extend(baseline.complaint(object.bin, &program.name, program.verified));
        }
        if args.update {
            baseline.replace(object.bin, &programs);
        } else {
            complaints.extend(baseline.absent(object.bin, &programs));
        }
    }
    if args.update {
        return baseline.write();
    }
    for complaint in &complaints {
        println!("    {complaint}");
    }
    if complaints.is_empty() {
        println!("verifier: within the budget");
        return Ok(());
    }
    bail!(
        "{} program(s) outside the budget; if that is meant, `cargo xtask verifier --update` accepts it",
        complaints.len()
    )
}

/// Where the verifier's full logs go.
fn logs() -> PathBuf {
    workspace::target().join("verifier")
}
