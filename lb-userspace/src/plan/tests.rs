//! Plans as data, and every prefix of them on maps in memory.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use ipnet::IpNet;
use lb_common::V4;
use lb_common::abi::{self, Config, State, verdict};
use proptest::prelude::*;

use super::*;
use crate::apply::MapStore as _;
use crate::apply::fake::{FakeStore, Fate};
use crate::desired::{
    Desired, Endpoint, EndpointState, Frontend, FrontendVerdict, ObjectName, Policy, Protocol,
    Tier, Via, Vip,
};
use crate::testing::timed;

const NOW: Duration = Duration::from_secs(100);

pub(crate) fn config() -> Config<V4> {
    Config {
        seed: 7,
        snat: V4([192, 0, 2, 1]),
        snat_ports: [61_000, 65_535],
        refusals: 1000,
        failover: 1,
    }
}

pub(crate) fn key(vip: u8, port: u16) -> FrontendKey {
    let address = IpAddr::V4(Ipv4Addr::new(203, 0, 113, vip));
    FrontendKey {
        address,
        port,
        protocol: Protocol::Tcp,
    }
}

pub(crate) fn kernel(key: FrontendKey) -> abi::FrontendKey<V4> {
    kernel_key(&key).expect("IPv4")
}

pub(crate) fn address(host: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 1, 0, host), 8080)
}

pub(crate) fn endpoint(host: u8) -> Endpoint {
    Endpoint {
        address: SocketAddr::V4(address(host)),
        node: None,
        local: true,
        ready: true,
        serving: true,
        terminating: false,
        uid: None,
        state: EndpointState::Active,
        via: Via::Local,
        new_connections: true,
    }
}

/// A healthy life.
fn well(incarnation: u32) -> Life {
    Life {
        incarnation,
        state: EndpointState::Active,
        new_connections: true,
        via: Via::Local,
    }
}

pub(crate) fn draining(host: u8) -> Endpoint {
    Endpoint {
        state: EndpointState::Draining,
        new_connections: false,
        ..endpoint(host)
    }
}

pub(crate) fn frontend(endpoints: Vec<Endpoint>) -> Frontend {
    let forwards = endpoints.iter().any(|endpoint| endpoint.new_connections);
    Frontend {
        service: ObjectName::default(),
        port_name: String::new(),
        policy: Policy::Cluster,
        verdict: if forwards {
            FrontendVerdict::Forward
        } else {
            FrontendVerdict::Reject
        },
        affinity: None,
        source_ranges: Vec::new(),
        drain_timeout: None,
        endpoints,
    }
}

pub(crate) fn desired(frontends: impl IntoIterator<Item = (FrontendKey, Frontend)>) -> Desired {
    let frontends: BTreeMap<_, _> = frontends.into_iter().collect();
    let vips = frontends
        .keys()
        .map(|key| (key.address, Vip { tier: Tier::Ready }))
        .collect();
    Desired {
        vips,
        frontends,
        ignored: Vec::new(),
        complete: true,
    }
}

/// A planner with a store whose contents it knows.
#[derive(Clone, Default)]
struct World {
    planner: Planner,
    store: FakeStore,
}

impl World {
    fn of(desired: &Desired) -> Self {
        let mut world = Self::default();
        world.become_(desired);
        world
    }

    fn become_(&mut self, desired: &Desired) -> Plan {
        self.write(&Target::new(desired, config()), Scope::All)
    }

    fn write(&mut self, target: &Target<'_>, scope: Scope<'_>) -> Plan {
        let plan = self.planner.plan(target, scope, NOW);
        for op in &plan.ops {
            self.store.apply(op).expect("no faults injected");
            self.planner.record(op, NOW);
            self.store
                .check()
                .unwrap_or_else(|error| panic!("after {op:?}: {error}"));
        }
        plan
    }

    /// The same with lives of endpoints of the first frontend.
    fn live(&mut self, desired: &Desired, lives: impl IntoIterator<Item = (u8, Life)>) -> Plan {
        let lives = lives.into_iter();
        let lives = lives.map(|(host, life)| (SocketAddr::V4(address(host)), life));
        let lives: Lives = [(key(1, 80), lives.collect())].into();
        let target = Target {
            lives: &lives,
            ..Target::new(desired, config())
        };
        self.write(&target, Scope::All)
    }

