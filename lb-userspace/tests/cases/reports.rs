//! Faults that people reported in other balancers: the group on endpoint semantics, and what
//! the tables leave out (an address reused by another pod, null conditions, hints).

use std::collections::BTreeSet;
use std::net::IpAddr;

use lb_userspace::desired::{Desired, EndpointState, Frontend, FrontendVerdict, Protocol};
use lb_userspace::model::Changes;
use serde_json::{Value, json};

use crate::{Lab, context, endpoint, service, slice};

fn pod(ip: &str, state: &str, uid: &str) -> Value {
    let (ready, serving, terminating) = match state {
        "ready" => (true, true, false),
        "unready" => (false, false, false),
        "ending" => (false, true, true),
        "dead" => (false, false, true),
        other => panic!("unknown state {other}"),
    };
    let conditions = json!({
        "ready": ready, "serving": serving, "terminating": terminating, "targetUid": uid,
    });
    endpoint(&conditions, &json!([ip]))
}

fn lab() -> Lab {
    let mut lab = Lab::new(context("n1"));
    lab.put(
        "service.json",
        &service(&json!({}), &json!([{"ip": "192.0.2.10"}])),
    );
    lab
}

fn frontend(desired: &Desired, port: u16, protocol: Protocol) -> &Frontend {
    let found = desired
        .frontends
        .iter()
        .find(|(k, _)| k.port == port && k.protocol == protocol);
    found.expect("a frontend").1
}

fn addresses(frontend: &Frontend) -> Vec<String> {
    frontend
        .endpoints
        .iter()
        .map(|e| e.address.to_string())
        .collect()
}

/// kubernetes#135266: a ghost and a live pod with one address, in every arrangement.
#[test]
fn a_ghost_never_hides_the_pod_that_has_its_address_now() {
    let ghost = || pod("10.1.1.11", "dead", "A");
    let live = || pod("10.1.1.11", "ready", "B");
    let other = || pod("10.1.1.12", "ready", "C");
    let arrangements: [Vec<(&str, Vec<Value>)>; 5] = [
        vec![("s1", vec![ghost(), live()])],
        vec![("s1", vec![live(), ghost()])],
        vec![("s1", vec![ghost(), other()]), ("s2", vec![live()])],
        vec![("s2", vec![live()]), ("s1", vec![ghost(), other()])],
        vec![("s1", vec![live()]), ("s2", vec![ghost()])],
    ];
    for arrangement in arrangements {
        let mut lab = lab();
        for (name, endpoints) in &arrangement {
            lab.put(&format!("{name}.json"), &slice(name, "IPv4", endpoints));
        }
        let desired = lab.desired();
        let endpoints = &frontend(&desired, 80, Protocol::Tcp).endpoints;
        let found: Vec<_> = endpoints
            .iter()
            .filter(|e| e.address.to_string() == "10.1.1.11:8080")
            .collect();
        assert_eq!(found.len(), 1, "{arrangement:?}");
        assert!(found[0].new_connections && found[0].uid.as_deref() == Some("B"));
    }
}

#[test]
fn one_address_with_two_ports_is_two_endpoints_and_a_copy_may_go() {
    let mut lab = lab();
    let mut second = slice("s2", "IPv4", &[pod("10.1.1.11", "ready", "B")]);
    second["ports"][0]["port"] = json!(8081);
    lab.put(
        "s1.json",
        &slice("s1", "IPv4", &[pod("10.1.1.11", "ready", "A")]),
    );
    lab.put("s2.json", &second);
    let desired = lab.desired();
    let both = ["10.1.1.11:8080", "10.1.1.11:8081"];
    assert_eq!(addresses(frontend(&desired, 80, Protocol::Tcp)), both);
    // The same pod in two slices: taking one away leaves the other's word.
    lab.put(
        "s3.json",
        &slice("s3", "IPv4", &[pod("10.1.1.11", "unready", "A")]),
    );
    assert!(frontend(&lab.desired(), 80, Protocol::Tcp).endpoints[0].ready);
    lab.remove("s1.json");
    let desired = lab.desired();
    assert_eq!(addresses(frontend(&desired, 80, Protocol::Tcp)), both);
    let state = frontend(&desired, 80, Protocol::Tcp).endpoints[0].state;
    assert_eq!(state, EndpointState::Unready);
}

