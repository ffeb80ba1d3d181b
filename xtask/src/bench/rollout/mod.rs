//! `bench rollout`: rolling updates under load, with the endpoint list late, side by side: Sluice,
//! Sluice without failover, an nftables DNAT map, and one pod that is asked directly.
//!
//! Endpoints are real processes in namespaces, clients real sockets. What failed before SYN-ACK is
//! what a balancer could have saved; what failed after it had been accepted by a dying process,
//! and the direct run says how much of that such a process loses by itself.

mod direct;
mod picture;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use lab::rollout::scenario::{self, Contestant, Scenario, Setting};
use lab::serve::Kind;

use super::Output;
use crate::{build, cargo, run, workspace};

use table::{Row, Rows};

/// What `cargo xtask bench rollout` takes.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The long form: a million connections over more than a hundred rolling updates (half an hour
    /// through Sluice, and the others' time)
    #[arg(long)]
    long: bool,
    /// Short connections per second [default: 400, in the long form 700]
    #[arg(long)]
    rate: Option<u64>,
    /// Pods of the Service
    #[arg(long, default_value_t = 3)]
    pods: usize,
    /// Rolling updates in each scenario, in place of the form's own number
    #[arg(long)]
    updates: Option<usize>,
    /// Only these kinds of pod
    #[arg(long, value_enum, value_delimiter = ',', default_value = "a,b,c,d")]
    kinds: Vec<Kind>,
    /// Only these delays of the endpoint list, in seconds
    #[arg(long, value_delimiter = ',', default_value = "0,0.5,2,5")]
    delays: Vec<f64>,
    /// Only Sluice: neither peer nor failover off nor the direct run
    #[arg(long)]
    alone: bool,
    /// How to print the table
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Where to draw errors over time
    #[arg(long)]
    svg: Option<PathBuf>,
    /// Which agent and load generator: unoptimised ones build sooner
    #[arg(long, value_enum, default_value_t)]
    profile: Profile,
    /// Use what is built instead of building it first
    #[arg(long)]
    no_build: bool,
}

/// How agent and load generator are built.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Profile {
    /// Optimised
    #[default]
    Release,
    /// Not
    Debug,
}

/// Runs all scenarios and prints. An error when a figure of ours is missed.
pub(super) fn run(args: &Args) -> Result<()> {
    if !workspace::is_root() {
        bail!("the bench takes root: it makes network namespaces and loads programs");
    }
    if let Output::Json = args.output {
        run::progress_to_stderr();
    }
    let setting = prepare(args)?;
    run::teardown_on_signal();
    let scenarios = scenarios(args);
    let contestants: &[Contestant] = if args.alone {
        &[Contestant::Sluice]
    } else {
        &[
            Contestant::Sluice,
            Contestant::WithoutFailover,
            Contestant::Nftables,
        ]
    };
    let mut rows = Rows::default();
    for (index, scenario) in scenarios.iter().enumerate() {
        for contestant in contestants {
            // The long form is about us; the peers' figures need no half an hour.
            let scenario = if *contestant == Contestant::Sluice {
                *scenario
            } else {
                scenario.short()
            };
            run::step(&format!(
                "{}/{} {scenario}, {contestant}",
                index + 1,
                scenarios.len()
            ));
            let outcome = scenario::run(&setting, scenario, *contestant, &mut |_, _| {})?;
            run::note(&format!("    {}", outcome.line()));
            rows.push(Row::new(scenario, *contestant, outcome));
        }
    }
    if !args.alone {
        for kind in [Kind::A, Kind::B] {
            if args.kinds.contains(&kind) {
                run::step(&format!("one pod of kind {} asked directly", kind.letter()));
                let stops = if args.long { 100 } else { 20 };
                rows.direct.push(direct::run(&setting, kind, stops)?);
            }
        }
    }
    if let Some(path) = &args.svg {
        std::fs::write(path, picture::draw(&rows)?)
            .with_context(|| format!("writing {}", path.display()))?;
        run::note(&format!("    {}", path.display()));
    }
    match args.output {
        Output::Table => println!("\n{rows}"),
        Output::Json => println!("{}", serde_json::to_string_pretty(&rows.json())?),
    }
    let missed = rows.missed();
    if !missed.is_empty() {
        bail!("not reached:\n{}", missed.join("\n"));
    }
    Ok(())
}

fn prepare(args: &Args) -> Result<Setting> {
    let agent = binaries(args.profile, !args.no_build)?;
    Ok(Setting {
        agent,
        rate: args.rate.unwrap_or(if args.long { 700 } else { 400 }),
        pods: args.pods,
        lan_servers: 0,
    })
}

/// Builds agent and lab where asked to, has the lab's used, and returns the agent's path.
pub(crate) fn binaries(profile: Profile, build: bool) -> Result<PathBuf> {
    let release = profile == Profile::Release;
    let profile = if release { "release" } else { "debug" };
    if build {
        build::ebpf()?;
        run::step(&format!("building agent and lab ({profile})"));
        let mut command = cargo::host();
        command.args(["build", "-p", "lb-userspace", "-p", "lab", "--bins"]);
        if release {
            command.arg("--release");
        }
        run::checked(&mut command)?;
    }
    let binaries = workspace::target().join(profile);
    lab::proc::use_executable(binaries.join("lab"));
    Ok(binaries.join("sluice"))
}

fn scenarios(args: &Args) -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for &kind in &args.kinds {
        for &seconds in &args.delays {
            let updates = if args.long && matches!(kind, Kind::A | Kind::B) {
                22
            } else {
                1
            };
            scenarios.push(Scenario {
                kind,
                delay: Duration::from_secs_f64(seconds),
                updates: args.updates.unwrap_or(updates),
                kill_agent: false,
            });
        }
        if let Some(&seconds) = args.delays.get(1) {
            scenarios.push(Scenario {
                kind,
                delay: Duration::from_secs_f64(seconds),
                updates: args.updates.unwrap_or(1),
                kill_agent: true,
            });
        }
    }
    scenarios
}
