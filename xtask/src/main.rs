//! `cargo xtask`: the front door for developers and for CI.
//!
//! One file per command; this one only lists them. Commands end the processes they
//! started (by id) when they are interrupted, and print what they are doing on long steps.

mod bench;
mod bpffs;
mod build;
mod cargo;
mod ci;
mod demo;
mod e2e;
mod image;
mod kube;
mod load;
mod objects;
mod run;
mod setup;
mod test;
mod tidy;
mod toolchain;
mod verifier;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Sluice's developer commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install what building and testing need (idempotent; says what it does)
    Setup(setup::Args),
    /// Build the eBPF objects and the `sluice` binary with them inside
    Build(build::Args),
    /// Run every test; as root the ones that need it, too
    Test(test::Args),
    /// Load every program, print what the verifier made of it, compare with the baseline
    Verifier(verifier::Args),
    /// Measure the packet path, the maps and the agent against their targets (as root)
    Bench(bench::Args),
    /// Attach to an interface for a look, until Ctrl-C (as root)
    Load(load::Args),
    /// Replace every pod under load, through Sluice and through an nftables map (as root)
    Demo(demo::Args),
    /// Write the container image, without a builder or a registry
    Image(image::Args),
    /// A Kubernetes cluster from nothing, the `DaemonSet` on it, rollouts under load (as root)
    E2e(e2e::Args),
    /// Check the repository's own rules
    Tidy,
    /// Everything that must hold before a change lands
    Ci,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run::watch_signals().and_then(|()| dispatch(cli.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) if run::interrupted() => {
            run::await_teardown();
            eprintln!("xtask: interrupted; what it had started is ended");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: Command) -> Result<()> {
    match command {
        Command::Setup(args) => setup::run(&args),
        Command::Build(args) => build::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Verifier(args) => verifier::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Image(args) => image::run(&args),
        Command::E2e(args) => e2e::run(&args),
        Command::Tidy => tidy::run(),
        Command::Ci => ci::run(),
    }
}
