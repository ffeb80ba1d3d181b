//! The kinds that are followed, and the rights that this takes.
//!
//! Names, groups and paths come from the types; [`RIGHTS`] repeats them as data for the
//! `ClusterRole`, and a test keeps the two together.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use kube::Resource;
use kube::core::PartialObjectMeta;
use serde::de::DeserializeOwned;

use crate::watch::object::{Named, Node, Pod, Pool, Service, Slice};
use crate::watch::{Change, WatchEvent, crd};

/// What the agent asks for.
const VERBS: [&str; 2] = ["list", "watch"];

/// Rights to one resource, as a `ClusterRole` writes them.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Rights {
    /// `apiGroups`.
    pub group: &'static str,
    /// `resources`.
    pub resource: &'static str,
    /// `verbs`.
    pub verbs: [&'static str; 2],
}

/// Everything that the agent may do, and needs.
pub const RIGHTS: [Rights; 5] = [
    rights("", "nodes"),
    rights("", "pods"),
    rights("", "services"),
    rights("discovery.k8s.io", "endpointslices"),
    rights("sluice.dev", "addresspools"),
];

const fn rights(group: &'static str, resource: &'static str) -> Rights {
    Rights {
        group,
        resource,
        verbs: VERBS,
    }
}

/// A kind: how it comes, what is kept of it, and how it is told.
pub(super) trait Kind: 'static {
    /// As the API sends it.
    type Wire: Resource<DynamicType = ()> + DeserializeOwned;
    /// What is kept.
    type Slim: Clone + From<Self::Wire> + Named + Send + 'static;

    /// With its group, as in `kubectl auth can-i`.
    const RESOURCE: &'static str;
    /// Only objects with these labels.
    const LABELS: Option<&'static str> = None;
    /// Only metadata is asked for.
    const METADATA: bool = false;
    /// The API may not have it: then there are none of it.
    const OPTIONAL: bool = false;

    /// Tells it.
    fn event(change: Change<Self::Slim>) -> WatchEvent;
}

pub(super) struct Services;
pub(super) struct Slices;
pub(super) struct Nodes;
pub(super) struct Pools;
pub(super) struct Pods;

impl Kind for Services {
    type Wire = core::Service;
    type Slim = Service;
    const RESOURCE: &'static str = "services";

    fn event(change: Change<Service>) -> WatchEvent {
        WatchEvent::Service(change)
    }
}

impl Kind for Slices {
    type Wire = discovery::EndpointSlice;
    type Slim = Slice;
    const RESOURCE: &'static str = "endpointslices.discovery.k8s.io";
    /// A headless Service is never a load balancer's, and a large StatefulSet's slices change a lot.
    const LABELS: Option<&'static str> = Some("!service.kubernetes.io/headless");

    fn event(change: Change<Slice>) -> WatchEvent {
        WatchEvent::Slice(change)
    }
}

impl Kind for Nodes {
    type Wire = core::Node;
    type Slim = Node;
    const RESOURCE: &'static str = "nodes";

    fn event(change: Change<Node>) -> WatchEvent {
        WatchEvent::Node(change)
    }
}

impl Kind for Pools {
    type Wire = crd::AddressPool;
    type Slim = Pool;
    const RESOURCE: &'static str = "addresspools.sluice.dev";
    const OPTIONAL: bool = true;

    fn event(change: Change<Pool>) -> WatchEvent {
        WatchEvent::Pool(change)
    }
}

impl Kind for Pods {
    type Wire = PartialObjectMeta<core::Pod>;
    type Slim = Pod;
    const RESOURCE: &'static str = "pods";
    const METADATA: bool = true;

    fn event(change: Change<Pod>) -> WatchEvent {
        WatchEvent::Pod(change)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn needed<K: Kind>() -> Rights {
        let (group, plural) = (K::Wire::group(&()), K::Wire::plural(&()));
        let name = if group.is_empty() {
            plural.to_string()
        } else {
            format!("{plural}.{group}")
        };
        assert_eq!(K::RESOURCE, name, "its name in messages");
        let listed = RIGHTS.iter().find(|r| r.resource == plural);
        let listed = listed.unwrap_or_else(|| panic!("{plural} is not in RIGHTS"));
        assert_eq!(listed.group, group);
        *listed
    }

    #[test]
    fn the_rights_are_those_of_the_kinds() {
        let needed = [
            needed::<Services>(),
            needed::<Slices>(),
            needed::<Nodes>(),
            needed::<Pools>(),
            needed::<Pods>(),
        ];
        assert_eq!(BTreeSet::from(needed), BTreeSet::from(RIGHTS));
    }
}
