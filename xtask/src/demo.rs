//! `demo`: a rolling update under load, told as it happens, and the same through an nftables map.
//!
//! It sets the machine up, builds what it runs, and works in namespaces of its own; Ctrl-C or not,
//! nothing is left behind. It never shows anything but what it has just measured.

#![allow(
    clippy::cast_precision_loss,
    reason = "figures for people, far below 2^52"
)]

use std::time::Duration;

use anyhow::{Result, bail};
use lab::report::Outcome as Fate;
use lab::rollout::Event;
use lab::rollout::scenario::{self, Contestant, Outcome, Scenario, Setting};
use lab::serve::Kind;
use serde_json::json;

use crate::bench::rollout::{Profile, binaries};
use crate::{run, setup, workspace};

/// What `cargo xtask demo` takes.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// How the pods end: a closes its listener, b exits at once, c ignores it, d vanishes
    #[arg(long, value_enum, default_value = "a")]
    kind: Kind,
    /// How many seconds late the endpoint list says that a pod has ended
    #[arg(long, default_value_t = 2.0)]
    late: f64,
    /// Short connections per second
    #[arg(long, default_value_t = 300)]
    rate: u64,
    /// Pods of the Service
    #[arg(long, default_value_t = 3)]
    pods: usize,
    /// Rolling updates
    #[arg(long, default_value_t = 2)]
    updates: usize,
    /// A report for programs at the end; the tale goes to standard error
    #[arg(long)]
    json: bool,
    /// Use what is built instead of setting up and building first
    #[arg(long)]
    no_build: bool,
}

/// Shows it.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.json {
        run::progress_to_stderr();
    }
    if !workspace::is_root() {
        bail!("the demo takes root: it makes network namespaces and loads programs");
    }
    if !args.no_build {
        setup::ensure()?;
    }
    let setting = Setting {
        agent: binaries(Profile::Debug, !args.no_build)?,
        rate: args.rate,
        pods: args.pods,
    };
    lab::teardown::teardown_on_signal();
    let scenario = Scenario {
        kind: args.kind,
        delay: Duration::from_secs_f64(args.late),
        updates: args.updates,
        kill_agent: false,
    };
    run::note(&introduction(args));
    let ours = told(&setting, scenario, Contestant::Sluice)?;
    let peer = told(&setting, scenario, Contestant::Nftables)?;
    if args.json {
        let report = json!({"sluice": figures(&ours), "nftables": figures(&peer)});
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{}", report(&ours, &peer));
    }
    Ok(())
}

fn introduction(args: &Args) -> String {
    let (pods, late, rate) = (args.pods, args.late, args.rate);
    let end = match args.kind {
        Kind::A => "closes its listener and finishes what is open",
        Kind::B => "exits at once",
        Kind::C => "ignores that until it is killed",
        Kind::D => "vanishes with its namespace, in silence",
    };
    format!(
        "
    clients (16 addresses) --- LAN --- eth0 [XDP] node [bridge] --- {pods} pods behind one VIP

A Service of {pods} pods is rolled over under load: {rate} short connections a second, keep-alive and
idle connections, downloads, UDP. Each pod that is told to end {end};
the endpoint list says so {late} s late, as it does in a cluster. No pod sleeps in a preStop hook.
"
    )
}

/// Runs it, and says what happens.
fn told(setting: &Setting, scenario: Scenario, contestant: Contestant) -> Result<Outcome> {
    run::step(&format!("through {contestant}"));
    let mut first = None;
    let outcome = scenario::run(setting, scenario, contestant, &mut |at, event| {
        let seconds = at.saturating_sub(*first.get_or_insert(at)) as f64 / 1e3;
        let line = match event {
            Event::Started(pod) => format!("{pod} listens and is listed"),
            Event::Stopped(pod) => format!("{pod} is told to end; nobody else knows yet"),
            Event::ListedTerminating(pod) => format!("the list says that {pod} ends"),
            Event::Unlisted(pod) => format!("the list has forgotten {pod}"),
        };
        run::note(&format!("    {seconds:5.1} s  {line}"));
    })?;
    run::note(&format!("    {}\n", outcome.line()));
    Ok(outcome)
}

fn report(ours: &Outcome, peer: &Outcome) -> String {
    let row = |name: &str, outcome: &Outcome| {
        let (report, total) = (&outcome.report, outcome.report.total());
        let ms = |share| report.connect.quantile(share).as_secs_f64() * 1e3;
        format!(
            "{name:<14}{:>9}{:>10}{:>9.2}%{:>8}{:>8}{:>9.2}{:>9.2}{:>10.1}",
            total.attempts,
            total.before(),
            100.0 * total.before() as f64 / total.attempts.max(1) as f64,
            total.after(),
            total.of(Fate::WrongBytes),
            ms(0.5),
            ms(0.99),
            report.connect.max().as_secs_f64() * 1e3,
        )
    };
    let head = format!(
        "{:<14}{:>9}{:>10}{:>10}{:>8}{:>8}{:>9}{:>9}{:>10}",
        "", "attempts", "failed", "", "after", "wrong", "p50 ms", "p99 ms", "max ms"
    );
    format!(
        "{head}\n{}\n{}\n\n\
         failed: before SYN-ACK, what a balancer could have saved. after: reset or unanswered once the\n\
         pod's kernel had accepted the connection, which nobody can save. wrong: wrong bytes.\n\n\
         What Sluice's data plane did:\n{}",
        row("sluice", ours),
        row("nftables map", peer),
        reasons(&ours.status)
    )
}

/// The table of reasons out of `sluice status`.
fn reasons(status: &str) -> String {
    let lines = status
        .lines()
        .skip_while(|line| !line.starts_with("REASON"));
    lines.collect::<Vec<_>>().join("\n")
}

fn figures(outcome: &Outcome) -> serde_json::Value {
    let total = outcome.report.total();
    json!({
        "attempts": total.attempts,
        "failed_before_syn_ack": total.before(),
        "failed_after_syn_ack": total.after(),
        "wrong_bytes": total.of(Fate::WrongBytes),
        "stops": outcome.rollout.stops,
        "connect_ms": {
            "p50": outcome.report.connect.quantile(0.5).as_secs_f64() * 1e3,
            "p99": outcome.report.connect.quantile(0.99).as_secs_f64() * 1e3,
            "max": outcome.report.connect.max().as_secs_f64() * 1e3,
        },
    })
}
