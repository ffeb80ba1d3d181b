//! The command line: one file per subcommand, nothing but arguments and printing.

use clap::{Parser, Subcommand, ValueEnum};

pub mod plan;

/// L4 load balancer for Kubernetes and plain machines, in XDP.
#[derive(Debug, Parser)]
#[command(name = "sluice", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `sluice` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what a node would do with these manifests; needs no rights and changes nothing.
    Plan(plan::PlanArgs),
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
    /// For both.
    Yaml,
}

impl Cli {
    /// Runs the subcommand.
    pub fn run(&self) -> anyhow::Result<()> {
        match &self.command {
            Command::Plan(args) => plan::run(args),
        }
    }
}
