//! iperf3 through a VIP to a local endpoint, against the direct route with a bare PASS program on
//! the same interface: both pay for native XDP on veth, only one for what we do.

use std::net::SocketAddrV4;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use lab::agent::Agent;
use lab::manifests::{Condition, Endpoint, Manifests};
use lab::xdp_pass::XdpPass;
use lab::{Lab, Ns, Offloads, UPLINK};
use serde_json::Value;

use super::rounds::median;
use super::table::{Row, Target};
use crate::run;

/// iperf3's own port.
const PORT: u16 = 5201;
/// Of what the direct route carries.
const SHARE: f64 = 0.95;

/// Measures in rounds that take both ways in turn.
pub(super) fn measure(agent: &Path, rounds: u32) -> Result<Vec<Row>> {
    run::step("throughput: iperf3 through a VIP and directly, in turn");
    let lab = Lab::builder()
        .pods(1)
        .pod_routes(true)
        .offloads(Offloads::Default)
        .build()?;
    let pod = lab.pods().next().context("a pod")?;
    let (client, node) = (lab.client(0).netns(), lab.node(0).netns());
    let vip = SocketAddrV4::new(Lab::vip(0), PORT);
    let manifests = Manifests::create(lab.id())?;
    let endpoint = Endpoint {
        address: pod.addr(),
        node: Some("n0".to_owned()),
        uid: "pod".to_owned(),
        condition: Condition::Ready,
    };
    manifests.write(vip, PORT, &[endpoint])?;
    let mut server = Command::new("iperf3");
    server.args(["--server", "--port", &PORT.to_string()]);
    server.stdout(Stdio::null()).stderr(Stdio::null());
    let _server = pod.netns().spawn(server)?;
    let mut through = Vec::new();
    let mut direct = Vec::new();
    for round in 0..rounds {
        run::note(&format!("    round {} of {rounds}", round + 1));
        {
            let flags = ["--xdp-mode=native"];
            let _agent = Agent::start(node, agent, manifests.dir(), &flags)?;
            through.push(gigabits(client, &vip.ip().to_string())?);
        }
        let _pass = node.enter(|| XdpPass::attach(UPLINK))??;
        direct.push(gigabits(client, &pod.addr().to_string())?);
    }
    let ratios: Vec<f64> = through.iter().zip(&direct).map(|(a, b)| a / b).collect();
    let (vip, bare) = (median(&through), median(&direct));
    Ok(vec![Row {
        what: "iperf3 through a VIP, to the direct route".to_owned(),
        measured: median(&ratios),
        unit: "x",
        target: Some(Target::AtLeast(SHARE)),
        detail: format!("{vip:.2} and {bare:.2} Gbit/s"),
    }])
}

fn gigabits(client: &Ns, address: &str) -> Result<f64> {
    let port = PORT.to_string();
    let args = [
        "--client", address, "--port", &port, "--time", "2", "--json",
    ];
    let text = client.run("iperf3", &args)?;
    let report: Value = serde_json::from_str(&text).context("iperf3's report")?;
    let bits = report["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(bits.context("no figure in iperf3's report")? / 1e9)
}
