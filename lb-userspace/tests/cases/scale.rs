//! What a change costs at 1k Services and 10k endpoints, and at ten times that. Prints; the
//! budget (2-3 ms from event to desired state) is only asserted in release builds.

use std::time::{Duration, Instant};

use lb_userspace::desired::ObjectName;
use lb_userspace::model::{Allocations, Context, World};
use lb_userspace::watch::files::Files;
use lb_userspace::watch::object::{Pool, Service, ServicePort, Slice, SliceEndpoint, SlicePort};
use lb_userspace::watch::{Change, WatchEvent};

fn name(n: usize) -> ObjectName {
    ObjectName {
        namespace: "default".into(),
        name: format!("web-{n:05}"),
    }
}

fn service(n: usize) -> Service {
    Service {
        name: name(n),
        service_type: Some("LoadBalancer".into()),
        class: Some("sluice.dev/lb".into()),
        ports: vec![ServicePort {
            name: "http".into(),
            port: 80,
            protocol: None,
        }],
        ..Service::default()
    }
}

fn slice(n: usize, ready: bool) -> Slice {
    Slice {
        name: name(n),
        service: Some(name(n).name),
        address_type: "IPv4".into(),
        ports: vec![SlicePort {
            name: Some("http".into()),
            port: Some(8080),
            protocol: None,
        }],
        endpoints: (0..10)
            .map(|e| SliceEndpoint {
                addresses: vec![format!("10.{}.{}.{}", n / 256, n % 256, e + 1)],
                ready: Some(ready || e > 0),
                node: Some(format!("n{}", e % 3)),
                uid: Some(format!("2b1c7f0e-0000-0000-{n:04}-00000000000{e}")),
                ..SliceEndpoint::default()
            })
            .collect(),
    }
}

fn world(services: usize) -> World {
    let mut world = World::new(Context::new("n0"), Allocations::default());
    let addresses = vec!["172.16.0.0/16".to_owned()];
    let pool = Pool {
        name: name(0),
        addresses,
        ..Pool::default()
    };
    world.apply(WatchEvent::Pool(Change::Apply(pool)));
    for n in 0..services {
        world.apply(WatchEvent::Service(Change::Apply(service(n))));
        world.apply(WatchEvent::Slice(Change::Apply(slice(n, true))));
    }
    world.apply(WatchEvent::Service(Change::InitDone));
    world.apply(WatchEvent::Slice(Change::InitDone));
    world.apply(WatchEvent::Node(Change::InitDone));
    world.apply(WatchEvent::Pool(Change::InitDone));
    world
}

/// Median and worst of many changes.
fn measure(mut change: impl FnMut(usize)) -> (Duration, Duration) {
    let mut times: Vec<_> = (0..100)
        .map(|n| {
            let start = Instant::now();
            change(n);
            start.elapsed()
        })
        .collect();
    times.sort();
    (times[times.len() / 2], times[times.len() - 1])
}

#[test]
fn a_change_costs_what_it_touches() {
    // Unoptimised builds only show that it works.
    let sizes: &[usize] = if cfg!(debug_assertions) {
        &[1_000]
    } else {
        &[1_000, 10_000]
    };
    for &services in sizes {
        let mut world = world(services);
        let start = Instant::now();
        assert_eq!(world.desired().frontends.len(), services);
        let first = start.elapsed();
        world.take_changes();
        let (slice_p50, slice_max) = measure(|n| {
            world.apply(WatchEvent::Slice(Change::Apply(slice(n * 7, false))));
            world.desired();
            assert_eq!(world.take_changes().frontends.len(), 1);
        });
        let (service_p50, service_max) = measure(|n| {
            let ports = vec![ServicePort {
                name: "http".into(),
                port: 81,
                protocol: None,
            }];
            let changed = Service {
                ports,
                ..service(n * 7)
            };
            world.apply(WatchEvent::Service(Change::Apply(changed)));
            world.desired();
            assert_eq!(world.take_changes().frontends.len(), 2);
        });
        println!(
            "{services} services: first {first:?}; slice change p50 {slice_p50:?} max {slice_max:?}; \
             service change p50 {service_p50:?} max {service_max:?}"
        );
        if !cfg!(debug_assertions) && services == 1_000 {
            assert!(slice_p50 < Duration::from_millis(1), "{slice_p50:?}");
            assert!(service_p50 < Duration::from_millis(3), "{service_p50:?}");
        }
    }
}

/// A thousand Services in one file, one of which changes: from bytes to desired state.
#[test]
fn one_line_in_a_large_file() {
    let document = |n: usize, port: u16| {
        format!(
            "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: web-{n}\nspec:\n  type: LoadBalancer\n  \
             loadBalancerClass: sluice.dev/lb\n  ports:\n  - name: http\n    port: {port}\nstatus:\n  \
             loadBalancer:\n    ingress:\n    - ip: 192.0.{}.{}\n",
            n / 256,
            n % 256
        )
    };
    let text = |changed: usize| {
        (0..1_000)
            .map(|n| document(n, if n == changed { 81 } else { 80 }))
            .collect::<String>()
    };
    let mut files = Files::default();
    let mut world = World::new(crate::context("n0"), Allocations::default());
    let mut times = Vec::new();
    for changed in 0..20 {
        let text = text(changed);
        let start = Instant::now();
        files.put("all.yaml", text.as_bytes());
        for event in files.events() {
            world.apply(event);
        }
        assert_eq!(world.desired().frontends.len(), 1_000);
        times.push(start.elapsed());
        let expected = if changed == 0 { 1_000 } else { 4 };
        assert_eq!(world.take_changes().frontends.len(), expected);
    }
    let first = times.remove(0);
    times.sort();
    println!(
        "one file of 1000 services: first {first:?}, then p50 {:?}",
        times[times.len() / 2]
    );
}
