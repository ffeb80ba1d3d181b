//! What each sign means, and what takes it back.

use std::cell::RefCell;
use std::net::IpAddr;

use super::*;
use crate::netlink::{Link, LinkKind};

const BRIDGE: u32 = 7;
const PORT: u32 = 21;
const OTHER_PORT: u32 = 22;
const UPLINK: u32 = 2;
const POD: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 2);
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x42];
const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x43];

const GONE: PodSight = PodSight::Gone(IpAddr::V4(POD));
const ALIVE: PodSight = PodSight::Alive(IpAddr::V4(POD));
const SUSPECT: PodSight = PodSight::Suspect(IpAddr::V4(POD));

struct Fake {
    route: Route,
    neighbours: Vec<Neighbour>,
    ports: Vec<([u8; 6], u32)>,
    links: BTreeSet<u32>,
    probes: RefCell<Vec<(u32, bool)>>,
}

impl Fake {
    fn bridged() -> Self {
        Self {
            route: to(BRIDGE),
            neighbours: vec![neighbour(BRIDGE, Some(MAC))],
            ports: vec![(MAC, PORT)],
            links: [UPLINK, BRIDGE, PORT].into(),
            probes: RefCell::default(),
        }
    }

    /// A link of its own, whose index is the port's.
    fn routed() -> Self {
        Self {
            route: to(PORT),
            neighbours: vec![neighbour(PORT, Some(MAC))],
            ports: Vec::new(),
            links: [UPLINK, PORT].into(),
            probes: RefCell::default(),
        }
    }

    fn probes(&self) -> Vec<(u32, bool)> {
        self.probes.take()
    }
}

impl Kernel for Fake {
    fn route(&self, _: Ipv4Addr) -> Option<Route> {
        Some(self.route)
    }

    fn neighbours(&self) -> Vec<Neighbour> {
        self.neighbours.clone()
    }

    fn bridge_ports(&self) -> Vec<([u8; 6], u32)> {
        self.ports.clone()
    }

    fn links(&self) -> BTreeSet<u32> {
        self.links.clone()
    }

    fn probe(&self, _: Ipv4Addr, ifindex: u32, known: bool) {
        self.probes.borrow_mut().push((ifindex, known));
    }
}

fn to(ifindex: u32) -> Route {
    Route { via: POD, ifindex }
}

/// By the default route, which leads away from the node.
fn away() -> Route {
    Route {
        via: Ipv4Addr::new(192, 0, 2, 1),
        ifindex: UPLINK,
    }
}

fn neighbour(ifindex: u32, mac: Option<[u8; 6]>) -> Neighbour {
    Neighbour {
        ip: POD,
        ifindex,
        mac,
        fitness: if mac.is_some() {
            Fitness::Valid
        } else {
            Fitness::Failed
        },
        permanent: false,
        ours: false,
    }
}

fn watching(kernel: &Fake) -> Pods {
    let mut pods = Pods::default();
    pods.want(&[POD].into(), kernel);
    assert_eq!(kernel.probes().len(), 1, "a new one is probed");
    pods.want(&[POD].into(), kernel);
    assert_eq!(kernel.probes(), [], "once");
    pods
}

fn link_gone(index: u32) -> Event {
    Event::LinkGone {
        index,
        name: "veth".to_owned(),
    }
}

fn route(destination: &str) -> Event {
    Event::Route {
        destination: destination.parse().expect("a net"),
        ifindex: None,
    }
}

fn route_gone(destination: &str) -> Event {
    Event::RouteGone {
        destination: destination.parse().expect("a net"),
        ifindex: None,
    }
}

const fn learned(mac: [u8; 6], ifindex: u32) -> Event {
    Event::BridgePortLearned { ifindex, mac }
}

const fn forgot(mac: [u8; 6], ifindex: u32) -> Event {
    Event::BridgePortForgot { ifindex, mac }
}

#[test]
fn a_lost_port_is_proof_once() {
    let kernel = Fake::bridged();
    let mut pods = watching(&kernel);
    assert_eq!(pods.handle(&link_gone(OTHER_PORT), &kernel), []);
    assert_eq!(pods.handle(&forgot(MAC, PORT), &kernel), [SUSPECT]);
    assert_eq!(pods.handle(&link_gone(PORT), &kernel), [GONE]);
    assert_eq!(pods.handle(&link_gone(PORT), &kernel), []);
    assert_eq!(pods.handle(&forgot(MAC, PORT), &kernel), []);
}

