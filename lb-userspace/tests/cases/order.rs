//! Properties of the world as it changes: the result depends on what is, never on the order
//! in which it was told, and `take_changes` never misses one.

use std::collections::BTreeMap;
use std::net::IpAddr;

use lb_userspace::desired::{Desired, Frontend, FrontendKey, ObjectName, ServiceId, Vip};
use lb_userspace::model::{Allocations, Changes, Context, Reservation, World};
use lb_userspace::watch::object::{
    Ingress, Node, Pool, Selector, Service, ServicePort, Slice, SliceEndpoint, SlicePort,
};
use lb_userspace::watch::{Change, WatchEvent};
use proptest::prelude::*;

fn name(namespace: &str, name: String) -> ObjectName {
    ObjectName {
        namespace: namespace.into(),
        name,
    }
}

fn context() -> Context {
    Context {
        node_name: "n0".into(),
        ..crate::context("n0")
    }
}

fn init(world: &mut World) {
    let events = [
        WatchEvent::Service(Change::InitDone),
        WatchEvent::Slice(Change::InitDone),
        WatchEvent::Node(Change::InitDone),
        WatchEvent::Pool(Change::InitDone),
    ];
    for event in events {
        world.apply(event);
    }
}

fn any_service() -> impl Strategy<Value = Service> {
    let port = (
        1..4_i32,
        prop_oneof!["TCP", "UDP", "SCTP"],
        prop_oneof!["", "a", "b"],
    );
    let ports = prop::collection::vec(port, 0..4);
    let created = prop::option::of(0..3_i64);
    let class = prop_oneof![4 => Just("sluice.dev/lb"), 1 => Just("other")];
    (
        0..4_u8,
        ports,
        prop::collection::vec(0..3_u8, 1..3),
        any::<bool>(),
        created,
        class,
    )
        .prop_map(|(number, ports, vips, local, created, class)| Service {
            name: name("a", format!("s{number}")),
            created,
            service_type: Some("LoadBalancer".into()),
            class: Some(class.into()),
            external_traffic_policy: local.then(|| "Local".to_owned()),
            ports: ports
                .into_iter()
                .map(|(port, protocol, name)| ServicePort {
                    name,
                    port,
                    protocol: Some(protocol),
                })
                .collect(),
            ingress: vips
                .into_iter()
                .map(|n| Ingress {
                    ip: Some(format!("192.0.2.{n}")),
                    ip_mode: None,
                })
                .collect(),
            ..Service::default()
        })
}

fn any_slice() -> impl Strategy<Value = Slice> {
    let condition = || prop::option::of(any::<bool>());
    let endpoint = (
        1..4_u8,
        condition(),
        condition(),
        condition(),
        0..3_u8,
        0..3_u8,
    );
    let port = (
        prop_oneof!["", "a", "b"],
        prop::option::of(1..3_i32),
        prop_oneof!["TCP", "UDP"],
    );
    let ports = prop::collection::vec(port, 0..3);
    let endpoints = prop::collection::vec(endpoint, 0..4);
    (0..6_u8, 0..4_u8, ports, endpoints).prop_map(|(number, service, ports, endpoints)| Slice {
        name: name("a", format!("e{number}")),
        service: Some(format!("s{service}")),
        address_type: "IPv4".into(),
        ports: ports
            .into_iter()
            .map(|(name, port, protocol)| SlicePort {
                name: Some(name),
                port,
                protocol: Some(protocol),
            })
            .collect(),
        endpoints: endpoints
            .into_iter()
            .map(
                |(ip, ready, serving, terminating, node, uid)| SliceEndpoint {
                    addresses: vec![format!("10.0.0.{ip}")],
                    ready,
                    serving,
                    terminating,
                    node: Some(format!("n{node}")),
                    uid: Some(format!("u{uid}")),
                },
            )
            .collect(),
    })
}

