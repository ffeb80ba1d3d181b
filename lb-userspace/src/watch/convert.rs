//! Kubernetes types to the trimmed ones: what is not used is dropped here and nowhere else.
//!
//! Conversions never fail and never judge; a value that makes no sense travels on as written.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;

use crate::desired::ObjectName;
use crate::watch::crd;
use crate::watch::object::{
    Ingress, Node, Pod, Pool, Requirement, Selector, Service, ServicePort, Slice, SliceEndpoint,
    SlicePort,
};

/// Label by which a slice names its Service.
pub const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// Annotation prefixes that are kept.
const ANNOTATIONS: [&str; 3] = ["sluice.dev/", "metallb.io/", "metallb.universe.tf/"];

/// Converted, in as much memory as that takes. `collect` would reuse the list it consumes, and a
/// Kubernetes endpoint is five times as large as ours: 50 MB at 100k endpoints.
fn tight<T, U: From<T>>(list: Vec<T>) -> Vec<U> {
    let mut kept = Vec::with_capacity(list.len());
    kept.extend(list.into_iter().map(U::from));
    kept
}

fn object_name(meta: &ObjectMeta) -> ObjectName {
    ObjectName {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
    }
}

impl From<core::Service> for Service {
    fn from(from: core::Service) -> Self {
        let name = object_name(&from.metadata);
        let spec = from.spec.unwrap_or_default();
        let affinity = spec.session_affinity_config.and_then(|c| c.client_ip);
        let ingress = from
            .status
            .and_then(|s| s.load_balancer)
            .and_then(|l| l.ingress);
        Self {
            name,
            created: from.metadata.creation_timestamp.map(|t| t.0.as_second()),
            labels: from.metadata.labels.unwrap_or_default(),
            annotations: kept(from.metadata.annotations.unwrap_or_default()),
            service_type: spec.type_,
            class: spec.load_balancer_class,
            load_balancer_ip: spec.load_balancer_ip,
            ip_families: spec.ip_families.unwrap_or_default(),
            external_traffic_policy: spec.external_traffic_policy,
            session_affinity: spec.session_affinity,
            affinity_timeout: affinity.and_then(|c| c.timeout_seconds),
            publish_not_ready: spec.publish_not_ready_addresses.unwrap_or_default(),
            source_ranges: spec.load_balancer_source_ranges.unwrap_or_default(),
            ports: tight(spec.ports.unwrap_or_default()),
            ingress: tight(ingress.unwrap_or_default()),
        }
    }
}

fn kept(mut annotations: BTreeMap<String, String>) -> BTreeMap<String, String> {
    annotations.retain(|key, _| ANNOTATIONS.iter().any(|prefix| key.starts_with(prefix)));
    annotations
}

impl From<core::ServicePort> for ServicePort {
    fn from(from: core::ServicePort) -> Self {
        Self {
            name: from.name.unwrap_or_default(),
            port: from.port,
            protocol: from.protocol,
        }
    }
}

impl From<core::LoadBalancerIngress> for Ingress {
    fn from(from: core::LoadBalancerIngress) -> Self {
        Self {
            ip: from.ip,
            ip_mode: from.ip_mode,
        }
    }
}

impl From<discovery::EndpointSlice> for Slice {
    fn from(from: discovery::EndpointSlice) -> Self {
        let labels = from.metadata.labels.as_ref();
        Self {
            name: object_name(&from.metadata),
            service: labels.and_then(|l| l.get(SERVICE_NAME_LABEL)).cloned(),
            address_type: from.address_type,
            ports: tight(from.ports.unwrap_or_default()),
            endpoints: tight(from.endpoints.unwrap_or_default()),
        }
    }
}

impl From<discovery::EndpointPort> for SlicePort {
    fn from(from: discovery::EndpointPort) -> Self {
        Self {
            name: from.name,
            port: from.port,
            protocol: from.protocol,
        }
    }
}

impl From<discovery::Endpoint> for SliceEndpoint {
    fn from(from: discovery::Endpoint) -> Self {
        let conditions = from.conditions.unwrap_or_default();
        Self {
            addresses: tight(from.addresses),
            ready: conditions.ready,
            serving: conditions.serving,
            terminating: conditions.terminating,
            node: from.node_name,
            uid: from.target_ref.and_then(|r| r.uid),
        }
    }
}

