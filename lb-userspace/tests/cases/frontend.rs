//! `frontend_cases.json`: class, VIP mode, families, source ranges, affinity.

use std::collections::BTreeSet;
use std::net::IpAddr;

use lb_userspace::desired::{Desired, EndpointState, Frontend, Policy, Via};
use lb_userspace::model::{Context, DEFAULT_CLASS};
use serde_json::{Value, json};

use crate::{Lab, context, endpoint, new_connections, service, slice, strings};

const TABLE: &str = include_str!("frontend_cases.json");

/// Cases about parts that the model does not have, and why.
const ELSEWHERE: [(&str, &str); 1] = [(
    "health_check_unhealthy_proxy_overrides",
    "the health check port is kube-proxy's",
)];

#[test]
fn every_case() {
    let cases = crate::cases(TABLE);
    assert_eq!(cases.len(), 22);
    let mut elsewhere = 0;
    for case in &cases {
        let name = case["name"].as_str().expect("name");
        if ELSEWHERE.iter().any(|(other, _)| *other == name) {
            elsewhere += 1;
            continue;
        }
        let (input, expect) = (&case["input"], &case["expect"]);
        let known = [
            class(name, input, expect),
            ingress(name, input, expect),
            families(name, input, expect),
            source_ranges(name, input, expect),
            affinity_bounds(name, input, expect),
            affinity_endpoints(name, input, expect),
            policy(name, input, expect),
            distribution(name, input),
        ];
        let count = known.into_iter().filter(|known| *known).count();
        assert_eq!(count, 1, "{name}: exactly one kind of check must know it");
    }
    assert_eq!(elsewhere, ELSEWHERE.len());
}

fn desired(context: Context, objects: &[Value]) -> Desired {
    let mut lab = Lab::new(context);
    for (index, object) in objects.iter().enumerate() {
        lab.put(&format!("{index}.json"), object);
    }
    lab.desired()
}

fn vips(desired: &Desired) -> BTreeSet<String> {
    desired.vips.keys().map(ToString::to_string).collect()
}

fn only(desired: &Desired) -> &Frontend {
    assert_eq!(desired.frontends.len(), 1);
    desired.frontends.values().next().expect("one frontend")
}

fn vip() -> Value {
    json!([{"ip": "192.0.2.10"}])
}

fn class(name: &str, input: &Value, expect: &Value) -> bool {
    let Some(handled) = expect["handled"].as_bool() else {
        return false;
    };
    let context = Context {
        class: input["agent"]["loadBalancerClass"]
            .as_str()
            .expect("class")
            .to_owned(),
        default_class: input["agent"]["isDefaultForUnclassed"] == true,
        ..context("n1")
    };
    let desired = desired(context, &[service(&input["service"], &vip())]);
    assert_eq!(desired.frontends.len(), usize::from(handled), "{name}");
    assert_eq!(desired.vips.len(), usize::from(handled), "{name}");
    assert_eq!(desired.ignored, [], "{name}: left alone entirely");
    true
}

fn ingress(name: &str, input: &Value, expect: &Value) -> bool {
    if expect["vips"].is_null() {
        return false;
    }
    let desired = desired(context("n1"), &[service(&json!({}), &input["ingress"])]);
    assert_eq!(vips(&desired), strings(&expect["vips"]), "{name}");
    true
}

