//! Entry.

use clap::Parser;
use lb_userspace::cli::Cli;

fn main() -> anyhow::Result<()> {
    Cli::parse().run()
}