    fn fate(&self, key: FrontendKey) -> Fate {
        self.store.new_connections(&kernel(key))
    }

    fn state_of(&self, host: u8) -> Vec<State> {
        let at = self.store.endpoints_at(address(host));
        at.into_iter()
            .map(|(_, value)| State::from_u8(value.state))
            .collect()
    }

    fn id_of(&self, key: FrontendKey, host: u8) -> u32 {
        self.planner
            .endpoint_id(&key, address(host))
            .expect("has an id")
    }
}

fn forward(hosts: &[u8]) -> Fate {
    Fate::Forward(hosts.iter().map(|host| address(*host)).collect())
}

#[test]
fn a_first_plan_builds_a_working_data_plane() {
    let world = World::of(&desired([
        (
            key(1, 80),
            frontend(vec![endpoint(1), endpoint(2), draining(3)]),
        ),
        (key(1, 443), frontend(vec![])),
    ]));
    assert_eq!(world.fate(key(1, 80)), forward(&[1, 2]));
    assert_eq!(world.fate(key(1, 443)), Fate::Reject);
    assert_eq!(world.fate(key(1, 81)), Fate::NoService);
    assert_eq!(world.fate(key(2, 80)), Fate::NotOurs);
    assert_eq!(world.state_of(3), [State::Draining]);
    assert_eq!(world.store.config(), config());
    assert!(world.store.bit(Ipv4Addr::new(192, 0, 2, 1)), "SNAT address");
}

#[test]
fn nothing_is_left_to_do_after_a_plan() {
    let wanted = desired([(key(1, 80), frontend(vec![endpoint(1), draining(2)]))]);
    let mut world = World::of(&wanted);
    assert_eq!(world.become_(&wanted), Plan::default());
}

#[test]
fn one_endpoint_more_is_an_endpoint_a_table_and_a_switch() {
    let mut world = World::of(&desired([
        (key(1, 80), frontend(vec![endpoint(1), endpoint(2)])),
        (key(2, 80), frontend(vec![endpoint(9)])),
    ]));
    let wanted = desired([
        (
            key(1, 80),
            frontend(vec![endpoint(1), endpoint(2), endpoint(3)]),
        ),
        (key(2, 80), frontend(vec![endpoint(9)])),
    ]);
    let plan = world.write(
        &Target::new(&wanted, config()),
        Scope::Frontends(&[key(1, 80)]),
    );
    let phases: Vec<_> = plan.ops.iter().map(MapOp::phase).collect();
    assert_eq!(
        phases,
        [Phase::EndpointsUp, Phase::Tables, Phase::Frontends]
    );
    assert_eq!(world.fate(key(1, 80)), forward(&[1, 2, 3]));
}

#[test]
fn an_endpoint_that_drains_leaves_the_table_before_it_is_marked() {
    let mut world = World::of(&desired([(key(1, 80), frontend(vec![endpoint(1)]))]));
    let wanted = desired([(key(1, 80), frontend(vec![draining(1), endpoint(2)]))]);
    let plan = world.become_(&wanted);
    let phases: Vec<_> = plan.ops.iter().map(MapOp::phase).collect();
    assert_eq!(
        phases,
        [
            Phase::EndpointsUp,
            Phase::Tables,
            Phase::Frontends,
            Phase::EndpointsDown
        ]
    );
}

#[test]
fn nothing_is_taken_away_while_the_model_is_incomplete() {
    let full = desired([
        (key(1, 80), frontend(vec![endpoint(1), endpoint(2)])),
        (key(2, 80), frontend(vec![endpoint(3)])),
    ]);
    let mut world = World::of(&full);
    let before = world.store.clone();
    let mut partial = desired([(key(1, 80), frontend(vec![endpoint(1)]))]);
    partial.complete = false;
    assert_eq!(world.become_(&partial), Plan::default());
    // The Service is listed, its slices are not.
    let mut bare = desired([
        (key(1, 80), frontend(vec![])),
        (key(5, 80), frontend(vec![])),
    ]);
    bare.complete = false;
    assert_eq!(world.become_(&bare), Plan::default());
    assert_eq!(world.store, before);

    // What is new is added, and what is listed as draining drains.
    let mut more = desired([(key(1, 80), frontend(vec![draining(1), endpoint(4)]))]);
    more.complete = false;
    world.become_(&more);
    assert_eq!(world.fate(key(1, 80)), forward(&[2, 4]));
    assert_eq!(world.state_of(1), [State::Draining]);
}

