//! Pods that die on this node, told to nobody: the manifests never change.

use std::time::{Duration, Instant};

use lab::PodLinks;
use lab::drive::Load;
use lab::load::{Options, Sources};
use lab::report::Traffic;

use lb_common::abi::State;
use lb_userspace::observe::pins::PinnedMaps;

use crate::stage::{Stage, builder};

/// How soon the node must have seen it. The goal is 100 ms; a busy machine gets some more.
const SEEN: Duration = Duration::from_millis(400);

/// Whether the data plane gives the pod new connections.
fn selected(stage: &Stage, pod: std::net::Ipv4Addr) -> bool {
    let maps = PinnedMaps::open(stage.agent.pins()).expect("pins");
    let endpoints = maps.endpoints().expect("readable");
    let mut of_pod = endpoints.values().filter(|e| e.address == pod.into());
    of_pod.any(|endpoint| State::from_u8(endpoint.state) == State::Active)
}

/// After a pod's death no connection takes long, but those of the first moment.
fn dies_unannounced(name: &str, links: PodLinks) {
    let Some(builder) = builder(name) else {
        return;
    };
    let builder = builder.pods(3).pod_links(links);
    let mut stage = Stage::new(name, builder, &["--no-failover"]);
    let pod = stage.lab.pod(0).addr();
    let mut options = Options::to(stage.vip);
    options.sources = Some(Sources(stage.lab.client(0).addrs().to_vec()));
    options.duration = 4.0;
    options.rate = 200;
    options.mix = vec![Traffic::Short];
    let load = Load::start(stage.lab.client(0).netns(), &options).expect("load");
    std::thread::sleep(Duration::from_secs(1));
    stage.kill_pod(0);
    // The link is gone by now; taking it away takes the kernel longer than we do.
    let died = Instant::now();
    stage.until("the endpoint gets nothing new", SEEN, |stage| {
        !selected(stage, pod)
    });
    let seen = died.elapsed();
    let report = load.finish().expect("report");
    eprintln!("{name}: {seen:?}\n{}", report.summary());
    // A third of what is sent until it is seen, and what was just being answered. Half a second
    // of blindness would cost more than thirty.
    let broken = report.total().broken();
    assert!(broken < 15, "{broken} broken\n{}", stage.agent.log());
    assert!(!selected(&stage, pod), "it stays so");
}

#[test]
#[ignore = "root"]
fn a_pod_on_a_bridge_gets_nothing_new_once_its_link_is_gone() {
    dies_unannounced("sight-bridge", PodLinks::Bridge);
}

#[test]
#[ignore = "root"]
fn a_pod_with_a_route_of_its_own_gets_nothing_new_once_its_link_is_gone() {
    dies_unannounced("sight-routed", PodLinks::Routed);
}
