//! Bad input: named with object, field and what was expected, and the rest goes on.

use lb_userspace::desired::{Desired, FrontendVerdict, Tier};
use lb_userspace::model::Context;
use serde_json::{Value, json};

use crate::{Lab, context, endpoint, service, slice};

fn named(mut object: Value, name: &str, created: Option<&str>) -> Value {
    object["metadata"]["name"] = json!(name);
    object["metadata"]["creationTimestamp"] = json!(created);
    object
}

fn pool(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "sluice.dev/v1alpha1", "kind": "AddressPool",
        "metadata": {"name": name}, "spec": spec,
    })
}

/// A world with one pool, 192.0.2.0/29, and whatever else is put in.
fn lab() -> Lab {
    let mut lab = Lab::new(Context::new("n1"));
    lab.put(
        "pool.json",
        &pool("p", &json!({"addresses": ["192.0.2.0/29"]})),
    );
    lab
}

fn with(objects: &[Value]) -> Desired {
    let mut lab = lab();
    for (index, object) in objects.iter().enumerate() {
        lab.put(&format!("{index}.json"), object);
    }
    lab.desired()
}

/// The one thing that was ignored.
fn said(desired: &Desired) -> (String, String) {
    assert_eq!(desired.ignored.len(), 1, "{:?}", desired.ignored);
    (
        desired.ignored[0].object.clone(),
        desired.ignored[0].reason.clone(),
    )
}

fn annotated(key: &str, value: &str) -> Value {
    let mut object = service(&json!({}), &json!([]));
    object["metadata"]["annotations"] = json!({key: value});
    object
}