#[test]
fn a_vanished_endpoint_keeps_its_id_until_no_flow_holds_it() {
    let mut world = World::of(&desired([(
        key(1, 80),
        frontend(vec![endpoint(1), endpoint(2)]),
    )]));
    let id = world.id_of(key(1, 80), 1);
    world.become_(&desired([(key(1, 80), frontend(vec![endpoint(2)]))]));
    assert_eq!(world.state_of(1), [State::Draining]);

    let reclaim = |world: &mut World, held: &[u32], at: u64| {
        let at = Duration::from_secs(at);
        let plan = world
            .planner
            .reclaim(&held.iter().copied().collect(), at, at);
        for op in &plan.ops {
            world.store.apply(op).expect("no faults");
            world.planner.record(op, at);
        }
        plan.ops.len()
    };
    assert_eq!(reclaim(&mut world, &[id], 110), 0, "quarantine begins");
    assert_eq!(
        reclaim(&mut world, &[], 160),
        0,
        "a handshake may become a flow"
    );
    assert_eq!(reclaim(&mut world, &[id], 220), 0, "a flow holds it");
    assert_eq!(reclaim(&mut world, &[], 330), 1);
    assert_eq!(world.state_of(1), []);

    // Coming back later is a new id; coming back in time would have been the old one.
    world.become_(&desired([(
        key(1, 80),
        frontend(vec![endpoint(1), endpoint(2)]),
    )]));
    assert_ne!(world.id_of(key(1, 80), 1), id);
}

#[test]
fn an_endpoint_that_comes_back_in_time_is_the_same() {
    let both = desired([(key(1, 80), frontend(vec![endpoint(1), endpoint(2)]))]);
    let mut world = World::of(&both);
    let id = world.id_of(key(1, 80), 1);
    world.become_(&desired([(key(1, 80), frontend(vec![endpoint(2)]))]));
    world.planner.reclaim(&BTreeSet::from([id]), NOW, NOW);
    world.become_(&both);
    assert_eq!(world.id_of(key(1, 80), 1), id);
    let late = Duration::from_secs(1000);
    assert_eq!(
        world.planner.reclaim(&BTreeSet::new(), late, late),
        Plan::default()
    );
    assert_eq!(world.fate(key(1, 80)), forward(&[1, 2]));
}

#[test]
fn another_pod_under_the_same_address_gets_another_id_and_the_old_one_is_gone() {
    let wanted = desired([(key(1, 80), frontend(vec![endpoint(1)]))]);
    let mut world = World::default();
    world.live(&wanted, [(1, well(4))]);
    let old = world.id_of(key(1, 80), 1);
    world.live(&wanted, [(1, well(4))]);
    assert_eq!(world.id_of(key(1, 80), 1), old, "the same life");
    world.live(&wanted, [(1, well(5))]);
    let new = world.id_of(key(1, 80), 1);
    assert_ne!(old, new);
    let value = |world: &World, id| world.store.endpoint(id).expect("still there");
    assert_eq!(value(&world, old).state, State::Gone as u8);
    assert_eq!(value(&world, new).incarnation, 5);
    assert_eq!(world.fate(key(1, 80)), forward(&[1]));
    let id_of_life = |n| world.planner.id_of_life(&key(1, 80), address(1), n);
    assert_eq!(
        [id_of_life(4), id_of_life(5), id_of_life(6)],
        [Some(old), Some(new), None]
    );
}

