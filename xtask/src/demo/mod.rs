//! `demo`: rolling updates under load, told second by second, through Sluice and through an
//! nftables map.
//!
//! It sets the machine up, builds what it runs, and works in namespaces of its own; Ctrl-C or not,
//! nothing is left behind. It never shows anything but what it has just measured.

#![allow(
    clippy::cast_precision_loss,
    reason = "figures for people, far below 2^52"
)]

mod report;
mod tale;

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use lab::rollout::scenario::{self, Contestant, Outcome, Scenario, Setting};
use lab::serve::Kind;

use crate::bench::Output;
use crate::bench::rollout::{Profile, binaries};
use crate::{run, setup, workspace};

use report::Rows;
use tale::Tale;

/// What `cargo xtask demo` takes.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// How the pods end: a closes its listener, b exits at once, c ignores it, d vanishes
    #[arg(long, value_enum, default_value = "a")]
    kind: Kind,
    /// How many seconds late the endpoint list says that a pod has ended; a round for each
    #[arg(long, value_delimiter = ',', default_value = "0.5,2")]
    late: Vec<f64>,
    /// How long it may take in all, about: as many rolling updates as fit, one at least
    #[arg(long, default_value_t = 75)]
    seconds: u32,
    /// Short connections per second
    #[arg(long, default_value_t = 300)]
    rate: u64,
    /// Pods of the Service
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=20))]
    pods: u8,
    /// Servers on the LAN behind the same VIP, by full NAT
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=4))]
    lan_servers: u8,
    /// How to print the report; with json the tale goes to standard error
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Use what is built instead of setting up and building first
    #[arg(long)]
    no_build: bool,
}

/// Shows it.
pub(crate) fn run(args: &Args) -> Result<()> {
    if let Output::Json = args.output {
        run::progress_to_stderr();
    }
    ensure!(
        args.late.iter().all(|late| (0.0..=60.0).contains(late)),
        "--late: seconds from 0 to 60 are expected"
    );
    if !workspace::is_root() {
        bail!("the demo takes root: it makes network namespaces and loads programs");
    }
    if !args.no_build {
        setup::ensure()?;
    }
    let setting = Setting {
        agent: binaries(Profile::Debug, !args.no_build)?,
        rate: args.rate,
        pods: args.pods.into(),
        lan_servers: args.lan_servers.into(),
    };
    run::teardown_on_signal();
    run::note(&introduction(args));
    let mut rows = Rows::default();
    for scenario in scenarios(args) {
        for contestant in [Contestant::Sluice, Contestant::Nftables] {
            let outcome = told(&setting, scenario, contestant)?;
            rows.push(scenario, contestant, outcome);
        }
    }
    match args.output {
        Output::Table => println!("{rows}"),
        Output::Json => println!("{}", serde_json::to_string_pretty(&rows.json())?),
    }
    Ok(())
}

/// One for each delay; the time is shared out evenly, and every scenario runs twice.
fn scenarios(args: &Args) -> Vec<Scenario> {
    let all = Duration::from_secs(args.seconds.into()).as_millis() as usize;
    let each = (all / (2 * args.late.len())).saturating_sub(AROUND_MS);
    let of = |late: f64| {
        let delay = Duration::from_secs_f64(late);
        let update = scenario::time_of_one_update(args.pods.into(), delay).as_millis() as usize;
        Scenario {
            kind: args.kind,
            delay,
            updates: (each / update).max(1),
            kill_agent: false,
        }
    };
    args.late.iter().map(|late| of(*late)).collect()
}

/// Milliseconds of a scenario that are no update: building, calm before and after, last closes.
const AROUND_MS: usize = 5000;

fn introduction(args: &Args) -> String {
    let (pods, servers, rate) = (args.pods, args.lan_servers, args.rate);
    let end = match args.kind {
        Kind::A => "closes its listener at once and finishes what is open",
        Kind::B => "exits at once",
        Kind::C => "ignores that until it is killed",
        Kind::D => "vanishes with its namespace, in silence",
    };
    let late: Vec<_> = args.late.iter().map(f64::to_string).collect();
    let late = late.join(" s, then ");
    let also = if servers == 0 {
        String::new()
    } else {
        format!("\n    {servers} LAN server(s) ------' (full NAT)")
    };
    format!(
        "
    16 clients ---- LAN ---- eth0 [XDP] node ---- bridge ---- {pods} pods
                     |{also}

One VIP for all of them, under load: {rate} short connections a second, keep-alive and idle
connections, downloads whose bytes are compared, UDP. Then every pod is replaced, one by one. A pod
that is told to end {end}; the endpoint list says so
{late} s late, as in a cluster. No pod sleeps in a preStop hook.
The same is done twice: through Sluice, and through an nftables DNAT map that is updated at the same
moments (what kube-proxy's nftables mode does). \"failed\" is what fails before SYN-ACK.
"
    )
}

/// Runs it, and says what happens.
fn told(setting: &Setting, scenario: Scenario, contestant: Contestant) -> Result<Outcome> {
    let late = scenario.delay.as_secs_f64();
    run::step(&format!("{contestant}, the list {late} s late"));
    let tale = Tale::default();
    let seconds = tale.clone();
    let outcome = scenario::run_live(
        setting,
        scenario,
        contestant,
        &mut |at, event| tale.event(at, event),
        Some(Box::new(move |second| seconds.second(second))),
    )?;
    run::note(&format!("    {}\n", outcome.line()));
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn more_time_is_more_updates_and_there_is_always_one() {
        let updates = |args: &[&str]| {
            let args = Cli::parse_from([&["demo"], args].concat()).args;
            let all = scenarios(&args);
            all.iter().map(|one| one.updates).collect::<Vec<_>>()
        };
        assert_eq!(updates(&["--seconds=0"]), [1, 1]);
        assert_eq!(updates(&["--seconds=10", "--late=30"]), [1]);
        let (short, long) = (updates(&["--seconds=60"]), updates(&["--seconds=600"]));
        assert!(
            long[0] > 2 * short[0] && long[1] > 2 * short[1],
            "{short:?} {long:?}"
        );
    }
}
