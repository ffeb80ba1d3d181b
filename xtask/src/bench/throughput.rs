//! A TCP stream through the VIP to a local pod, against the same stream straight to the pod over
//! the same interface with a program that does nothing but pass.
//!
//! On veth any XDP program costs: the stack's buffers become frames and frames buffers again, and
//! the peer segments what it sends. So the fair direct run has a program too, in the same mode and
//! for the same frames. Rounds alternate: what the machine does beside is the same for both.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lab::stage::{PORT, Stage};
use lab::xdp_pass::{Frames, XdpPass};
use lab::{Lab, Ns, Proc, UPLINK};
use serde_json::Value;

use super::rounds::{median, ratios};
use super::table::{Row, Target};
use crate::run;

/// Seconds of one stream, after a first one that is left out of the figure.
const SECONDS: u32 = 2;
const WARM_UP: u32 = 1;

/// Streams by turns.
pub(super) fn measure(agent: &Path, rounds: u32) -> Result<Vec<Row>> {
    run::step(&format!("throughput: {rounds} rounds of two streams"));
    let builder = Lab::builder().pods(1).pod_routes(true);
    let mut stage = Stage::serving("bench", builder, server, agent, &["--xdp-mode=native"])?;
    let (mut through, mut direct) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        if run::interrupted() {
            bail!("interrupted");
        }
        // Each is first every other time.
        if round % 2 == 0 {
            through.push(through_vip(&mut stage)?);
        }
        direct.push(past_it(&mut stage)?);
        if round % 2 != 0 {
            through.push(through_vip(&mut stage)?);
        }
    }
    Ok(vec![Row {
        what: "iperf3 through a VIP, Local, native".to_owned(),
        measured: median(&ratios(&through, &direct)),
        unit: "x direct",
        target: Some(Target::AtLeast(0.95)),
        detail: format!(
            "{:.2} Gbit/s, direct {:.2} Gbit/s",
            median(&through),
            median(&direct)
        ),
    }])
}

/// A pod's iperf3 server, once it listens.
fn server(ns: &Ns, _name: &str) -> Result<Proc> {
    let mut command = Command::new("iperf3");
    command
        .args(["--server", "--port", &PORT.to_string()])
        .stdout(std::process::Stdio::null());
    let server = ns.spawn(command)?;
    for _ in 0..100 {
        let listens = ns.run("ss", &["-Hltn", &format!("sport = :{PORT}")])?;
        if !listens.is_empty() {
            return Ok(server);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("iperf3 does not listen on port {PORT}")
}

/// With the agent, which is there before and after.
fn through_vip(stage: &mut Stage) -> Result<f64> {
    let before = stage.counted("flow_local")?;
    let rate = stream(stage, *stage.vip.ip(), stage.vip.port())?;
    let packets = stage.counted("flow_local")? - before;
    ensure!(
        packets > 10_000,
        "{packets} packets took the balancer's way"
    );
    Ok(rate)
}

/// Without it, over the same interface.
fn past_it(stage: &mut Stage) -> Result<f64> {
    stage.agent.terminate()?;
    stage.agent.command(&["detach"])?;
    let node = stage.lab.node(0).netns().clone();
    let pass = node.enter(|| XdpPass::attach_for(UPLINK, Frames::OnePiece))??;
    let pod = stage.lab.pods().next().context("no pod")?.addr();
    let rate = stream(stage, pod, PORT)?;
    drop(pass);
    stage.agent.run()?;
    Ok(rate)
}

/// Gbit/s of one stream from the client.
fn stream(stage: &Stage, address: std::net::Ipv4Addr, port: u16) -> Result<f64> {
    let mut command = Command::new("iperf3");
    command.args([
        "--client",
        &address.to_string(),
        "--port",
        &port.to_string(),
        "--json",
    ]);
    command.args([
        "--time",
        &SECONDS.to_string(),
        "--omit",
        &WARM_UP.to_string(),
    ]);
    let output = stage.lab.client(0).netns().output(command)?;
    let report: Value = serde_json::from_slice(&output.stdout).context("iperf3's report")?;
    if let Some(error) = report["error"].as_str() {
        bail!("iperf3 to {address}:{port}: {error}");
    }
    let rate = report["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(rate.context("iperf3 reports no rate")? / 1e9)
}