impl From<core::Node> for Node {
    fn from(from: core::Node) -> Self {
        let name = object_name(&from.metadata);
        let spec = from.spec.unwrap_or_default();
        let status = from.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let ready = conditions.iter().find(|c| c.type_ == "Ready");
        let own = |kind: &str| kind == "InternalIP" || kind == "ExternalIP";
        let addresses = status.addresses.unwrap_or_default();
        Self {
            name,
            labels: from.metadata.labels.unwrap_or_default(),
            unschedulable: spec.unschedulable.unwrap_or_default(),
            ready: ready.is_none_or(|c| c.status == "True"),
            addresses: addresses
                .iter()
                .filter(|a| own(&a.type_))
                .filter_map(|a| a.address.parse().ok())
                .collect(),
            pod_cidrs: spec
                .pod_cidrs
                .unwrap_or_default()
                .iter()
                .filter_map(|c| c.parse().ok())
                .collect(),
        }
    }
}

impl From<PartialObjectMeta<core::Pod>> for Pod {
    fn from(from: PartialObjectMeta<core::Pod>) -> Self {
        Self {
            name: object_name(&from.metadata),
            uid: from.metadata.uid.unwrap_or_default(),
            terminating: from.metadata.deletion_timestamp.is_some(),
        }
    }
}

impl From<crd::AddressPool> for Pool {
    fn from(from: crd::AddressPool) -> Self {
        let spec = from.spec;
        let announce = spec.announce.unwrap_or_default();
        Self {
            name: ObjectName {
                name: from.metadata.name.unwrap_or_default(),
                ..Default::default()
            },
            addresses: spec.addresses,
            auto_assign: spec.auto_assign,
            avoid_buggy_ips: spec.avoid_buggy_ips,
            service_selector: spec.service_selector.map(Selector::from),
            namespace_selector: spec.namespace_selector.map(Selector::from),
            node_selector: announce.node_selector.map(Selector::from),
            interfaces: announce.interfaces,
        }
    }
}

impl From<crd::LabelSelector> for Selector {
    fn from(from: crd::LabelSelector) -> Self {
        let requirement = |r: crd::LabelRequirement| Requirement {
            key: r.key,
            operator: r.operator,
            values: r.values,
        };
        Self {
            labels: from.match_labels,
            expressions: from
                .match_expressions
                .into_iter()
                .map(requirement)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_keeps_what_is_used_and_loses_the_rest() {
        let service: core::Service = serde_json::from_value(serde_json::json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "namespace": "shop", "name": "web",
                "creationTimestamp": "2024-01-02T03:04:05Z",
                "annotations": {"sluice.dev/pool": "p", "kubectl.kubernetes.io/last": "x"},
                "managedFields": [{"manager": "m"}],
            },
            "spec": {
                "type": "LoadBalancer", "ports": [{"port": 80, "targetPort": "http"}],
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 7}},
            },
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}},
        }))
        .expect("a Service");
        let trimmed = Service::from(service);
        assert_eq!(trimmed.name.to_string(), "shop/web");
        assert_eq!(trimmed.created, Some(1_704_164_645));
        assert_eq!(
            trimmed.annotations.keys().collect::<Vec<_>>(),
            ["sluice.dev/pool"]
        );
        assert_eq!(
            trimmed.ports,
            [ServicePort {
                port: 80,
                ..ServicePort::default()
            }]
        );
        assert_eq!(trimmed.affinity_timeout, Some(7));
        assert_eq!(trimmed.ingress[0].ip.as_deref(), Some("192.0.2.1"));
    }

    #[test]
    fn lists_take_the_memory_they_need() {
        let endpoint = |last| serde_json::json!({"addresses": [format!("10.0.0.{last}")]});
        let endpoints: Vec<_> = (1..=9).map(endpoint).collect();
        let slice: discovery::EndpointSlice = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": endpoints,
            "ports": [{"port": 80}],
        }))
        .expect("a slice");
        let slice = Slice::from(slice);
        assert_eq!(slice.endpoints.capacity(), 9);
        assert_eq!(slice.endpoints[0].addresses.capacity(), 1);
        assert_eq!(slice.ports.capacity(), 1);
    }

    #[test]
    fn a_node_without_conditions_is_ready() {
        let node = Node::from(core::Node::default());
        assert!(node.ready);
        let node: core::Node = serde_json::from_value(serde_json::json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
            "status": {
                "conditions": [{"type": "Ready", "status": "Unknown"}],
                "addresses": [
                    {"type": "InternalIP", "address": "10.0.0.1"},
                    {"type": "Hostname", "address": "10.9.9.9"},
                ],
            },
        }))
        .expect("a Node");
        let node = Node::from(node);
        assert!(!node.ready);
        assert_eq!(
            node.addresses,
            ["10.0.0.1".parse::<std::net::IpAddr>().expect("address")]
        );
    }
}