#[test]
fn a_restart_knows_one_life_from_the_next() {
    let wanted = desired([(key(1, 80), frontend(vec![endpoint(1)]))]);
    for replaced_before in [true, false] {
        let mut world = World::default();
        world.live(&wanted, [(1, well(4))]);
        let old = world.id_of(key(1, 80), 1);
        if replaced_before {
            world.live(&wanted, [(1, well(5))]);
        }
        let applied = crate::apply::read_back(&world.store).expect("reads");
        world.planner = Planner::adopt(applied, NOW);
        world.live(&wanted, [(1, well(5))]);
        assert_ne!(world.id_of(key(1, 80), 1), old);
        let value = world.store.endpoint(old).expect("still there");
        assert_eq!((value.incarnation, value.state), (4, State::Gone as u8));
        assert_eq!(world.fate(key(1, 80)), forward(&[1]));
        assert_eq!(world.state_of(1).len(), 2, "no third one");
    }
}

#[test]
fn an_endpoint_that_is_ready_and_dead_gets_nothing_new() {
    let wanted = desired([(key(1, 80), frontend(vec![endpoint(1), endpoint(2)]))]);
    let mut world = World::default();
    let shunned = Life {
        new_connections: false,
        ..well(1)
    };
    world.live(&wanted, [(1, shunned), (2, well(2))]);
    assert_eq!(world.fate(key(1, 80)), forward(&[2]));
    assert_eq!(world.state_of(1), [State::Draining], "its flows stay");
}

#[test]
fn a_dead_endpoint_is_shunned_with_one_write() {
    let wanted = desired([(key(1, 80), frontend(vec![endpoint(1), endpoint(2)]))]);
    let mut world = World::default();
    world.live(&wanted, [(1, well(1)), (2, well(2))]);
    let k = key(1, 80);
    let plan = world
        .planner
        .shun([(&k, address(1)), (&k, address(9))].into_iter());
    assert_eq!(plan.ops.len(), 1);
    for op in &plan.ops {
        world.store.apply(op).expect("no faults injected");
        world.planner.record(op, NOW);
    }
    assert_eq!(world.state_of(1), [State::Draining]);
    assert_eq!(
        world.planner.shun([(&k, address(1))].into_iter()),
        Plan::default()
    );
    // The table follows, and so does the way back.
    let shunned = Life {
        new_connections: false,
        ..well(1)
    };
    world.live(&wanted, [(1, shunned), (2, well(2))]);
    assert_eq!(world.fate(k), forward(&[2]));
    world.live(&wanted, [(1, well(1)), (2, well(2))]);
    assert_eq!(world.fate(k), forward(&[1, 2]));
    assert_eq!(world.state_of(1), [State::Active]);
}

#[test]
fn a_deleted_service_keeps_its_address_while_flows_drain() {
    let mut world = World::of(&desired([(key(1, 80), frontend(vec![endpoint(1)]))]));
    let none = desired([]);
    let life = Life {
        state: EndpointState::Draining,
        new_connections: false,
        ..well(1)
    };
    let lives: Lives = [(key(1, 80), [(SocketAddr::V4(address(1)), life)].into())].into();
    world.write(
        &Target {
            lives: &lives,
            ..Target::new(&none, config())
        },
        Scope::All,
    );
    assert_eq!(world.fate(key(1, 80)), Fate::Reject);
    assert_eq!(world.state_of(1), [State::Draining]);
    assert!(world.store.answers(Ipv4Addr::new(203, 0, 113, 1)));

    let lives = Lives::new();
    world.write(
        &Target {
            lives: &lives,
            ..Target::new(&none, config())
        },
        Scope::All,
    );
    assert_eq!(world.fate(key(1, 80)), Fate::NotOurs);
    assert!(!world.store.bit(Ipv4Addr::new(203, 0, 113, 1)));
    assert!(world.store.bit(Ipv4Addr::new(192, 0, 2, 1)), "SNAT address");
}

#[test]
fn what_the_node_knows_to_be_gone_is_not_selected() {
    let wanted = desired([(key(1, 80), frontend(vec![endpoint(1), endpoint(2)]))]);
    let mut world = World::of(&wanted);
    let life = Life {
        state: EndpointState::Gone,
        new_connections: false,
        ..well(1)
    };
    let lives: Lives = [(key(1, 80), [(SocketAddr::V4(address(1)), life)].into())].into();
    world.write(
        &Target {
            lives: &lives,
            ..Target::new(&wanted, config())
        },
        Scope::All,
    );
    assert_eq!(world.fate(key(1, 80)), forward(&[2]));
    assert_eq!(world.state_of(1), [State::Gone]);
}