fn any_node() -> impl Strategy<Value = Node> {
    (0..2_u8, prop::option::of(0..3_u8), any::<bool>()).prop_map(|(number, ip, excluded)| {
        let mut node = Node {
            name: name("", format!("n{number}")),
            ..Node::default()
        };
        node.addresses
            .extend(ip.map(|n| IpAddr::from([192, 0, 2, n])));
        if excluded {
            let label = "node.kubernetes.io/exclude-from-external-load-balancers";
            node.labels.insert(label.into(), String::new());
        }
        node
    })
}

/// Pools that may or may not have the VIPs, and that this node may or may not answer for.
fn any_pool() -> impl Strategy<Value = Pool> {
    (0..2_u8, 0..3_u8, 0..3_u8, any::<bool>()).prop_map(|(number, first, last, edge)| {
        let labels = BTreeMap::from([("edge".to_owned(), "true".to_owned())]);
        Pool {
            name: name("", format!("p{number}")),
            addresses: vec![format!("192.0.2.{first}-192.0.2.{last}")],
            node_selector: edge.then(|| Selector {
                labels,
                expressions: Vec::new(),
            }),
            ..Pool::default()
        }
    })
}

fn any_event() -> impl Strategy<Value = WatchEvent> {
    prop_oneof![
        4 => any_slice().prop_map(|s| WatchEvent::Slice(Change::Apply(s))),
        2 => any_slice().prop_map(|s| WatchEvent::Slice(Change::Delete(s.name))),
        3 => any_service().prop_map(|s| WatchEvent::Service(Change::Apply(s))),
        1 => any_service().prop_map(|s| WatchEvent::Service(Change::Delete(s.name))),
        1 => any_node().prop_map(|n| WatchEvent::Node(Change::Apply(n))),
        1 => any_node().prop_map(|n| WatchEvent::Node(Change::Delete(n.name))),
        1 => any_pool().prop_map(|p| WatchEvent::Pool(Change::Apply(p))),
        1 => any_pool().prop_map(|p| WatchEvent::Pool(Change::Delete(p.name))),
    ]
}

/// What is left in the end, as a list of applications.
fn remaining(events: &[WatchEvent]) -> Vec<WatchEvent> {
    let mut last: BTreeMap<(u8, ObjectName), &WatchEvent> = BTreeMap::new();
    for event in events {
        let key = match event {
            WatchEvent::Service(Change::Apply(o)) => (0, o.name.clone()),
            WatchEvent::Service(Change::Delete(n)) => (0, n.clone()),
            WatchEvent::Slice(Change::Apply(o)) => (1, o.name.clone()),
            WatchEvent::Slice(Change::Delete(n)) => (1, n.clone()),
            WatchEvent::Node(Change::Apply(o)) => (2, o.name.clone()),
            WatchEvent::Node(Change::Delete(n)) => (2, n.clone()),
            WatchEvent::Pool(Change::Apply(o)) => (3, o.name.clone()),
            WatchEvent::Pool(Change::Delete(n)) => (3, n.clone()),
            WatchEvent::Service(_)
            | WatchEvent::Slice(_)
            | WatchEvent::Node(_)
            | WatchEvent::Pool(_)
            | WatchEvent::Pod(_)
            | WatchEvent::Denied(_)
            | WatchEvent::Problems(_) => panic!("not generated: {event:?}"),
        };
        last.insert(key, event);
    }
    let deleted = |event: &&WatchEvent| {
        matches!(
            event,
            WatchEvent::Service(Change::Delete(_))
                | WatchEvent::Slice(Change::Delete(_))
                | WatchEvent::Node(Change::Delete(_))
                | WatchEvent::Pool(Change::Delete(_))
        )
    };
    last.into_values()
        .filter(|e| !deleted(e))
        .cloned()
        .collect()
}

/// A copy kept only by what `take_changes` says.
#[derive(Default)]
struct Shadow {
    frontends: BTreeMap<FrontendKey, Frontend>,
    vips: BTreeMap<IpAddr, Vip>,
}

