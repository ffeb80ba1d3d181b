//! Pods that die on this node, told to nobody: the manifests never change.

use std::time::{Duration, Instant};

use lab::PodLinks;
use lab::drive::Load;
use lab::load::{Options, Sources};
use lab::report::Traffic;

use aya::maps::{Array, Map, MapData};
use lb_common::V4;
use lb_common::abi::{Endpoint, State};

use crate::stage::{Stage, builder};

/// How soon the node must have seen it. The goal is 100 ms; a busy machine gets some more.
const SEEN: Duration = Duration::from_millis(400);

/// An endpoint's slot, as the data plane sees it.
struct Slot {
    endpoints: Array<MapData, Endpoint<V4>>,
    id: u32,
}

impl Slot {
    fn of(stage: &Stage, pod: std::net::Ipv4Addr) -> Self {
        let pin = stage.agent.pins().join("v1/maps/endpoints");
        let map = MapData::from_pin(pin).expect("pinned");
        Self {
            endpoints: Map::Array(map).try_into().expect("an array"),
            id: stage.lives(pod)[0].id.expect("an id"),
        }
    }

    fn is_selected(&self) -> bool {
        let endpoint = self.endpoints.get(&self.id, 0).expect("in range");
        State::from_u8(endpoint.state) == State::Active
    }
}

/// After a pod's death no connection takes long, but those of the first moment.
fn dies_unannounced(name: &str, links: PodLinks) {
    let Some(builder) = builder(name) else {
        return;
    };
    let builder = builder.pods(3).pod_links(links);
    let mut stage = Stage::new(name, builder, &["--no-failover"]);
    let pod = stage.lab.pod(0).addr();
    let slot = Slot::of(&stage, pod);
    assert!(slot.is_selected());
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
    stage.until("the endpoint gets nothing new", SEEN, |_| {
        !slot.is_selected()
    });
    let seen = died.elapsed();
    let report = load.finish().expect("report");
    eprintln!("{name}: {seen:?}\n{}", report.summary());
    // What was just being answered; blindness for a tenth of a second would cost seven more.
    let broken = report.total().broken();
    assert!(broken < 5, "{broken} broken\n{}", stage.agent.log());
    assert!(!slot.is_selected(), "it stays so");
}

/// More than the kernel's three questions take, and the agent's own next one.
const CONFIRMED: Duration = Duration::from_secs(9);

#[test]
#[ignore = "root"]
fn a_pod_that_died_while_no_agent_looked_is_found_out() {
    let Some(builder) = builder("a_pod_that_died_while_no_agent_looked") else {
        return;
    };
    let mut stage = Stage::new("sight-missed", builder.pods(2), &[]);
    let slot = Slot::of(&stage, stage.lab.pod(0).addr());
    stage.connect_to("pod-0");
    stage.agent.kill().expect("killed");
    stage.kill_pod(0);
    stage.agent.run().expect("ready again");
    let took = stage.until("nobody answers the probe", CONFIRMED, |_| {
        !slot.is_selected()
    });
    eprintln!("found out after {took:?}");
}

#[test]
#[ignore = "root"]
fn a_pod_without_carrier_is_probed_and_comes_back() {
    let Some(builder) = builder("a_pod_without_carrier") else {
        return;
    };
    let stage = Stage::new("sight-carrier", builder.pods(2), &[]);
    let pod = stage.lab.pod(0).netns();
    let slot = Slot::of(&stage, stage.lab.pod(0).addr());
    pod.run("ip", &["link", "set", lab::UPLINK, "down"])
        .expect("down");
    let took = stage.until("nobody answers the probe", CONFIRMED, |_| {
        !slot.is_selected()
    });
    eprintln!("silent after {took:?}");
    stage.until("why is shown", CONFIRMED, |stage| {
        let shown = stage.agent.command(&["endpoints"]).expect("shows");
        shown.contains("seen_gone")
    });
    pod.run("ip", &["link", "set", lab::UPLINK, "up"])
        .expect("up");
    let took = stage.until("it answers again", CONFIRMED, |_| slot.is_selected());
    eprintln!("back after {took:?}");
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
