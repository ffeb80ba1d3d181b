//! `slice_merge_cases.json`: a sequence of slice events, and the endpoints they add up to.

use std::collections::{BTreeMap, BTreeSet};

use lb_userspace::desired::{Desired, Endpoint};
use serde_json::{Value, json};

use crate::{Lab, context, endpoint, service};

const TABLE: &str = include_str!("slice_merge_cases.json");

#[test]
fn every_case() {
    let cases = crate::cases(TABLE);
    assert_eq!(cases.len(), 54);
    let failed: Vec<_> = cases.iter().flat_map(check).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Port name and protocol to endpoints with their flags, as the table writes it.
type Backends = BTreeMap<String, BTreeMap<String, Value>>;

fn check(case: &Value) -> Vec<String> {
    let name = case["name"].as_str().expect("name");
    let ipv6 = case["agent"]["ipFamily"] == "IPv6";
    let mut lab = Lab::new(context(case["agent"]["node"].as_str().expect("node")));
    let ports = ports(case);
    let vip = if ipv6 {
        "2001:db8:ffff::1"
    } else {
        "192.0.2.10"
    };
    lab.put(
        "service.json",
        &service(&json!({"ports": ports}), &json!([{"ip": vip}])),
    );
    lab.world().desired();
    let mut wrong = Vec::new();
    for operation in case["operations"].as_array().expect("operations") {
        lab.world().desired();
        lab.world().take_changes();
        let slice = &operation["slice"];
        let file = format!("{}-{}.json", slice["namespace"], slice["name"]);
        match operation["op"].as_str().expect("op") {
            "apply" => lab.put(&file, &object(slice)),
            "delete" => lab.remove(&file),
            "sync" => {}
            other => wrong.push(format!("{name}: unknown operation {other}")),
        }
    }
    let desired = lab.desired();
    let changes = lab.world().take_changes();
    let expect = &case["expect"];
    if expect["last_operation_changes_state"] == false && !changes.frontends.is_empty() {
        wrong.push(format!(
            "{name}: the last operation changed {:?}",
            changes.frontends
        ));
    }
    let expected: Backends = serde_json::from_value(expect["backends"].clone()).expect("backends");
    let got = backends(&desired);
    if got != expected {
        wrong.push(format!("{name}: got {got:#?}, expected {expected:#?}"));
    }
    let count = local_ready(&desired);
    if expect["local_ready_ip_count"]
        .as_u64()
        .is_some_and(|n| n != count)
    {
        wrong.push(format!(
            "{name}: {count} local ready, expected {}",
            expect["local_ready_ip_count"]
        ));
    }
    wrong
}

/// The Service's ports; where the table says null, one for every port any slice has.
fn ports(case: &Value) -> Vec<Value> {
    if let Some(ports) = case["service"]["ports"].as_array() {
        let numbered = ports.iter().enumerate();
        return numbered
            .map(|(n, p)| port(n, &p["name"], &p["protocol"]))
            .collect();
    }
    let operations = case["operations"].as_array().into_iter().flatten();
    let ports = operations.flat_map(|o| o["slice"]["ports"].as_array().into_iter().flatten());
    let named = |p: &Value| {
        (
            p["name"].as_str().unwrap_or_default().to_owned(),
            p["protocol"].to_string(),
        )
    };
    let ports: BTreeMap<_, _> = ports.map(|p| (named(p), p)).collect();
    let found: Vec<_> = ports
        .values()
        .enumerate()
        .map(|(n, p)| {
            port(
                n,
                &json!(p["name"].as_str().unwrap_or_default()),
                &p["protocol"],
            )
        })
        .collect();
    if found.is_empty() {
        vec![port(0, &json!("http"), &json!("TCP"))]
    } else {
        found
    }
}

fn port(index: usize, name: &Value, protocol: &Value) -> Value {
    json!({"name": name, "protocol": protocol, "port": 1000 + index})
}

fn object(slice: &Value) -> Value {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let mut labels = json!({"kubernetes.io/service-name": slice["serviceLabel"]});
    if let Some(by) = slice["managedBy"].as_str() {
        labels["endpointslice.kubernetes.io/managed-by"] = json!(by);
    }
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"namespace": slice["namespace"], "name": slice["name"], "labels": labels},
        "addressType": slice["addressType"],
        "ports": slice["ports"],
        "endpoints": endpoints.map(|e| endpoint(e, &e["addresses"])).collect::<Vec<_>>(),
    })
}

fn backends(desired: &Desired) -> Backends {
    let mut found = Backends::new();
    for (key, frontend) in &desired.frontends {
        let port = format!("{}/{}", frontend.port_name, key.protocol);
        let endpoints = frontend
            .endpoints
            .iter()
            .map(|e| (e.address.to_string(), flags(e)));
        found.entry(port).or_default().extend(endpoints);
    }
    found.retain(|_, endpoints| !endpoints.is_empty());
    found
}

fn flags(e: &Endpoint) -> Value {
    json!({
        "ready": e.ready, "serving": e.serving, "terminating": e.terminating, "local": e.local,
    })
}

fn local_ready(desired: &Desired) -> u64 {
    let endpoints = desired.frontends.values().flat_map(|f| &f.endpoints);
    let ready: BTreeSet<_> = endpoints
        .filter(|e| e.local && e.ready)
        .map(|e| e.address.ip())
        .collect();
    ready.len() as u64
}