/// ovn-kubernetes#2187: ports are joined by name.
#[test]
fn ports_join_by_name_and_protocol() {
    let mut lab = Lab::new(context("n1"));
    let ports = json!([
        {"name": "web", "port": 80, "targetPort": "http"},
        {"name": "adm", "port": 9000},
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]);
    lab.put(
        "service.json",
        &service(&json!({"ports": ports}), &json!([{"ip": "192.0.2.10"}])),
    );
    let mut put = |name: &str, ip: &str, ports: Value| {
        let mut object = slice(name, "IPv4", &[pod(ip, "ready", "")]);
        object["ports"] = ports;
        lab.put(&format!("{name}.json"), &object);
    };
    put(
        "s1",
        "10.1.1.11",
        json!([{"name": "web", "port": 8080}, {"name": "adm", "port": 9000}]),
    );
    put("s2", "10.1.1.12", json!([{"name": "web", "port": 9090}]));
    put("s3", "10.1.1.13", json!([{"name": "web", "port": null}]));
    put("s4", "10.1.1.14", json!([]));
    put(
        "s5",
        "10.1.1.15",
        json!([
            {"name": "dns", "port": 5353, "protocol": "UDP"},
            {"name": "dns-tcp", "port": 5454, "protocol": "TCP"},
            {"name": "dns", "port": 1, "protocol": "TCP"},
        ]),
    );
    let desired = lab.desired();
    let at = |port, protocol| addresses(frontend(&desired, port, protocol));
    assert_eq!(at(80, Protocol::Tcp), ["10.1.1.11:8080", "10.1.1.12:9090"]);
    assert_eq!(at(9000, Protocol::Tcp), ["10.1.1.11:9000"]);
    assert_eq!(at(53, Protocol::Udp), ["10.1.1.15:5353"]);
    assert_eq!(at(53, Protocol::Tcp), ["10.1.1.15:5454"]);
    let said: Vec<_> = desired
        .ignored
        .iter()
        .map(|i| (i.object.as_str(), &*i.reason))
        .collect();
    let null = "ports[0].port is missing: expected a port number";
    assert_eq!(said, [("EndpointSlice/a/s3", null)]);

    // A pod moved from s1 to s2 changes its port and disturbs nobody else.
    let moved = [pod("10.1.1.12", "ready", ""), pod("10.1.1.11", "ready", "")];
    let mut second = slice("s2", "IPv4", &moved);
    second["ports"] = json!([{"name": "web", "port": 9090}]);
    lab.put("s2.json", &second);
    lab.remove("s1.json");
    let desired = lab.desired();
    let web = addresses(frontend(&desired, 80, Protocol::Tcp));
    assert_eq!(web, ["10.1.1.11:9090", "10.1.1.12:9090"]);
    assert_eq!(
        lab.world().take_changes().frontends.len(),
        4,
        "the first state is all new"
    );
}

#[test]
fn an_unnamed_port_joins_the_empty_name() {
    let mut lab = Lab::new(context("n1"));
    let spec = json!({"ports": [{"port": 80}]});
    lab.put(
        "service.json",
        &service(&spec, &json!([{"ip": "192.0.2.10"}])),
    );
    let mut object = slice("s", "IPv4", &[pod("10.1.1.11", "ready", "")]);
    object["ports"] = json!([{"name": "", "port": 8080}]);
    lab.put("s.json", &object);
    assert_eq!(
        addresses(frontend(&lab.desired(), 80, Protocol::Tcp)),
        ["10.1.1.11:8080"]
    );
}