#[test]
fn nat_endpoints_carry_their_next_hop() {
    let nat = Endpoint {
        via: Via::Nat,
        local: false,
        ..endpoint(1)
    };
    let wanted = desired([(key(1, 80), frontend(vec![nat]))]);
    let mut world = World::of(&wanted);
    let id = world.id_of(key(1, 80), 1);
    assert_eq!(
        world.store.endpoint(id).expect("there").ifindex,
        0,
        "unresolved"
    );
    let hop = NextHop {
        ip: *address(1).ip(),
        ifindex: 4,
        mac: [2; 6],
        own_mac: [4; 6],
    };
    let hops = BTreeMap::from([(*address(1).ip(), hop)]);
    let target = Target {
        next_hops: &hops,
        ..Target::new(&wanted, config())
    };
    let plan = world.write(&target, Scope::Frontends(&[key(1, 80)]));
    assert_eq!(plan.ops.len(), 1);
    let value = world.store.endpoint(id).expect("there");
    assert_eq!(
        (value.ifindex, value.next_hop.0, value.own_mac.0),
        (4, [2; 6], [4; 6])
    );
}

#[test]
fn source_ranges_come_before_the_frontend_and_go_after_it() {
    let with = |ranges: &[&str]| {
        let source_ranges = ranges
            .iter()
            .map(|r| r.parse::<IpNet>().expect("net"))
            .collect();
        desired([(
            key(1, 80),
            Frontend {
                source_ranges,
                ..frontend(vec![endpoint(1)])
            },
        )])
    };
    let mut world = World::of(&with(&["198.51.100.0/24", "2001:db8::/32"]));
    let allowed = |world: &World, client: &str| {
        world
            .store
            .source_allowed(&kernel(key(1, 80)), client.parse().expect("address"))
    };
    assert!(allowed(&world, "198.51.100.9") && !allowed(&world, "198.51.101.9"));
    world.become_(&with(&["198.51.101.0/24"]));
    assert!(!allowed(&world, "198.51.100.9") && allowed(&world, "198.51.101.9"));
    // Only IPv6 clients are welcome: that is not the same as everybody.
    world.become_(&with(&["2001:db8::/32"]));
    assert!(!allowed(&world, "198.51.101.9"));
    world.become_(&with(&[]));
    assert!(allowed(&world, "198.51.100.9"));
}

#[test]
fn ipv6_is_left_out_with_a_reason() {
    let six = FrontendKey {
        address: "2001:db8::1".parse().expect("address"),
        ..key(1, 80)
    };
    let mut mixed = frontend(vec![endpoint(1)]);
    mixed.endpoints.push(Endpoint {
        address: "[2001:db8::2]:80".parse().expect("address"),
        ..endpoint(2)
    });
    let wanted = desired([(key(1, 80), mixed), (six, frontend(vec![endpoint(1)]))]);
    let mut world = World::default();
    let plan = world.become_(&wanted);
    let messages: Vec<_> = plan.left_out.iter().map(ToString::to_string).collect();
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(messages[0].contains("203.0.113.1:80/TCP: endpoint [2001:db8::2]:80 is IPv6"));
    assert!(messages[1].contains("[2001:db8::1]:80/TCP: IPv6 is not forwarded"));
    assert_eq!(world.planner.left_out().count(), 2);
    assert_eq!(world.fate(key(1, 80)), forward(&[1]));
}

fn of_map(plan: &Plan, map: &str) -> usize {
    let left = plan.left_out.iter();
    left.filter(|left| left.reason.full_map() == Some(map))
        .count()
}