fn families(name: &str, input: &Value, expect: &Value) -> bool {
    if let Some(released) = expect["release_families"].as_array() {
        release_family(name, input, released);
        return true;
    }
    let Some(expected) = expect["per_family"].as_object() else {
        return false;
    };
    let of_service = strings(&input["ipFamilies"]);
    let spec = json!({"ipFamilies": input["ipFamilies"]});
    let mut objects = vec![service(&spec, &input["ingress"])];
    for (family, address) in [("IPv4", "10.0.0.1"), ("IPv6", "2001:db8:1::1")] {
        if of_service.contains(family) {
            objects.push(slice(
                family,
                family,
                &[endpoint(&json!({}), &json!([address]))],
            ));
        }
    }
    let desired = desired(context("n1"), &objects);
    let mut all = BTreeSet::new();
    for (family, expected) in expected {
        for vip in strings(&expected["vips"]) {
            let address: IpAddr = vip.parse().expect("address");
            assert_eq!(
                expected["slice_address_type"] == "IPv6",
                address.is_ipv6(),
                "{name}"
            );
            let frontend = desired
                .frontends
                .iter()
                .find(|(key, _)| key.address == address);
            let (_, frontend) = frontend.expect("a frontend for each VIP");
            let backends = usize::from(of_service.contains(family));
            assert_eq!(frontend.endpoints.len(), backends, "{name}: {vip}");
            let same = |e: &IpAddr| e.is_ipv6() == address.is_ipv6();
            assert!(
                frontend.endpoints.iter().all(|e| same(&e.address.ip())),
                "{name}"
            );
            all.insert(vip);
        }
    }
    assert_eq!(vips(&desired), all, "{name}");
    true
}

fn release_family(name: &str, input: &Value, released: &[Value]) {
    let pool = json!({
        "apiVersion": "sluice.dev/v1alpha1", "kind": "AddressPool", "metadata": {"name": "p"},
        "spec": {"addresses": ["192.0.2.0/28", "2001:db8::/124"]},
    });
    let mut lab = Lab::new(Context {
        allow_addresses: vec![],
        ..context("n1")
    });
    lab.put("pool.json", &pool);
    lab.put(
        "service.json",
        &service(
            &json!({"ipFamilies": input["before"]["ipFamilies"]}),
            &json!([]),
        ),
    );
    let before = vips(&lab.desired());
    assert_eq!(before.len(), 2, "{name}");
    lab.put(
        "service.json",
        &service(&json!({"ipFamilies": input["ipFamilies"]}), &json!([])),
    );
    let after = vips(&lab.desired());
    let gone: Vec<_> = before.difference(&after).collect();
    assert_eq!(gone.len(), released.len(), "{name}");
    assert_eq!(released, [json!("IPv6")], "{name}");
    assert!(gone[0].contains(':') && after.is_subset(&before), "{name}");
}

fn source_ranges(name: &str, input: &Value, expect: &Value) -> bool {
    let Some(client) = input["clientIP"].as_str() else {
        return false;
    };
    let client: IpAddr = client.parse().expect("address");
    let spec = json!({"loadBalancerSourceRanges": input["loadBalancerSourceRanges"]});
    let mut object = service(&spec, &vip());
    object["metadata"]["annotations"] = input["annotations"].clone();
    let desired = desired(context("n1"), &[object]);
    if input["via"] == "nodePort" {
        // We answer on VIPs only: a node port never meets our filter.
        assert!(desired.frontends.keys().all(|key| key.port == 80), "{name}");
        return true;
    }
    let ranges = &only(&desired).source_ranges;
    let allowed = ranges.is_empty() || ranges.iter().any(|range| range.contains(&client));
    // As kube-proxy we read the field only.
    let expected = expect["allowed"]
        .as_bool()
        .or(expect["kube_proxy_allowed"].as_bool());
    assert_eq!(Some(allowed), expected, "{name}");
    true
}

fn affinity_bounds(name: &str, input: &Value, expect: &Value) -> bool {
    if expect["sticky"] == false {
        let spec = json!({"sessionAffinity": input["sessionAffinity"]});
        let desired = desired(context("n1"), &[service(&spec, &vip())]);
        assert_eq!(only(&desired).affinity, None, "{name}");
        return true;
    }
    if input["validTimeouts"].is_null() {
        return false;
    }
    for (list, valid) in [("validTimeouts", true), ("invalidTimeouts", false)] {
        for timeout in input[list].as_array().expect("timeouts") {
            let spec = json!({
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": timeout}},
            });
            let desired = desired(context("n1"), &[service(&spec, &vip())]);
            let seconds = only(&desired).affinity.expect("sticky").as_secs();
            let expected = if valid {
                timeout.as_u64()
            } else {
                Some(10_800)
            };
            assert_eq!(Some(seconds), expected, "{name}");
            assert_eq!(
                desired.ignored.is_empty(),
                valid,
                "{name}: {:?}",
                desired.ignored
            );
        }
    }
    true
}

