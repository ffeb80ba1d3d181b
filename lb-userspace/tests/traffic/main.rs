//! The main job with real clients, real servers and real frames, in the lab.

use std::net::SocketAddrV4;
use std::path::Path;

use lab::agent::Agent;
use lab::drive::{Load, Server};
use lab::load::{Options, Sources};
use lab::manifests::{Condition, Endpoint, Manifests};
use lab::report::Traffic;
use lab::{Lab, LabBuilder, Offloads, Proc};

const PORT: u16 = 8080;

/// A builder; without root a loud skip, and a failure where CI is set.
fn builder(test: &str) -> Option<LabBuilder> {
    if nix::unistd::geteuid().is_root() {
        lab::teardown::teardown_on_signal();
        return Some(Lab::builder());
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "{test} needs root, and CI is set"
    );
    eprintln!("SKIPPED: needs root: {test}");
    None
}

/// A lab with an agent that serves what is in it.
struct Stage {
    // Dropped in this order: the agent detaches before its namespace goes.
    agent: Agent,
    _servers: Vec<Proc>,
    _manifests: Manifests,
    lab: Lab,
    vip: SocketAddrV4,
}

fn stage(name: &str, builder: LabBuilder, mode: &str) -> Stage {
    let lab = builder.build().expect("lab");
    let vip = SocketAddrV4::new(Lab::vip(0), 80);
    let mut servers = Vec::new();
    let mut endpoints = Vec::new();
    for pod in lab.pods() {
        let uid = format!("pod-{:?}", pod.id());
        servers.push(Server::named(&uid).start(pod.netns()).expect("server"));
        endpoints.push(Endpoint {
            address: pod.addr(),
            node: Some("n0".to_owned()),
            uid,
            condition: Condition::Ready,
        });
    }
    for (index, server) in lab.lan_servers().iter().enumerate() {
        let uid = format!("lan-{index}");
        servers.push(Server::named(&uid).start(server.netns()).expect("server"));
        endpoints.push(Endpoint {
            address: server.addr(),
            node: None,
            uid,
            condition: Condition::Ready,
        });
    }
    let manifests = Manifests::create(name).expect("manifests");
    manifests.write(vip, PORT, &endpoints).expect("written");
    let binary = Path::new(env!("CARGO_BIN_EXE_sluice"));
    let mode = format!("--xdp-mode={mode}");
    let agent =
        Agent::start(lab.node(0).netns(), binary, manifests.dir(), &[&mode]).expect("agent");
    Stage {
        agent,
        _servers: servers,
        _manifests: manifests,
        lab,
        vip,
    }
}

/// Every kind of traffic for a while: nothing fails, and every endpoint has its share.
fn all_traffic(stage: &Stage, endpoints: usize, own_address: bool) {
    let mut options = Options::to(stage.vip);
    options.sources = Some(Sources(stage.lab.client(0).addrs().to_vec()));
    options.own_address = own_address;
    options.duration = 3.0;
    options.rate = 300;
    options.mix = Traffic::ALL.to_vec();
    options.download_bytes = 2_000_000;
    let report = Load::start(stage.lab.client(0).netns(), &options)
        .expect("load")
        .finish()
        .expect("report");
    eprintln!("{}", report.summary());
    let status = stage
        .agent
        .command(&["status"])
        .unwrap_or_else(|error| format!("{error:#}"));
    assert_eq!(
        report.total().broken(),
        0,
        "{:?}\n{status}\n{}",
        report.failures,
        stage.agent.log()
    );
    assert_eq!(report.servers.len(), endpoints, "{:?}", report.servers);
}

#[test]
#[ignore = "root"]
fn local_endpoints_native() {
    let Some(builder) = builder("local_endpoints_native") else {
        return;
    };
    all_traffic(&stage("local-native", builder.pods(3), "native"), 3, true);
}

#[test]
#[ignore = "root"]
fn local_endpoints_generic_by_default_on_veth() {
    let Some(builder) = builder("local_endpoints_generic") else {
        return;
    };
    all_traffic(&stage("local-generic", builder.pods(3), "auto"), 3, true);
}

#[test]
#[ignore = "root"]
fn local_endpoints_without_checksum_offload() {
    let Some(builder) = builder("local_endpoints_txoff") else {
        return;
    };
    all_traffic(
        &stage(
            "local-txoff",
            builder.pods(3).offloads(Offloads::TxOff),
            "native",
        ),
        3,
        true,
    );
}

#[test]
#[ignore = "root"]
fn nat_endpoints_native() {
    let Some(builder) = builder("nat_endpoints_native") else {
        return;
    };
    all_traffic(
        &stage("nat-native", builder.pods(0).lan_servers(2), "native"),
        2,
        false,
    );
}

#[test]
#[ignore = "root"]
fn nat_endpoints_generic() {
    let Some(builder) = builder("nat_endpoints_generic") else {
        return;
    };
    all_traffic(
        &stage("nat-generic", builder.pods(0).lan_servers(2), "generic"),
        2,
        false,
    );
}

#[test]
#[ignore = "root"]
fn both_kinds_at_once() {
    let Some(builder) = builder("both_kinds") else {
        return;
    };
    all_traffic(
        &stage("both", builder.pods(2).lan_servers(2), "native"),
        4,
        false,
    );
}