#[test]
fn a_forgotten_address_is_a_suspicion_that_a_probe_settles() {
    let kernel = Fake::bridged();
    for (answer, sight) in [(Some(MAC), None), (None, Some(GONE))] {
        let mut pods = watching(&kernel);
        assert_eq!(pods.handle(&forgot(OTHER_MAC, PORT), &kernel), []);
        assert_eq!(pods.handle(&forgot(MAC, OTHER_PORT), &kernel), []);
        assert_eq!(pods.handle(&forgot(MAC, PORT), &kernel), [SUSPECT]);
        pods.probe(POD, &kernel);
        assert_eq!(kernel.probes(), [(BRIDGE, true)]);
        let answer = Event::Neighbour(neighbour(BRIDGE, answer));
        let sights = pods.handle(&answer, &kernel);
        assert_eq!(sights, Vec::from_iter(sight));
    }
}

#[test]
fn a_port_is_known_in_whatever_order_its_parts_are_learned() {
    let mut kernel = Fake::bridged();
    kernel.neighbours.clear();
    kernel.ports.clear();
    let events = [
        Event::Neighbour(neighbour(BRIDGE, Some(MAC))),
        learned(MAC, PORT),
    ];
    for order in [[0, 1], [1, 0]] {
        let mut pods = watching(&kernel);
        for index in order {
            assert_eq!(pods.handle(&events[index], &kernel), []);
        }
        assert_eq!(pods.handle(&link_gone(PORT), &kernel), [GONE]);
    }
    let mut pods = watching(&kernel);
    assert_eq!(pods.handle(&link_gone(PORT), &kernel), [], "whose it was");
}

#[test]
fn an_entry_that_outlives_its_link_is_no_sign_of_life() {
    let kernel = Fake::bridged();
    let mut pods = watching(&kernel);
    assert_eq!(pods.handle(&link_gone(PORT), &kernel), [GONE]);
    let still = Event::Neighbour(neighbour(BRIDGE, Some(MAC)));
    assert_eq!(pods.handle(&still, &kernel), []);
    // Another pod under the address.
    let other = Event::Neighbour(neighbour(BRIDGE, Some(OTHER_MAC)));
    assert_eq!(pods.handle(&other, &kernel), [ALIVE]);
    // The next one has the same hardware address, as CNI plugins make it from the address.
    assert_eq!(pods.handle(&learned(OTHER_MAC, PORT), &kernel), []);
    assert_eq!(pods.handle(&link_gone(PORT), &kernel), [GONE]);
    let next = learned(OTHER_MAC, OTHER_PORT);
    assert_eq!(pods.handle(&next, &kernel), [ALIVE]);
    assert_eq!(pods.handle(&link_gone(OTHER_PORT), &kernel), [GONE]);
}

#[test]
fn silence_ends_with_any_answer() {
    let kernel = Fake::bridged();
    let mut pods = watching(&kernel);
    let failed = Event::Neighbour(neighbour(BRIDGE, None));
    let there = Event::Neighbour(neighbour(BRIDGE, Some(MAC)));
    assert_eq!(pods.handle(&failed, &kernel), [GONE]);
    assert_eq!(pods.handle(&failed, &kernel), []);
    pods.probe_dead(&kernel);
    assert_eq!(kernel.probes(), [(BRIDGE, false)]);
    assert_eq!(pods.handle(&there, &kernel), [ALIVE]);
    pods.probe_dead(&kernel);
    assert_eq!(kernel.probes(), []);
    // Also after its link was gone, once nobody has answered.
    pods.handle(&learned(MAC, PORT), &kernel);
    assert_eq!(pods.handle(&link_gone(PORT), &kernel), [GONE]);
    assert_eq!(pods.handle(&failed, &kernel), []);
    assert_eq!(pods.handle(&there, &kernel), [ALIVE]);
}

