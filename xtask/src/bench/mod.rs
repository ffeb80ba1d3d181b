//! `bench`: what a packet costs, what the maps weigh, how fast the agent is, each against its
//! target, in one table.
//!
//! Ratios count, not nanoseconds: every figure stands beside something measured in the same run,
//! in rounds that take all cases in turn. `docs/bench.md` says how each row is measured. A missed
//! target is said, and is an error only with `--check`; a case that did not do what it is
//! measured for is an error always.

#![allow(
    clippy::cast_precision_loss,
    reason = "figures for people, far below 2^52"
)]

mod agent;
mod memory;
mod packets;
pub(crate) mod rollout;
mod rounds;
mod table;
mod throughput;

use anyhow::{Result, bail};

use crate::{build, run, workspace};
use table::Table;

/// What `cargo xtask bench` takes.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// Rounds; each takes every case in turn, and medians over them are printed
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=35))]
    rounds: u32,
    /// Only these parts of the table
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// How to print the table
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Fail when a target is missed
    #[arg(long)]
    check: bool,
    /// Use what is built instead of building it first
    #[arg(long)]
    no_build: bool,
    /// The link that the packets come from: a virtual one may leave checksums unfinished
    #[arg(long, value_enum, default_value_t)]
    link: packets::LinkKind,
}

/// A bench with a table of its own.
#[derive(clap::Subcommand, Debug)]
enum What {
    /// Rolling updates under load, beside failover off, an nftables map, and no balancer
    Rollout(rollout::Args),
}

/// A part of the table.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum Part {
    /// Cost of a packet against the floor
    Packets,
    /// Memory of all maps
    Memory,
    /// iperf3 through a VIP and directly
    Throughput,
    /// The agent's memory and speed
    Agent,
}

/// Each takes some seconds.
const THROUGHPUT_ROUNDS: u32 = 7;

/// Form of the table.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(crate) enum Output {
    /// For people
    #[default]
    Table,
    /// For programs; progress goes to standard error
    Json,
}

impl Args {
    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(What::Rollout(args)) = &args.what {
        return rollout::run(args);
    }
    if !workspace::is_root() {
        bail!("the bench takes root: it loads programs and makes network namespaces");
    }
    if let Output::Json = args.output {
        run::progress_to_stderr();
    }
    if !args.no_build {
        build::ebpf()?;
    }
    let mut table = Table::default();
    if args.wants(Part::Packets) {
        table.extend(packets::measure(args.rounds, args.link)?);
    }
    if args.wants(Part::Memory) {
        table.extend(memory::measure()?);
    }
    if args.wants(Part::Throughput) || args.wants(Part::Agent) {
        lab::teardown::teardown_on_signal();
        let binary = rollout::binaries(rollout::Profile::Release, !args.no_build)?;
        if args.wants(Part::Throughput) {
            table.extend(throughput::measure(
                &binary,
                args.rounds.min(THROUGHPUT_ROUNDS),
            )?);
        }
        if args.wants(Part::Agent) {
            table.extend(agent::measure(&binary)?);
        }
    }
    match args.output {
        Output::Table => println!("\n{table}"),
        Output::Json => println!("{}", table.json()?),
    }
    let missed = table.missed();
    if args.check && missed > 0 {
        bail!("{missed} target(s) missed");
    }
    Ok(())
}