/// What the model owes the data plane: the pinned endpoint is in the set for new connections
/// exactly when a new flow may use it, and stays listed for the old ones.
fn affinity_endpoints(name: &str, input: &Value, expect: &Value) -> bool {
    let Some(pinned) = input["pinned"].as_str() else {
        return false;
    };
    let endpoints = input["endpoints"].as_array().expect("endpoints");
    let conditions = |state: &str| match state {
        "ready" => json!({"ready": true, "serving": true, "terminating": false}),
        "unready" => json!({"ready": false, "serving": false, "terminating": false}),
        "terminating-serving" => json!({"ready": false, "serving": true, "terminating": true}),
        other => panic!("{name}: unknown state {other}"),
    };
    let endpoints: Vec<_> = endpoints
        .iter()
        .map(|e| {
            endpoint(
                &conditions(e["state"].as_str().expect("state")),
                &json!([e["ip"]]),
            )
        })
        .collect();
    let spec = json!({"sessionAffinity": input["sessionAffinity"]});
    let objects = [service(&spec, &vip()), slice("s", "IPv4", &endpoints)];
    let desired = desired(context("n1"), &objects);
    let frontend = only(&desired);
    assert!(frontend.affinity.is_some(), "{name}");
    let new_flow = expect["new_flow"].as_str().expect("new flow").to_owned();
    assert_eq!(
        new_connections(frontend),
        BTreeSet::from([new_flow]),
        "{name}"
    );
    let old = frontend
        .endpoints
        .iter()
        .find(|e| e.address.ip().to_string() == pinned);
    assert_ne!(
        old.expect("still listed").state,
        EndpointState::Gone,
        "{name}"
    );
    true
}

fn policy(name: &str, input: &Value, expect: &Value) -> bool {
    let Some(said) = input["externalTrafficPolicy"].as_str() else {
        return false;
    };
    let spec = json!({"externalTrafficPolicy": said});
    let here = endpoint(&json!({"nodeName": "n1"}), &json!(["10.0.0.1"]));
    let objects = [service(&spec, &vip()), slice("s", "IPv4", &[here])];
    let desired = desired(context("n1"), &objects);
    let frontend = only(&desired);
    if expect["client_source_ip_preserved"] == true {
        assert_eq!(frontend.policy, Policy::Local, "{name}");
        let mut new = frontend.endpoints.iter().filter(|e| e.new_connections);
        assert!(
            new.all(|e| e.via == Via::Local),
            "{name}: DNAT alone keeps the client's address"
        );
    } else {
        assert_eq!(expect["policy"], "Cluster", "{name}");
        assert_eq!(frontend.policy, Policy::Cluster, "{name}");
    }
    true
}

/// Whatever the distribution is called, it changes nothing for traffic to a VIP.
fn distribution(name: &str, input: &Value) -> bool {
    let Some(said) = input["trafficDistribution"].as_str() else {
        return false;
    };
    let with = |distribution: Value| {
        let spec = json!({"trafficDistribution": distribution});
        let mut far = endpoint(&json!({"nodeName": "n2"}), &json!(["10.0.0.2"]));
        if !distribution.is_null() {
            far["hints"] = json!({"forZones": [{"name": "za"}], "forNodes": [{"name": "n3"}]});
            far["zone"] = json!("za");
        }
        let near = endpoint(&json!({"nodeName": "n1"}), &json!(["10.0.0.1"]));
        desired(
            context("n1"),
            &[service(&spec, &vip()), slice("s", "IPv4", &[near, far])],
        )
    };
    let plain = with(Value::Null);
    assert_eq!(
        only(&plain)
            .endpoints
            .iter()
            .filter(|e| e.new_connections)
            .count(),
        2
    );
    for distribution in [said, "PreferSameZone", "PreferSameNode"] {
        assert_eq!(with(json!(distribution)), plain, "{name}: {distribution}");
    }
    true
}

#[test]
fn the_default_class_is_sluices() {
    assert_eq!(Context::new("n").class, DEFAULT_CLASS);
}
