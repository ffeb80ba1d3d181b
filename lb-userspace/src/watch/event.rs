//! The one language all sources speak: per kind, a list that begins, fills and is done, then
//! single changes.
//!
//! It has the shape of kube-runtime's watcher events, so that a Kubernetes watch and a
//! directory of manifests cannot be told apart by the model. Events carry no policy.

use crate::desired::{Ignored, ObjectName};
use crate::watch::object::{Node, Pool, Service, Slice};

/// What happened to the list of one kind.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Change<T> {
    /// A new list begins; what is known stays in force until it is done.
    Init,
    /// The object exists and looks like this; part of the new list after `Init`.
    Apply(T),
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
    /// Everything the source itself cannot use at the moment, replacing what it said before.
    Problems(Vec<Ignored>),
}