#[test]
fn a_pod_with_a_link_of_its_own_goes_and_comes_with_it() {
    let mut kernel = Fake::routed();
    let mut pods = watching(&kernel);
    assert_eq!(pods.handle(&link_gone(PORT), &kernel), [GONE]);
    kernel.route = away();
    assert_eq!(pods.handle(&route("0.0.0.0/0"), &kernel), []);
    pods.probe_dead(&kernel);
    assert_eq!(kernel.probes(), [], "there is nobody to ask");
    kernel.route = to(OTHER_PORT);
    assert_eq!(pods.handle(&route("10.244.0.2/32"), &kernel), [ALIVE]);
    assert_eq!(kernel.probes(), [(OTHER_PORT, false)]);
    assert_eq!(pods.handle(&link_gone(OTHER_PORT), &kernel), [GONE]);
}

#[test]
fn a_lost_route_is_proof_until_it_is_back() {
    let mut kernel = Fake::routed();
    let mut pods = watching(&kernel);
    assert_eq!(pods.handle(&route_gone("10.244.0.9/32"), &kernel), []);
    assert_eq!(
        pods.handle(&route_gone("10.0.0.0/8"), &kernel),
        [],
        "another"
    );
    kernel.route = away();
    assert_eq!(pods.handle(&route_gone("10.244.0.2/32"), &kernel), [GONE]);
    assert_eq!(pods.handle(&route("0.0.0.0/0"), &kernel), []);
    kernel.route = to(PORT);
    assert_eq!(pods.handle(&route("10.244.0.2/32"), &kernel), [ALIVE]);

    let mut kernel = Fake::bridged();
    let mut pods = watching(&kernel);
    kernel.route = away();
    assert_eq!(pods.handle(&route_gone("10.244.0.0/24"), &kernel), [GONE]);
    assert_eq!(pods.handle(&learned(MAC, PORT), &kernel), []);
    kernel.route = to(BRIDGE);
    assert_eq!(pods.handle(&route("10.244.0.0/24"), &kernel), [ALIVE]);
}

#[test]
fn a_better_route_to_the_same_pod_is_no_death() {
    let mut kernel = Fake::bridged();
    let mut pods = watching(&kernel);
    kernel.route = to(PORT);
    assert_eq!(pods.handle(&route("10.244.0.0/25"), &kernel), []);
    assert_eq!(kernel.probes(), [(PORT, false)]);
    assert_eq!(pods.handle(&link_gone(PORT), &kernel), [GONE]);
}

#[test]
fn a_link_without_carrier_is_a_suspicion() {
    let kernel = Fake::bridged();
    let mut pods = watching(&kernel);
    let link = |index, up| {
        Event::Link(Link {
            index,
            name: "veth".to_owned(),
            mac: None,
            mtu: 1500,
            kind: LinkKind::Veth,
            up,
            controller: None,
            xdp: None,
        })
    };
    assert_eq!(pods.handle(&link(PORT, true), &kernel), []);
    assert_eq!(pods.handle(&link(PORT, false), &kernel), [SUSPECT]);
    assert_eq!(pods.handle(&link(OTHER_PORT, false), &kernel), []);
}

#[test]
fn what_was_missed_is_found_by_listing_again() {
    let mut kernel = Fake::bridged();
    let mut pods = watching(&kernel);
    assert_eq!(pods.handle(&Event::Lost, &kernel), []);
    assert_eq!(kernel.probes(), [(BRIDGE, true)], "it may be dead still");
    kernel.links.remove(&PORT);
    kernel.ports.clear();
    assert_eq!(pods.handle(&Event::Lost, &kernel), [GONE]);
    assert_eq!(pods.handle(&Event::Lost, &kernel), []);
}

#[test]
fn a_pod_behind_a_gateway_is_not_ours_to_judge() {
    let mut kernel = Fake::bridged();
    kernel.route = away();
    let mut pods = Pods::default();
    pods.want(&[POD].into(), &kernel);
    assert_eq!(kernel.probes(), []);
    let failed = Event::Neighbour(neighbour(BRIDGE, None));
    assert_eq!(pods.handle(&failed, &kernel), []);
    assert_eq!(pods.handle(&route_gone("0.0.0.0/0"), &kernel), []);
}