#[test]
fn what_found_no_room_is_tried_again_by_itself() {
    let ranged = |ranges: u32| {
        let mut frontend = frontend(vec![endpoint(1)]);
        let range = |n| ipnet::IpNet::from(IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n)));
        frontend.source_ranges = (0..ranges).map(range).collect();
        frontend
    };
    let half = limits::SOURCE_RANGES as u32 * 2 / 3;
    let mut world = World::default();
    world.become_(&desired([(key(1, 80), ranged(half))]));
    let both = desired([(key(1, 80), ranged(half)), (key(2, 80), ranged(half))]);
    let plan = world.become_(&both);
    assert_eq!(of_map(&plan, "source_ranges"), 1);
    assert_eq!(world.planner.crowded_out(), Some(vec![key(2, 80)]));
    let second = desired([(key(2, 80), ranged(half))]);
    world.become_(&second);
    let plan = world.become_(&second);
    assert_eq!(plan.left_out, []);
    assert_eq!(world.planner.crowded_out(), Some(vec![]));
}

#[test]
fn what_does_not_fit_is_reported_and_the_rest_goes_on() {
    let many = (0..20_000u32).map(|n| {
        let address = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n));
        let key = FrontendKey {
            address,
            port: 80,
            protocol: Protocol::Tcp,
        };
        (key, frontend(vec![endpoint(1)]))
    });
    let mut planner = Planner::default();
    let wanted = desired(many);
    let plan = planner.plan(&Target::new(&wanted, config()), Scope::All, NOW);
    let frontends = plan
        .ops
        .iter()
        .filter(|op| op.phase() == Phase::Frontends)
        .count();
    assert_eq!(frontends, limits::FRONTENDS - 1);
    let of = |wanted: fn(&LeftOutReason) -> bool| {
        plan.left_out
            .iter()
            .filter(|left| wanted(&left.reason))
            .count()
    };
    assert_eq!(
        of(|r| matches!(r, LeftOutReason::FrontendIds(_))),
        20_000 - frontends
    );
    assert_eq!(
        of(|r| matches!(r, LeftOutReason::Vips { .. })),
        20_000 - limits::VIPS
    );
    let full = |map| of_map(&plan, map);
    assert_eq!(full("frontends"), 20_000 - frontends);
    assert_eq!(full("vips"), 20_000 - limits::VIPS);
    assert_eq!(planner.crowded_out(), None, "VIPs take a full pass");
}

#[test]
fn many_large_tables_are_planned_in_parts() {
    // Tables of 128 KiB each, more than one plan holds.
    let services = 2 * TABLE_BYTES / (128 << 10) + 1;
    let wanted = desired(
        (0..services as u8).map(|n| (key(n, 80), frontend(vec![endpoint(1), endpoint(2)]))),
    );
    let mut world = World::default();
    let mut plan = world.become_(&wanted);
    let mut parts = 1;
    while !plan.deferred.is_empty() {
        let tables = plan.ops.iter().map(table_bytes).sum::<usize>();
        assert!(tables <= TABLE_BYTES + (1 << 18), "{tables} bytes");
        let left = plan.deferred.len();
        plan = world.write(
            &Target::new(&wanted, config()),
            Scope::Frontends(&plan.deferred),
        );
        assert!(plan.deferred.len() < left);
        parts += 1;
    }
    assert!(parts > 2, "{parts} parts");
    world.become_(&wanted);
    let none = world.become_(&wanted);
    assert_eq!((none.ops, none.deferred), (vec![], vec![]));
    for n in 0..services as u8 {
        assert_eq!(world.fate(key(n, 80)), forward(&[1, 2]), "{n}");
    }
}

#[test]
fn an_address_on_a_shared_bit_keeps_it() {
    // Find a second address with the bit of the first.
    let first = Ipv4Addr::new(203, 0, 113, 1);
    let bit = lb_common::bitmap::bitmap_index(V4::from(first));
    let second = (1..=u32::MAX)
        .map(Ipv4Addr::from)
        .find(|a| *a != first && lb_common::bitmap::bitmap_index(V4::from(*a)) == bit)
        .expect("2^16 bits for 2^32 addresses");
    let other = FrontendKey {
        address: IpAddr::V4(second),
        ..key(1, 80)
    };
    let both = desired([
        (key(1, 80), frontend(vec![endpoint(1)])),
        (other, frontend(vec![endpoint(2)])),
    ]);
    let mut world = World::of(&both);
    world.become_(&desired([(key(1, 80), frontend(vec![endpoint(1)]))]));
    assert!(!world.store.answers(second));
    assert_eq!(world.fate(key(1, 80)), forward(&[1]));
    world.become_(&desired([]));
    assert!(!world.store.bit(first));
}

