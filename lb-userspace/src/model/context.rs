//! What the model must know that no object says: who we are and what the operator allows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::desired::{ObjectName, ServiceId};

/// `spec.loadBalancerClass` that Sluice serves unless told otherwise.
pub const DEFAULT_CLASS: &str = "sluice.dev/lb";

/// Settings of this agent, and facts that come from outside the objects.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Context {
    /// This node; empty when it has no name, then no endpoint is local.
    pub node_name: String,
    /// `spec.loadBalancerClass` that is ours.
    pub class: String,
    /// Services without a class are ours as well.
    pub default_class: bool,
    /// Networks in which a VIP is fine without an AddressPool.
    pub allow_addresses: Vec<IpNet>,
    /// Networks in which a VIP is never fine, and what they are ("the default gateway").
    pub refuse_addresses: BTreeMap<IpNet, String>,
    /// Hand out addresses. Off in Kubernetes: there only the status counts.
    pub allocate: bool,
    /// `node.kubernetes.io/exclude-from-external-load-balancers` does not count.
    pub ignore_exclude_label: bool,
    /// VIPs that still drain: only the Services that had one may have it.
    pub reserved: Reserved,
}

/// VIPs on which connections still drain.
pub type Reserved = BTreeMap<IpAddr, Reservation>;

/// Who may have a VIP that drains.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Reservation {
    /// The Services that had it.
    pub services: BTreeSet<ServiceId>,
    /// One of those whose connections drain, if its name is known.
    pub by: Option<ObjectName>,
}

impl Context {
    /// A node with all defaults.
    pub fn new(node_name: impl Into<String>) -> Self {
        Self {
            node_name: node_name.into(),
            class: DEFAULT_CLASS.to_owned(),
            default_class: false,
            allow_addresses: Vec::new(),
            refuse_addresses: BTreeMap::new(),
            allocate: true,
            ignore_exclude_label: false,
            reserved: Reserved::new(),
        }
    }
}