/// One field of `web`'s spec, and what has to be said of it.
#[test]
fn every_field_of_a_service() {
    let table: [(Value, usize, &str); 9] = [
        (
            json!({"ports": []}),
            0,
            "spec.ports is empty: expected at least one port",
        ),
        (
            json!({"ports": [{"port": 0}]}),
            0,
            "spec.ports[0].port is 0: expected 1-65535",
        ),
        (
            json!({"ports": [{"port": 70000}, {"port": 1}]}),
            1,
            "spec.ports[0].port is 70000",
        ),
        (
            json!({"ports": [{"port": -1}]}),
            0,
            "spec.ports[0].port is -1: expected 1-65535",
        ),
        (
            json!({"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2, "protocol": "SCTP"}]}),
            1,
            "spec.ports[1].protocol is SCTP: expected TCP or UDP",
        ),
        (
            json!({"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 1}]}),
            1,
            "spec.ports[1] is 1/TCP again",
        ),
        (
            json!({"externalTrafficPolicy": "Loca"}),
            1,
            "spec.externalTrafficPolicy is \"Loca\"",
        ),
        (
            json!({"sessionAffinity": "Cookie"}),
            1,
            "spec.sessionAffinity is \"Cookie\"",
        ),
        (
            json!({"loadBalancerSourceRanges": ["10.0.0.0/8", "10.0.0.0/40"]}),
            1,
            "spec.loadBalancerSourceRanges[1] is \"10.0.0.0/40\": expected a CIDR",
        ),
    ];
    for (spec, frontends, expected) in table {
        let desired = with(&[service(&spec, &json!([]))]);
        let (object, reason) = said(&desired);
        assert_eq!(object, "Service/a/web");
        assert!(reason.contains(expected), "{reason}");
        assert_eq!(desired.frontends.len(), frontends, "{reason}");
        assert_eq!(
            desired.vips.len(),
            1,
            "the VIP is answered for all the same"
        );
    }
}

#[test]
fn every_annotation() {
    let table = [
        (
            "sluice.dev/drain-timeout",
            "5 min",
            1,
            "annotation sluice.dev/drain-timeout is \"5 min\"",
        ),
        (
            "sluice.dev/addresses",
            "192.0.2",
            0,
            "sluice.dev/addresses has \"192.0.2\": expected IP",
        ),
        (
            "metallb.io/loadBalancerIPs",
            "x",
            0,
            "metallb.io/loadBalancerIPs has \"x\"",
        ),
        (
            "sluice.dev/addresses",
            "203.0.113.1",
            0,
            "203.0.113.1 is outside every AddressPool",
        ),
        ("sluice.dev/pool", "q", 0, "AddressPool q does not exist"),
    ];
    for (key, value, vips, expected) in table {
        let desired = with(&[annotated(key, value)]);
        let (object, reason) = said(&desired);
        assert_eq!(object, "Service/a/web");
        assert!(reason.contains(expected), "{reason}");
        assert_eq!(desired.vips.len(), vips, "{reason}");
    }
}

#[test]
fn good_annotations_are_read() {
    let desired = with(&[annotated("sluice.dev/drain-timeout", "5m")]);
    let frontend = desired.frontends.values().next().expect("frontend");
    assert_eq!(frontend.drain_timeout.map(|d| d.as_secs()), Some(300));
    for key in [
        "sluice.dev/addresses",
        "metallb.io/loadBalancerIPs",
        "metallb.universe.tf/loadBalancerIPs",
    ] {
        let desired = with(&[annotated(key, "192.0.2.5, 192.0.2.3")]);
        assert_eq!(desired.vips.len(), 2, "{key}: {:?}", desired.ignored);
    }
    let desired = with(&[service(&json!({"loadBalancerIP": "192.0.2.6"}), &json!([]))]);
    assert!(
        desired
            .vips
            .contains_key(&"192.0.2.6".parse().expect("address"))
    );
}

#[test]
fn ranges_that_cannot_be_read_admit_nobody() {
    let spec = json!({"loadBalancerSourceRanges": ["office"]});
    let pods = [endpoint(&json!({}), &json!(["10.0.0.1"]))];
    let desired = with(&[service(&spec, &json!([])), slice("s", "IPv4", &pods)]);
    let frontend = desired.frontends.values().next().expect("frontend");
    assert_eq!(frontend.verdict, FrontendVerdict::Drop);
    assert!(frontend.endpoints.iter().all(|e| !e.new_connections));
    assert_eq!(desired.ignored.len(), 2, "{:?}", desired.ignored);
}

#[test]
fn two_services_on_one_vip_and_port() {
    let web = |name: &str, created: Option<&str>| {
        named(
            service(&json!({}), &json!([{"ip": "192.0.2.1"}])),
            name,
            created,
        )
    };
    let old = Some("2024-01-01T00:00:00Z");
    let new = Some("2024-01-02T00:00:00Z");
    for (a, b, winner) in [
        (web("a", new), web("b", old), "a/b"),
        (web("a", old), web("b", old), "a/a"),
        (web("a", None), web("b", new), "a/b"),
        (web("a", None), web("b", None), "a/a"),
    ] {
        for objects in [[a.clone(), b.clone()], [b.clone(), a.clone()]] {
            let desired = with(&objects);
            assert_eq!(desired.frontends.len(), 1);
            let owner = desired
                .frontends
                .values()
                .next()
                .expect("frontend")
                .service
                .to_string();
            assert_eq!(owner, winner);
            let (object, reason) = said(&desired);
            assert_ne!(object, format!("Service/{winner}"));
            let expected = format!("192.0.2.1 port 80/TCP belongs to the older Service {winner}");
            assert_eq!(reason, expected);
        }
    }
}

#[test]
fn two_services_asking_for_one_vip_and_port() {
    let web = |name: &str, port: u16, key: Option<&str>| {
        let spec = json!({"loadBalancerIP": "192.0.2.1", "ports": [{"port": port}]});
        let mut object = named(service(&spec, &json!([])), name, None);
        object["metadata"]["annotations"] = json!({"sluice.dev/shared-key": key});
        if key.is_none() {
            object["metadata"]["annotations"] = json!({});
        }
        object
    };
    let desired = with(&[web("a", 80, None), web("b", 80, None)]);
    assert_eq!(desired.frontends.len(), 1);
    let expected = "address 192.0.2.1 port 80/TCP belongs to Service a/a";
    assert_eq!(said(&desired), ("Service/a/b".into(), expected.into()));
    let desired = with(&[web("a", 80, None), web("b", 81, Some("k"))]);
    assert!(
        said(&desired)
            .1
            .contains("expected the same sluice.dev/shared-key")
    );
    let desired = with(&[web("a", 80, Some("k")), web("b", 81, Some("k"))]);
    assert_eq!((desired.frontends.len(), desired.vips.len()), (2, 1));
    assert_eq!(desired.ignored, []);
}

#[test]
fn pools() {
    let table = [
        (
            json!({"addresses": ["192.0.2.9-192.0.2.1"]}),
            "spec.addresses[0]",
        ),
        (
            json!({"addresses": ["here"]}),
            "spec.addresses[0] is \"here\": expected a CIDR",
        ),
        (json!({"addresses": []}), "spec.addresses is empty"),
        (
            json!({"addresses": ["192.0.2.1"], "namespaceSelector": {"matchLabels": {"team": "x"}}}),
            "spec.namespaceSelector asks for label team",
        ),
    ];
    for (spec, expected) in table {
        let desired = with(&[pool("bad", &spec), service(&json!({}), &json!([]))]);
        let (object, reason) = said(&desired);
        assert_eq!(object, "AddressPool/bad");
        assert!(reason.contains(expected), "{reason}");
        assert_eq!(desired.vips.len(), 1, "the good pool still gives");
    }
}

#[test]
fn an_exhausted_pool_names_itself_and_its_holders_keep_theirs() {
    let services: Vec<_> = (0..10)
        .map(|n| named(service(&json!({}), &json!([])), &format!("s{n}"), None))
        .collect();
    let desired = with(&services);
    assert_eq!(desired.vips.len(), 8);
    assert_eq!(desired.ignored.len(), 2);
    assert_eq!(desired.ignored[0].object, "Service/a/s8");
    assert_eq!(
        desired.ignored[0].reason,
        "no free IPv4 address in AddressPool p"
    );
}

#[test]
fn addresses_of_others_are_refused() {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"},
        "spec": {"podCIDRs": ["192.0.2.4/31"]},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.0"}]},
    });
    for (ip, expected) in [
        (
            "192.0.2.0",
            "192.0.2.0, which is an address of Node n2: a Service cannot have it",
        ),
        (
            "192.0.2.5",
            "192.0.2.5, which is in the pod range of Node n2",
        ),
        (
            "203.0.113.1",
            "203.0.113.1, which is outside every AddressPool: expected",
        ),
        ("127.0.0.1", "127.0.0.1, which is loopback"),
        (
            "host",
            "status.loadBalancer.ingress[0].ip is \"host\": expected an IP address",
        ),
    ] {
        let desired = with(&[node.clone(), service(&json!({}), &json!([{"ip": ip}]))]);
        assert!(desired.vips.is_empty());
        let reasons: Vec<_> = desired.ignored.iter().map(|i| i.reason.as_str()).collect();
        assert!(
            reasons.iter().any(|r| r.contains(expected)),
            "{ip}: {reasons:?}"
        );
    }
    // Nor are they handed out: .0, .4 and .5 are taken, which leaves five.
    let services = (0..8).map(|n| named(service(&json!({}), &json!([])), &format!("s{n}"), None));
    let objects: Vec<_> = services.chain([node]).collect();
    let desired = with(&objects);
    let vips: Vec<_> = desired.vips.keys().map(ToString::to_string).collect();
    assert_eq!(
        vips,
        [
            "192.0.2.1",
            "192.0.2.2",
            "192.0.2.3",
            "192.0.2.6",
            "192.0.2.7"
        ]
    );
}

#[test]
fn slices() {
    let pods = [endpoint(&json!({}), &json!(["10.0.0.1"]))];
    let good = slice("good", "IPv4", &pods);
    let bad = |change: &dyn Fn(&mut Value)| {
        let mut object = slice("bad", "IPv4", &pods);
        change(&mut object);
        object
    };
    let table = [
        (
            bad(&|s| s["addressType"] = json!("FQDN")),
            "addressType is \"FQDN\": expected IPv4",
        ),
        (
            bad(&|s| s["ports"][0]["name"] = json!(null)),
            "ports[0].name is missing",
        ),
        (
            bad(&|s| s["ports"][0]["port"] = json!(null)),
            "ports[0].port is missing",
        ),
        (
            bad(&|s| s["ports"][0]["port"] = json!(65536)),
            "ports[0].port is 65536",
        ),
        (
            bad(&|s| s["ports"][0]["protocol"] = json!("SCTP")),
            "ports[0].protocol is \"SCTP\"",
        ),
        (
            bad(&|s| s["endpoints"][0]["addresses"] = json!([])),
            "endpoints[0].addresses is empty",
        ),
        (
            bad(&|s| s["endpoints"][0]["addresses"] = json!(["::1"])),
            "is \"::1\": expected a unicast",
        ),
        (
            bad(&|s| s["endpoints"][0]["addresses"] = json!(["127.0.0.1"])),
            "a unicast IPv4 address",
        ),
    ];
    for (bad, expected) in table {
        let desired = with(&[service(&json!({}), &json!([])), good.clone(), bad]);
        let (object, reason) = said(&desired);
        assert_eq!(object, "EndpointSlice/a/bad");
        assert!(reason.contains(expected), "{reason}");
        let frontend = desired.frontends.values().next().expect("frontend");
        assert_eq!(frontend.endpoints.len(), 1, "the good slice counts");
    }
}

#[test]
fn a_service_that_stops_being_ours_goes() {
    let mut lab = lab();
    for (field, value) in [
        ("type", "ClusterIP"),
        ("loadBalancerClass", "other.example/x"),
    ] {
        lab.put("s.json", &service(&json!({}), &json!([])));
        assert_eq!(lab.desired().vips.len(), 1);
        lab.put("s.json", &service(&json!({field: value}), &json!([])));
        let desired = lab.desired();
        assert!(
            desired.vips.is_empty() && desired.frontends.is_empty() && desired.ignored.is_empty()
        );
    }
}

#[test]
fn tiers() {
    let web = |policy: &str| service(&json!({"externalTrafficPolicy": policy}), &json!([]));
    let pod = |ip: &str, node: &str, ready: bool, terminating: bool| {
        let state = json!({
            "ready": ready, "serving": true, "terminating": terminating, "nodeName": node,
        });
        endpoint(&state, &json!([ip]))
    };
    let node = |labels: Value| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}});
    let plain = node(json!({}));
    let excluded = node(json!({"node.kubernetes.io/exclude-from-external-load-balancers": ""}));
    let ready = pod("10.0.0.1", "n1", true, false);
    let unready = pod("10.0.0.2", "n1", false, false);
    let ending = pod("10.0.0.3", "n1", false, true);
    let far = pod("10.0.0.4", "n2", true, false);
    let table = [
        (
            "Local",
            vec![unready.clone(), ready.clone()],
            &plain,
            Tier::Ready,
        ),
        (
            "Local",
            vec![ending.clone(), far.clone()],
            &plain,
            Tier::Draining,
        ),
        (
            "Local",
            vec![unready.clone(), far.clone()],
            &plain,
            Tier::Any,
        ),
        ("Local", vec![ready.clone()], &excluded, Tier::Excluded),
        ("Cluster", vec![far], &plain, Tier::Ready),
        ("Cluster", vec![ending], &plain, Tier::Draining),
        ("Cluster", vec![unready], &plain, Tier::Any),
        ("Cluster", vec![], &plain, Tier::Any),
    ];
    for (policy, pods, node, expected) in table {
        let desired = with(&[web(policy), slice("s", "IPv4", &pods), node.clone()]);
        let tiers: Vec<_> = desired.vips.values().map(|vip| vip.tier).collect();
        assert_eq!(tiers, [expected], "{policy} {pods:?}");
    }
}

