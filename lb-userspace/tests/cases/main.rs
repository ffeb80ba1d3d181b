//! What right looks like, as data: every case of the tables beside this file, through the same
//! pipeline the agent uses (manifest text, events, world, desired state).

mod bad_input;
mod frontend;
mod merge;
mod order;
mod plan;
mod reports;
mod scale;
mod selection;

use std::collections::BTreeSet;

use lb_userspace::desired::{Desired, Frontend};
use lb_userspace::model::{Allocations, Context, World};
use lb_userspace::watch::files::Files;
use serde_json::{Value, json};

/// A world fed from manifest texts.
pub(crate) struct Lab {
    files: Files,
    world: World,
}

impl Lab {
    pub(crate) fn new(context: Context) -> Self {
        let mut lab = Self {
            files: Files::default(),
            world: World::new(context, Allocations::default()),
        };
        lab.tell();
        lab
    }

    pub(crate) fn put(&mut self, name: &str, object: &Value) {
        self.files.put(name, object.to_string().as_bytes());
        self.tell();
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.files.remove(name);
        self.tell();
    }

    fn tell(&mut self) {
        for event in self.files.events() {
            self.world.apply(event);
        }
    }

    pub(crate) fn world(&mut self) -> &mut World {
        &mut self.world
    }

    pub(crate) fn desired(&mut self) -> Desired {
        self.world.desired().clone()
    }
}

/// A context for a node in which every address may be a VIP.
pub(crate) fn context(node: &str) -> Context {
    let any = |net: &str| net.parse().expect("network");
    Context {
        allow_addresses: vec![any("0.0.0.0/0"), any("::/0")],
        ..Context::new(node)
    }
}

/// A Service `a/web` of our class with the fields of `spec` and `status` put in.
pub(crate) fn service(spec: &Value, ingress: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "a", "name": "web"},
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": "sluice.dev/lb",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        },
        "status": {"loadBalancer": {"ingress": ingress}},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    object
}

/// A slice of `a/web` with one port `http` 8080.
pub(crate) fn slice(name: &str, family: &str, endpoints: &[Value]) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "namespace": "a", "name": name, "labels": {"kubernetes.io/service-name": "web"},
        },
        "addressType": family,
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints,
    })
}

/// An endpoint from a case's flat form.
pub(crate) fn endpoint(case: &Value, addresses: &Value) -> Value {
    json!({
        "addresses": addresses,
        "conditions": {
            "ready": case["ready"], "serving": case["serving"], "terminating": case["terminating"],
        },
        "nodeName": case["nodeName"],
        "targetRef": {"uid": case["targetUid"]},
    })
}

/// Addresses (without ports) that take new connections.
pub(crate) fn new_connections(frontend: &Frontend) -> BTreeSet<String> {
    let new = frontend.endpoints.iter().filter(|e| e.new_connections);
    new.map(|e| e.address.ip().to_string()).collect()
}

pub(crate) fn strings(list: &Value) -> BTreeSet<String> {
    let list = list.as_array().into_iter().flatten();
    list.map(|v| v.as_str().expect("text").to_owned()).collect()
}

pub(crate) fn cases(table: &str) -> Vec<Value> {
    let table: Value = serde_json::from_str(table).expect("a table of cases");
    table["cases"].as_array().expect("cases").clone()
}
