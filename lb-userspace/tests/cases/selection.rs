//! `endpoint_selection_cases.json`: which endpoints a new connection may use.

use std::collections::BTreeSet;

use lb_userspace::desired::{Endpoint, EndpointState, FrontendVerdict, Policy};
use lb_userspace::model::select::{self, Use};
use serde_json::{Value, json};

use crate::{Lab, context, endpoint, new_connections, service, slice, strings};

const TABLE: &str = include_str!("endpoint_selection_cases.json");

#[test]
fn every_case() {
    let cases = crate::cases(TABLE);
    assert_eq!(cases.len(), 50);
    let failed: Vec<_> = cases.iter().flat_map(check).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// What differs, one line each.
fn check(case: &Value) -> Vec<String> {
    let name = case["name"].as_str().expect("name");
    let mut wrong = Vec::new();
    let mut same = |what: &str, got: &dyn std::fmt::Debug, expected: &dyn std::fmt::Debug| {
        let (got, expected) = (format!("{got:?}"), format!("{expected:?}"));
        if got != expected {
            wrong.push(format!("{name}: {what}: got {got}, expected {expected}"));
        }
    };
    let spec = &case["service"];
    let expect = &case["expect"];
    let mut lab = Lab::new(context(case["node"]["name"].as_str().expect("node")));
    let fields = json!({
        "type": spec["type"],
        "externalTrafficPolicy": spec["externalTrafficPolicy"],
        "internalTrafficPolicy": spec["internalTrafficPolicy"],
        "trafficDistribution": spec["trafficDistribution"],
        "publishNotReadyAddresses": spec["publishNotReadyAddresses"],
    });
    lab.put(
        "service.json",
        &service(&fields, &spec["loadBalancerIngress"]),
    );
    let endpoints = case["endpoints"].as_array().expect("endpoints").iter();
    let endpoints: Vec<_> = endpoints.map(|e| endpoint(e, &json!([e["ip"]]))).collect();
    lab.put("slice.json", &slice("s", "IPv4", &endpoints));
    let desired = lab.desired();

    let ingress = spec["loadBalancerIngress"].as_array().expect("ingress");
    let vip = ingress
        .iter()
        .any(|i| i["ip"].as_str().is_some_and(|ip| !ip.is_empty()));
    let ours = spec["type"] == "LoadBalancer" && vip;
    same("frontends", &desired.frontends.len(), &usize::from(ours));
    for frontend in desired.frontends.values() {
        let new = new_connections(frontend);
        same(
            "new flow",
            &new,
            &strings(&expect["external_new_flow_endpoints"]),
        );
        let verdict = match frontend.verdict {
            FrontendVerdict::Forward => "forward",
            FrontendVerdict::Drop => "drop",
            FrontendVerdict::Reject => "reject",
        };
        same(
            "verdict",
            &verdict,
            &expect["external_verdict"].as_str().expect("verdict"),
        );
        let taking = || frontend.endpoints.iter().filter(|e| e.new_connections);
        let fallback = taking().count() > 0 && taking().all(|e| !e.ready && e.terminating);
        same(
            "fallback",
            &fallback,
            &(expect["fallback_to_terminating"] == true),
        );
        let draining = frontend.endpoints.iter();
        let draining =
            draining.filter(|e| e.state == EndpointState::Draining && !e.new_connections);
        let draining: BTreeSet<_> = draining.map(|e| e.address.ip().to_string()).collect();
        same("draining", &draining, &strings(&expect["draining"]));
        if let Some(ready) = expect["health_check_node_port"]["localReady"].as_u64() {
            let local = frontend
                .endpoints
                .iter()
                .filter(|e| e.local && e.ready)
                .count();
            same("local ready", &local, &ready);
        }
    }
    // The lists themselves, also for Services that are not reached from outside.
    let mut lists = Lab::new(context(case["node"]["name"].as_str().expect("node")));
    lists.put(
        "service.json",
        &service(&json!({}), &json!([{"ip": "192.0.2.10"}])),
    );
    lists.put("slice.json", &slice("s", "IPv4", &endpoints));
    let desired = lists.desired();
    let listed = desired
        .frontends
        .values()
        .next()
        .map(|f| f.endpoints.clone())
        .unwrap_or_default();
    let usable = select::reach(Policy::Cluster, &listed) != Use::No;
    same(
        "any usable",
        &usable,
        &(expect["has_any_usable_endpoint_in_cluster"] == true),
    );
    for (policy, key) in [
        (Policy::Cluster, "external_cluster_endpoints"),
        (Policy::Local, "external_local_endpoints"),
        (Policy::Cluster, "in_cluster_client_to_vip_endpoints"),
    ] {
        // For internalTrafficPolicy the Local list is asked of ClusterIP Services as well.
        if !expect[key].is_null() {
            same(key, &of_policy(policy, &listed), &strings(&expect[key]));
        }
    }
    wrong
}

fn of_policy(policy: Policy, endpoints: &[Endpoint]) -> BTreeSet<String> {
    let mut endpoints = endpoints.to_vec();
    select::select(policy, &mut endpoints);
    let new = endpoints.iter().filter(|e| e.new_connections);
    new.map(|e| e.address.ip().to_string()).collect()
}
