//! A real kernel's links, neighbours and routes, in network namespaces of their own.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use super::*;
use crate::testing::{Peer, in_namespace, ip};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

async fn until(watch: &mut Watch, mut wanted: impl FnMut(&Event) -> bool) -> Event {
    let search = async {
        loop {
            let event = watch.next().await.expect("the watch goes on");
            if wanted(&event) {
                return event;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(5), search)
        .await
        .expect("the event comes")
}

#[test]
fn links_come_change_and_go_as_events() {
    in_namespace(|| {
        runtime().block_on(async {
            let mut watch = Watch::open().expect("subscribes");
            ip("link add sl0 type veth peer name sl1");
            let event = until(
                &mut watch,
                |e| matches!(e, Event::Link(l) if l.name == "sl0"),
            )
            .await;
            let Event::Link(link) = event else {
                unreachable!()
            };
            assert_eq!(link.kind, LinkKind::Veth);
            ip("link set sl0 address 02:00:00:00:00:77");
            until(
                &mut watch,
                |e| matches!(e, Event::Link(l) if l.mac == Some([2, 0, 0, 0, 0, 0x77])),
            )
            .await;
            ip("addr add 10.9.0.1/24 dev sl0");
            until(&mut watch, |e| matches!(e, Event::AddressesChanged { .. })).await;
            ip("link del sl0");
            until(
                &mut watch,
                |e| matches!(e, Event::LinkGone { name, .. } if name == "sl0"),
            )
            .await;
        });
    });
}

#[test]
fn a_bridge_forgetting_a_pod_and_a_route_going_are_told() {
    in_namespace(|| {
        runtime().block_on(async {
            ip("link add br0 type bridge");
            ip("link add sl0 type veth peer name sl1");
            ip("link set sl0 master br0");
            ip("link set br0 up");
            ip("link set sl0 up");
            ip("link set sl1 up");
            ip("addr add 10.9.0.1/24 dev br0");
            ip("route add 10.8.0.7/32 dev br0");
            let mut watch = Watch::open().expect("subscribes");
            let mac = [2, 0, 0, 0, 0, 0x42];
            assert!(
                std::process::Command::new("bridge")
                    .args("fdb add 02:00:00:00:00:42 dev sl0 master dynamic".split(' '))
                    .status()
                    .expect("bridge runs")
                    .success()
            );
            assert!(
                std::process::Command::new("bridge")
                    .args("fdb del 02:00:00:00:00:42 dev sl0 master".split(' '))
                    .status()
                    .expect("bridge runs")
                    .success()
            );
            let ifindex = link_by_name("sl0").expect("there").index;
            let forgot = Event::BridgePortForgot { ifindex, mac };
            until(&mut watch, |e| *e == forgot).await;
            ip("route del 10.8.0.7/32");
            let destination = "10.8.0.7/32".parse().expect("net");
            let gone = until(&mut watch, |e| matches!(e, Event::RouteGone { .. })).await;
            let ifindex = Some(link_by_name("br0").expect("there").index);
            assert_eq!(
                gone,
                Event::RouteGone {
                    destination,
                    ifindex
                }
            );
        });
    });
}

/// This namespace and a peer, joined by a veth pair.
fn joined() -> Peer {
    let peer = Peer::new();
    ip("link add sl0 type veth peer name sl1");
    ip(&format!("link set sl1 netns {}", peer.tid));
    ip("addr add 10.9.0.1/24 dev sl0");
    ip("link set sl0 up");
    peer.ip("addr add 10.9.0.2/24 dev sl1");
    peer.ip("link set sl1 address 02:00:00:00:00:02");
    peer.ip("link set sl1 up");
    peer
}

#[test]
fn next_hops_are_resolved_followed_and_let_go_of() {
    in_namespace(|| {
        runtime().block_on(async {
            let peer = joined();
            ip("route add 10.7.0.0/16 via 10.9.0.2");
            let mut links = Links::default();
            links.replace(super::links().expect("lists"));
            let uplink = links.by_name("sl0").expect("there").clone();
            let gateway = Ipv4Addr::new(10, 9, 0, 2);
            let (near, far) = (gateway, Ipv4Addr::new(10, 7, 1, 1));
            let (dead, nowhere) = (Ipv4Addr::new(10, 9, 0, 99), Ipv4Addr::new(172, 16, 0, 1));
            let route = Route {
                via: gateway,
                ifindex: uplink.index,
            };
            assert_eq!(route_to(far).expect("asks"), Some(route));
            assert_eq!(route_to(nowhere).expect("asks"), None);
            assert_eq!(
                route_to(Ipv4Addr::new(10, 9, 0, 1)).expect("asks"),
                None,
                "our own"
            );

            let mut watch = Watch::open().expect("subscribes");
            let mut hops = NextHops::default();
            let failures = hops.want(&BTreeSet::from([near, far, dead, nowhere]));
            assert!(failures.is_empty(), "{failures:?}");
            let mac = [2, 0, 0, 0, 0, 2];
            // Without an event having been read; the dead one is given up.
            hops.await_fresh(100);
            let resolved = hops.resolved(&links);
            for endpoint in [near, far] {
                let hop = resolved[&endpoint];
                assert_eq!((hop.ip, hop.ifindex, hop.mac), (gateway, uplink.index, mac));
                assert_eq!(Some(hop.own_mac), uplink.mac);
            }
            let ours: Vec<_> = managed_neighbours()
                .expect("lists")
                .iter()
                .map(|n| n.ip)
                .collect();
            assert_eq!(BTreeSet::from_iter(ours), BTreeSet::from([gateway, dead]));

            // The gateway's card is replaced.
            peer.ip("link set sl1 down");
            peer.ip("link set sl1 address 02:00:00:00:00:03");
            peer.ip("link set sl1 up");
            until(&mut watch, |event| {
                if hops.handle(event) {
                    assert!(hops.refresh().is_empty());
                }
                let far = hops.resolved(&links).get(&far).copied();
                far.is_some_and(|hop| hop.mac == [2, 0, 0, 0, 0, 3])
            })
            .await;

            // The route goes another way, or no way.
            ip("route del 10.7.0.0/16");
            assert!(hops.reroute().is_empty());
            assert_eq!(hops.resolved(&links).keys().collect::<Vec<_>>(), [&near]);
            assert!(hops.want(&BTreeSet::new()).is_empty());
            assert_eq!(managed_neighbours().expect("lists"), []);
        });
    });
}

#[test]
fn an_administrators_entry_is_used_and_kept() {
    in_namespace(|| {
        let _peer = joined();
        ip("neigh add 10.9.0.50 dev sl0 lladdr 02:00:00:00:00:50 nud permanent");
        let mut links = Links::default();
        links.replace(super::links().expect("lists"));
        let mut hops = NextHops::default();
        let endpoint = Ipv4Addr::new(10, 9, 0, 50);
        assert!(hops.want(&BTreeSet::from([endpoint])).is_empty());
        assert_eq!(hops.resolved(&links)[&endpoint].mac, [2, 0, 0, 0, 0, 0x50]);
        assert!(hops.want(&BTreeSet::new()).is_empty());
        let kept = neighbours().expect("lists");
        assert!(
            kept.iter().any(|n| n.ip == endpoint && n.permanent),
            "{kept:?}"
        );
    });
}

#[test]
fn redirects_are_switched_off_and_what_fails_is_named() {
    in_namespace(|| {
        ip("link add sl0 type veth peer name sl1");
        for name in ["all", "sl0"] {
            disable_send_redirects(name).expect("set");
        }
        let error = disable_send_redirects("missing").expect_err("is not there");
        assert!(
            error.to_string().contains("conf/missing/send_redirects"),
            "{error}"
        );
        for name in ["all", "sl0"] {
            let path = format!("/proc/sys/net/ipv4/conf/{name}/send_redirects");
            assert_eq!(std::fs::read_to_string(path).expect("readable").trim(), "0");
        }
    });
}
