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
    /// Bring up a lab for a look around, until Ctrl-C.
    Up {
        /// Pods on each node.
        #[arg(long, default_value_t = 2)]
        pods: usize,
        /// Nodes.
        #[arg(long, default_value_t = 1)]
        nodes: usize,
        /// Servers on the LAN without an agent.
        #[arg(long, default_value_t = 0)]
        lan_servers: usize,
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
        Command::Up {
            pods,
            nodes,
            lan_servers,
        } => up(&lab::Lab::builder()
            .pods(pods)
            .nodes(nodes)
            .lan_servers(lan_servers)),
        Command::Cleanup => {
            println!("{} labs removed", lab::Lab::cleanup_stale()?);
            Ok(())
        }
    }
}

fn up(shape: &lab::LabBuilder) -> Result<()> {
    lab::teardown::teardown_on_signal();
    let lab = shape.clone().pod_routes(true).build()?;
    for client in lab.clients() {
        let (first, rest) = (client.addr(), client.addrs().len() - 1);
        println!("client {} {first} and {rest} more", client.netns().name());
    }
    for node in lab.nodes() {
        println!("node   {} {}", node.netns().name(), node.addr());
    }
    for pod in lab.pods() {
        println!("pod    {} {}", pod.netns().name(), pod.addr());
    }
    for server in lab.lan_servers() {
        println!("server {} {}", server.netns().name(), server.addr());
    }
    println!("enter one with: nsenter --net=/run/netns/NAME");
    println!("ready {}", lab.id());
    // The signal's own thread takes the lab down and ends the process.
    loop {
        std::thread::park();
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