#[test]
fn a_large_table_is_changed_by_what_differs_and_comes_out_as_if_built() {
    let hosts = |range: std::ops::Range<u8>| range.map(endpoint).collect::<Vec<_>>();
    let mut world = World::of(&desired([(key(1, 80), frontend(hosts(0..20)))]));
    let wanted = desired([(key(1, 80), frontend(hosts(1..21)))]);
    let store = world.store.clone();
    let read = move |value: abi::Frontend| {
        let elements = diff::layout(&value).elements();
        let read = store.table(value.region, elements).ok()?;
        Some(read.into_iter().flatten().collect())
    };
    let mut built = world.clone();
    let target = Target {
        words: Some(&read),
        ..Target::new(&wanted, config())
    };
    let changed = world.write(&target, Scope::All);
    assert_eq!(changed, built.become_(&wanted));
}

/// A world of three frontends on two addresses, with up to four endpoints each.
fn worlds() -> impl Strategy<Value = Desired> {
    let endpoint = |host: u8| {
        prop_oneof![
            Just(None),
            Just(Some(endpoint(host))),
            Just(Some(endpoint(host))),
            Just(Some(draining(host))),
        ]
    };
    let frontend = move |base: u8| {
        (
            endpoint(base),
            endpoint(base + 1),
            endpoint(base + 2),
            any::<bool>(),
        )
            .prop_map(|(a, b, c, ranged)| {
                let mut frontend = frontend([a, b, c].into_iter().flatten().collect());
                if ranged {
                    frontend
                        .source_ranges
                        .push("198.51.100.0/24".parse().expect("net"));
                }
                frontend
            })
    };
    let keys = [key(1, 80), key(1, 443), key(2, 80)];
    let there = prop::collection::vec(prop::bool::weighted(0.8), 3);
    (frontend(1), frontend(1), frontend(10), there).prop_map(move |(a, b, c, there)| {
        let all = keys.into_iter().zip([a, b, c]).zip(there);
        desired(
            all.filter(|(_, there)| *there)
                .map(|(frontend, _)| frontend),
        )
    })
}

fn usable(desired: &Desired, key: FrontendKey) -> BTreeSet<SocketAddrV4> {
    let endpoints = desired
        .frontends
        .get(&key)
        .into_iter()
        .flat_map(|f| &f.endpoints);
    let v4 = endpoints
        .filter(|endpoint| endpoint.new_connections)
        .filter_map(|endpoint| match endpoint.address {
            SocketAddr::V4(address) => Some(address),
            SocketAddr::V6(_) => None,
        });
    v4.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_prefix_of_a_plan_leaves_a_working_data_plane(before in worlds(), after in worlds()) {
        let mut world = World::of(&before);
        let plan = world.planner.plan(&Target::new(&after, config()), Scope::All, NOW);
        for op in &plan.ops {
            world.store.apply(op).expect("no faults injected");
            prop_assert_eq!(world.store.check(), Ok(()), "after {:?}", op);
            for key in before.frontends.keys().filter(|key| after.frontends.contains_key(*key)) {
                let valid = [usable(&before, *key), usable(&after, *key)];
                if valid.iter().any(BTreeSet::is_empty) {
                    continue;
                }
                let fate = world.fate(*key);
                let valid: BTreeSet<_> = valid.concat_sets();
                let Fate::Forward(to) = fate else {
                    prop_assert!(false, "{key:?} meets {fate:?} after {op:?}");
                    return Ok(());
                };
                prop_assert!(to.is_subset(&valid), "{:?} may go to {:?} after {:?}", key, to, op);
                let stranger = Ipv4Addr::new(9, 9, 9, 9);
                let open = [&before, &after].iter().any(|d| d.frontends[key].source_ranges.is_empty());
                let lets_in = world.store.source_allowed(&kernel(*key), stranger);
                prop_assert!(open || !lets_in, "a stranger gets in after {:?}", op);
                let client = Ipv4Addr::new(198, 51, 100, 9);
                prop_assert!(world.store.source_allowed(&kernel(*key), client), "after {:?}", op);
            }
        }
    }
}