impl Shadow {
    fn follow(&mut self, desired: &Desired, changes: &Changes) {
        for key in &changes.frontends {
            let new = desired.frontends.get(key);
            assert_ne!(self.frontends.get(key), new, "a change that is none");
            match new {
                Some(new) => self.frontends.insert(*key, new.clone()),
                None => self.frontends.remove(key),
            };
        }
        for vip in &changes.vips {
            let new = desired.vips.get(vip);
            assert_ne!(self.vips.get(vip), new, "a change that is none");
            match new {
                Some(new) => self.vips.insert(*vip, new.clone()),
                None => self.vips.remove(vip),
            };
        }
        assert_eq!(self.frontends, desired.frontends);
        assert_eq!(self.vips, desired.vips);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Step by step and all at once give the same, and every step says what it changed.
    #[test]
    fn incremental_equals_from_scratch(events in prop::collection::vec(any_event(), 0..40)) {
        let mut world = World::new(context(), Allocations::default());
        init(&mut world);
        let mut shadow = Shadow::default();
        for event in &events {
            world.apply(event.clone());
            let desired = world.desired().clone();
            shadow.follow(&desired, &world.take_changes());
        }
        let mut fresh = World::new(context(), Allocations::default());
        for event in remaining(&events) {
            fresh.apply(event);
        }
        init(&mut fresh);
        prop_assert_eq!(world.desired(), fresh.desired());
    }

    #[test]
    fn the_order_of_events_does_not_matter(
        (events, shuffled) in prop::collection::vec(any_event(), 0..30)
            .prop_map(|events| remaining(&events))
            .prop_flat_map(|events| (Just(events.clone()), Just(events).prop_shuffle()))
    ) {
        let result = |events: Vec<WatchEvent>| {
            let mut world = World::new(context(), Allocations::default());
            init(&mut world);
            for event in events {
                world.apply(event);
                world.desired();
            }
            world.desired().clone()
        };
        prop_assert_eq!(result(events), result(shuffled));
    }

    /// No address goes to two Services; with the prior everybody keeps theirs, whoever comes
    /// or goes; without it the result follows from the objects alone.
    #[test]
    fn addresses_are_unique_and_stable(
        first in prop::collection::btree_map(0..30_u8, prop::option::of(0..5_i64), 0..20),
        gone in prop::collection::btree_set(0..30_u8, 0..10),
        come in prop::collection::btree_map(30..60_u8, prop::option::of(0..5_i64), 0..20),
    ) {
        let web = |(number, created): (u8, Option<i64>)| Service {
            name: name("a", format!("s{number}")),
            created,
            service_type: Some("LoadBalancer".into()),
            class: Some("sluice.dev/lb".into()),
            ports: vec![ServicePort { port: 80, ..ServicePort::default() }],
            ..Service::default()
        };
        let pool = Pool {
            name: name("", "p".into()),
            addresses: vec!["192.0.2.0-192.0.2.9".into(), "192.0.2.250/29".into()],
            avoid_buggy_ips: true,
            ..Pool::default()
        };
        let start = |prior: Allocations| {
            let mut world = World::new(Context::new("n0"), prior);
            world.apply(WatchEvent::Pool(Change::Apply(pool.clone())));
            init(&mut world);
            world
        };
        let mut world = start(Allocations::default());
        for service in first.clone().into_iter().map(web) {
            world.apply(WatchEvent::Service(Change::Apply(service)));
        }
        world.desired();
        let before = world.allocations().clone();
        for number in &gone {
            let name = name("a", format!("s{number}"));
            world.apply(WatchEvent::Service(Change::Delete(name)));
        }
        for service in come.clone().into_iter().map(web) {
            world.apply(WatchEvent::Service(Change::Apply(service)));
        }
        world.desired();
        let after = world.allocations().clone();
        let all: Vec<_> = after.services().values().flatten().collect();
        let unique: std::collections::BTreeSet<_> = all.iter().collect();
        prop_assert_eq!(unique.len(), all.len());
        let services = first.keys().filter(|n| !gone.contains(n)).count() + come.len();
        prop_assert_eq!(all.len(), services.min(16));
        prop_assert!(all.iter().all(|a| !a.to_string().ends_with(".0")));
        for (service, addresses) in before.services() {
            let number: u8 = service.name[1..].parse().expect("number");
            if !gone.contains(&number) {
                prop_assert_eq!(after.of(service), addresses.as_slice());
            }
        }
        // A restart: the prior through its JSON, the objects all at once.
        let prior = Allocations::from_json(&after.to_json()).expect("reads what it wrote");
        let mut again = start(prior);
        let left = first.into_iter().filter(|(n, _)| !gone.contains(n)).chain(come);
        for service in left.map(web) {
            again.apply(WatchEvent::Service(Change::Apply(service)));
        }
        prop_assert_eq!(again.desired(), world.desired());
    }
}

#[test]
fn nothing_is_desired_before_every_kind_is_complete() {
    let service = Service {
        name: name("a", "web".into()),
        service_type: Some("LoadBalancer".into()),
        class: Some("sluice.dev/lb".into()),
        ports: vec![ServicePort {
            port: 80,
            ..ServicePort::default()
        }],
        ingress: vec![Ingress {
            ip: Some("192.0.2.1".into()),
            ip_mode: None,
        }],
        ..Service::default()
    };
    let done = [
        WatchEvent::Service(Change::InitDone),
        WatchEvent::Slice(Change::InitDone),
        WatchEvent::Node(Change::InitDone),
        WatchEvent::Pool(Change::InitDone),
    ];
    for last in 0..done.len() {
        let mut world = World::new(context(), Allocations::default());
        world.apply(WatchEvent::Service(Change::Init));
        world.apply(WatchEvent::Service(Change::Apply(service.clone())));
        for (index, event) in done.iter().enumerate() {
            if index != last {
                world.apply(event.clone());
            }
            assert_eq!(world.desired(), &Desired::default());
        }
        assert_eq!(world.missing().len(), 1);
        world.apply(done[last].clone());
        assert!(world.desired().complete);
        assert_eq!(world.desired().frontends.len(), 1);
        assert!(world.take_changes().completed);
        // A later list takes nothing away before its end.
        world.apply(WatchEvent::Service(Change::Init));
        assert!(world.desired().complete);
        assert_eq!(world.desired().frontends.len(), 1);
        assert_eq!(world.take_changes(), Changes::default());
        world.apply(WatchEvent::Service(Change::InitDone));
        assert_eq!(world.desired().frontends.len(), 0);
    }
}

#[test]
fn a_draining_vip_goes_to_nobody_else() {
    let mut context = Context::new("n0");
    context.reserved.insert(
        "192.0.2.1".parse().expect("address"),
        Reservation {
            services: [ServiceId::of(&name("a", "old".into()))].into(),
            by: None,
        },
    );
    let web = |service: &str| Service {
        name: name("a", service.into()),
        service_type: Some("LoadBalancer".into()),
        class: Some("sluice.dev/lb".into()),
        ports: vec![ServicePort {
            port: 80,
            ..ServicePort::default()
        }],
        ..Service::default()
    };
    let addresses = vec!["192.0.2.1-192.0.2.2".into()];
    let pool = Pool {
        name: name("", "p".into()),
        addresses,
        ..Pool::default()
    };
    let mut world = World::new(context, Allocations::default());
    world.apply(WatchEvent::Pool(Change::Apply(pool)));
    init(&mut world);
    for service in ["new", "newer", "old"] {
        world.apply(WatchEvent::Service(Change::Apply(web(service))));
    }
    world.desired();
    let given = |world: &World, service: &str| {
        let given = world.allocations().of(&name("a", service.into()));
        given.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(given(&world, "new"), ["192.0.2.2"]);
    assert_eq!(given(&world, "newer"), Vec::<String>::new());
    // Whoever had it may have it back by asking for it.
    let old = Service {
        load_balancer_ip: Some("192.0.2.1".into()),
        ..web("old")
    };
    world.apply(WatchEvent::Service(Change::Apply(old)));
    world.desired();
    assert_eq!(given(&world, "old"), ["192.0.2.1"]);
}