#[test]
fn announce_selects_nodes_by_label_and_says_when_the_node_is_unknown() {
    let edge = pool(
        "edge",
        &json!({
            "addresses": ["198.51.100.1"],
            "announce": {"nodeSelector": {"matchLabels": {"edge": "true"}}},
        }),
    );
    let web = annotated("sluice.dev/pool", "edge");
    let node = |edge: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"edge": edge}}});
    let tier = |desired: &Desired| desired.vips.values().next().expect("a VIP").tier;
    assert_eq!(
        tier(&with(&[edge.clone(), web.clone(), node("true")])),
        Tier::Any
    );
    assert_eq!(
        tier(&with(&[edge.clone(), web.clone(), node("no")])),
        Tier::Excluded
    );
    let desired = with(&[edge, web]);
    assert_eq!(tier(&desired), Tier::Excluded);
    assert_eq!(said(&desired).0, "Node/n1");
}

#[test]
fn what_is_said_of_a_vip_goes_with_it() {
    let spec = json!({
        "addresses": ["198.51.100.1"],
        "announce": {"nodeSelector": {"matchLabels": {"edge": "true"}}},
    });
    let mut lab = lab();
    lab.put("edge.json", &pool("edge", &spec));
    lab.put(
        "s.json",
        &service(&json!({}), &json!([{"ip": "198.51.100.1"}])),
    );
    assert_eq!(said(&lab.desired()).0, "Node/n1");
    lab.put(
        "s.json",
        &service(&json!({}), &json!([{"ip": "192.0.2.1"}])),
    );
    assert_eq!(lab.desired().ignored, []);
}

#[test]
fn without_allocation_only_the_status_gives_addresses() {
    let mut lab = Lab::new(Context {
        allocate: false,
        ..context("n1")
    });
    lab.put("s.json", &service(&json!({}), &json!([])));
    let desired = lab.desired();
    assert!(desired.vips.is_empty());
    assert!(
        said(&desired)
            .1
            .contains("expected an address from an allocator")
    );
    lab.put(
        "s.json",
        &service(&json!({}), &json!([{"ip": "192.0.2.9"}])),
    );
    assert_eq!(lab.desired().vips.len(), 1);
}