/// kube-vip#1379: the two families never overwrite each other.
#[test]
fn the_families_of_a_dual_stack_service_live_apart() {
    let mut lab = Lab::new(context("n1"));
    let ingress = json!([{"ip": "192.0.2.10"}, {"ip": "2001:db8::10"}]);
    lab.put(
        "service.json",
        &service(&json!({"ipFamilies": ["IPv4", "IPv6"]}), &ingress),
    );
    let v4 = |state: &str| {
        let ips = ["10.1.1.11", "10.1.1.12", "10.1.1.13"];
        slice("v4", "IPv4", &ips.map(|ip| pod(ip, state, ip)))
    };
    let v6 = |state: &str| {
        slice(
            "v6",
            "IPv6",
            &["fd00::1", "fd00::2"].map(|ip| pod(ip, state, ip)),
        )
    };
    lab.put("v4.json", &v4("ready"));
    lab.put("v6.json", &v6("ready"));
    lab.world().desired();
    lab.world().take_changes();
    let four: IpAddr = "192.0.2.10".parse().expect("address");
    let six: IpAddr = "2001:db8::10".parse().expect("address");
    for round in 0..100 {
        let state = if round % 2 == 0 { "unready" } else { "ready" };
        let family = if round % 4 < 2 { four } else { six };
        if family == four {
            lab.put("v4.json", &v4(state));
        } else {
            lab.put("v6.json", &v6(state));
        }
        lab.world().desired();
        let changes = lab.world().take_changes();
        let touched: BTreeSet<_> = changes.frontends.iter().map(|key| key.address).collect();
        assert_eq!(
            touched,
            BTreeSet::from([family]),
            "only the family that changed is written"
        );
    }
    lab.remove("v6.json");
    let desired = lab.desired();
    let at = |vip| {
        desired
            .frontends
            .iter()
            .find(|(k, _)| k.address == vip)
            .expect("frontend")
            .1
    };
    assert_eq!(at(four).endpoints.len(), 3);
    assert_eq!(at(six).verdict, FrontendVerdict::Reject);
    assert_eq!(
        desired.vips.len(),
        2,
        "the VIP without endpoints is still answered for"
    );
    lab.put("v6.json", &v6("ready"));
    assert_eq!(
        lab.desired()
            .frontends
            .values()
            .filter(|f| f.endpoints.len() == 2)
            .count(),
        1
    );
}

#[test]
fn an_address_reused_by_another_pod_shows_in_the_uid() {
    let mut lab = lab();
    lab.put(
        "s.json",
        &slice("s", "IPv4", &[pod("10.1.1.11", "ready", "old")]),
    );
    lab.world().desired();
    lab.world().take_changes();
    lab.put(
        "s.json",
        &slice("s", "IPv4", &[pod("10.1.1.11", "ready", "new")]),
    );
    let desired = lab.desired();
    let endpoints = &frontend(&desired, 80, Protocol::Tcp).endpoints;
    assert_eq!(endpoints[0].uid.as_deref(), Some("new"));
    assert_eq!(
        lab.world().take_changes().frontends.len(),
        1,
        "the uid alone is a change"
    );
}

#[test]
fn hints_and_zones_change_nothing() {
    let mut lab = lab();
    let mut object = slice("s", "IPv4", &[pod("10.1.1.11", "ready", "a")]);
    lab.put("s.json", &object);
    let plain = lab.desired();
    object["endpoints"][0]["zone"] = json!("far");
    object["endpoints"][0]["hints"] = json!({"forZones": [{"name": "near"}]});
    lab.put("s.json", &object);
    lab.world().take_changes();
    assert_eq!(lab.desired(), plain);
    assert_eq!(lab.world().take_changes(), Changes::default());
}

#[test]
fn an_endpoint_that_is_the_vip_itself_would_loop_and_is_left_out() {
    let mut lab = lab();
    let endpoints = [
        pod("192.0.2.10", "ready", ""),
        pod("10.1.1.11", "ready", ""),
    ];
    lab.put("s.json", &slice("s", "IPv4", &endpoints));
    let desired = lab.desired();
    assert_eq!(
        addresses(frontend(&desired, 80, Protocol::Tcp)),
        ["10.1.1.11:8080"]
    );
    assert!(
        desired.ignored[0].reason.contains("192.0.2.10:8080"),
        "{:?}",
        desired.ignored
    );
}
