//! What a source says of one object: the fields Sluice uses and nothing else.
//!
//! The Kubernetes types carry managed fields, templates and annotations that cost memory at
//! 10k Services and make two equal objects look different. These types are what is left.
//! Values stay as written (an invalid port, an unknown protocol): judging them is the model's job.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::desired::ObjectName;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// An object that has a name; what a list is keyed by.
pub trait Named {
    /// Namespace and name.
    fn object_name(&self) -> &ObjectName;
}

/// A Service, as written.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Service {
    /// Namespace and name.
    pub name: ObjectName,
    /// creationTimestamp in seconds since 1970; manifests rarely have one.
    pub created: Option<i64>,
    /// Labels, for pool selectors.
    pub labels: Labels,
    /// Annotations of our own and of MetalLB's prefixes only.
    pub annotations: BTreeMap<String, String>,
    /// `spec.type`.
    pub service_type: Option<String>,
    /// `spec.loadBalancerClass`.
    pub class: Option<String>,
    /// `spec.loadBalancerIP`.
    pub load_balancer_ip: Option<String>,
    /// `spec.ipFamilies`, empty when absent.
    pub ip_families: Vec<String>,
    /// `spec.externalTrafficPolicy`.
    pub external_traffic_policy: Option<String>,
    /// `spec.sessionAffinity`.
    pub session_affinity: Option<String>,
    /// `spec.sessionAffinityConfig.clientIP.timeoutSeconds`.
    pub affinity_timeout: Option<i32>,
    /// `spec.publishNotReadyAddresses`.
    pub publish_not_ready: bool,
    /// `spec.loadBalancerSourceRanges`.
    pub source_ranges: Vec<String>,
    /// `spec.ports`.
    pub ports: Vec<ServicePort>,
    /// `status.loadBalancer.ingress`.
    pub ingress: Vec<Ingress>,
}

/// One entry of `spec.ports`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ServicePort {
    /// Name; empty when it has none.
    pub name: String,
    /// Port clients connect to, unchecked.
    pub port: i32,
    /// Protocol; TCP when absent.
    pub protocol: Option<String>,
}

/// One entry of `status.loadBalancer.ingress`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ingress {
    /// Address; an entry may have a host name instead.
    pub ip: Option<String>,
    /// `VIP` (also when absent) or `Proxy`.
    pub ip_mode: Option<String>,
}

/// An EndpointSlice, as written.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Slice {
    /// Namespace and name.
    pub name: ObjectName,
    /// Label `kubernetes.io/service-name`; the Service is in the slice's namespace.
    pub service: Option<String>,
    /// `IPv4`, `IPv6` or `FQDN`.
    pub address_type: String,
    /// `ports`.
    pub ports: Vec<SlicePort>,
    /// `endpoints`.
    pub endpoints: Vec<SliceEndpoint>,
}

/// One entry of a slice's `ports`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SlicePort {
    /// Name; the empty string is a name, absent is not.
    pub name: Option<String>,
    /// Port number; absent means "all ports", which a balancer cannot serve.
    pub port: Option<i32>,
    /// Protocol; TCP when absent.
    pub protocol: Option<String>,
}

/// One entry of a slice's `endpoints`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SliceEndpoint {
    /// `addresses`; only the first has a meaning.
    pub addresses: Vec<String>,
    /// `conditions.ready`.
    pub ready: Option<bool>,
    /// `conditions.serving`.
    pub serving: Option<bool>,
    /// `conditions.terminating`.
    pub terminating: Option<bool>,
    /// `nodeName`.
    pub node: Option<String>,
    /// `targetRef.uid`.
    pub uid: Option<String>,
}

/// A Node, as written.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Node {
    /// Name (no namespace).
    pub name: ObjectName,
    /// Labels.
    pub labels: Labels,
    /// `spec.unschedulable`: cordoned.
    pub unschedulable: bool,
    /// Condition `Ready` is `True`; also when the Node has no such condition (a manifest).
    pub ready: bool,
    /// InternalIP and ExternalIP addresses.
    pub addresses: Vec<IpAddr>,
    /// `spec.podCIDRs`.
    pub pod_cidrs: Vec<IpNet>,
}

/// A pod of this node: only what tells that it ends.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Pod {
    /// Namespace and name.
    pub name: ObjectName,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.deletionTimestamp` is set.
    pub terminating: bool,
}

/// An AddressPool, as written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pool {
    /// Name (no namespace).
    pub name: ObjectName,
    /// CIDRs and ranges, unchecked.
    pub addresses: Vec<String>,
    /// Addresses may be given to Services that did not ask for this pool.
    pub auto_assign: bool,
    /// Keep .0 and .255 back.
    pub avoid_buggy_ips: bool,
    /// Services that may have an address; absent means all.
    pub service_selector: Option<Selector>,
    /// Namespaces whose Services may have an address; absent means all.
    pub namespace_selector: Option<Selector>,
    /// Nodes that may answer; absent means all.
    pub node_selector: Option<Selector>,
    /// Interfaces to answer on; empty means all uplinks.
    pub interfaces: Vec<String>,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            name: ObjectName::default(),
            addresses: Vec::new(),
            auto_assign: true,
            avoid_buggy_ips: false,
            service_selector: None,
            namespace_selector: None,
            node_selector: None,
            interfaces: Vec::new(),
        }
    }
}

/// A Kubernetes label selector: every requirement must hold.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Selector {
    /// `matchLabels`.
    pub labels: Labels,
    /// `matchExpressions`.
    pub expressions: Vec<Requirement>,
}

/// One entry of `matchExpressions`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Requirement {
    /// Label key.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// Values for `In` and `NotIn`.
    pub values: Vec<String>,
}

impl Selector {
    /// True when `labels` satisfies every requirement. An unknown operator matches nothing:
    /// a typo must not widen what a selector allows.
    pub fn matches(&self, labels: &Labels) -> bool {
        let exact = self.labels.iter().all(|(k, v)| labels.get(k) == Some(v));
        exact && self.expressions.iter().all(|e| e.matches(labels))
    }

    /// Label keys the selector looks at.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let exact = self.labels.keys().map(String::as_str);
        exact.chain(self.expressions.iter().map(|e| e.key.as_str()))
    }
}

impl Requirement {
    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        match self.operator.as_str() {
            "In" => value.is_some_and(|v| self.values.contains(v)),
            "NotIn" => value.is_none_or(|v| !self.values.contains(v)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

macro_rules! named {
    ($($kind:ty),*) => {$(
        impl Named for $kind {
            fn object_name(&self) -> &ObjectName {
                &self.name
            }
        }
    )*};
}
named!(Service, Slice, Node, Pod, Pool);

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(operator: &str, values: &[&str]) -> Selector {
        Selector {
            labels: Labels::new(),
            expressions: vec![Requirement {
                key: "tier".into(),
                operator: operator.into(),
                values: values.iter().map(|v| (*v).to_owned()).collect(),
            }],
        }
    }

    #[test]
    fn expressions_follow_kubernetes() {
        let edge = Labels::from([("tier".to_owned(), "edge".to_owned())]);
        let none = Labels::new();
        let table = [
            (selector("In", &["edge"]), true, false),
            (selector("In", &["core"]), false, false),
            (selector("NotIn", &["edge"]), false, true),
            (selector("Exists", &[]), true, false),
            (selector("DoesNotExist", &[]), false, true),
            (selector("Exist", &[]), false, false),
            (Selector::default(), true, true),
        ];
        for (selector, with, without) in table {
            assert_eq!(selector.matches(&edge), with, "{selector:?}");
            assert_eq!(selector.matches(&none), without, "{selector:?}");
        }
    }
}
