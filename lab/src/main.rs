//! `lab serve`, `lab load`, `lab fetch`: the servers and clients of the lab, as processes of their own.
//!
//! They must be processes: a rollout kills servers, and what a dying process does to its connections is the point.

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(about = "Servers and load generators for the lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve HTTP/1.1 (and UDP echo), and end on SIGTERM the way its kind ends.
    Serve(lab::serve::Options),
    /// Drive several kinds of traffic at one target; a JSON report goes to standard output.
    Load(lab::load::Options),
    /// Fetch one URL and print its SHA-256 (or its body).
    Fetch(lab::load::fetch::Options),
    /// Print the SHA-256 that `/bytes/N?seed=S` must have.
    Sha {
        /// Number of bytes.
        length: u64,
        /// Seed.
        #[arg(default_value_t = 0)]
        seed: u64,
    },
    /// Remove what labs of dead processes left behind.
    Cleanup,
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Serve(options) => runtime(1)?.block_on(lab::serve::run(options)),
        Command::Load(options) => {
            let (threads, for_people) = (options.threads, !options.barrier);
            let report = runtime(threads)?.block_on(lab::load::run(options))?;
            // Whoever drives the barrier reads the JSON.
            if for_people {
                eprint!("{}", report.summary());
            }
            println!("{}", serde_json::to_string(&report)?);
            Ok(())
        }
        Command::Fetch(options) => {
            println!("{}", runtime(1)?.block_on(lab::load::fetch::run(&options))?);
            Ok(())
        }
        Command::Sha { length, seed } => {
            println!("{}", lab::payload::sha256(seed, length));
            Ok(())
        }
        Command::Cleanup => {
            println!("{} labs removed", lab::Lab::cleanup_stale()?);
            Ok(())
        }
    }
}

fn runtime(threads: usize) -> Result<tokio::runtime::Runtime> {
    let mut builder = match threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    Ok(builder
        .worker_threads(threads.max(1))
        .enable_all()
        .build()?)
}