trait ConcatSets {
    fn concat_sets(self) -> BTreeSet<SocketAddrV4>;
}

impl ConcatSets for [BTreeSet<SocketAddrV4>; 2] {
    fn concat_sets(self) -> BTreeSet<SocketAddrV4> {
        self.into_iter().flatten().collect()
    }
}

#[test]
fn verdicts_reach_the_map() {
    let mut local = frontend(vec![draining(1)]);
    local.verdict = FrontendVerdict::Drop;
    let world = World::of(&desired([(key(1, 80), local)]));
    let value = world.store.frontend(&kernel(key(1, 80))).expect("written");
    assert_eq!((value.verdict, value.members), (verdict::DROP, 0));
}

/// Prints the cost of one endpoint's change among 1k Services of 10 endpoints; the figure is for
/// release builds.
#[test]
fn one_change_among_a_thousand_services_is_cheap() {
    let service = |n: u32, skip: Option<u32>| {
        let address = IpAddr::V4(Ipv4Addr::from(0xcb00_7100 + n));
        let key = FrontendKey {
            address,
            port: 80,
            protocol: Protocol::Tcp,
        };
        let endpoints = (0..10).filter(|e| Some(*e) != skip).map(|e| Endpoint {
            address: SocketAddr::new(Ipv4Addr::from(0x0a01_0000 + n * 16 + e).into(), 80),
            ..endpoint(1)
        });
        (key, frontend(endpoints.collect()))
    };
    let services = if cfg!(debug_assertions) { 10 } else { 1000 };
    let all: Vec<_> = (0..services).map(|n| service(n, None)).collect();
    let mut planner = Planner::default();
    let before = desired(all.clone());
    let tables = RefCell::new(vec![[0u32; 16]; limits::TABLE_ELEMENTS]);
    let write = |planner: &mut Planner, plan: &Plan, now| {
        for op in &plan.ops {
            if let MapOp::PutTable {
                first, elements, ..
            } = op
            {
                let first = *first as usize;
                tables.borrow_mut()[first..first + elements.len()].copy_from_slice(elements);
            }
            planner.record(op, now);
        }
    };
    let read = |value: abi::Frontend| {
        let (first, count) = (
            value.region as usize,
            diff::layout(&value).elements() as usize,
        );
        let words = tables.borrow()[first..first + count]
            .as_flattened()
            .to_vec();
        Some(words)
    };
    let target = Target::new(&before, config());
    let mut plan = planner.plan(&target, Scope::All, NOW);
    write(&mut planner, &plan, NOW);
    while !plan.deferred.is_empty() {
        plan = planner.plan(&target, Scope::Frontends(&plan.deferred), NOW);
        write(&mut planner, &plan, NOW);
    }
    let rounds = if cfg!(debug_assertions) { 3 } else { 200 };
    let mut times = Vec::new();
    for round in 0..rounds {
        let n = round * 7 % services;
        let mut after = before.clone();
        let (key, changed) = service(n, Some(3));
        after.frontends.insert(key, changed);
        for wanted in [&after, &before] {
            let now = NOW + Duration::from_secs(10 * u64::from(round));
            let target = Target {
                words: Some(&read),
                ..Target::new(wanted, config())
            };
            let (plan, took) = timed(|| planner.plan(&target, Scope::Frontends(&[key]), now));
            times.push(took);
            assert!(matches!(plan.ops.len(), 3), "{}", plan.ops.len());
            write(&mut planner, &plan, now);
        }
    }
    times.sort_unstable();
    let p = |q: usize| times[(times.len() - 1) * q / 100];
    println!("plan of one change: p50 {:?}, p99 {:?}", p(50), p(99));
    if !cfg!(debug_assertions) {
        assert!(p(50) < Duration::from_millis(1), "{:?}", p(50));
    }
}
