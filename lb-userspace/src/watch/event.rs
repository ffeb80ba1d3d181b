//! The one language all sources speak: per kind, a list that begins, fills and is done, then
//! single changes.
//!
//! It has the shape of kube-runtime's watcher events, so that a Kubernetes watch and a
//! directory of manifests cannot be told apart by the model. Events carry no policy.

use std::collections::BTreeSet;

use crate::desired::{Ignored, ObjectName};
use crate::watch::object::{Node, Pod, Pool, Service, Slice};

/// What happened to the list of one kind.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Change<T> {
    /// A new list begins; what is known stays in force until it is done.
    Init,
    /// The object exists and looks like this; part of the new list after `Init`.
    Apply(T),
    /// The object exists and cannot be read: what was known of it stays.
    Keep(ObjectName),
    /// The object is gone.
    Delete(ObjectName),
    /// The list is complete: what it did not mention is gone.
    InitDone,
}

/// One thing a source has to say.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum WatchEvent {
    /// Of a Service.
    Service(Change<Service>),
    /// Of an EndpointSlice.
    Slice(Change<Slice>),
    /// Of a Node.
    Node(Change<Node>),
    /// Of an AddressPool.
    Pool(Change<Pool>),
    /// Of a pod of this node. Not every source has them; nothing waits for them.
    Pod(Change<Pod>),
    /// Everything the source itself cannot use at the moment, replacing what it said before.
    Problems(Vec<Ignored>),
    /// Everything the source may not do at the moment, replacing what it said before.
    Denied(BTreeSet<Right>),
}

/// Something that one may do, or not.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Right {
    /// As in a `ClusterRole`.
    pub verb: &'static str,
    /// With its group, as in `kubectl auth can-i`: `endpointslices.discovery.k8s.io`.
    pub resource: &'static str,
}
