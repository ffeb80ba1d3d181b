//! The command line: one file per subcommand, nothing but arguments and printing.

use std::io::{self, Write as _};

use clap::{Parser, Subcommand, ValueEnum};

pub mod agent;
pub mod detach;
pub mod endpoints;
pub mod flows;
pub mod output;
pub mod plan;
pub mod services;
pub mod status;
#[cfg(test)]
mod tests;

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
    /// Serve the VIPs of a cluster, or of a folder of manifests, on this node.
    Agent(agent::AgentArgs),
    /// Take everything out of the kernel that Sluice has placed.
    Detach(detach::DetachArgs),
    /// Show what is attached, how full the maps are and what packets met.
    Status(status::StatusArgs),
    /// List the frontends in the kernel's maps.
    Services(services::ServicesArgs),
    /// List the endpoints in the kernel's maps.
    Endpoints(endpoints::EndpointsArgs),
    /// List flows.
    Flows(flows::FlowsArgs),
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
        let shown = match &self.command {
            Command::Agent(args) => return agent::run(args),
            Command::Plan(args) => plan::run(args)?,
            Command::Detach(args) => detach::run(args)? + "\n",
            Command::Status(args) => status::run(args)? + "\n",
            Command::Services(args) => services::run(args)? + "\n",
            Command::Endpoints(args) => endpoints::run(args)? + "\n",
            Command::Flows(args) => flows::run(args)? + "\n",
        };
        match io::stdout().lock().write_all(shown.as_bytes()) {
            // `sluice flows | head` is no failure.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
